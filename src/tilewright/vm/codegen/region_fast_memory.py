"""Inline fast paths of loads and stores.

If all 32 lanes are active and their addresses are contiguous or uniform, a few comparisons validate
the access, which is then one vector load or store. The comparisons are pure and their bounds are
loaded once in a region, so LLVM merges equal ones. All other accesses call ``vector_access``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.ir as ir

from ...native.llvm_types import I8, I32, I64, POINTER, declare
from ...native.native_language import Native
from ..engine import gather_scatter, memory_access, vector_access
from ..llvm.expressions import Expr
from ..llvm.folding_builder import constant_of, scalar_of
from ..llvm.vector_memory import broadcast_scalar, load_vector, store_vector
from ..program.evaluator import Value
from ..state.records import CACHED_RANGES, RANK_SHIFT, Cta, LaunchRecord, Worker
from .region_context import LANES, RegionContext, RegionPart, lanes
from .region_registers import RegionRegisters

ELEMENTS = (1, 2, 4, 8)  # bytes of an element
ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "shl": "shl", "and": "and_", "or": "or_"}


@dataclass(frozen=True)
class MemoryWindow:
    """``size`` bytes of a state space from address ``low``; ``start`` is their host address."""

    name: str
    start: ir.Value
    low: ir.Value
    size: ir.Value


@dataclass(frozen=True)
class ContiguousAccess:
    """An access of ``unit`` bytes per lane. If ``valid``, the lanes' bytes are contiguous from
    ``host`` on; otherwise the lanes' ``addresses`` are irregular.
    """

    window: MemoryWindow
    addresses: Value
    unit: int
    valid: ir.Value
    host: ir.Value


class FastMemory(RegionPart):
    """Emits fast paths of memory accesses. Only a ``small`` kernel has fast paths for addresses
    that differ between lanes, because they take LLVM much time.
    """

    def __init__(self, m: RegionContext, registers: RegionRegisters, small: bool) -> None:
        super().__init__(m)
        self.registers, self.small = registers, small
        self._hoisted: dict[str, ir.Value] = {}

    # --- values that are constant during a launch ---

    def hoist(self, name: str, make: Callable[[ir.IRBuilder], ir.Value]) -> ir.Value:
        """A value that is computed once, at the entry of the region."""
        if name not in self._hoisted:
            self._hoisted[name] = make(self.m.entry)
        return self._hoisted[name]

    def launch_constant(self, record: type[LaunchRecord] | type[Cta], name: str) -> ir.Value:
        """A field of the warp's launch or CTA, which is constant during the launch."""
        via = "launch" if record is LaunchRecord else "cta"
        head = self.hoist(via, lambda b: b.load(self.m.at(via), typ=POINTER))
        offset = I64(record.offset(name))
        return self.hoist(
            f"{via}.{name}", lambda b: b.load(b.gep(head, [offset], source_etype=I8), typ=I64)
        )

    @property
    def checked(self) -> ir.Value:
        """Whether the launch is checked: every access then takes the slow path."""
        flag = self.launch_constant(LaunchRecord, "checked")
        return self.hoist("checked", lambda b: b.icmp_unsigned("!=", flag, I64(0)))

    @property
    def shared_base(self) -> ir.Value:
        """The address of the CTA's shared memory."""
        rank = self.launch_constant(Cta, "rank")
        return self.hoist("low", lambda b: b.shl(rank, I64(RANK_SHIFT)))

    def shared_address(self, offset: int) -> Value:
        return self.m._splat(self.b.add(self.shared_base, I64(offset)))

    # --- windows and addresses ---

    def window(self, space: str, writes: bool = False) -> MemoryWindow | None:
        """The window of a state space. For global memory and generic addresses, it is the
        allocation that the operation accessed last. None if the space has no fast path, or must not
        be written.
        """
        if space == "shared":
            start, size = (
                self.launch_constant(Cta, "shared"),
                self.launch_constant(LaunchRecord, "shared_bytes"),
            )
            return MemoryWindow(space, start, self.shared_base, size)
        if space == "local" or (space == "param" and writes):
            return None
        if space == "param":
            start, size = (
                self.launch_constant(LaunchRecord, "params"),
                self.launch_constant(LaunchRecord, "param_bytes"),
            )
            return MemoryWindow(space, start, I64(0), size)
        worker = self.hoist("worker", lambda b: b.load(self.m.at("worker"), typ=POINTER))
        index = 8 * (self.m.pc % CACHED_RANGES + CACHED_RANGES * writes)
        fields = (I64(Worker.offset(name) + index) for name in ("lows", "highs"))
        low, high = (self.b.load(self.b.gep(worker, [f], source_etype=I8), typ=I64) for f in fields)
        start = self.b.add(self.launch_constant(LaunchRecord, "host"), low)
        return MemoryWindow("", start, low, self.b.sub(high, low))

    def multiples_in(self, window: MemoryWindow, unit: int, span: int) -> ir.Value:
        """The number of multiples of ``unit`` at which ``span`` bytes are within the window; 0 in a
        checked launch.
        """

        def make(b: ir.IRBuilder) -> ir.Value:
            count = Expr(b, b.add(window.size, I64(unit))).less(span) >> unit.bit_length() - 1
            return b.select(checked, I64(0), count.v)

        checked = self.checked
        return self.hoist(f"{window.name} {unit} {span}", make) if window.name else make(self.b)

    def contiguous_access(
        self, space: str, address: Value, size: int, count: int, writes: bool = False
    ) -> ContiguousAccess | None:
        """An access of ``count`` elements of ``size`` bytes in each lane, with the check whether it
        is contiguous; None if it has no fast path.
        """
        resolved = self.m.space(space)
        window = self.window(resolved, writes) if self.small and size in ELEMENTS else None
        if window is None or (count > 1 and (size, count) not in gather_scatter.VECTOR_FORMS):
            return None
        unit, address = size * count, self.narrow_address(window, address)
        first, contiguous = self.contiguous(address, unit)
        inside, host = self.in_window(window, first, unit, LANES * unit)
        valid = self.b.and_(self.b.and_(self.all_active, contiguous), inside)
        return ContiguousAccess(window, address, unit, valid, host)

    def in_window(
        self, window: MemoryWindow, first: ir.Value, unit: int, span: int
    ) -> tuple[ir.Value, ir.Value]:
        """Whether the address is a multiple of ``unit`` and the ``span`` bytes from it on are in
        the window; and the host address.
        """
        offset = self.b.sub(self.zext64(first), window.low)
        limit = self.multiples_in(window, unit, span)
        index = rotated_right(Expr(self.b, offset), unit)
        inside = self.b.icmp_unsigned("<", index.v, limit)
        return inside, self.b.inttoptr(self.b.add(window.start, offset), POINTER)

    @property
    def all_active(self) -> ir.Value:
        """Whether all 32 lanes are active."""
        return self.m.compare("==", self.m.mask, -1)

    def uniform_address(self, space: str, address: Value, size: int) -> ir.Value | None:
        """The host address of the ``size`` bytes that all lanes read; None unless the address is
        known to be uniform.
        """
        parameter = self.parameter(space, address, size)
        if parameter is not None:
            return parameter
        known = self.m.space(space) and not size & size - 1
        scalar = self.uniform_scalar(address) if known else None
        window = self.window(self.m.space(space)) if scalar is not None else None
        if window is None or scalar is None:
            return None
        inside, fast = self.in_window(window, scalar, size, size)
        fast_block = self.b.block
        checking, done = self.m.new_block(), self.m.new_block()
        self.b.cbranch(self.b.and_(self.all_active, inside), done, checking).set_weights([1000, 1])
        self.b.position_at_end(checking)
        common = (
            self.m.space_code(space),
            self.zext64(self.m.first(narrow(address))),
            size,
            self.m.pc,
        )
        host = self.m.call_native(memory_access.resolve_uniform, self.m.mask, *common)
        self.m.check(self.m.compare("==", host, 0))
        slow, slow_block = self.b.inttoptr(host, POINTER), self.b.block
        self.b.branch(done)
        self.b.position_at_end(done)
        return self.m.phi_of((fast, fast_block), (slow, slow_block))

    def parameter(self, space: str, address: Value, size: int) -> ir.Value | None:
        """The host address of ``size`` bytes of the kernel's parameters at a constant address,
        which needs no check; None for any other access.
        """
        offset = constant_of(address) if self.m.space(space) == "param" else None
        if offset is None or offset % size or offset + size > self.m.program.param_bytes:
            return None
        params = self.launch_constant(LaunchRecord, "params")
        start = self.hoist("parameters", lambda b: b.inttoptr(params, POINTER))
        return self.b.gep(start, [I64(offset)], source_etype=I8)

    def lane_offsets(
        self, window: MemoryWindow, address: Value, unit: int
    ) -> tuple[ir.Value, Value]:
        """Whether each active lane's access of ``unit`` bytes is aligned and in the window; and the
        lanes' offsets in the window, 32 bits wide.
        """
        width, limit = self.m.width(address), Expr(self.b, self.multiples_in(window, unit, unit))
        limit = limit.umin(1 << 32 - unit.bit_length())
        low, limit = (
            broadcast_scalar(x.resize(width), LANES) for x in (Expr(self.b, window.low), limit)
        )
        offsets = Expr(self.b, address) - low
        inside = self.m.to_mask((rotated_right(offsets, unit) < limit).v)
        valid = self.m.compare("==", self.b.or_(inside, self.b.not_(self.m.mask)), -1)
        return valid, offsets.resize(32).v

    def narrow_address(self, window: MemoryWindow, address: Value) -> Value:
        """The address before its extension to 64 bits, for a window of 32-bit addresses."""
        return narrow(address) if window.name else address

    def contiguous(self, address: Value, span: int) -> tuple[ir.Value, ir.Value]:
        """The first lane's address, and whether lane i's address is ``span * i`` bytes above it."""
        first = self.b.extract_element(address, I32(0))
        steps = ir.Constant(address.type, [span * lane for lane in range(LANES)])
        equal = self.b.icmp_unsigned("==", address, self.b.add(self.m._splat(first), steps))
        return first, self.m.compare("==", self.m.to_mask(equal), -1)

    def zext64(self, scalar: ir.Value) -> ir.Value:
        return scalar if scalar.type == I64 else self.b.zext(scalar, I64)

    def store_addresses(self, address: Value) -> None:
        """Store addresses to the area that native code reads. They are extended to 64 bits here, on
        the slow path.
        """
        self.m.store_area("addresses", self.m.zext(narrow(address), 64))

    def uniform_scalar(self, value: Value) -> ir.Value | None:
        """The scalar that all lanes of a value hold; None if it is not known to be uniform."""
        scalar = scalar_of(value)
        if scalar is not None:
            return scalar
        if self.registers.uniform.get(id(value)) is value:
            return self.b.extract_element(value, I32(0))
        if isinstance(value, ir.CastInstr) and value.opname == "zext":
            narrow_ = self.uniform_scalar(value.operands[0])
            return narrow_ and self.b.zext(narrow_, value.type.element)
        if isinstance(value, ir.Instruction) and value.opname in ARITHMETIC:
            parts = [self.uniform_scalar(o) for o in value.operands]
            if None not in parts:
                return getattr(self.b, ARITHMETIC[value.opname])(*parts)
        return None

    # --- loads and stores ---

    def load_one(self, host: ir.Value, width: int, count: int) -> tuple[Value, ...]:
        offsets = (e * width // 8 for e in range(count))
        scalars = (load_vector(self.b, host, offset, ir.IntType(width)) for offset in offsets)
        return tuple(broadcast_scalar(x, LANES).v for x in scalars)

    def load_at(self, access: ContiguousAccess, width: int, count: int) -> list[Value]:
        if count == 1:
            return [load_vector(self.b, access.host, 0, lanes(width)).v]
        self.rearrange(vector_access.unzip, self.m.at("results"), access.host, width // 8, count)
        return [self.m.load_area("results", width, e) for e in range(count)]

    def store_at(self, access: ContiguousAccess, values: tuple[Value, ...]) -> None:
        if len(values) == 1:
            store_vector(Expr(self.b, values[0]), access.host, 0)
            return
        for e, value in enumerate(values):
            self.m.store_area("operands", value, e)
        size = self.m.width(values[0]) // 8
        self.rearrange(vector_access.zip_, access.host, self.m.at("operands"), size, len(values))

    def load_gathered(self, access: ContiguousAccess, offsets: Value, width: int) -> Value:
        gather = declare(self.m.module, gather_scatter.GATHERS[width])
        return self.b.call(gather, [access.window.start, offsets, self.b.zext(self.m.mask, I64)])

    def store_scattered(self, access: ContiguousAccess, offsets: Value, value: Value) -> None:
        scatter = declare(self.m.module, gather_scatter.SCATTERS[self.m.width(value)])
        self.b.call(scatter, [access.window.start, offsets, value, self.b.zext(self.m.mask, I64)])

    def rearrange(
        self, function: Native, target: ir.Value, source: ir.Value, size: int, count: int
    ) -> None:
        addresses = [self.b.ptrtoint(p, I64) for p in (target, source)]
        self.b.call(declare(self.m.module, function), [*addresses, I64(size * 16 + count)])


def rotated_right(x: Expr, unit: int) -> Expr:
    """``x // unit`` if ``x`` is a multiple of ``unit``, else a number larger than any quotient."""
    shift = unit.bit_length() - 1
    return x >> shift | x << x.width - shift if shift else x


def narrow(address: Value) -> Value:
    """The value before a zero extension; any other value unchanged."""
    extended = isinstance(address, ir.CastInstr) and address.opname == "zext"
    return address.operands[0] if extended else address
