"""The base of both evaluators: reads operands, evaluates the meaning, writes results.

A subclass provides the primitives (``ptx.isa.primitives``), most of them by its parts
(``primitive_parts.py``), and the methods under "what a subclass provides".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...native.native_language import Native
from ...ptx.isa import OperandSpec
from ...ptx.isa.compose import FORMATS, float_min_max, propagate_nan
from ...ptx.isa.convergence import convergence_rule
from ...ptx.types import bits
from ..state.records import FULL_MASK, GLOBAL_BASE, RANK_SHIFT, SPACES, WINDOW_BITS, WINDOWS
from ..state.special_fields import FIELDS, RecordField
from .bound_operands import (
    AddressOperand,
    BoundOperand,
    CodeBlock,
    ConstOperand,
    NotOperand,
    Op,
    RegOperand,
    SharedAddress,
    SpecialOperand,
    StackAddress,
    VectorOperand,
)
from .program import Program
from .program_analysis import weight

Value = Any

if TYPE_CHECKING:  # the primitives have types, but no methods that could hide a part's
    from ...ptx.isa.primitives import Primitives
else:
    Primitives = object

VOTES = {"popc": 0, "or": 1, "and": 2}


def width_of(type_: str) -> int:
    """Bits of an operand's type; 32 if the row names none."""
    return bits(type_) if type_ else 32


