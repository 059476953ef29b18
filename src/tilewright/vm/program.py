"""A kernel made ready to run: names resolved, code cut into blocks, registers given places in the frame.

A PTX function is flattened (nested scopes renamed), every operand becomes one of five small values, and the code is
cut wherever control can leave, arrive or wait. A register that lives inside one block only needs no place in
the frame; only the stepping evaluator gives it one.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..dtypes import dtype
from ..errors import Place, PtxCheckError
from ..ptx import abi, tree
from ..ptx.isa import Form, OperandSpec, form
from .state import Warp

MAX_BLOCK = 256  # operations; a longer stretch of straight code is cut
SPECIAL = re.compile(r"%(?:n?tid|n?ctaid|cluster_n?ctaid|n?clusterid|cluster_n?ctarank)\.[xyz]$|%[a-z_]+\d*$")
VARIANT = frozenset("atom shfl ldmatrix mma movmatrix match elect".split())
UNIFORM_SPECIALS = ("%ctaid", "%nctaid", "%ntid", "%nwarpid", "%nsmid", "%gridid", "%warpid")


@dataclass(frozen=True, slots=True)
class R:
    """A register by number."""

    index: int


@dataclass(frozen=True, slots=True)
class K:
    """A constant: the bits of an immediate, or a variable's address."""

    bits: int


@dataclass(frozen=True, slots=True)
class S:
    """A special register."""

    name: str


@dataclass(frozen=True, slots=True)
class A:
    """An address: a register (or none) plus a constant, in a state space of ``state.SPACES``."""

    base: R | None
    offset: int
    space: str


@dataclass(frozen=True, slots=True)
class V:
    """A vector of operands."""

    items: tuple[Arg, ...]


@dataclass(frozen=True, slots=True)
class N:
    """A predicate register, negated."""

    reg: R


Arg = R | K | S | A | V | N | str | None


@dataclass(frozen=True, slots=True)
class Register:
    name: str
    type: str
    width: int


@dataclass(frozen=True, slots=True)
class Op:
    """One instruction, resolved. ``dests`` and ``sources`` pair each operand with its specification."""

    pc: int
    form: Form
    dests: tuple[tuple[OperandSpec, Arg], ...]
    sources: tuple[tuple[OperandSpec, Arg], ...]
    guard: R | None
    negated: bool
    pos: int
    resumed: bool = False  # the second half of bar.red: its result, once the barrier has opened

    def reads(self) -> Iterator[int]:
        if self.guard:
            yield self.guard.index
            for _, arg in self.dests:  # a guarded write keeps the old value of the other lanes
                yield from _registers(arg)
        for _, arg in self.sources:
            yield from _registers(arg)

    def writes(self) -> Iterator[int]:
        for _, arg in self.dests:
            yield from _registers(arg)


def _registers(arg: Arg) -> Iterator[int]:
    if isinstance(arg, R):
        yield arg.index
    elif isinstance(arg, N):
        yield arg.reg.index
    elif isinstance(arg, A) and arg.base:
        yield arg.base.index
    elif isinstance(arg, V):
        for item in arg.items:
            yield from _registers(item)


@dataclass(slots=True)
class CodeBlock:
    """Straight code. Control leaves by the last operation or falls through to the next block."""

    index: int
    ops: list[Op] = field(default_factory=list)
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Program:
    """A kernel ready to run, for one module and one table of global addresses."""

    name: str
    function: tree.Function
    module: tree.Module
    registers: list[Register]
    ops: list[Op]
    blocks: list[CodeBlock]
    targets: dict[str, int]
    shared_bytes: int
    local_bytes: int
    param_bytes: int
    divergent: bool
    communicates: bool
    kept: set[int]
    slots: list[int]
    frame_bytes: int
    full_frame_bytes: int
    locs: dict[int, tree.Loc]
    addresses: dict[str, int]

    @property
    def pending_offset(self) -> int:
        return Warp.size

    def place(self, pc: int) -> Place | None:
        """Where operation ``pc`` stands in the PTX text, or in the Python (CUDA) source by its ``.loc``."""
        op = self.ops[pc]
        if op.pos >= 0 and self.module.source:
            return Place.at(self.module.source, op.pos, self.module.path)
        loc = self.locs.get(pc)
        return Place(self.module.files.get(loc.file, "?"), loc.line, loc.column) if loc else None

    def instruction_text(self, pc: int) -> str:
        return self.ops[pc].form.opcode


