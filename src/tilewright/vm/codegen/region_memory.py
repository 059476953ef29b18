"""Memory instructions in compiled code.

Registers are passed to and from native code in areas of the warp's frame: addresses in
``addresses``, stored values in ``operands``, loaded values in ``results``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import llvmlite.ir as ir

from ...native.llvm_types import I1, I32, I64, POINTER
from ..engine import async_copies, memory_access, vector_access
from ..llvm.llvm_primitives import Scalars
from ..program.evaluator import Value, combine
from ..state.records import WRITES
from .region_context import RegionContext, RegionPart
from .region_fast_memory import ELEMENTS, ContiguousAccess, FastMemory

I16 = ir.IntType(16)


class MemoryAccess(RegionPart):
    """Loads, stores, atomics and ``cp.async``."""

    def __init__(self, m: RegionContext, fast: FastMemory) -> None:
        super().__init__(m)
        self.fast = fast

    def load(self, space: str, address: Value, width: int, count: int = 1) -> tuple[Value, ...]:
        host = self.fast.uniform_address(space, address, width // 8 * count)
        if host is not None:
            return self.fast.load_one(host, width, count)
        access = self.fast.contiguous_access(space, address, width // 8, count)
        if access is None:
            return tuple(self._load(space, address, width, count))
        with self.b.if_else(access.valid, likely=True) as (then, otherwise):
            with then:
                fast, fast_block = self.fast.load_at(access, width, count), self.b.block
            with otherwise:
                slow = self._load_irregular(access, space, address, width, count)
                slow_block = self.b.block
        pairs = zip(fast, slow, strict=True)
        return tuple(self.m.phi_of((x, fast_block), (y, slow_block)) for x, y in pairs)

    def _load_irregular(
        self, access: ContiguousAccess, space: str, address: Value, width: int, count: int
    ) -> list[Value]:
        if count > 1:
            return self._load(space, address, width, count)
        valid, offsets = self.fast.lane_offsets(access.window, access.addresses, access.unit)
        with self.b.if_else(valid, likely=True) as (then, otherwise):
            with then:
                fast, fast_block = self.fast.load_gathered(access, offsets, width), self.b.block
            with otherwise:
                (slow,), slow_block = self._load(space, address, width, count), self.b.block
        return [self.m.phi_of((fast, fast_block), (slow, slow_block))]

    def _load(self, space: str, address: Value, width: int, count: int) -> list[Value]:
        self.fast.store_addresses(address)
        common = (self.m.mask, self.m.space_code(space), self.m.at("results"))
        if width == 32 and count == 1:
            self.m.call_checked(vector_access.load_32, *common, self.m.pc)
        elif width == 32:
            self.m.call_checked(vector_access.load_32s, *common, count, self.m.pc)
        else:
            self.m.call_checked(vector_access.load_n, *common, width // 8, count, self.m.pc)
        return [self.m.load_area("results", width, e) for e in range(count)]

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        access = self.fast.contiguous_access(
            space, address, self.m.width(values[0]) // 8, len(values), writes=True
        )
        if access is None:
            self._store(space, address, values)
            return
        with self.b.if_else(access.valid, likely=True) as (then, otherwise):
            with then:
                self.fast.store_at(access, values)
            with otherwise:
                self._store_irregular(access, space, address, values)

    def _store_irregular(
        self, access: ContiguousAccess, space: str, address: Value, values: tuple[Value, ...]
    ) -> None:
        if len(values) > 1:
            self._store(space, address, values)
            return
        valid, offsets = self.fast.lane_offsets(access.window, access.addresses, access.unit)
        with self.b.if_else(valid, likely=True) as (then, otherwise):
            with then:
                self.fast.store_scattered(access, offsets, values[0])
            with otherwise:
                self._store(space, address, values)

    def _store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        self.fast.store_addresses(address)
        for e, value in enumerate(values):
            self.m.store_area("operands", value, e)
        size = self.m.width(values[0]) // 8
        common = (self.m.mask, self.m.space_code(space), self.m.at("operands"))
        if size == 4 and len(values) == 1:
            self.m.call_checked(vector_access.store_32, *common, self.m.pc)
        elif size == 4:
            self.m.call_checked(vector_access.store_32s, *common, len(values), self.m.pc)
        else:
            self.m.call_checked(vector_access.store_n, *common, size, len(values), self.m.pc)

    def reach(self, space: str, address: Value, width: int) -> None:
        self.m.store_area("addresses", address)
        common = (self.m.mask, self.m.space_code(space), width // 8)
        self.m.call_checked(memory_access.check_bounds, *common, self.m.pc)

    # --- atomics ---

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        """One lane after another. For 16-bit floats, whose arithmetic is slow, all lanes with
        distinct addresses at a time.
        """
        width = self.m.width(operands[0])
        in_global = self.m.in_space("global", address)
        if self.m.space(space):
            in_global = self.m.const(1, self.m.space(space) == "global")
        self._resolve(space, address, width // 8)
        stored = list(self.m.store_registers("operands", *((o,) for o in operands)))
        entry = self.b.block
        head, body, done = (self.m.new_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        remaining = self.b.phi(I32)
        remaining.add_incoming(self.m.mask, entry)
        self.b.cbranch(self.m.compare("!=", remaining, 0), body, done)
        self.b.position_at_end(body)
        if type_.startswith(("f16", "bf16")):
            new = partial(combine, self.m, op, type_, operands=operands, in_global=in_global)
            finished = self._distinct_lanes(remaining, width, new)
        else:
            mask = self.m.to_mask(in_global)
            finished = self._first_lane(remaining, width, op, type_, stored, mask)
        remaining.add_incoming(self.b.and_(remaining, self.b.not_(finished)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        return self.m.load_area("results", width)

    def _resolve(self, space: str, address: Value, size: int) -> None:
        """Store the host addresses of the lanes to ``addresses``."""
        fast = self.fast.small and size in ELEMENTS
        window = self.fast.window(self.m.space(space), writes=True) if fast else None
        if window is None:
            self._resolve_lanes(space, address, size)
            return
        valid, offsets = self.fast.lane_offsets(
            window, self.fast.narrow_address(window, address), size
        )
        with self.b.if_else(valid, likely=True) as (then, otherwise):
            with then:
                hosts = self.b.add(self.m._splat(window.start), self.m.zext(offsets, 64))
                self.m.store_area("addresses", hosts)
            with otherwise:
                self._resolve_lanes(space, address, size)

    def _resolve_lanes(self, space: str, address: Value, size: int) -> None:
        self.fast.store_addresses(address)
        common = (self.m.mask, self.m.space_code(space) + WRITES, size)
        self.m.call_checked(memory_access.resolve_lanes, *common, self.m.pc)

    def _first_lane(
        self,
        remaining: ir.Value,
        width: int,
        op: str,
        type_: str,
        operands: list[ir.Value],
        in_global: ir.Value,
    ) -> ir.Value:
        """Execute the operation of the first remaining lane; the mask of this lane."""
        lane, element = self.b.zext(self.b.cttz(remaining, I1(0)), I64), ir.IntType(width)
        slot = self.b.gep(self.m.at("addresses"), [lane], source_etype=I64)
        target = self.b.inttoptr(self.b.load(slot, typ=I64), POINTER)
        pointers = (self.b.gep(o, [lane], source_etype=element) for o in operands)
        values = tuple(self.b.load(pointer, typ=element) for pointer in pointers)
        bit = self.b.and_(remaining, self.b.neg(remaining))
        old = self.b.load(target, typ=element)
        if self.m.op.dests:
            self.b.store(old, self.b.gep(self.m.at("results"), [lane], source_etype=element))
        in_global_ = self.m.compare("!=", self.b.and_(in_global, bit), 0)
        scalars = Scalars(self.b, self.m.module, bit)
        self.b.store(combine(scalars, op, type_, old, values, in_global_), target)
        return bit

    def _distinct_lanes(
        self, remaining: ir.Value, width: int, new: Callable[..., Value]
    ) -> ir.Value:
        """Execute the operations of lanes with distinct addresses; the mask of these lanes."""
        mask = self.b.trunc(self.m.call_native(vector_access.distinct_addresses, remaining), I32)
        self.m.call_native(vector_access.read_memory, mask, width // 8)
        self.m.store_area("operands", new(self.m.load_area("results", width)))
        self.m.call_native(vector_access.write_memory, mask, width // 8)
        return mask

    # --- cp.async ---

    def cp_async(self, shared: Value, global_: Value, size: int, valid: Value) -> None:
        self.m.store_area("addresses", shared)
        self.m.store_area("addresses2", global_)
        self.m.store_area("operands", valid)
        arguments = (self.m.mask, size, self.m.at("operands"), self.m.pc)
        self.m.call_checked(async_copies.copy_async, *arguments)

    def cp_async_commit(self) -> None:
        self.m.call_checked(async_copies.commit_async, self.m.mask)

    def cp_async_wait(self, pending: int) -> None:
        self.m.call_checked(async_copies.wait_async, self.m.mask, pending)
