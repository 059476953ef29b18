"""Calls of functions that stand apart: their bodies exist once, before the kernel's own code, and
each call of a lane has an activation on that lane's stack.

     0  the caller's activation
     8  the number of the call, among all of that function
    16  parameters, results, local variables; then the registers that its own calls must not lose

A call lays the arguments there and branches to the body, and the body's end branches by the number
of the call; it is plain PTX from there on. What may come back to a function saves its registers.
Bodies stand callees first, so that lanes that are deeper run first, and the others meet them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...ptx import parameter_block, tree
from ...ptx.isa import OperandSpec
from .basic_blocks import cut
from .bound_operands import Addr, Arg, Op, Reg, Vec
from .program_analysis import liveness
from .vector_operands import whole_type

if TYPE_CHECKING:
    from .flatten import Flattener, Scope

HEAD = 16
RETURN = "end of the call"
NEW, NEW_NUMBER = (tree.Address(tree.Reg("new"), at) for at in (0, 8))


@dataclass(frozen=True)
class Formal:
    """A parameter or result: its place in an activation, its bytes and their alignment."""

    place: Addr
    size: int
    align: int

    def of(self, activation: Reg) -> Formal:
        """The same of another activation than the one that runs."""
        return replace(self, place=replace(self.place, base=activation))

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Where each piece begins, of 8 bytes at most, and its bytes."""
        at, step = 0, min(self.align, 8)
        while at < self.size:
            while step > self.size - at:
                step //= 2
            yield at, step
            at += step


@dataclass
class Body:
    """A function in the flat code, or the kernel: operations ``first`` to ``last``, of an
    activation of ``frame`` bytes in which saved registers end at ``saves``.

    For each call's number: the operation that begins the activation (``sites``) and the label that
    is the way back.
    """

    name: str
    label: str = ""
    pos: int = -1
    first: int = 0
    last: int = 0
    registers: range = range(0)
    params: list[Formal] = field(default_factory=list)
    results: list[Formal] = field(default_factory=list)
    frame: int = HEAD
    align: int = HEAD
    saves: int = 0
    sites: dict[int, int] = field(default_factory=dict)
    ways_back: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Call:
    """A call of a body: its number among those, and the registers that it saves, with places."""

    callee: Body
    number: int
    saved: list[tuple[Reg, int]]