class _Scope:
    """Names of one ``{ }``, looked up outward."""

    def __init__(self, outer: _Scope | None) -> None:
        self.outer = outer
        self.names: dict[str, object] = {}
        self.families: dict[str, tuple[str, int]] = {}

    def find(self, name: str) -> object | None:
        scope: _Scope | None = self
        while scope:
            if name in scope.names:
                return scope.names[name]
            family = re.match(r"(.*?)(\d+)$", name)
            if family and family[1] in scope.families:
                return scope
            scope = scope.outer
        return None


class _Flattener:
    """Walks a function's body once and yields resolved operations and labels."""

    def __init__(self, module: tree.Module, function: tree.Function, addresses: dict[str, int]) -> None:
        self.module, self.function = module, function
        self.registers: list[Register] = []
        self.ops: list[Op] = []
        self.labels: dict[int, list[str]] = {}
        self.locs: dict[int, tree.Loc] = {}
        self.shared = self.local = 0
        self.extern_shared: list[str] = []
        self.loc: tree.Loc | None = None
        self.label_names: dict[tuple[int, str], str] = {}
        root = _Scope(None)
        for name, address in addresses.items():
            root.names[name] = A(None, address, "global")
        for item in module.items:
            if isinstance(item, tree.Variable) and item.space == "shared":
                self.variable(root, item)
        for parameter in abi.layout(function).parameters:
            root.names[parameter.name] = A(None, parameter.offset, "param")
        self.walk(function.body or (), _Scope(root))
        self.place_dynamic(root)

    # --- declarations ---

    def variable(self, scope: _Scope, v: tree.Variable) -> None:
        if v.space == "shared" and v.dims == (0,):
            self.extern_shared.append(v.name)
            scope.names[v.name] = ("dynamic", v)
            return
        size, align = abi.extent(v)
        start = -(-getattr(self, v.space) // align) * align
        setattr(self, v.space, start + size)
        scope.names[v.name] = A(None, start, v.space)

    def place_dynamic(self, root: _Scope) -> None:
        """Dynamic shared memory follows the static; its operands were left open until now."""
        self.dynamic_start = -(-self.shared // 1024) * 1024 if self.extern_shared else self.shared

        def fix(arg: Arg) -> Arg:
            if isinstance(arg, A) and arg.space == "dynamic":
                return A(arg.base, arg.offset + self.dynamic_start, "shared")
            if isinstance(arg, K) and arg.bits >= DYNAMIC:
                return K(arg.bits - DYNAMIC + self.dynamic_start)
            return V(tuple(fix(i) for i in arg.items)) if isinstance(arg, V) else arg

        for index, op in enumerate(self.ops):
            sources = tuple((spec, fix(arg)) for spec, arg in op.sources)
            if sources != op.sources:
                self.ops[index] = Op(op.pc, op.form, op.dests, sources, op.guard, op.negated, op.pos)

    # --- statements ---

    def walk(self, body: tuple[tree.Statement, ...], scope: _Scope) -> None:
        local_labels = {s.name for s in body if isinstance(s, tree.Label)}
        for name in local_labels:
            scope.names[name] = ("label", f"{name}@{id(scope)}")
        for s in body:
            if isinstance(s, tree.Instruction):
                self.instruction(s, scope)
            elif isinstance(s, tree.Label):
                self.labels.setdefault(len(self.ops), []).append(f"{s.name}@{id(scope)}")
            elif isinstance(s, tree.RegDecl):
                self.declare(s, scope)
            elif isinstance(s, tree.Block):
                self.walk(s.body, _Scope(scope))
            elif isinstance(s, tree.Variable):
                self.variable(scope, s)
            elif isinstance(s, tree.Loc):
                self.loc = s
            elif isinstance(s, tree.Directive) and s.name == ".branchtargets":
                keys = tuple(self.lookup(name, scope, s.pos)[1] for name in s.arguments)  # type: ignore[index]
                scope.names[s.label] = ("targets", keys)

    def declare(self, d: tree.RegDecl, scope: _Scope) -> None:
        for name in d.names:
            if d.count is not None:
                scope.families[name] = (d.type, d.count)
            elif d.vector > 1:
                for c in "xyzw"[: d.vector]:
                    scope.names[f"{name}.{c}"] = self.register(f"{name}.{c}", d.type)
            else:
                scope.names[name] = self.register(name, d.type)

    def register(self, name: str, type_: str) -> R:
        self.registers.append(Register(name, type_, dtype(type_).bits))
        return R(len(self.registers) - 1)

    def instruction(self, s: tree.Instruction, scope: _Scope) -> None:
        f = form(s.opcode)
        if "call" in f.effects:
            raise self.error("the virtual machine does not run calls yet", s.pos)
        specs = f.signature(s.operands, lambda o: self.is_predicate(o, scope))
        if specs is None:
            raise self.error(f"{s.opcode} does not take {len(s.operands)} operands", s.pos)
        given = list(_spread(specs, s.operands))
        pairs = [(spec, self.argument(spec, operand, scope, s.pos)) for spec, operand in given]
        guard = self.lookup(s.guard.reg.name, scope, s.pos) if s.guard else None
        pc = len(self.ops)
        if self.loc:
            self.locs[pc] = self.loc
        dests = tuple(p for p in pairs if p[0].dest)
        sources = tuple(p for p in pairs if not p[0].dest)
        negated = bool(s.guard and s.guard.negated)
        assert guard is None or isinstance(guard, R)
        self.ops.append(Op(pc, f, dests, sources, guard, negated, s.pos))

    def is_predicate(self, operand: object, scope: _Scope) -> bool:
        if isinstance(operand, tree.Not):
            return True
        found = self.lookup(operand.name, scope, -1) if isinstance(operand, tree.Reg) else None
        return isinstance(found, R) and self.registers[found.index].width == 1

    def error(self, message: str, pos: int) -> PtxCheckError:
        place = Place.at(self.module.source, pos, self.module.path) if pos >= 0 and self.module.source else None
        return PtxCheckError(message, place=place)

    # --- operands ---

    def lookup(self, name: str, scope: _Scope, pos: int) -> object:
        found = scope.find(name)
        if isinstance(found, _Scope):
            prefix = re.match(r"(.*?)(\d+)$", name)
            assert prefix
            found.names[name] = self.register(name, found.families[prefix[1]][0])
            return found.names[name]
        if found is None:
            if SPECIAL.match(name):
                return S(name)
            raise self.error(f"{name} is not declared", pos)
        return found

    def argument(self, spec: OperandSpec, o: tree.Operand, scope: _Scope, pos: int) -> Arg:
        if isinstance(o, tree.Reg):
            found = self.lookup(o.name, scope, pos)
            return self.symbol(found, 0) if isinstance(found, A | tuple) else found  # type: ignore[return-value]
        if isinstance(o, tree.Imm):
            return K(_immediate(spec, float(o.value)) if _is_float(spec) else o.value)
        if isinstance(o, tree.FloatImm):
            return K(_immediate(spec, _float_value(o)) if o.width == 64 or not _is_float(spec) else o.bits)
        if isinstance(o, tree.Symbol):
            return self.symbol(self.lookup(o.name, scope, pos), o.offset)
        if isinstance(o, tree.Address):
            return self.address(spec, o, scope, pos)
        if isinstance(o, tree.Vector):
            return V(tuple(self.argument(spec, item, scope, pos) for item in o.items))
        if isinstance(o, tree.Not):
            found = self.lookup(o.operand.name, scope, pos)
            assert isinstance(found, R)
            return N(found)
        return None  # a sink

    def symbol(self, found: object, offset: int) -> Arg:
        """A name used as a value: a label's key, or a variable's address in its own space."""
        if isinstance(found, tuple):
            if found[0] == "dynamic":
                return K(DYNAMIC + offset)
            return found[1]
        if isinstance(found, A):
            return K(found.offset + offset)
        return found  # type: ignore[return-value]

    def address(self, spec: OperandSpec, o: tree.Address, scope: _Scope, pos: int) -> A:
        if isinstance(o.base, tree.Imm):
            return A(None, o.base.value + o.offset, spec.space)
        found = self.lookup(o.base.name, scope, pos)
        offset = o.offset + (o.base.offset if isinstance(o.base, tree.Symbol) else 0)
        if isinstance(found, A):
            return A(None, found.offset + offset, found.space)
        if isinstance(found, tuple):
            return A(None, offset, "dynamic")
        assert isinstance(found, R)
        return A(found, offset, spec.space)


DYNAMIC = 1 << 62


def _spread(
    specs: tuple[OperandSpec, ...], operands: tuple[tree.Operand, ...]
) -> Iterator[tuple[OperandSpec, tree.Operand]]:
    """Operands beside their specifications, ``p|q`` taken apart."""
    queue = list(specs)
    for operand in operands:
        spec = queue.pop(0)
        second = queue.pop(0) if queue and queue[0].second else None
        if isinstance(operand, tree.Pair):
            yield spec, operand.first
            if second:
                yield second, operand.second
        else:
            yield spec, operand


def _is_float(spec: OperandSpec) -> bool:
    return spec.type in ("f32", "f64", "f16", "bf16")


def _float_value(o: tree.FloatImm) -> float:
    code = "<d" if o.width == 64 else "<f"
    return float(struct.unpack(code, o.bits.to_bytes(o.width // 8, "little"))[0])


def _immediate(spec: OperandSpec, value: float) -> int:
    """The bits of a decimal literal in an operand's format."""
    if spec.type == "f32":
        return int.from_bytes(struct.pack("<f", value), "little")
    if spec.type == "f16":
        return int.from_bytes(struct.pack("<e", value), "little")
    if spec.type == "bf16":
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    return int.from_bytes(struct.pack("<d", value), "little")


# --- blocks -----------------------------------------------------------------------------------

LEAVES = frozenset({"branch", "exit", "barrier"})


def _cut(ops: list[Op], labels: dict[int, list[str]], divergent: bool) -> tuple[list[CodeBlock], dict[str, int]]:
    blocks: list[CodeBlock] = [CodeBlock(0)]
    targets: dict[str, int] = {}

    def fresh() -> None:
        if blocks[-1].ops:
            blocks.append(CodeBlock(len(blocks)))

    for index, op in enumerate(ops):
        if index in labels:
            fresh()
            for name in labels[index]:
                targets[name] = len(blocks) - 1
        if len(blocks[-1].ops) >= MAX_BLOCK or (divergent and "convergent" in op.form.effects):
            fresh()
        blocks[-1].ops.append(op)
        if op.form.effects & LEAVES:
            fresh()
        if op.dests and "barrier" in op.form.effects:
            blocks[-1].ops.append(replace(op, resumed=True))
            fresh()
    fresh()  # falling off the end is an exit: an empty last block says so
    for name in labels.get(len(ops), ()):
        targets[name] = len(blocks) - 1
    return blocks, targets


def is_exit_block(block: CodeBlock) -> bool:
    """Nothing but ``ret`` or ``exit``: a branch to it is a guarded exit."""
    return not block.ops or (block.ops[0].form.mnemonic in ("ret", "exit") and block.ops[0].guard is None)


def _divergent(ops: list[Op], blocks: list[CodeBlock], targets: dict[str, int], registers: int) -> bool:
    """Whether some branch can split a warp: a value that may differ between lanes decides it."""
    uniform = [True] * registers
    changed = True
    while changed:
        changed = False
        for op in ops:
            if _is_uniform(op, uniform):
                continue
            for index in op.writes():
                changed |= uniform[index]
                uniform[index] = False
    for op in ops:
        if op.form.mnemonic == "brx":
            return True
        if "branch" not in op.form.effects:
            continue
        target = op.sources[0][1] if op.sources else None
        if isinstance(target, str) and is_exit_block(blocks[targets[target]]):
            continue
        if any(not uniform[i] for i in op.reads()):
            return True
    return False


def _is_uniform(op: Op, uniform: list[bool]) -> bool:
    if op.form.mnemonic in VARIANT or any(isinstance(a, A) and a.space == "local" for _, a in op.sources):
        return False
    for _, arg in op.sources:
        for item in arg.items if isinstance(arg, V) else (arg,):
            if isinstance(item, S) and not item.name.startswith(UNIFORM_SPECIALS):
                return False
    reads = list(op.reads()) if op.guard is None else [op.guard.index, *op.reads()]
    return all(uniform[i] for i in reads)


def _communicates(ops: list[Op]) -> bool:
    """Whether CTAs may talk to each other through global memory."""
    words = {"atom", "red"}
    orders = {"acquire", "release", "acq_rel", "relaxed", "volatile", "mmio"}
    for op in ops:
        if op.form.mnemonic in words and ".shared" not in op.form.opcode:
            return True
        if op.form.mnemonic in ("ld", "st") and orders & set(op.form.opcode.split(".")) and ".shared" not in op.form.opcode:
            return True
    return False


def build(module: tree.Module, entry: str, addresses: dict[str, int]) -> Program:
    """The program of kernel ``entry``; ``addresses`` are those of the module's global variables."""
    function = module.functions[entry]
    flat = _Flattener(module, function, addresses)
    blocks, targets = _cut(flat.ops, flat.labels, divergent=False)
    divergent = _divergent(flat.ops, blocks, targets, len(flat.registers))
    if divergent:
        blocks, targets = _cut(flat.ops, flat.labels, divergent=True)
    kept = _crossing(blocks)
    slots, frame, full = _places(flat.registers, kept, Warp.size + 4 * len(blocks))
    return Program(
        entry, function, module, flat.registers, flat.ops, blocks, targets, flat.dynamic_start, flat.local,
        abi.layout(function).size, divergent, _communicates(flat.ops), kept, slots, frame, full, flat.locs, addresses,
    )  # fmt: skip


def _crossing(blocks: list[CodeBlock]) -> set[int]:
    """Registers whose value may cross from one block to another."""
    home: dict[int, int] = {}
    kept: set[int] = set()
    for block in blocks:
        written: set[int] = set()
        for op in block.ops:
            kept.update(i for i in op.reads() if i not in written)
            for i in op.writes():
                written.add(i)
                if home.setdefault(i, block.index) != block.index:
                    kept.add(i)
    return kept


def _places(registers: list[Register], kept: set[int], start: int) -> tuple[list[int], int, int]:
    """Offsets in the frame: first what crosses blocks, then the rest (for stepping only)."""
    slots = [0] * len(registers)
    offset = -(-start // 64) * 64
    frame = 0
    for wanted in (True, False):
        for index, register in enumerate(registers):
            if (index in kept) is wanted:
                slots[index] = offset
                offset += 64 if register.width == 1 else max(64, 4 * register.width)
        frame = offset if wanted else frame
    return slots, frame, offset
