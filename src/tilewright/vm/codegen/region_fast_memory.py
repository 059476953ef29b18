"""Memory that compiled code reaches by itself: loads and stores that need no closer look.

Where all 32 lanes are there and their addresses follow one another, or are one, a few comparisons
say whether the access is right, and it is one vector's. They are pure, and what bounds them is read
once a region, so LLVM makes equal ones once. Everything else goes to ``loads``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.ir as ir

from ...native.llvm_types import I8, I32, I64, POINTER, declare
from ...native.native_language import Native
from ..engine import gather_scatter, memory_access, vector_access
from ..llvm.expressions import Expr, Text
from ..llvm.llvm_primitives import FIRST
from ..llvm.vector_memory import fetch, keep, spread
from ..program.evaluator import Value
from ..state.records import FOUND, RANK_SHIFT, Cta, Launch, Worker
from .region_context import LANES, RegionContext, RegionPart, lanes
from .region_registers import RegionRegisters

ELEMENTS = (1, 2, 4, 8)  # bytes
SUMS = {"add": "add", "sub": "sub", "mul": "mul", "shl": "shl", "and": "and_", "or": "or_"}


@dataclass(frozen=True)
class Window:
    """``size`` bytes of a space from address ``low`` on, which lie at ``start``."""

    name: str
    start: ir.Value
    low: ir.Value
    size: ir.Value


@dataclass(frozen=True)
class Spot:
    """An access of ``unit`` bytes: all lanes' in a row from ``host`` on, if that is ``right``; else
    ``addresses`` say where.
    """

    window: Window
    addresses: Value
    unit: int
    right: ir.Value
    host: ir.Value


class FastMemory(RegionPart):
    """``even`` has the values that are one in all lanes, each by its ``id``. Only in a ``small``
    kernel do lanes' places get code where they are needed: it takes LLVM time.
    """

    def __init__(self, m: RegionContext, registers: RegionRegisters, small: bool) -> None:
        super().__init__(m)
        self.registers, self.small = registers, small
        self.once_made: dict[str, ir.Value] = {}

    # --- what a launch does not change ---

    def once(self, name: str, make: Callable[[ir.IRBuilder], ir.Value]) -> ir.Value:
        """A value made where the region is entered."""
        if name not in self.once_made:
            self.once_made[name] = make(self.m.entry)
        return self.once_made[name]

    def fixed(self, record: type[Launch] | type[Cta], name: str) -> ir.Value:
        """A number of the warp's launch or CTA."""
        via = "launch" if record is Launch else "cta"
        head = self.once(via, lambda b: b.load(self.m.at(via), typ=POINTER))
        at = I64(record.offset(name))
        return self.once(
            f"{via}.{name}", lambda b: b.load(b.gep(head, [at], source_etype=I8), typ=I64)
        )

    @property
    def checked(self) -> ir.Value:
        """Whether the launch is: each access then takes a closer look."""
        flag = self.fixed(Launch, "checked")
        return self.once("checked", lambda b: b.icmp_unsigned("!=", flag, I64(0)))

    @property
    def own_low(self) -> ir.Value:
        """The first address of the CTA's shared memory."""
        rank = self.fixed(Cta, "rank")
        return self.once("low", lambda b: b.shl(rank, I64(RANK_SHIFT)))

    def own(self, offset: int) -> Value:
        return self.m._splat(self.b.add(self.own_low, I64(offset)))

    # --- where an access lies ---

    def window(self, space: str, writes: bool = False) -> Window | None:
        """A space's; of global memory, and of a generic address, the allocation that the operation
        found last. None where what lies there is not simple, or is not to be written."""
        if space == "shared":
            start, size = self.fixed(Cta, "shared"), self.fixed(Launch, "shared_bytes")
            return Window(space, start, self.own_low, size)
        if space == "local" or (space == "param" and writes):
            return None
        if space == "param":
            start, size = self.fixed(Launch, "params"), self.fixed(Launch, "param_bytes")
            return Window(space, start, I64(0), size)
        worker = self.once("worker", lambda b: b.load(self.m.at("worker"), typ=POINTER))
        at = 8 * (self.m.pc % FOUND + FOUND * writes)
        fields = (I64(Worker.offset(name) + at) for name in ("lows", "highs"))
        low, high = (self.b.load(self.b.gep(worker, [f], source_etype=I8), typ=I64) for f in fields)
        start = self.b.add(self.fixed(Launch, "host"), low)
        return Window("", start, low, self.b.sub(high, low))

    def room(self, window: Window, unit: int, span: int) -> ir.Value:
        """How many multiples of ``unit`` begin ``span`` bytes of the window; none if checked."""

        def make(b: ir.IRBuilder) -> ir.Value:
            whole = Expr(b, b.add(window.size, I64(unit))).less(span) >> unit.bit_length() - 1
            return b.select(checked, I64(0), whole.v)

        checked = self.checked
        return self.once(f"{window.name} {unit} {span}", make) if window.name else make(self.b)

    def spot(
        self, space: str, address: Value, size: int, count: int, writes: bool = False
    ) -> Spot | None:
        """Where ``count`` elements of ``size`` bytes of each lane lie; None where it needs that
        closer look anyway."""
        place = self.m.space(space)
        window = self.window(place, writes) if self.small and size in ELEMENTS else None
        if window is None or (count > 1 and (size, count) not in gather_scatter.ZIPPED):
            return None
        unit, address = size * count, self.short(window, address)
        first, follows = self.in_line(address, unit)
        inside, host = self.reached(window, first, unit, LANES * unit)
        right = self.b.and_(self.b.and_(self.whole, follows), inside)
        return Spot(window, address, unit, right, host)

    def reached(
        self, window: Window, first: ir.Value, unit: int, span: int
    ) -> tuple[ir.Value, ir.Value]:
        """Whether ``span`` bytes from an address on, a multiple of ``unit``, are in the window; and
        where that is."""
        offset = self.b.sub(self.wide(first), window.low)
        limit = self.room(window, unit, span)
        inside = self.b.icmp_unsigned("<", turned(Expr(self.b, offset), unit).v, limit)
        return inside, self.b.inttoptr(self.b.add(window.start, offset), POINTER)

    @property
    def whole(self) -> ir.Value:
        """Whether all 32 lanes are there."""
        return self.m.is_("==", self.m.mask, -1)

    def one_host(self, space: str, address: Value, size: int) -> ir.Value | None:
        """Where the ``size`` bytes lie that all lanes read, if that is known to be one place."""
        one = self.one(address) if self.m.space(space) and not size & size - 1 else None
        window = self.window(self.m.space(space)) if one is not None else None
        if window is None or one is None:
            return None
        inside, near = self.reached(window, one, size, size)
        before = self.b.block
        closer, done = self.m.block_of(), self.m.block_of()
        self.b.cbranch(self.b.and_(self.whole, inside), done, closer).set_weights([1000, 1])
        self.b.position_at_end(closer)
        common = (
            self.m.space_code(space),
            self.wide(self.m.first(narrow(address))),
            size,
            self.m.pc,
        )
        found = self.m.runtime(memory_access.one_host, self.m.mask, *common)
        self.m.check(self.m.is_("==", found, 0))
        far, went = self.b.inttoptr(found, POINTER), self.b.block
        self.b.branch(done)
        self.b.position_at_end(done)
        return self.m.either((near, before), (far, went))

    def apart(self, window: Window, address: Value, unit: int) -> tuple[ir.Value, Value]:
        """Whether the access of each lane, of ``unit`` bytes, is right by itself, and how far from
        the window's start it lies."""
        width, limit = self.m.width(address), Expr(self.b, self.room(window, unit, unit))
        limit = limit.umin(1 << 32 - unit.bit_length())
        low, limit = (spread(x.resize(width), LANES) for x in (Expr(self.b, window.low), limit))
        offsets = Expr(self.b, address) - low
        inside = self.m.word((turned(offsets, unit) < limit).v)
        right = self.m.is_("==", self.b.or_(inside, self.b.not_(self.m.mask)), -1)
        return right, offsets.resize(32).v

    def short(self, window: Window, address: Value) -> Value:
        """The address, of 32 bits where it comes from those and so do the window's."""
        return narrow(address) if window.name else address

    def in_line(self, address: Value, span: int) -> tuple[ir.Value, ir.Value]:
        """The first lane's address; whether the others' follow one another, ``span`` apart."""
        first = self.b.extract_element(address, I32(0))
        steps = ir.Constant(address.type, [span * lane for lane in range(LANES)])
        same = self.b.icmp_unsigned("==", address, self.b.add(self.m._splat(first), steps))
        return first, self.m.is_("==", self.m.word(same), -1)

    def wide(self, scalar: ir.Value) -> ir.Value:
        return scalar if scalar.type == I64 else self.b.zext(scalar, I64)

    def show(self, address: Value) -> None:
        """Addresses to where native code finds them; made 64 bits wide here, where few come."""
        self.m.set_line("addresses", self.m.zext(narrow(address), 64))

    def one(self, value: Value) -> ir.Value | None:
        """What all lanes hold, where they are all there and that is known to be one."""
        if isinstance(value, Text):
            return value.type.element(value.whole)
        if self.registers.even.get(id(value)) is value:
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
        found = (fetch(self.b, host, offset, ir.IntType(width)) for offset in offsets)
        return tuple(spread(x, LANES).v for x in found)

    def load_at(self, spot: Spot, width: int, count: int) -> list[Value]:
        if count == 1:
            return [fetch(self.b, spot.host, 0, lanes(width)).v]
        self.rearrange(vector_access.unzip, self.m.at("results"), spot.host, width // 8, count)
        return [self.m.line("results", width, e) for e in range(count)]

    def store_at(self, spot: Spot, values: tuple[Value, ...]) -> None:
        if len(values) == 1:
            keep(Expr(self.b, values[0]), spot.host, 0)
            return
        for e, value in enumerate(values):
            self.m.set_line("operands", value, e)
        size = self.m.width(values[0]) // 8
        self.rearrange(vector_access.zip_, spot.host, self.m.at("operands"), size, len(values))

    def load_apart(self, spot: Spot, offsets: Value, width: int) -> Value:
        pick = declare(self.m.module, gather_scatter.PICKS[width])
        return self.b.call(pick, [spot.window.start, offsets, self.b.zext(self.m.mask, I64)])

    def store_apart(self, spot: Spot, offsets: Value, value: Value) -> None:
        put = declare(self.m.module, gather_scatter.PUTS[self.m.width(value)])
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