class Apart:
    """The bodies that stand apart in the code that a ``Flattener`` makes."""

    def __init__(self, flat: Flattener) -> None:
        self.flat = flat
        self.frame, self.new = flat.one("own activation", "b64"), flat.one("new activation", "b64")
        self.word, self.number = flat.one("a word", "b64"), flat.one("call's number", "b32")
        self.bodies = {f.name: Body(f.name, f"{f.name}#apart", f.pos) for f in flat.graph.order()}
        self.kernel = Body("", "kernel#apart")

    def walk(self) -> None:
        """All bodies, with a way past them; the kernel's own is to follow."""
        self.emit(-1, "mov.b64", tree.Reg("frame"), tree.Imm(0))
        self.emit(-1, "bra", tree.Symbol("kernel"), kernel=self.kernel.label)
        for f in self.flat.graph.order():
            self.body(f, self.bodies[f.name])
        self.begin(self.kernel)

    def all(self) -> tuple[Body, ...]:
        """In the order of the code."""
        return (*self.bodies.values(), self.kernel)

    def begin(self, body: Body) -> None:
        body.first = len(self.flat.ops)
        self.label(body.label)

    def emit(self, pos: int, opcode: str, *operands: tree.Operand, **names: Arg) -> None:
        scope = self.flat.scope(None)
        scope.names |= {"frame": self.frame, "new": self.new, **names}
        self.flat.instruction(tree.Instruction(opcode, operands, None, pos), scope)

    # --- first all is flattened as it stands ---

    def body(self, function: tree.Function, body: Body) -> None:
        flat, low = self.flat, len(self.flat.registers)
        flat.base, flat.local_align = self.frame, HEAD
        flat.local_bytes = flat.local_end = HEAD
        self.begin(body)
        inner = flat.scope(flat.root)
        inner.names[RETURN] = inner.label(RETURN)
        body.params = [self.formal(v, inner, into=True) for v in function.params]
        body.results = [self.formal(v, inner, into=False) for v in function.results]
        flat.walk(function.body or (), flat.scope(inner))
        self.label(inner.names[RETURN])
        for v, formal in zip(function.results, body.results, strict=True):
            if v.space == "reg":
                self.copy(body.pos, inner.names[v.name], formal, into=True)
        back = tree.Instruction("ret", pos=body.pos)
        flat.append(back, flat.form(back), (), (), inner)
        body.last, body.registers = len(flat.ops), range(low, len(flat.registers))
        body.frame, body.align = flat.local_bytes, flat.local_align
        flat.base, flat.loc = None, None
        flat.local_bytes = flat.local_end = 0

    def formal(self, v: tree.Variable, inner: Scope, into: bool) -> Formal:
        """A parameter's or result's place; one that is a register has both."""
        places = self.flat.scope(None)
        self.flat.variable(places, replace(v, space="param"))
        formal = Formal(places.names[v.name], *parameter_block.size_and_align(v))
        inner.names[v.name] = formal.place
        if v.space == "reg":
            inner.names[v.name] = self.flat.register(v.name, v)
            if into:
                self.copy(v.pos, inner.names[v.name], formal, into=False)
        return formal

    def place(self, call: tree.Instruction, function: tree.Function, scope: Scope) -> None:
        """A call as one operation, until ``lower``."""
        sides = []
        for formals, index, dest in ((function.results, 0, True), (function.params, 2, False)):
            given = call.operands[index]
            assert isinstance(given, tree.Vector)
            specs = [OperandSpec(v.name, "reg", whole_type(v), dest=dest) for v in formals]
            pairs = zip(specs, given.items, strict=True)
            sides.append(tuple((s, self.flat.passed(s, o, scope, call.pos)) for s, o in pairs))
        callee = (OperandSpec("callee", "symbol"), function.name)
        plain = replace(call, guard=None)
        self.flat.append(plain, self.flat.form(call), sides[0], (callee, *sides[1]), scope)

    # --- then calls and ways back become what they do ---

    def lower(self) -> None:
        """Write the flat code anew."""
        flat, calls = self.flat, self.calls()
        ops, labels, locs = flat.ops, flat.labels, flat.locs
        flat.ops, flat.labels, flat.locs = [], {}, {}
        firsts = {body.first: body for body in self.all()}
        ends = {body.last - 1: body for body in self.bodies.values()}
        for index, op in enumerate(ops):
            flat.loc = locs.get(index)
            self.label(*labels.get(index, ()))
            if index in firsts:
                firsts[index].first = len(flat.ops)
            if index in ends:
                self.way_back(ends[index])
                ends[index].last = len(flat.ops)
            elif index in calls:
                self.call(op, calls[index])
            else:
                if flat.loc:
                    flat.locs[len(flat.ops)] = flat.loc
                flat.ops.append(replace(op, pc=len(flat.ops)))
        self.label(*labels.get(len(ops), ()))

    def label(self, *names: str) -> None:
        """Labels of what follows."""
        if names:
            self.flat.labels.setdefault(len(self.flat.ops), []).extend(names)

    def calls(self) -> dict[int, Call]:
        """All calls, by their operations' numbers; activations grow by what they save."""
        found = {}
        blocks, targets = cut(self.flat.ops, self.flat.labels, divergent=False)
        for block, live in zip(blocks, liveness(blocks, targets), strict=True):
            for op in reversed(block.ops):
                name = op.sources[0][1] if "call" in op.form.effects else None
                if callee := self.bodies.get(str(name)):
                    found[op.pc] = Call(callee, len(callee.ways_back), self.saved(op, callee, live))
                    callee.ways_back.append(f"{callee.label}{len(callee.ways_back)}")
                live = live_before(op, live)
        for body in self.bodies.values():
            body.frame = -(-max(body.frame, body.saves) // body.align) * body.align
        return found

    def saved(self, op: Op, callee: Body, live: int) -> list[tuple[Reg, int]]:
        """The registers of the caller's activation that are read after a call that may come back to
        its function, each with its place, the widest first.
        """
        caller = next((b for b in self.bodies.values() if b.first <= op.pc < b.last), None)
        if caller is None or not self.flat.graph.cycle(caller.name, callee.name):
            return []
        own = set(op.writes())
        wanted = [r for r in caller.registers if live >> r & 1 and r not in own]
        found, end = [], -(-caller.frame // HEAD) * HEAD
        for r in sorted(wanted, key=self.bytes, reverse=True):
            found.append((Reg(r), end))
            end += self.bytes(r)
        caller.saves = max(caller.saves, end)
        return found

    def bytes(self, register: int) -> int:
        """What a register takes when it is saved; a predicate is a word."""
        width = self.flat.registers[register].width
        return width // 8 if width > 1 else 4

    def call(self, op: Op, call: Call) -> None:
        pos, callee = op.pos, call.callee
        for register, at in call.saved:
            self.save(pos, register, at)
        size, align = tree.Imm(callee.frame), tree.Imm(callee.align)
        callee.sites[call.number] = len(self.flat.ops)
        self.emit(pos, "alloca.u64", tree.Reg("new"), size, align)
        self.emit(pos, "st.local.b64", NEW, tree.Reg("frame"))
        self.emit(pos, "st.local.b32", NEW_NUMBER, tree.Imm(call.number))
        for (_, given), formal in zip(op.sources[1:], callee.params, strict=True):
            self.copy(pos, given, formal.of(self.new), into=True)
        self.emit(pos, "mov.b64", tree.Reg("frame"), tree.Reg("new"))
        self.emit(pos, "bra", tree.Symbol("callee"), callee=callee.label)
        self.label(callee.ways_back[call.number])
        for register, at in call.saved:
            self.restore(pos, register, at)
        for (_, given), formal in zip(op.dests, callee.results, strict=True):
            self.copy(pos, given, formal.of(self.new), into=False)

    def way_back(self, body: Body) -> None:
        """The activation that ends stays in ``new``, and what it holds in its place, until the
        caller has its results.
        """
        self.emit(body.pos, "mov.b64", tree.Reg("new"), tree.Reg("frame"))
        self.emit(body.pos, "ld.local.b32", tree.Reg("number"), NEW_NUMBER, number=self.number)
        self.emit(body.pos, "ld.local.b64", tree.Reg("frame"), NEW)
        self.emit(body.pos, "stackrestore.u64", tree.Reg("new"))
        ways = tuple(body.ways_back)
        operands = tree.Reg("number"), tree.Symbol("ways")
        self.emit(body.pos, "brx.idx", *operands, number=self.number, ways=ways)

    def save(self, pos: int, register: Reg, at: int) -> None:
        place, width = tree.Address(tree.Reg("frame"), at), self.width(register)
        names = {"x": register, "word": self.word}
        if width > 1:
            self.emit(pos, f"st.local.b{width}", place, tree.Reg("x"), **names)
            return
        word = tree.Reg("word")
        self.emit(pos, "selp.b64", word, tree.Imm(1), tree.Imm(0), tree.Reg("x"), **names)
        self.emit(pos, "st.local.b32", place, word, **names)

    def restore(self, pos: int, register: Reg, at: int) -> None:
        place, width = tree.Address(tree.Reg("frame"), at), self.width(register)
        names = {"x": register, "word": self.word}
        if width > 1:
            self.emit(pos, f"ld.local.b{width}", tree.Reg("x"), place, **names)
            return
        self.emit(pos, "ld.local.b32", tree.Reg("word"), place, **names)
        self.emit(pos, "setp.ne.b64", tree.Reg("x"), tree.Reg("word"), tree.Imm(0), **names)

    def width(self, register: Reg) -> int:
        return self.flat.registers[register.index].width

    def copy(self, pos: int, x: Arg, formal: Formal, into: bool) -> None:
        """A register, constant or variable into a parameter or result, or out of one."""
        if isinstance(x, Addr):
            self.copy_variable(pos, x, formal, into)
        elif x is not None:
            place, value = tree.Address(tree.Symbol("formal")), tree.Reg("x")
            type_ = f"b{8 * formal.size}"
            if isinstance(x, Vec):
                type_ = f"v{len(x.items)}.b{8 * formal.size // len(x.items)}"
            opcode = f"{'st' if into else 'ld'}.local.{type_}"
            operands = (place, value) if into else (value, place)
            self.emit(pos, opcode, *operands, formal=formal.place, x=x)

    def copy_variable(self, pos: int, x: Addr, formal: Formal, into: bool) -> None:
        source, target = (x, formal.place) if into else (formal.place, x)
        names = {"source": source, "target": target, "word": self.word}
        for at, size in formal.pieces():
            type_, word = f"b{8 * size}", tree.Reg("word")
            self.emit(pos, f"ld.{type_}", word, tree.Address(tree.Symbol("source"), at), **names)
            self.emit(pos, f"st.{type_}", tree.Address(tree.Symbol("target"), at), word, **names)


def live_before(op: Op, live: int) -> int:
    """The registers that are read from an operation on, of those that are read after it."""
    for index in op.writes():
        live &= ~(1 << index)
    for index in op.reads():
        live |= 1 << index
    return live
