"""Block scales of a call: arrays, checked, and their signatures in the request."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ....errors import DeviceError, DtypeError, ProblemError
from ....gemm.block_scaling import BLOCK
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
from ..matrix_layout import MAX_ALIGN, ArraySignature, layout_with_order, signature_of
from ..request import (
    BlockScaleRequest,
    BlockScales,
    OperandSignature,
    Request,
    check_request,
)


class ScaleViews(NamedTuple):
    """The arrays of scales of a call."""

    a: ArrayView
    b: ArrayView
    b2: ArrayView | None

    def check_apart(self, out: ArrayView) -> None:
        """Raise ProblemError if ``out`` shares memory with the scales."""
        for name, view in self._asdict().items():
            if view is not None and overlap(out, view):
                raise ProblemError(f"out must not share memory with the scales of {name}")


def request_with_scales(request: Request, scales: BlockScales) -> tuple[Request, ScaleViews]:
    """The request with the signatures of the scales.

    Raises ProblemError for matrices, or scales, whose shapes do not fit, DtypeError for types that
    are not supported, DeviceError for scales that are not where A is.
    """
    check_request(request)
    (_, n, k), scaling = request.mnk, scales.scaling
    m = request.a.matrix_shape[-2]  # which may be gathered
    depth = -(-k // BLOCK)
    rows, columns = -(-m // scaling.rows), -(-n // scaling.columns)
    b2 = None if scales.b2 is None else array_view.view(scales.b2)
    views = ScaleViews(array_view.view(scales.a), array_view.view(scales.b), b2)
    of_b = (*request.b.shape[:-2], depth, columns)
    shapes = (*request.a.shape[:-2], rows, depth), of_b, of_b
    for name, view, shape in zip(("a", "b", "b2"), views, shapes, strict=True):
        if view is not None:
            _check(f"the scales of {name}", view, shape, request.a.device)
    a, b, *more = (_signature(view, request.a.device) for view in views if view)
    left, right = _scale_layout(a, of_a=True), _scale_layout(b, of_a=False)
    if request.groups is not None and request.groups.grouping.gather:
        left = _strided(a, of_a=True)
    for second in more:
        right = _like(right, b, second)
    scaling = replace(
        scaling, types=(a.dtype, b.dtype), contiguous=(left.contiguous, right.contiguous)
    )
    signatures = OperandSignature(a.dtype, left.strides), OperandSignature(b.dtype, right.strides)
    return request._replace(scales=BlockScaleRequest(scaling, *signatures)), views


class _ScaleLayout(NamedTuple):
    """How scales lie: as ``BlockScaling.contiguous``; strides along M or N, along K, of a stack."""

    contiguous: str
    strides: tuple[int, int, int]


def _scale_layout(s: ArraySignature, *, of_a: bool) -> _ScaleLayout:
    """The layout of the scales of A, or of B: the contiguous dimension if tensor copies load them,
    which needs f32 in lines at multiples of 16 bytes; M and N preferably.
    """
    for contiguous in ("mn", "k") if s.dtype == "f32" else ():
        row_major = (contiguous == "k") == of_a
        found = layout_with_order(s, row_major)
        if found is not None and found.align >= MAX_ALIGN:
            along_mn, along_k = found.leading_dim, 1
            if contiguous == "mn":
                along_mn, along_k = along_k, along_mn
            return _ScaleLayout(contiguous, (along_mn, along_k, found.batch_stride))
    return _strided(s, of_a=of_a)


def _like(layout: _ScaleLayout, b: ArraySignature, b2: ArraySignature) -> _ScaleLayout:
    """The layout of the scales of two matrices B. Raises ProblemError, DtypeError if they differ
    by strides or types.
    """
    if b.dtype != b2.dtype:
        raise DtypeError(f"the scales of both b must be of one type, got {b.dtype} and {b2.dtype}")
    strided = _strided(b, of_a=False)
    if _strided(b2, of_a=False).strides != strided.strides:
        raise ProblemError(
            f"the scales of both b must have the same strides, got {b.strides} and {b2.strides}",
            hint="make them contiguous",
        )
    return layout if _scale_layout(b2, of_a=False) == layout else strided


def _strided(s: ArraySignature, *, of_a: bool) -> _ScaleLayout:
    """The layout of scales that a warp loads."""
    rows, columns = s.strides[-2:]
    sides = (rows, columns) if of_a else (columns, rows)
    return _ScaleLayout("", (*sides, s.strides[0] if len(s.shape) == 3 else 0))


def _check(name: str, view: ArrayView, shape: tuple[int, ...], where: str) -> None:
    if view.shape != shape:
        shown, given = ("×".join(map(str, x)) for x in (shape, view.shape))
        raise ProblemError(f"{name} must have shape {shown}, got {given}")
    if view.device != where:
        raise DeviceError(f"{name} must be on {where}, where a is, got {view.device}")
    if view.address % view.itemsize:
        raise ProblemError(f"{name} must be aligned to its elements, got {view.address:#x}")


def _signature(view: ArrayView, where: str) -> ArraySignature:
    """The signature on the device, where arrays on the CPU become contiguous and aligned."""
    if where != "cpu":
        return signature_of(view)
    shape = view.shape if len(view.shape) == 3 else (1, *view.shape)
    strides = shape[1] * shape[2], shape[2], 1
    return ArraySignature(view.shape, strides[-len(view.shape) :], view.dtype, where, 0)
