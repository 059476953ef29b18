"""``wgmma`` of the stepping evaluator: operands by descriptor, and the arithmetic of ``mma``."""

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
    """The primitives of ``wgmma``."""

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
        """Computed when issued; its registers are in flight until its group is waited for, as in
        compiled code.
        """
        if self.m.mask == 0:
            return d
        i, first = part(instruction.on(self.m.arch)), int(np.flatnonzero(lanes_of(self.m.mask))[0])
        shared = not isinstance(a, tuple)
        self.m.warp.addresses[:] = 0 if isinstance(a, tuple) else a
        self.m.warp.addresses2[:] = b_desc
        self.m.call_checked(
            wgmma_operands.check_operands, self.m.mask, FROM_SHARED * shared, self.m.pc
        )
        if isinstance(a, tuple):
            left = self._matrix(i, "a", a)
        else:
            warp = self.m.warp.index % WARPGROUP_WARPS
            rows = slice(warp * ROWS, (warp + 1) * ROWS)
            left = self._operand(int(a[first]), i.a, (instruction.m, i.stored_k), trans_a, rows)
        right = self._operand(int(b_desc[first]), i.b, (i.n, i.k), trans_b).T
        if negate:
            left = left ^ left.dtype.type(1 << (dtype(i.a).bits - 1))
        c = self._matrix(i, "d", d)
        if not scale_d[first]:
            c = np.zeros_like(c)
        columns = self._columns(i, *metadata) if metadata is not None else None
        result = i.arithmetic.dot(left, right, c, columns)
        options = FROM_SHARED * shared | TRANS_A * trans_a | TRANS_B * trans_b
        sets = self.m.program.wgmma_sets[self.m.pc]
        size = shape(instruction.on(self.m.arch))
        self.m.call_checked(
            wgmma_groups.issue, self.m.mask, sets, int(scale_d[first]), options, size, self.m.pc
        )
        return tuple(i.fragment("d").registers(result).T)

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
        """The matrix of an operand in registers."""
        return i.fragment(name).matrix(np.stack(registers, axis=-1), copy)

    def _columns(self, i: MmaInstruction, register: Lanes, selector: int) -> Bits:
        """The dense column of each stored element of A."""
        codes = self._matrix(i, "metadata", (register,), selector)
        self.matrix.check_metadata(i, codes)
        return dense_columns(codes, sparsity_pattern(i.a), i.ordered)

    def _operand(
        self, bits: int, type_: str, shape: tuple[int, int], trans: bool, rows: slice = slice(None)
    ) -> Bits:
        """The elements of ``rows`` of a matrix in shared memory, as bits."""
        size = dtype(type_).bits
        major = "MN" if trans else "K"
        addresses = MatrixDescriptor.parse(bits).addresses(size, *shape, major)[rows]  # of bits
        launch, cta = Record(LaunchRecord, self.m.warp.launch), Record(Cta, self.m.warp.cta)
        chunks = (addresses.T if trans else addresses).reshape(-1) // 8 // CHUNK * CHUNK
        outside = chunks[chunks > launch.shared_bytes - CHUNK]
        if outside.size:
            self.m.call_native(lane_groups.fault, OUT_OF_BOUNDS, self.m.pc, 0, int(outside[0]))
            raise Fault
        memory = view(cta.shared, u8, launch.shared_bytes)
        if size == 1:
            b1: Bits = memory[addresses >> 3] >> (addresses & 7).astype(np.uint8) & 1
            return b1
        bytes_ = memory[(addresses >> 3)[..., None] + np.arange(size // 8)]
        elements: Bits = np.ascontiguousarray(bytes_).view(f"u{size // 8}")[..., 0]
        return elements