class Evaluator(Primitives):
    """Evaluates operations by the meanings of their rows. ``op`` is the current operation."""

    program: Program
    current: CodeBlock
    op: Op
    mask: Any  # the active lanes whose guard holds

    # --- what a subclass provides ---

    def get(self, index: int) -> Value:
        """The value of a register in all 32 lanes."""
        raise NotImplementedError

    def put(self, index: int, value: Value) -> None:
        """Write a register in the lanes whose guard holds."""
        raise NotImplementedError

    def field(self, field: RecordField) -> Value:
        """A record's field in every lane, 32 bits wide."""
        raise NotImplementedError

    def thread_index(self, axis: str) -> Value:
        raise NotImplementedError

    def clock(self, ticks: int) -> Value:
        """Advance the warp's clock by ``ticks`` steps and return it, 64 bits wide."""
        raise NotImplementedError

    def gather(self, rule: str) -> None:
        """Wait for the lanes that must execute the operation together (``convergence.py``); fault
        if one of them can't arrive.
        """
        raise NotImplementedError

    def check_wgmma_registers(self, sets: int) -> None:
        """Fault if a ``wgmma`` in flight uses one of these sets of registers."""
        raise NotImplementedError

    # --- the warp's frame ---

    def load_area(self, name: str, width: int, index: int = 0) -> Value:
        """Load the ``index``-th register of ``width`` bits from an area of the frame."""
        raise NotImplementedError

    def store_area(self, name: str, value: Value, index: int = 0) -> None:
        """Store a register to an area of the frame, as its ``index``-th of that width."""
        raise NotImplementedError

    def at(self, name: str, offset: int = 0) -> Any:
        """The address of an area of the frame."""
        raise NotImplementedError

    def call_native(self, function: Native, *arguments: Any) -> Any:
        """Call native code with this warp."""
        raise NotImplementedError

    def check(self, failed: Any) -> None:
        """Leave with a fault if ``failed``, the result of native code, is not 0."""
        raise NotImplementedError

    def call_checked(self, function: Native, *arguments: Any) -> None:
        """Call native code that returns whether it reported a fault; leave if it did."""
        self.check(self.call_native(function, *arguments))

    def sleep_unless(self, code: Any) -> None:
        """Continue if ``code`` is JUMP, leave if it is FAULT. If it is WAIT, suspend the lanes,
        which execute the block again when they are resumed.
        """
        raise NotImplementedError

    # --- operations ---

    @property
    def pc(self) -> int:
        """The index of the operation that is being evaluated."""
        return self.op.pc

    def operate(self, op: Op) -> None:
        """Evaluate one operation."""
        self.op = op
        touched = self.program.touched_sets.get(op.pc)
        if touched:
            self.check_wgmma_registers(touched)
        if rule := convergence_rule(op.form):
            self.gather(rule)
        sources = (self.read(spec, arg) for spec, arg in op.sources)
        results = op.form.row.meaning(self, op.form, *sources)
        if not op.dests or results is None:
            return
        if not isinstance(results, tuple) or isinstance(op.dests[0][1], VectorOperand):
            results = (results,)
        for (spec, arg), value in zip(op.dests, results, strict=False):
            self.write(spec, arg, value)

    def members(self) -> Value:
        """The member masks of the current operation, which has a ``members`` operand."""
        return next(self.value(a, 32) for spec, a in self.op.sources if spec.name == "members")

    @property
    def member_mask(self) -> int | None:
        """The member mask of the current operation if it is a constant, else None."""
        members = next(arg for spec, arg in self.op.sources if spec.name == "members")
        return members.bits & FULL_MASK if isinstance(members, ConstOperand) else None

    def read(self, spec: OperandSpec, arg: BoundOperand) -> Any:
        """A source operand in the form that meanings take."""
        if spec.kind == "address":
            assert isinstance(arg, AddressOperand)
            return self.locate(arg)
        if spec.kind == "map" and isinstance(arg, VectorOperand):
            tensor_map, *coordinates = arg.items
            assert isinstance(tensor_map, AddressOperand)
            return self.locate(tensor_map), tuple(self.value(c, 32) for c in coordinates)
        if spec.kind == "reg":
            width = width_of(spec.type)
            if isinstance(arg, VectorOperand):
                return tuple(self.value(item, width) for item in arg.items)
            return self.value(arg, width)
        if spec.kind == "imm" and isinstance(arg, VectorOperand):
            return tuple(
                item.bits if isinstance(item, ConstOperand) else item for item in arg.items
            )
        return arg.bits if isinstance(arg, ConstOperand) else arg

    def value(self, arg: BoundOperand, width: int) -> Value:
        if isinstance(arg, RegOperand):
            return self.fit(self.get(arg.index), width)
        if isinstance(arg, ConstOperand):
            return self.const(width, arg.bits)
        if isinstance(arg, NotOperand):
            return self.not_(self.get(arg.reg.index))
        if isinstance(arg, SpecialOperand):
            return self.fit(self.special(arg.name), width)
        if isinstance(arg, AddressOperand):
            return self.load(arg.space, self.locate(arg), width)[0]
        if isinstance(arg, SharedAddress):
            return self.fit(self.shared_address(arg.offset), width)
        if isinstance(arg, StackAddress):
            return self.fit(self.locate(AddressOperand(arg.base, arg.offset)), width)
        return None

    def fit(self, value: Value, width: int) -> Value:
        """Truncate or zero-extend a value to ``width`` bits."""
        from_width = self.width(value)
        if from_width == width:
            return value
        return self.trunc(value, width) if from_width > width else self.zext(value, width)

    def locate(self, a: AddressOperand) -> Value:
        """The address of an operand, 64 bits wide."""
        if a.base is None:
            return (
                self.shared_address(a.offset) if a.space == "shared" else self.const(64, a.offset)
            )
        base = self.get(a.base.index)
        if a.offset:
            width = self.width(base)  # a 32-bit address wraps at 32 bits
            base = self.add(base, self.const(width, a.offset % (1 << width)))
        return self.fit(base, 64)

    def shared_address(self, offset: int) -> Value:
        """An address in the CTA's own shared memory: an offset, with the CTA's rank above it."""
        rank = self.fit(self.field(FIELDS["%cluster_ctarank"]), 64)
        return self.add(self.shl(rank, self.const(32, RANK_SHIFT)), self.const(64, offset))

    def space(self, name: str) -> str:
        """The state space of an access; that of the variable if the form names none. A ``.param``
        variable of a call is in local memory.
        """
        return self.op.space if name in ("", "param") else name

    def space_code(self, name: str) -> int:
        """The number of the state space of an access in native code (``SPACES``)."""
        return SPACES[self.space(name)]

    def write(self, spec: OperandSpec, arg: BoundOperand, value: Any) -> None:
        """Write a destination operand; a value is extended by its type to a wider register."""
        if isinstance(arg, VectorOperand):
            if "pack" in self.op.form.effects:
                value = self.split(value, width_of(spec.type))
            for item, part in zip(arg.items, value, strict=True):
                self.write(spec, item, part)
        elif isinstance(arg, RegOperand):
            width = self.program.registers[arg.index].width
            if self.width(value) < width:
                widen = self.sext if spec.type.startswith("s") else self.zext
                value = widen(value, width)
            self.put(arg.index, self.fit(value, width))
        elif isinstance(arg, AddressOperand):
            self.store(arg.space, self.locate(arg), (self.fit(value, width_of(spec.type)),))

    # --- special registers ---

    def special(self, name: str) -> Value:
        if name in FIELDS:
            return self.field(FIELDS[name])
        base, _, axis = name.partition(".")
        if base == "%tid" and axis in "xyz":
            return self.thread_index(axis)
        if name == "%laneid":
            return self.lane()
        if base.startswith("%lanemask_"):
            return self._lane_mask(base[-2:])
        if is_clock(base):
            return self._clock(base)
        return self.const(32, 0)

    def _lane_mask(self, relation: str) -> Value:
        bit = self.shl(self.const(32, 1), self.lane())
        below = self.sub(bit, self.const(32, 1))
        if relation in ("eq", "lt"):
            return bit if relation == "eq" else below
        if relation == "ge":
            return self.not_(below)
        at_most = self.or_(bit, below)
        return at_most if relation == "le" else self.not_(at_most)

    def _clock(self, base: str) -> Value:
        now = self.clock(self._ticks())
        if base in ("%clock64", "%globaltimer"):
            return now
        return self.split(now, 32)[base.endswith("hi")]

    def _ticks(self) -> int:
        """The weight of the operations since the last read of a clock in this block, or since the
        block's start: the part that the cost of loops does not include. So the clock always
        increases, and is the same in every run.
        """
        ticks = 1
        for op in self.current.ops:
            if op is self.op:
                break
            ticks = 1 if _reads_clock(op) else ticks + weight(op)
        return ticks

    # --- primitives that are the same in both evaluators ---

    def to_generic(self, space: str, address: Value) -> Value:
        return self.add(address, self.const(64, WINDOWS.get(space, 0)))

    def from_generic(self, space: str, address: Value) -> Value:
        return self.sub(address, self.const(64, WINDOWS.get(space, 0)))

    def in_space(self, space: str, address: Value) -> Value:
        base = space.partition("::")[0]
        if base not in WINDOWS:
            return self.cmp("ge", address, self.const(64, GLOBAL_BASE))
        high = self.lshr(address, self.const(32, WINDOW_BITS))
        inside = self.cmp("eq", high, self.const(64, WINDOWS[base] >> WINDOW_BITS))
        if space != "shared":
            return inside
        own = self.cmp("eq", self.rank_of(space, address), self.special("%cluster_ctarank"))
        return self.and_(inside, own)

    def nanosleep(self, a: Value) -> None:
        """No operation: a warp that loops yields at its branch."""

    def ret(self) -> None:
        self.exit()


