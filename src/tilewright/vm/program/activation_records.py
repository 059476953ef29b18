"""Calls that are not inlined: each lane has activation records on its own stack.

     0  address of the caller's activation record
     8  call number, which selects the return label
    16  parameters, results, local variables, then registers saved across calls

A call stores the arguments to a new record and branches to the function, whose end branches by the
call number (``brx.idx``); both are plain PTX operations. A function that may be re-entered saves
its registers. Callees precede their callers in the code, so that the deeper lanes run first and the
others reconverge with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...ptx import parameter_block, tree
from ...ptx.isa import OperandSpec
from .basic_blocks import divide_into_blocks
from .bound_operands import AddressOperand, BoundOperand, Op, RegOperand, VectorOperand
from .call_graph import results_and_arguments
from .flat_code import FlatCode, NameScope
from .program_analysis import liveness
from .vector_operands import packed_type

FRAME_HEADER = 16
END_LABEL = "end of the call"
NEW_FRAME, NEW_CALL_NUMBER = (tree.MemoryOperand(tree.Register("new"), n) for n in (0, 8))


@dataclass(frozen=True)
class ParameterSlot:
    """A parameter or result: its address in the activation record, size and alignment in bytes."""

    address: AddressOperand
    size: int
    align: int

    def in_frame(self, activation: RegOperand) -> ParameterSlot:
        """The same slot of the activation record whose address is in ``activation``."""
        return replace(self, address=replace(self.address, base=activation))

    def chunks(self) -> Iterator[tuple[int, int]]:
        """The offset and size of each chunk of at most 8 bytes."""
        offset, size = 0, min(self.align, 8)
        while offset < self.size:
            while size > self.size - offset:
                size //= 2
            yield offset, size
            offset += size


@dataclass
class OutOfLineFunction:
    """A function that is not inlined, or the kernel: operations ``first`` to ``last`` (exclusive).

    Its activation record has ``frame`` bytes; saved registers end at offset ``saved_end``.
    ``call_sites`` has, by call number, the operation that allocates the record, and
    ``return_labels`` the label that follows the call.
    """

    name: str
    label: str = ""
    pos: int = -1
    first: int = 0
    last: int = 0
    registers: range = range(0)
    params: list[ParameterSlot] = field(default_factory=list)
    results: list[ParameterSlot] = field(default_factory=list)
    frame: int = FRAME_HEADER
    align: int = FRAME_HEADER
    saved_end: int = 0
    call_sites: dict[int, int] = field(default_factory=dict)
    return_labels: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CallSite:
    """A call of an out-of-line function: its call number, and the registers that it saves, each
    with its offset in the caller's activation record.
    """

    callee: OutOfLineFunction
    number: int
    saved: list[tuple[RegOperand, int]]


class OutOfLineCalls:
    """Emits the functions of a kernel that are not inlined, and their calls."""

    def __init__(self, flat: FlatCode) -> None:
        self.flat = flat
        self.frame_register, self.callee_frame = (
            flat.new_register("activation record", "b64"),
            flat.new_register("callee's activation record", "b64"),
        )
        self.scratch, self.call_number = (
            flat.new_register("scratch", "b64"),
            flat.new_register("call number", "b32"),
        )
        self.by_name = {
            f.name: OutOfLineFunction(f.name, f"{f.name}#function", f.pos)
            for f in flat.graph.out_of_line_postorder()
        }
        self.kernel = OutOfLineFunction("", "#kernel")

    def emit_functions(self) -> None:
        """Emit all functions, after a branch to the kernel, whose code is to follow."""
        self.emit(-1, "mov.b64", tree.Register("frame"), tree.Imm(0))
        self.emit(-1, "bra", tree.Symbol("kernel"), kernel=self.kernel.label)
        for f in self.flat.graph.out_of_line_postorder():
            self.emit_function(f, self.by_name[f.name])
        self.begin_function(self.kernel)

    def functions(self) -> tuple[OutOfLineFunction, ...]:
        """The functions in code order; the kernel is the last one."""
        return (*self.by_name.values(), self.kernel)

    def begin_function(self, body: OutOfLineFunction) -> None:
        body.first = len(self.flat.ops)
        self.label(body.label)

    def emit(self, pos: int, opcode: str, *operands: tree.Operand, **names: BoundOperand) -> None:
        scope = self.flat.scope(None)
        scope.names |= {"frame": self.frame_register, "new": self.callee_frame, **names}
        self.flat.instruction(tree.Instruction(opcode, operands, None, pos), scope)

    # --- first pass: functions are flattened, a call is one operation ---

    def emit_function(self, function: tree.Function, body: OutOfLineFunction) -> None:
        flat, low = self.flat, len(self.flat.registers)
        flat.base, flat.local_align = self.frame_register, FRAME_HEADER
        flat.local_bytes = flat.local_end = FRAME_HEADER
        self.begin_function(body)
        inner = flat.scope(flat.root)
        inner.names[END_LABEL] = end = inner.label(END_LABEL)
        body.params = [self.parameter_slot(v, inner, into=True) for v in function.params]
        body.results = [self.parameter_slot(v, inner, into=False) for v in function.results]
        flat.walk(function.body or (), flat.scope(inner))
        self.label(end)
        for v, formal in zip(function.results, body.results, strict=True):
            if v.space == "reg":
                self.copy(body.pos, inner.names[v.name], formal, into=True)
        ret = tree.Instruction("ret", pos=body.pos)
        flat.append(ret, flat.form(ret), (), (), inner)
        body.last, body.registers = len(flat.ops), range(low, len(flat.registers))
        body.frame, body.align = flat.local_bytes, flat.local_align
        flat.base, flat.loc = None, None
        flat.local_bytes = flat.local_end = 0

    def parameter_slot(self, v: tree.Variable, inner: NameScope, into: bool) -> ParameterSlot:
        """Allocate a parameter or result in the activation record, and declare its name. One in
        ``.reg`` space also gets a register, loaded here if it is a parameter (``into``).
        """
        slots = self.flat.scope(None)
        self.flat.variable(slots, replace(v, space="param"))
        address = slots.names[v.name]
        assert isinstance(address, AddressOperand)
        formal = ParameterSlot(address, *parameter_block.size_and_align(v))
        inner.names[v.name] = formal.address
        if v.space == "reg":
            inner.names[v.name] = self.flat.register(v.name, v)
            if into:
                self.copy(v.pos, inner.names[v.name], formal, into=False)
        return formal

    def emit_call(self, call: tree.Instruction, function: tree.Function, scope: NameScope) -> None:
        """Append a call as one operation, which ``lower`` replaces."""
        results, arguments = results_and_arguments(call)
        sides = []
        for formals, operands, dest in ((function.results, results, True),
                                        (function.params, arguments, False)):  # fmt: skip
            specs = [OperandSpec(v.name, "reg", packed_type(v), dest=dest) for v in formals]
            pairs = zip(specs, operands.items, strict=True)
            sides.append(
                tuple((s, self.flat.call_operand(s, o, scope, call.pos)) for s, o in pairs)
            )
        callee = (OperandSpec("callee", "symbol"), function.name)
        unguarded = replace(call, guard=None)
        self.flat.append(unguarded, self.flat.form(call), sides[0], (callee, *sides[1]), scope)

    # --- second pass: calls and returns are lowered ---

    def lower(self) -> None:
        """Rewrite the flat code: replace each call and return by the operations that do it."""
        flat, calls = self.flat, self.find_call_sites()
        ops, labels, locs = flat.ops, flat.labels, flat.locs
        flat.ops, flat.labels, flat.locs = [], {}, {}
        firsts = {body.first: body for body in self.functions()}
        ends = {body.last - 1: body for body in self.by_name.values()}
        for index, op in enumerate(ops):
            flat.loc = locs.get(index)
            self.label(*labels.get(index, ()))
            if index in firsts:
                firsts[index].first = len(flat.ops)
            if index in ends:
                self.lower_return(ends[index])
                ends[index].last = len(flat.ops)
            elif index in calls:
                self.lower_call(op, calls[index])
            else:
                if flat.loc:
                    flat.locs[len(flat.ops)] = flat.loc
                flat.ops.append(replace(op, pc=len(flat.ops)))
        self.label(*labels.get(len(ops), ()))

    def label(self, *names: str) -> None:
        """Put labels before the next operation."""
        if names:
            self.flat.labels.setdefault(len(self.flat.ops), []).extend(names)

    def find_call_sites(self) -> dict[int, CallSite]:
        """The calls by operation index. Enlarges the activation records by the saved registers."""
        calls = {}
        blocks, targets = divide_into_blocks(self.flat.ops, self.flat.labels, divergent=False)
        for block, live in zip(blocks, liveness(blocks, targets), strict=True):
            for op in reversed(block.ops):
                name = op.sources[0][1] if "call" in op.form.effects else None
                if callee := self.by_name.get(str(name)):
                    calls[op.pc] = CallSite(
                        callee, len(callee.return_labels), self.registers_to_save(op, callee, live)
                    )
                    callee.return_labels.append(f"{callee.label}{len(callee.return_labels)}")
                live = live_before(op, live)
        for body in self.by_name.values():
            body.frame = -(-max(body.frame, body.saved_end) // body.align) * body.align
        return calls

    def registers_to_save(
        self, op: Op, callee: OutOfLineFunction, live: int
    ) -> list[tuple[RegOperand, int]]:
        """The caller's registers that are live after a call that may re-enter the caller, each with
        its offset in the activation record, the widest first.
        """
        caller = next((b for b in self.by_name.values() if b.first <= op.pc < b.last), None)
        if caller is None or not self.flat.graph.in_same_cycle(caller.name, callee.name):
            return []
        results = set(op.writes())
        saved = [r for r in caller.registers if live >> r & 1 and r not in results]
        slots, end = [], -(-caller.frame // FRAME_HEADER) * FRAME_HEADER
        for r in sorted(saved, key=self.save_size, reverse=True):
            slots.append((RegOperand(r), end))
            end += self.save_size(r)
        caller.saved_end = max(caller.saved_end, end)
        return slots

    def save_size(self, register: int) -> int:
        """Bytes of a saved register; a predicate takes a word."""
        width = self.flat.registers[register].width
        return width // 8 if width > 1 else 4

    def lower_call(self, op: Op, call: CallSite) -> None:
        pos, callee = op.pos, call.callee
        for register, offset in call.saved:
            self.save(pos, register, offset)
        size, align = tree.Imm(callee.frame), tree.Imm(callee.align)
        callee.call_sites[call.number] = len(self.flat.ops)
        self.emit(pos, "alloca.u64", tree.Register("new"), size, align)
        self.emit(pos, "st.local.b64", NEW_FRAME, tree.Register("frame"))
        self.emit(pos, "st.local.b32", NEW_CALL_NUMBER, tree.Imm(call.number))
        for (_, argument), formal in zip(op.sources[1:], callee.params, strict=True):
            self.copy(pos, argument, formal.in_frame(self.callee_frame), into=True)
        self.emit(pos, "mov.b64", tree.Register("frame"), tree.Register("new"))
        self.emit(pos, "bra", tree.Symbol("callee"), callee=callee.label)
        self.label(callee.return_labels[call.number])
        for register, offset in call.saved:
            self.restore(pos, register, offset)
        for (_, result), formal in zip(op.dests, callee.results, strict=True):
            self.copy(pos, result, formal.in_frame(self.callee_frame), into=False)

    def lower_return(self, body: OutOfLineFunction) -> None:
        """``new`` keeps the address of the activation record that ends, and the record its
        contents, until the caller has read the results.
        """
        self.emit(body.pos, "mov.b64", tree.Register("new"), tree.Register("frame"))
        self.emit(
            body.pos,
            "ld.local.b32",
            tree.Register("number"),
            NEW_CALL_NUMBER,
            number=self.call_number,
        )
        self.emit(body.pos, "ld.local.b64", tree.Register("frame"), NEW_FRAME)
        self.emit(body.pos, "stackrestore.u64", tree.Register("new"))
        labels = tuple(body.return_labels)
        operands = tree.Register("number"), tree.Symbol("labels")
        self.emit(body.pos, "brx.idx", *operands, number=self.call_number, labels=labels)

    def save(self, pos: int, register: RegOperand, offset: int) -> None:
        slot, width = tree.MemoryOperand(tree.Register("frame"), offset), self.width(register)
        names = {"x": register, "word": self.scratch}
        if width > 1:
            self.emit(pos, f"st.local.b{width}", slot, tree.Register("x"), **names)
            return
        word = tree.Register("word")
        self.emit(pos, "selp.b64", word, tree.Imm(1), tree.Imm(0), tree.Register("x"), **names)
        self.emit(pos, "st.local.b32", slot, word, **names)

    def restore(self, pos: int, register: RegOperand, offset: int) -> None:
        slot, width = tree.MemoryOperand(tree.Register("frame"), offset), self.width(register)
        names = {"x": register, "word": self.scratch}
        if width > 1:
            self.emit(pos, f"ld.local.b{width}", tree.Register("x"), slot, **names)
            return
        self.emit(pos, "ld.local.b32", tree.Register("word"), slot, **names)
        self.emit(
            pos,
            "setp.ne.b64",
            tree.Register("x"),
            tree.Register("word"),
            tree.Imm(0),
            **names,
        )

    def width(self, register: RegOperand) -> int:
        return self.flat.registers[register.index].width

    def copy(self, pos: int, x: BoundOperand, formal: ParameterSlot, into: bool) -> None:
        """Copy a register, constant or variable into a parameter or result, or out of one."""
        if isinstance(x, AddressOperand):
            self.copy_variable(pos, x, formal, into)
        elif x is not None:
            slot, value = tree.MemoryOperand(tree.Symbol("formal")), tree.Register("x")
            type_ = f"b{8 * formal.size}"
            if isinstance(x, VectorOperand):
                type_ = f"v{len(x.items)}.b{8 * formal.size // len(x.items)}"
            opcode = f"{'st' if into else 'ld'}.local.{type_}"
            operands = (slot, value) if into else (value, slot)
            self.emit(pos, opcode, *operands, formal=formal.address, x=x)

    def copy_variable(self, pos: int, x: AddressOperand, formal: ParameterSlot, into: bool) -> None:
        source, target = (x, formal.address) if into else (formal.address, x)
        names: dict[str, BoundOperand] = {"source": source, "target": target, "word": self.scratch}
        for offset, size in formal.chunks():
            type_, word = f"b{8 * size}", tree.Register("word")
            read = tree.MemoryOperand(tree.Symbol("source"), offset)
            written = tree.MemoryOperand(tree.Symbol("target"), offset)
            self.emit(pos, f"ld.{type_}", word, read, **names)
            self.emit(pos, f"st.{type_}", written, word, **names)


def live_before(op: Op, live: int) -> int:
    """The registers that are live before an operation, from those that are live after it."""
    for index in op.writes():
        live &= ~(1 << index)
    for index in op.reads():
        live |= 1 << index
    return live
