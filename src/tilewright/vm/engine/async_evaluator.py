"""What is asynchronous, for both evaluators: mbarriers, bulk copies, clusters.

An evaluator lays lanes out in the areas of its warp's frame (``set_line``) and calls the native
code that does it all (``runtime``, ``check``). What waits begins a block: lanes that have to sleep
leave it (``sleep_unless``) and try it again later.
"""

from __future__ import annotations

from typing import Any

from ...mma.tensor_maps import tensor_map_fields
from ...native.native_language import Native
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

PLACE = (1 << RANK_SHIFT) - 1
WINDOW = (1 << 64) - (1 << WINDOW_BITS)


class _Number:
    """Lanes of a register that ``map_fields`` computes with."""

    def __init__(self, m: Evaluator, value: Value) -> None:
        self.m, self.value = m, value

    def __sub__(self, n: int) -> _Number:
        return _Number(self.m, self.m.sub(self.value, self.m.const(self.m.width(self.value), n)))

    def __rshift__(self, n: int) -> _Number:
        return _Number(self.m, self.m.lshr(self.value, self.m.const(32, n)))

    def wide(self) -> Value:
        return self.m.zext(self.value, 64)


class Asynchronous(Evaluator):
    """Primitives of ``mbarrier``, ``bulk`` and clusters."""

    mask: Any

    # --- what an evaluator provides ---

    def set_line(self, name: str, value: Value, index: int = 0) -> None:
        """Lanes into an area, as its ``index``-th register of that width."""
        raise NotImplementedError

    def line(self, name: str, width: int, index: int = 0) -> Value:
        raise NotImplementedError

    def at(self, name: str, offset: int = 0) -> Any:
        """The address of an area."""
        raise NotImplementedError

    def runtime(self, function: Native, *arguments: Any) -> Any:
        """Call native code with this warp."""
        raise NotImplementedError

    def check(self, failed: Any) -> None:
        """Leave after a fault: where what native code returned is not 0."""
        raise NotImplementedError

    def sleep_unless(self, code: Any) -> None:
        """Go on where ``code`` is JUMP. After FAULT leave; after WAIT sleep until something has
        happened, and begin the block again.
        """
        raise NotImplementedError

    # --- products ---

    def spare(self, space: str, address: Value, size: int) -> None:
        """A fault where what is to be written belongs to a product under way."""
        if self.program.wgmma_sets and self.space(space) in ("", "shared"):
            self.set_line("addresses", address)
            how = (SPACES[self.space(space)], size, self.op.pc)
            self.check(self.runtime(wgmma_groups.spoils, self.mask, *how))

    # --- mbarriers ---

    def mbarrier_init(self, space: str, address: Value, count: Value) -> None:
        self.set_line("addresses", address)
        self.set_line("operands", count)
        space_ = SPACES[self.space(space)]
        self.check(
            self.runtime(mbarrier_model.init, self.mask, space_, self.at("operands"), self.op.pc)
        )

    def mbarrier_inval(self, space: str, address: Value) -> None:
        self.set_line("addresses", address)
        self.check(
            self.runtime(
                mbarrier_model.invalidate, self.mask, SPACES[self.space(space)], self.op.pc
            )
        )

    def mbarrier_arrive(
        self, space: str, address: Value, count: Value, tx: Value, drop: bool = False
    ) -> Value:
        self.set_line("addresses", address)
        self.set_line("operands", count)
        self.set_line("operands", tx, 1)
        how = (SPACES[self.space(space)], int(drop), self.at("results"), self.op.pc)
        self.check(self.runtime(mbarrier_model.arrive, self.mask, *how))
        return self.line("results", 64)

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
        """How long a thread sleeps is not measured: until something happens, or nothing can."""
        if parity:
            phase = self.shl(self.zext(phase, 64), self.const(32, mbarrier_model.PHASE))
        self.set_line("addresses", address)
        self.set_line("operands", phase)
        areas = (self.at("operands"), int(sleep), self.at("results"))
        code = self.runtime(
            mbarrier_model.look, self.mask, SPACES[self.space(space)], *areas, self.op.pc
        )
        self.sleep_unless(code)
        return self.cmp("ne", self.line("results", 32), self.const(32, 0))

    def mbarrier_pending(self, state: Value) -> Value:
        return self.and_(self.trunc(state, 32), self.const(32, mbarrier_model.MOST))

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
        self.set_line("addresses", dst)
        self.set_line("addresses2", src)
        self.set_line("operands", size)
        if to == "global":
            chosen = self.const(32, 0xFFFF) if bytes_ is None else self.zext(bytes_, 32)
            self.set_line("operands", chosen, 1)
            self.check(self.runtime(bulk_copies.copy_out, self.mask, 0, self.op.pc))
            return
        self.aim(barrier, ctas)
        self.check(self.runtime(bulk_copies.copy_in, self.mask, SPACES[source], 0, self.op.pc))

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
        which = async_reductions.number(op, type_)
        self.runtime(async_reductions.prepare_reductions)
        self.set_line("addresses", dst)
        self.set_line("addresses2", src)
        self.set_line("operands", size)
        if to == "global":
            self.check(self.runtime(bulk_copies.copy_out, self.mask, which, self.op.pc))
            return
        self.aim(barrier, None)
        self.check(
            self.runtime(bulk_copies.copy_in, self.mask, SPACES["shared"], which, self.op.pc)
        )

    def aim(self, barrier: Value, ctas: Value | None) -> None:
        """Which CTAs a copy goes to (none: the one of its target), and the barriers it tells."""
        chosen = self.const(32, 0) if ctas is None else self.zext(ctas, 32)
        self.set_line("operands", chosen, 1)
        self.set_line("operands", barrier, bulk_copies.LIST // 64)

    def bulk_commit(self) -> None:
        self.runtime(bulk_copies.commit_bulk, self.mask)

    def bulk_wait(self, pending: int, read: bool) -> None:
        """A copy is read when it lands, so both waits are one."""
        self.check(self.runtime(bulk_copies.wait_bulk, self.mask, pending))

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
        if not self.space(space):
            address, barrier = (self.from_generic("shared", a) for a in (address, barrier))
        size = self.width(values[0]) // 8
        self.set_line("addresses", address)
        self.aim(barrier, None)
        for i, value in enumerate(values):
            self.set_line("operands", value, 4 * bulk_copies.VALUES // (32 * size) + i)
        which = async_reductions.number(op, type_) if op else 0
        if which:
            self.runtime(async_reductions.prepare_reductions)
        how = (size, len(values), which, self.op.pc)
        self.check(self.runtime(bulk_copies.store_later, self.mask, *how))

    def cancel_cluster(self, space: str, address: Value, barrier: Value, everywhere: bool) -> None:
        if not self.space(space):
            address, barrier = (self.from_generic("shared", a) for a in (address, barrier))
        self.set_line("addresses", address)
        self.aim(barrier, None)
        self.check(self.runtime(cluster_launches.cancel, self.mask, int(everywhere), self.op.pc))

    def store_zeros(self, space: str, address: Value, size: Value) -> None:
        if not self.space(space):
            address = self.from_generic("shared", address)
        self.set_line("addresses", address)
        self.set_line("operands", size)
        self.check(self.runtime(memory_access.store_zeros, self.mask, self.op.pc))

    def cp_async_arrive(self, space: str, address: Value, counted: bool) -> None:
        self.set_line("addresses", address)
        how = (SPACES[self.space(space)], int(counted), self.op.pc)
        self.check(self.runtime(async_copies.arrive_async, self.mask, *how))

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
        self.set_line("addresses", dst)
        self.aim(barrier, ctas)
        for i in range(3):
            offset = self.zext(offsets[i], 32) if i < len(offsets) else self.const(32, 0)
            self.set_line("operands", offset, tensor_copies.OFFSETS + i)
        how = self._box(tensor, mode)
        self.check(self.runtime(bulk_copies.load_box, self.mask, how, self.op.pc))

    def tensor_store(self, tensor: Tensor, src: Value, mode: str) -> None:
        self._out(tensor, src, mode, 0)

    def tensor_reduce(self, tensor: Tensor, src: Value, mode: str, op: str) -> None:
        self.runtime(async_reductions.prepare_reductions)
        self._out(tensor, src, mode, async_reductions.number(op))

    def _out(self, tensor: Tensor, src: Value, mode: str, reduction: int) -> None:
        self.set_line("addresses", src)
        for i in range(3):
            self.set_line("operands", self.const(32, 0), tensor_copies.OFFSETS + i)
        how = self._box(tensor, mode)
        self.check(self.runtime(bulk_copies.store_box, self.mask, how, reduction, self.op.pc))

    def _box(self, tensor: Tensor, mode: str) -> int:
        """Lays out map and coordinates; what ``tensors.box_of`` is to know of them."""
        address, coordinates = tensor
        self.set_line("addresses2", address)
        for i, c in enumerate(coordinates):
            self.set_line("operands", c, tensor_copies.COORDINATES + i)
        return len(coordinates) | (mode != "tile") << 3

    def tensor_map_replace(
        self, space: str, address: Value, field: str, ordinal: int, value: Value | int
    ) -> None:
        self.set_line("addresses", address)
        given = value if isinstance(value, int) else _Number(self, value)
        for one, number in tensor_map_fields.written(field, given, ordinal):
            bits = self.const(64, number) if isinstance(number, int) else number.wide()
            self.set_line("operands", bits)
            how = (SPACES[self.space(space)], one.low, one.width, self.op.pc)
            self.check(self.runtime(tensor_copies.put_field, self.mask, *how))

    # --- fences ---

    def fence(self, kind: str) -> None:
        """Accesses happen in order here; a checked launch wants to see what says that they do."""
        if kind == "proxy.async" or "mbarrier_init" in self.op.form.opcode:
            self.runtime(vector_clocks.proxy_fence, self.mask)
        elif kind == "warp":
            self.runtime(vector_clocks.lanes_fence, self.mask)
        elif kind == "grid":
            self.runtime(vector_clocks.grid_fence, self.mask)

    # --- clusters ---

    def map_rank(self, space: str, address: Value, rank: Value) -> Value:
        place = self.and_(address, self.const(64, PLACE))
        window = self.and_(address, self.const(64, WINDOW))
        high = self.shl(self.zext(rank, 64), self.const(32, RANK_SHIFT))
        return self.or_(self.or_(window, place), high)

    def rank_of(self, space: str, address: Value) -> Value:
        return self.lshr(self.trunc(address, 32), self.const(32, RANK_SHIFT))

    def cluster_arrive(self, kind: str) -> None:
        self.check(self.runtime(mbarrier_model.cluster_arrive, self.mask, self.op.pc))

    def cluster_wait(self) -> None:
        self.sleep_unless(self.runtime(mbarrier_model.cluster_wait, self.mask, self.op.pc))
