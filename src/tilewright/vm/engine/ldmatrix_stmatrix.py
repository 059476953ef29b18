"""``ldmatrix`` and ``stmatrix``, in native code: rows of 16 bytes to and from fragments."""

from __future__ import annotations

import llvmlite.ir as ir

from ... import mma
from ...native.intrinsics import address, at
from ...native.native_language import Ptr, i64, native, u8
from ..llvm.vector_memory import load_vector, shuffled, store_vector
from ..state.records import FULL_MASK, WRITES, WarpRecord
from .memory_access import (
    check_access,
    check_bounds,
    copy_element,
    fast_base,
    lane_stride,
    resolve,
    window_kind,
)
from .vector_access import CaseEmitter, emit_cases, store_elements
from .wgmma_groups import check_overwrite


def _arrange(trans: int, back: bool) -> CaseEmitter:
    def emit(b: ir.IRBuilder, target: ir.Value, source: ir.Value) -> None:
        rows, columns = mma.ldmatrix(1, bool(trans)).coordinates()
        order = (rows * 8 + columns).reshape(-1)
        matrix = load_vector(b, source, 0, ir.VectorType(ir.IntType(16), 64))
        lanes = (order.argsort() if back else order).tolist()
        store_vector(shuffled(matrix, lanes), target, 0)

    return emit


@native(emit=emit_cases([(trans, _arrange(trans, False)) for trans in (0, 1)]))
def rows_to_fragment(target: i64, source: i64, trans: i64) -> i64:
    """Move an 8×8 matrix of 16-bit elements from rows to the registers of 32 lanes."""
    raise NotImplementedError


@native(emit=emit_cases([(trans, _arrange(trans, True)) for trans in (0, 1)]))
def fragment_to_rows(target: i64, source: i64, trans: i64) -> i64:
    """The reverse of ``rows_to_fragment``."""
    raise NotImplementedError


@native
def load_matrix(
    w: WarpRecord, mask: i64, space: i64, trans: i64, out: Ptr[u8], count: i64, pc: i64
) -> i64:
    """Load ``count`` 8×8 matrices of 16-bit elements; row addresses are in ``w.addresses``."""
    if mask == 0:
        return 0
    rows = (1 << 8 * count) - 1
    if w.launch.checked != 0 and check_access(w, rows, space, 16, 1, 0, pc) != 0:
        return 1
    kind = window_kind(w, rows, space)
    base = fast_base(w, rows, space, kind, 16, pc) if lane_stride(w, kind) == 0 else 0
    halves = address(w.halves)
    for i in range(count):
        for row in range(8):
            lane = i * 8 + row
            host = base + w.addresses[lane]
            if base == 0:
                host = resolve(w, space, w.addresses[lane], 16, lane, pc)
                if host == 0:
                    return 1
            copy_element(halves + row * 16, host, 16)
        rows_to_fragment(address(out) + i * 128, halves, trans)
    return 0


@native
def store_matrix(
    w: WarpRecord, mask: i64, space: i64, trans: i64, values: Ptr[u8], count: i64, pc: i64
) -> i64:
    """Store ``count`` 8×8 matrices of 16-bit elements.

    If all lanes are active, whole rows are stored, in an order such that of rows with the same
    address the lowest wins; if transposed, the lowest of the odd rows, which hold the lanes' second
    elements and are stored after the even rows.
    """
    rows = (1 << 8 * count) - 1
    if mask != 0 and check_overwrite(w, rows, space, 16, pc) != 0:
        return 1
    if mask != FULL_MASK or w.launch.checked != 0:
        return store_matrix_lanes(w, mask, space, trans, values, count, pc)
    kind = window_kind(w, rows, space)
    base = fast_base(w, rows, space + WRITES, kind, 16, pc)
    if base == 0 or lane_stride(w, kind) != 0:
        return store_matrix_lanes(w, mask, space, trans, values, count, pc)
    halves = address(w.halves)
    for i in range(count):
        fragment_to_rows(halves, address(values) + i * 128, trans)
        for k in range(8):
            row = 7 - k
            if trans != 0:
                row = 6 - 2 * k if k < 4 else 15 - 2 * k
            copy_element(base + w.addresses[i * 8 + row], halves + row * 16, 16)
    return 0


@native
def store_matrix_lanes(
    w: WarpRecord, mask: i64, space: i64, trans: i64, values: Ptr[u8], count: i64, pc: i64
) -> i64:
    """The same for some lanes: each stores the adjacent elements that it holds. Bounds are checked
    for whole rows.
    """
    for lane in range(32):
        w.addresses2[lane] = w.addresses[lane]
    size = 4 if trans == 0 else 2
    for part in range(count * 4 // size):
        i = part * size // 4
        half = part * size % 4
        for lane in range(32):
            row = lane // 4 if trans == 0 else lane % 4 * 2 + half // 2
            w.addresses[lane] = w.addresses2[i * 8 + row]
            copy_element(
                address(w.halves) + lane * size, address(values) + i * 128 + lane * 4 + half, size
            )
        if check_bounds(w, mask, space, 16, pc) != 0:
            return 1
        for lane in range(32):
            offset = lane % 4 * 4 if trans == 0 else lane // 4 * 2
            w.addresses[lane] = w.addresses[lane] + offset
        if store_elements(w, mask, space, at(u8, address(w.halves)), size, 1, pc) != 0:
            return 1
    return 0
