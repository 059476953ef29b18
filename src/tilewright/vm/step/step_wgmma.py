"""``wgmma`` one step at a time: what the descriptors address, by ``mma``'s own arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...dtypes import dtype
from ...mma import Descriptor, Instruction
from ...mma.operand_fragments import chunk
from ...mma.sparse_metadata import positions
from ...native.native_language import u8
from ...native.native_record import Record, view
from ..codegen.wgmma_function import part, shape
from ..engine import wgmma_groups, wgmma_operands
from ..engine.wgmma_operands import FROM_SHARED, PIECE, ROWS, TRANS_A, TRANS_B
from ..state import lane_groups
from ..state.records import OUT_OF_BOUNDS, WARPS, Cta, Launch
from .step_memory import Fault, Lanes, SteppedMemory, lanes_of

Bits = npt.NDArray[Any]


class SteppedProducts(SteppedMemory):
    """Evaluates warpgroup products for the warp whose record is ``warp``."""

    def wgmma(
        self,
        instruction: Instruction,
        d: tuple[Lanes, ...],
        a: Lanes | tuple[Lanes, ...],
        b_desc: Lanes,
        scale_d: Lanes,
        *,
        negate: bool,
        trans_a: bool,
        trans_b: bool,
        metadata: tuple[Lanes, int] | None,
    ) -> tuple[Lanes, ...]:
        """Computed at once and under way until waited for, as in compiled code."""
        if self.mask == 0:
            return d
        i, first = part(instruction.on(self.arch)), int(np.flatnonzero(lanes_of(self.mask))[0])
        shared = not isinstance(a, tuple)
        self.warp.addresses[:] = a if shared else 0
        self.warp.addresses2[:] = b_desc
        self.checked(wgmma_operands.prepare, self.mask, FROM_SHARED * shared, self.op.pc)
        if shared:
            rows = slice(self.warp.index % WARPS * ROWS, (self.warp.index % WARPS + 1) * ROWS)
            whole = (instruction.m, i.stored_k)
            left = self._operand(int(a[first]), i.a, whole, trans_a, rows)
        else:
            left = self._matrix(i, "a", a)
        right = self._operand(int(b_desc[first]), i.b, (i.n, i.k), trans_b).T
        if negate:
            left = left ^ left.dtype.type(1 << (dtype(i.a).bits - 1))
        start = self._matrix(i, "d", d)
        if not scale_d[first]:
            start = np.zeros_like(start)
        where = self._positions(i, *metadata) if metadata is not None else None
        made = i.arithmetic.dot(left, right, start, where)
        how = FROM_SHARED * shared | TRANS_A * trans_a | TRANS_B * trans_b
        used = self.program.wgmma_sets[self.op.pc]
        size = shape(instruction.on(self.arch))
        self.checked(
            wgmma_groups.issue, self.mask, used, int(scale_d[first]), how, size, self.op.pc
        )
        return tuple(i.fragment("d").registers(made).T)

    def store(self, space: str, address: Lanes, values: tuple[Lanes, ...]) -> None:
        self.spare(space, address, self.width(values[0]) // 8 * len(values))
        super().store(space, address, values)

    def atomic(self, space: str, op: str, type_: str, address: Lanes, *operands: Lanes) -> Lanes:
        self.spare(space, address, self.width(operands[0]) // 8)
        return super().atomic(space, op, type_, address, *operands)

    def wgmma_fence(self) -> None:
        self.sleep_unless(self.native(wgmma_groups.fence, self.mask))

    def wgmma_commit(self) -> None:
        self.native(wgmma_groups.commit, self.mask)

    def wgmma_wait(self, pending: int) -> None:
        self.sleep_unless(self.native(wgmma_groups.await_, self.mask, pending, self.op.pc))

    def meet(self, sets: int) -> None:
        self.checked(wgmma_groups.touched, self.mask, sets, self.op.pc)

    def _matrix(
        self, i: Instruction, name: str, registers: tuple[Lanes, ...], copy: int = 0
    ) -> Bits:
        """An operand in registers."""
        return i.fragment(name).matrix(np.stack(registers, axis=-1), copy)

    def _positions(self, i: Instruction, register: Lanes, selector: int) -> Bits:
        codes = self._matrix(i, "metadata", (register,), selector)
        self.selects(i, codes)
        return positions(codes, chunk(i.a), i.ordered)

    def _operand(
        self, bits: int, type_: str, shape: tuple[int, int], trans: bool, rows: slice = slice(None)
    ) -> Bits:
        """The bits of these rows of a matrix in shared memory."""
        size = dtype(type_).bits
        places = Descriptor.parse(bits).addresses(size, *shape, "MN" if trans else "K")[rows]
        launch, cta = Record(Launch, self.warp.launch), Record(Cta, self.warp.cta)
        pieces = (places.T if trans else places).reshape(-1) // 8 // PIECE * PIECE
        beyond = pieces[pieces > launch.shared_bytes - PIECE]
        if beyond.size:
            self.native(lane_groups.fault, OUT_OF_BOUNDS, self.op.pc, 0, int(beyond[0]))
            raise Fault
        memory = view(cta.shared, u8, launch.shared_bytes)
        if size == 1:
            return memory[places >> 3] >> (places & 7).astype(np.uint8) & 1
        bytes_ = memory[(places >> 3)[..., None] + np.arange(size // 8)]
        return np.ascontiguousarray(bytes_).view(f"u{size // 8}")[..., 0]
