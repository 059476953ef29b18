"""The primitives of asynchronous instructions: mbarriers, bulk and tensor copies, clusters.

Both evaluators use them. A primitive stores its operands to areas of the warp's frame
(``store_area``) and calls native code (``call_native``). An operation that may wait begins a basic
block: ``sleep_unless`` suspends its lanes, which execute the block again when they are resumed.
"""

from __future__ import annotations

from ...mma.tensor_maps import tensor_map_fields
from ...ptx.isa.primitives import Tensor
from ..check import vector_clocks
from ..program.evaluator import Evaluator, Value
from ..state.records import RANK_SHIFT, SPACES, WINDOW_BITS
from . import (
    async_copies,
    async_reductions,
    bulk_copies,
    cluster_launches,
    mbarrier_model,
    memory_access,
    tensor_copies,
    wgmma_groups,
)

OFFSET_MASK = (1 << RANK_SHIFT) - 1  # bits of a shared memory address: the offset in its CTA
WINDOW_MASK = (1 << 64) - (1 << WINDOW_BITS)  # and the window of the generic address space


class _Number:
    """A register value with the operators that ``tensor_map_fields`` computes with."""

    def __init__(self, m: Evaluator, value: Value) -> None:
        self.m, self.value = m, value

    def __sub__(self, n: int) -> _Number:
        return _Number(self.m, self.m.sub(self.value, self.m.const(self.m.width(self.value), n)))

    def __rshift__(self, n: int) -> _Number:
        return _Number(self.m, self.m.lshr(self.value, self.m.const(32, n)))

    def wide(self) -> Value:
        return self.m.zext(self.value, 64)


