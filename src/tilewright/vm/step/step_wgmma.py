"""``wgmma`` one step at a time: what the descriptors address, by ``mma``'s own arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...dtypes import dtype
from ...mma import MatrixDescriptor, MmaInstruction
from ...mma.sparse_metadata import dense_columns
from ...mma.sparsity import sparsity_pattern
from ...native.native_language import u8
from ...native.native_record import Record, view
from ..codegen.wgmma_function import part, shape
from ..engine import wgmma_groups, wgmma_operands
from ..engine.wgmma_operands import CHUNK, FROM_SHARED, ROWS, TRANS_A, TRANS_B
from ..state import lane_groups
from ..state.records import OUT_OF_BOUNDS, WARPGROUP_WARPS, Cta, LaunchRecord
from .step_context import Fault, Lanes, StepContext, StepPart, lanes_of
from .step_control import StepControl
from .step_matrix import StepMatrix

Bits = npt.NDArray[Any]


class StepWgmma(StepPart):
    """Evaluates warpgroup products for the warp whose record is ``warp``."""

    def __init__(self, m: StepContext, control: StepControl, matrix: StepMatrix) -> None:
        super().__init__(m)
        self.control, self.matrix = control, matrix

    def wgmma(
        self,
        instruction: MmaInstruction,
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
        if self.m.mask == 0:
            return d
        i, first = part(instruction.on(self.m.arch)), int(np.flatnonzero(lanes_of(self.m.mask))[0])
        shared = not isinstance(a, tuple)
        self.m.warp.addresses[:] = a if shared else 0
        self.m.warp.addresses2[:] = b_desc
        self.m.call_checked(
            wgmma_operands.check_operands, self.m.mask, FROM_SHARED * shared, self.m.pc
        )
        if shared:
            rows = slice(
                self.m.warp.index % WARPGROUP_WARPS * ROWS,
                (self.m.warp.index % WARPGROUP_WARPS + 1) * ROWS,
            )
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
        used = self.m.program.wgmma_sets[self.m.pc]
        size = shape(instruction.on(self.m.arch))
        self.m.call_checked(
            wgmma_groups.issue, self.m.mask, used, int(scale_d[first]), how, size, self.m.pc
        )
        return tuple(i.fragment("d").registers(made).T)

    def wgmma_fence(self) -> None:
        self.control.sleep_unless(self.m.call_native(wgmma_groups.fence, self.m.mask))

    def wgmma_commit(self) -> None:
        self.m.call_native(wgmma_groups.commit, self.m.mask)

    def wgmma_wait(self, pending: int) -> None:
        self.control.sleep_unless(
            self.m.call_native(wgmma_groups.wait_groups, self.m.mask, pending, self.m.pc)
        )

    def check_wgmma_registers(self, sets: int) -> None:
        self.m.call_checked(wgmma_groups.check_registers, self.m.mask, sets, self.m.pc)

    def _matrix(
        self, i: MmaInstruction, name: str, registers: tuple[Lanes, ...], copy: int = 0
    ) -> Bits:
        """An operand in registers."""
        return i.fragment(name).matrix(np.stack(registers, axis=-1), copy)

    def _positions(self, i: MmaInstruction, register: Lanes, selector: int) -> Bits:
        codes = self._matrix(i, "metadata", (register,), selector)
        self.matrix.selects(i, codes)
        return dense_columns(codes, sparsity_pattern(i.a), i.ordered)

    def _operand(
        self, bits: int, type_: str, shape: tuple[int, int], trans: bool, rows: slice = slice(None)
    ) -> Bits:
        """The bits of these rows of a matrix in shared memory."""
        size = dtype(type_).bits
        places = MatrixDescriptor.parse(bits).addresses(size, *shape, "MN" if trans else "K")[rows]
        launch, cta = Record(LaunchRecord, self.m.warp.launch), Record(Cta, self.m.warp.cta)
        pieces = (places.T if trans else places).reshape(-1) // 8 // CHUNK * CHUNK
        beyond = pieces[pieces > launch.shared_bytes - CHUNK]
        if beyond.size:
            self.m.call_native(lane_groups.fault, OUT_OF_BOUNDS, self.m.pc, 0, int(beyond[0]))
            raise Fault
        memory = view(cta.shared, u8, launch.shared_bytes)
        if size == 1:
            return memory[places >> 3] >> (places & 7).astype(np.uint8) & 1
        bytes_ = memory[(places >> 3)[..., None] + np.arange(size // 8)]
        return np.ascontiguousarray(bytes_).view(f"u{size // 8}")[..., 0]