def is_clock(name: str) -> bool:
    return "clock" in name or "timer" in name


def _reads_clock(op: Op) -> bool:
    return any(isinstance(arg, SpecialOperand) and is_clock(arg.name) for _, arg in op.sources)


def combine(
    m: Any, op: str, type_: str, old: Value, operands: tuple[Value, ...], in_global: Value
) -> Value:
    """The value that an atomic operation stores. ``in_global``: a predicate, whether the address is
    in global memory.
    """
    b = operands[0]
    element = type_.partition("x")[0]
    if element in FORMATS and m.width(old) > width_of(element):  # elements of a packed vector
        pairs = zip(*(m.split(v, width_of(element)) for v in (old, b)), strict=True)
        return m.join(*(combine(m, op, element, x, (y,), in_global) for x, y in pairs))
    if op == "add" and type_.startswith(("f", "bf")):
        return _add_floats(m, type_, old, b, in_global)
    if op in ("add", "and", "or", "xor"):
        return {"add": m.add, "and": m.and_, "or": m.or_, "xor": m.xor}[op](old, b)
    if op in ("min", "max") and type_ in FORMATS:
        return float_min_max(m, type_, op, old, b)
    if op in ("min", "max"):
        replaces = m.cmp("lt" if op == "min" else "gt", b, old, type_.startswith("s"))
        return m.select(replaces, b, old)
    if op == "exch":
        return b
    if op == "cas":
        return m.select(m.cmp("eq", old, b), operands[1], old)
    one, zero = m.const(m.width(b), 1), m.const(m.width(b), 0)
    if op == "inc":
        return m.select(m.cmp("ge", old, b), zero, m.add(old, one))
    assert op == "dec", op
    wrap = m.or_(m.cmp("eq", old, zero), m.cmp("gt", old, b))
    return m.select(wrap, b, m.sub(old, one))


def _add_floats(m: Any, type_: str, old: Value, b: Value, in_global: Value) -> Value:
    """Add, rounded to nearest. Only in global memory does an f32 sum flush subnormals (PTX manual,
    ``atom``).
    """
    if type_ == "f64":
        return _add_doubles(m, old, b, in_global)
    if type_ != "f32":
        return m.fadd(type_, old, b)
    x, y = (m.select(in_global, _flushed(m, v), v) for v in (old, b))
    total = m.fadd(type_, x, y)
    return m.select(in_global, _flushed(m, total), total)


def _add_doubles(m: Any, old: Value, b: Value, in_global: Value) -> Value:
    """Add as an H200 does. In global memory a NaN operand is the result unchanged, ``b`` before
    ``old``. Elsewhere ptxas emits a loop of ``DADD b, old`` and compare-and-swap, which quiets a
    NaN, ``old`` before ``b``.
    """
    total = m.fadd("f64", old, b)
    old_nan, b_nan = (m.fcmp("f64", "nan", v, v) for v in (old, b))
    unchanged = m.select(b_nan, b, m.select(old_nan, old, total))
    return m.select(in_global, unchanged, propagate_nan(m, "f64", total, old, b))


def _flushed(m: Any, a: Value) -> Value:
    """An f32 with subnormals replaced by zeros of the same sign."""
    magnitude = m.and_(a, m.const(32, 0x7FFFFFFF))
    subnormal = m.cmp("lt", magnitude, m.const(32, 0x00800000))
    return m.select(subnormal, m.and_(a, m.const(32, 1 << 31)), a)