class AsyncEvaluator:
    """Primitives of mbarriers, bulk and tensor copies, fences and clusters."""

    def __init__(self, m: Evaluator) -> None:
        self.m = m

    # --- wgmma ---

    def check_wgmma_memory(self, space: str, address: Value, size: int) -> None:
        """Report a fault if a write overlaps an operand of a wgmma in flight."""
        if self.m.program.wgmma_sets and self.m.space(space) in ("", "shared"):
            self.m.store_area("addresses", address)
            arguments = (SPACES[self.m.space(space)], size, self.m.pc)
            self.m.call_checked(wgmma_groups.check_overwrite, self.m.mask, *arguments)

    # --- mbarriers ---

    def mbarrier_init(self, space: str, address: Value, count: Value) -> None:
        self.m.store_area("addresses", address)
        self.m.store_area("operands", count)
        space_ = SPACES[self.m.space(space)]
        self.m.call_checked(
            mbarrier_model.init, self.m.mask, space_, self.m.at("operands"), self.m.pc
        )

    def mbarrier_inval(self, space: str, address: Value) -> None:
        self.m.store_area("addresses", address)
        self.m.call_checked(
            mbarrier_model.invalidate, self.m.mask, SPACES[self.m.space(space)], self.m.pc
        )

    def mbarrier_arrive(
        self, space: str, address: Value, count: Value, tx: Value, drop: bool = False
    ) -> Value:
        self.m.store_area("addresses", address)
        self.m.store_area("operands", count)
        self.m.store_area("operands", tx, 1)
        arguments = (SPACES[self.m.space(space)], int(drop), self.m.at("results"), self.m.pc)
        self.m.call_checked(mbarrier_model.arrive, self.m.mask, *arguments)
        return self.m.load_area("results", 64)

    def mbarrier_wait(
        self,
        space: str,
        address: Value,
        phase: Value,
        parity: bool,
        *,
        sleep: bool,
        time: Value | None = None,
    ) -> Value:
        """The time limit is ignored: lanes sleep until the next event, or until none can occur."""
        if parity:
            phase = self.m.shl(self.m.zext(phase, 64), self.m.const(32, mbarrier_model.PHASE_BIT))
        self.m.store_area("addresses", address)
        self.m.store_area("operands", phase)
        areas = (self.m.at("operands"), int(sleep), self.m.at("results"))
        code = self.m.call_native(
            mbarrier_model.test_wait, self.m.mask, SPACES[self.m.space(space)], *areas, self.m.pc
        )
        self.m.sleep_unless(code)
        return self.m.cmp("ne", self.m.load_area("results", 32), self.m.const(32, 0))

    def mbarrier_pending(self, state: Value) -> Value:
        return self.m.and_(self.m.trunc(state, 32), self.m.const(32, mbarrier_model.MAX_COUNT))

    # --- bulk copies ---

    def bulk_copy(
        self,
        to: str,
        dst: Value,
        source: str,
        src: Value,
        size: Value,
        *,
        barrier: Value | None = None,
        ctas: Value | None = None,
        bytes_: Value | None = None,
    ) -> None:
        self.m.store_area("addresses", dst)
        self.m.store_area("addresses2", src)
        self.m.store_area("operands", size)
        if to == "global":
            byte_mask = self.m.const(32, 0xFFFF) if bytes_ is None else self.m.zext(bytes_, 32)
            self.m.store_area("operands", byte_mask, 1)
            self.m.call_checked(bulk_copies.copy_out, self.m.mask, 0, self.m.pc)
            return
        self._store_destination(barrier, ctas)
        self.m.call_checked(bulk_copies.copy_in, self.m.mask, SPACES[source], 0, self.m.pc)

    def bulk_reduce(
        self,
        to: str,
        dst: Value,
        src: Value,
        size: Value,
        op: str,
        type_: str,
        barrier: Value | None = None,
    ) -> None:
        reduction = async_reductions.number(op, type_)
        self.m.call_native(async_reductions.load_reductions)
        self.m.store_area("addresses", dst)
        self.m.store_area("addresses2", src)
        self.m.store_area("operands", size)
        if to == "global":
            self.m.call_checked(bulk_copies.copy_out, self.m.mask, reduction, self.m.pc)
            return
        self._store_destination(barrier, None)
        space = SPACES["shared"]
        self.m.call_checked(bulk_copies.copy_in, self.m.mask, space, reduction, self.m.pc)

    def _store_destination(self, barrier: Value, ctas: Value | None) -> None:
        """Store the operands that bulk copies to shared memory have in common: the mask of CTAs to
        write (None: the CTA of the target address), and the mbarriers.
        """
        cta_mask = self.m.const(32, 0) if ctas is None else self.m.zext(ctas, 32)
        self.m.store_area("operands", cta_mask, 1)
        self.m.store_area("operands", barrier, bulk_copies.BARRIER_AREA // 64)

    def bulk_commit(self) -> None:
        self.m.call_native(bulk_copies.commit_bulk, self.m.mask)

    def bulk_wait(self, pending: int, read: bool) -> None:
        """A copy reads its source when it completes, so ``.read`` makes no difference."""
        self.m.call_checked(bulk_copies.wait_bulk, self.m.mask, pending)

    # --- stores and reductions from registers ---

    def store_async(
        self,
        space: str,
        address: Value,
        values: tuple[Value, ...],
        barrier: Value,
        op: str,
        type_: str,
    ) -> None:
        if not self.m.space(space):
            address, barrier = (self.m.from_generic("shared", a) for a in (address, barrier))
        size = self.m.width(values[0]) // 8
        self.m.store_area("addresses", address)
        self._store_destination(barrier, None)
        for i, value in enumerate(values):
            self.m.store_area("operands", value, 4 * bulk_copies.VALUE_AREA // (32 * size) + i)
        reduction = async_reductions.number(op, type_) if op else 0
        if reduction:
            self.m.call_native(async_reductions.load_reductions)
        arguments = (size, len(values), reduction, self.m.pc)
        self.m.call_checked(bulk_copies.store_async, self.m.mask, *arguments)

    def cancel_cluster(self, space: str, address: Value, barrier: Value, everywhere: bool) -> None:
        if not self.m.space(space):
            address, barrier = (self.m.from_generic("shared", a) for a in (address, barrier))
        self.m.store_area("addresses", address)
        self._store_destination(barrier, None)
        self.m.call_checked(cluster_launches.try_cancel, self.m.mask, int(everywhere), self.m.pc)

    def store_zeros(self, space: str, address: Value, size: Value) -> None:
        if not self.m.space(space):
            address = self.m.from_generic("shared", address)
        self.m.store_area("addresses", address)
        self.m.store_area("operands", size)
        self.m.call_checked(memory_access.store_zeros, self.m.mask, self.m.pc)

    def cp_async_arrive(self, space: str, address: Value, counted: bool) -> None:
        self.m.store_area("addresses", address)
        arguments = (SPACES[self.m.space(space)], int(counted), self.m.pc)
        self.m.call_checked(async_copies.arrive_async, self.m.mask, *arguments)

    # --- tensor copies ---

    def tensor_load(
        self,
        dst: Value,
        tensor: Tensor,
        mode: str,
        offsets: tuple[Value, ...],
        barrier: Value,
        ctas: Value | None,
    ) -> None:
        self.m.store_area("addresses", dst)
        self._store_destination(barrier, ctas)
        for i in range(3):
            offset = self.m.zext(offsets[i], 32) if i < len(offsets) else self.m.const(32, 0)
            self.m.store_area("operands", offset, tensor_copies.OFFSETS + i)
        box = self._store_box(tensor, mode)
        self.m.call_checked(bulk_copies.load_tensor, self.m.mask, box, self.m.pc)

    def tensor_store(self, tensor: Tensor, src: Value, mode: str) -> None:
        self._tensor_to_global(tensor, src, mode, 0)

    def tensor_reduce(self, tensor: Tensor, src: Value, mode: str, op: str) -> None:
        self.m.call_native(async_reductions.load_reductions)
        self._tensor_to_global(tensor, src, mode, async_reductions.number(op))

    def _tensor_to_global(self, tensor: Tensor, src: Value, mode: str, reduction: int) -> None:
        self.m.store_area("addresses", src)
        for i in range(3):
            self.m.store_area("operands", self.m.const(32, 0), tensor_copies.OFFSETS + i)
        box = self._store_box(tensor, mode)
        self.m.call_checked(bulk_copies.store_tensor, self.m.mask, box, reduction, self.m.pc)

    def _store_box(self, tensor: Tensor, mode: str) -> int:
        """Store a map's address and coordinates. Returns ``box`` of ``tensor_copies.setup_box``."""
        address, coordinates = tensor
        self.m.store_area("addresses2", address)
        for i, c in enumerate(coordinates):
            self.m.store_area("operands", c, tensor_copies.COORDINATES + i)
        return len(coordinates) | (mode != "tile") << 3

    def tensor_map_replace(
        self, space: str, address: Value, field: str, ordinal: int, value: Value | int
    ) -> None:
        self.m.store_area("addresses", address)
        new_value = value if isinstance(value, int) else _Number(self.m, value)
        for bit_field, number in tensor_map_fields.written(field, new_value, ordinal):
            bits = self.m.const(64, number) if isinstance(number, int) else number.wide()
            self.m.store_area("operands", bits)
            arguments = (SPACES[self.m.space(space)], bit_field.low, bit_field.width, self.m.pc)
            self.m.call_checked(tensor_copies.replace_field, self.m.mask, *arguments)

    # --- fences ---

    def fence(self, kind: str) -> None:
        """Accesses are performed in order, so a fence only updates a checked launch's clocks."""
        if kind == "proxy.async" or "mbarrier_init" in self.m.op.form.opcode:
            self.m.call_native(vector_clocks.proxy_fence, self.m.mask)
        elif kind == "warp":
            self.m.call_native(vector_clocks.warp_fence, self.m.mask)
        elif kind == "grid":
            self.m.call_native(vector_clocks.grid_dependency_wait, self.m.mask)

    # --- clusters ---

    def map_rank(self, space: str, address: Value, rank: Value) -> Value:
        offset = self.m.and_(address, self.m.const(64, OFFSET_MASK))
        window = self.m.and_(address, self.m.const(64, WINDOW_MASK))
        high = self.m.shl(self.m.zext(rank, 64), self.m.const(32, RANK_SHIFT))
        return self.m.or_(self.m.or_(window, offset), high)

    def rank_of(self, space: str, address: Value) -> Value:
        return self.m.lshr(self.m.trunc(address, 32), self.m.const(32, RANK_SHIFT))

    def cluster_arrive(self, kind: str) -> None:
        self.m.call_checked(mbarrier_model.cluster_arrive, self.m.mask, self.m.pc)

    def cluster_wait(self) -> None:
        self.m.sleep_unless(self.m.call_native(mbarrier_model.cluster_wait, self.m.mask, self.m.pc))
