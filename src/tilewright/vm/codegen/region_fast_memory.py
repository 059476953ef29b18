"""Inline fast paths of loads and stores.

Where all 32 lanes are active and their addresses are contiguous or uniform, a few comparisons
validate the access, which is then one vector load or store. The comparisons are pure and their
bounds are loaded once in a region, so LLVM merges equal ones. All other accesses call
``vector_access``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.ir as ir

from ...native.llvm_types import I8, I32, I64, POINTER, declare
from ...native.native_language import Native
from ..engine import gather_scatter, memory_access, vector_access
from ..llvm.expressions import Expr, TextConstant
from ..llvm.llvm_primitives import FIRST
from ..llvm.vector_memory import broadcast_scalar, load_vector, store_vector
from ..program.evaluator import Value
from ..state.records import CACHED_RANGES, RANK_SHIFT, Cta, LaunchRecord, Worker
from .region_context import LANES, RegionContext, RegionPart, lanes
from .region_registers import RegionRegisters

ELEMENTS = (1, 2, 4, 8)  # bytes
SUMS = {"add": "add", "sub": "sub", "mul": "mul", "shl": "shl", "and": "and_", "or": "or_"}


@dataclass(frozen=True)
class MemoryWindow:
    """``size`` bytes of a state space from address ``low``; ``start`` is their host address."""

    name: str
    start: ir.Value
    low: ir.Value
    size: ir.Value


@dataclass(frozen=True)
class VectorAccess:
    """An access of ``unit`` bytes: all lanes' in a row from ``host`` on, if that is ``right``; else
    ``addresses`` say where.
    """

    window: MemoryWindow
    addresses: Value
    unit: int
    right: ir.Value
    host: ir.Value


class FastMemory(RegionPart):
    """``uniform`` has the values that are one in all lanes, each by its ``id``. Only in a ``small``
    kernel do lanes' places get code where they are needed: it takes LLVM time.
    """

    def __init__(self, m: RegionContext, registers: RegionRegisters, small: bool) -> None:
        super().__init__(m)
        self.registers, self.small = registers, small
        self.once_made: dict[str, ir.Value] = {}

    # --- what a launch does not change ---

    def once(self, name: str, make: Callable[[ir.IRBuilder], ir.Value]) -> ir.Value:
        """A value that is computed once, at the entry of the region."""
        if name not in self.once_made:
            self.once_made[name] = make(self.m.entry)
        return self.once_made[name]

    def launch_constant(self, record: type[LaunchRecord] | type[Cta], name: str) -> ir.Value:
        """A field of the warp's launch or CTA, which is constant during the launch."""
        via = "launch" if record is LaunchRecord else "cta"
        head = self.once(via, lambda b: b.load(self.m.at(via), typ=POINTER))
        at = I64(record.offset(name))
        return self.once(
            f"{via}.{name}", lambda b: b.load(b.gep(head, [at], source_etype=I8), typ=I64)
        )

    @property
    def checked(self) -> ir.Value:
        """Whether the launch is checked: every access then takes the slow path."""
        flag = self.launch_constant(LaunchRecord, "checked")
        return self.once("checked", lambda b: b.icmp_unsigned("!=", flag, I64(0)))

    @property
    def own_low(self) -> ir.Value:
        """The address of the CTA's shared memory."""
        rank = self.launch_constant(Cta, "rank")
        return self.once("low", lambda b: b.shl(rank, I64(RANK_SHIFT)))

    def shared_address(self, offset: int) -> Value:
        return self.m._splat(self.b.add(self.own_low, I64(offset)))

    # --- where an access lies ---

    def window(self, space: str, writes: bool = False) -> MemoryWindow | None:
        """A space's; of global memory, and of a generic address, the allocation that the operation
        found last. None where what lies there is not simple, or is not to be written."""
        if space == "shared":
            start, size = (
                self.launch_constant(Cta, "shared"),
                self.launch_constant(LaunchRecord, "shared_bytes"),
            )
            return MemoryWindow(space, start, self.own_low, size)
        if space == "local" or (space == "param" and writes):
            return None
        if space == "param":
            start, size = (
                self.launch_constant(LaunchRecord, "params"),
                self.launch_constant(LaunchRecord, "param_bytes"),
            )
            return MemoryWindow(space, start, I64(0), size)
        worker = self.once("worker", lambda b: b.load(self.m.at("worker"), typ=POINTER))
        at = 8 * (self.m.pc % CACHED_RANGES + CACHED_RANGES * writes)
        fields = (I64(Worker.offset(name) + at) for name in ("lows", "highs"))
        low, high = (self.b.load(self.b.gep(worker, [f], source_etype=I8), typ=I64) for f in fields)
        start = self.b.add(self.launch_constant(LaunchRecord, "host"), low)
        return MemoryWindow("", start, low, self.b.sub(high, low))

    def multiples_in(self, window: MemoryWindow, unit: int, span: int) -> ir.Value:
        """How many multiples of ``unit`` begin ``span`` bytes of the window; none if checked."""

        def make(b: ir.IRBuilder) -> ir.Value:
            whole = Expr(b, b.add(window.size, I64(unit))).less(span) >> unit.bit_length() - 1
            return b.select(checked, I64(0), whole.v)

        checked = self.checked
        return self.once(f"{window.name} {unit} {span}", make) if window.name else make(self.b)

    def vector_access_of(
        self, space: str, address: Value, size: int, count: int, writes: bool = False
    ) -> VectorAccess | None:
        """Where ``count`` elements of ``size`` bytes of each lane lie; None where it needs that
        closer look anyway."""
        place = self.m.space(space)
        window = self.window(place, writes) if self.small and size in ELEMENTS else None
        if window is None or (count > 1 and (size, count) not in gather_scatter.VECTOR_FORMS):
            return None
        unit, address = size * count, self.short(window, address)
        first, follows = self.contiguous(address, unit)
        inside, host = self.in_window(window, first, unit, LANES * unit)
        right = self.b.and_(self.b.and_(self.whole, follows), inside)
        return VectorAccess(window, address, unit, right, host)

    def in_window(
        self, window: MemoryWindow, first: ir.Value, unit: int, span: int
    ) -> tuple[ir.Value, ir.Value]:
        """Whether ``span`` bytes from an address on, a multiple of ``unit``, are in the window; and
        where that is."""
        offset = self.b.sub(self.wide(first), window.low)
        limit = self.multiples_in(window, unit, span)
        inside = self.b.icmp_unsigned("<", turned(Expr(self.b, offset), unit).v, limit)
        return inside, self.b.inttoptr(self.b.add(window.start, offset), POINTER)

    @property
    def whole(self) -> ir.Value:
        """Whether all 32 lanes are active."""
        return self.m.compare("==", self.m.mask, -1)

    def uniform_address(self, space: str, address: Value, size: int) -> ir.Value | None:
        """Where the ``size`` bytes lie that all lanes read, if that is known to be one place."""
        one = self.one(address) if self.m.space(space) and not size & size - 1 else None
        window = self.window(self.m.space(space)) if one is not None else None
        if window is None or one is None:
            return None
        inside, near = self.in_window(window, one, size, size)
        before = self.b.block
        closer, done = self.m.new_block(), self.m.new_block()
        self.b.cbranch(self.b.and_(self.whole, inside), done, closer).set_weights([1000, 1])
        self.b.position_at_end(closer)
        common = (
            self.m.space_code(space),
            self.wide(self.m.first(narrow(address))),
            size,
            self.m.pc,
        )
        found = self.m.call_native(memory_access.resolve_uniform, self.m.mask, *common)
        self.m.check(self.m.compare("==", found, 0))
        far, went = self.b.inttoptr(found, POINTER), self.b.block
        self.b.branch(done)
        self.b.position_at_end(done)
        return self.m.phi_of((near, before), (far, went))

    def lane_offsets(
        self, window: MemoryWindow, address: Value, unit: int
    ) -> tuple[ir.Value, Value]:
        """Whether the access of each lane, of ``unit`` bytes, is right by itself, and how far from
        the window's start it lies."""
        width, limit = self.m.width(address), Expr(self.b, self.multiples_in(window, unit, unit))
        limit = limit.umin(1 << 32 - unit.bit_length())
        low, limit = (
            broadcast_scalar(x.resize(width), LANES) for x in (Expr(self.b, window.low), limit)
        )
        offsets = Expr(self.b, address) - low
        inside = self.m.to_mask((turned(offsets, unit) < limit).v)
        right = self.m.compare("==", self.b.or_(inside, self.b.not_(self.m.mask)), -1)
        return right, offsets.resize(32).v

    def short(self, window: MemoryWindow, address: Value) -> Value:
        """The address, of 32 bits where it comes from those and so do the window's."""
        return narrow(address) if window.name else address

    def contiguous(self, address: Value, span: int) -> tuple[ir.Value, ir.Value]:
        """The first lane's address; whether the others' follow one another, ``span`` apart."""
        first = self.b.extract_element(address, I32(0))
        steps = ir.Constant(address.type, [span * lane for lane in range(LANES)])
        same = self.b.icmp_unsigned("==", address, self.b.add(self.m._splat(first), steps))
        return first, self.m.compare("==", self.m.to_mask(same), -1)

    def wide(self, scalar: ir.Value) -> ir.Value:
        return scalar if scalar.type == I64 else self.b.zext(scalar, I64)

    def store_addresses(self, address: Value) -> None:
        """Addresses to where native code finds them; made 64 bits wide here, where few come."""
        self.m.store_area("addresses", self.m.zext(narrow(address), 64))

    def one(self, value: Value) -> ir.Value | None:
        """What all lanes hold, where they are all there and that is known to be one."""
        if isinstance(value, TextConstant):
            return value.type.element(value.whole)
        if self.registers.uniform.get(id(value)) is value:
            return self.b.extract_element(value, I32(0))
        if isinstance(value, ir.ShuffleVector) and value.operands[2] is FIRST:
            return value.operands[0].operands[1]
        if isinstance(value, ir.CastInstr) and value.opname == "zext":
            narrow_ = self.one(value.operands[0])
            return narrow_ and self.b.zext(narrow_, value.type.element)
        if isinstance(value, ir.Instruction) and value.opname in SUMS:
            parts = [self.one(o) for o in value.operands]
            if None not in parts:
                return getattr(self.b, SUMS[value.opname])(*parts)
        return None

    # --- loads and stores ---

    def load_one(self, host: ir.Value, width: int, count: int) -> tuple[Value, ...]:
        offsets = (e * width // 8 for e in range(count))
        found = (load_vector(self.b, host, offset, ir.IntType(width)) for offset in offsets)
        return tuple(broadcast_scalar(x, LANES).v for x in found)

    def load_at(self, spot: VectorAccess, width: int, count: int) -> list[Value]:
        if count == 1:
            return [load_vector(self.b, spot.host, 0, lanes(width)).v]
        self.rearrange(vector_access.unzip, self.m.at("results"), spot.host, width // 8, count)
        return [self.m.load_area("results", width, e) for e in range(count)]

    def store_at(self, spot: VectorAccess, values: tuple[Value, ...]) -> None:
        if len(values) == 1:
            store_vector(Expr(self.b, values[0]), spot.host, 0)
            return
        for e, value in enumerate(values):
            self.m.store_area("operands", value, e)
        size = self.m.width(values[0]) // 8
        self.rearrange(vector_access.zip_, spot.host, self.m.at("operands"), size, len(values))

    def load_apart(self, spot: VectorAccess, offsets: Value, width: int) -> Value:
        pick = declare(self.m.module, gather_scatter.GATHERS[width])
        return self.b.call(pick, [spot.window.start, offsets, self.b.zext(self.m.mask, I64)])

    def store_apart(self, spot: VectorAccess, offsets: Value, value: Value) -> None:
        put = declare(self.m.module, gather_scatter.SCATTERS[self.m.width(value)])
        self.b.call(put, [spot.window.start, offsets, value, self.b.zext(self.m.mask, I64)])

    def rearrange(
        self, how: Native, target: ir.Value, source: ir.Value, size: int, count: int
    ) -> None:
        given = [self.b.ptrtoint(p, I64) for p in (target, source)]
        self.b.call(declare(self.m.module, how), [*given, I64(size * 16 + count)])


def turned(x: Expr, unit: int) -> Expr:
    """``x // unit``; beyond all where that leaves a rest."""
    shift = unit.bit_length() - 1
    return x >> shift | x << x.width - shift if shift else x


def narrow(address: Value) -> Value:
    """An address without the zeros that were put before its 32 bits."""
    wider = isinstance(address, ir.CastInstr) and address.opname == "zext"
    return address.operands[0] if wider else address
