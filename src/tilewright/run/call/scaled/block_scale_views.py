"""Block scales of a call: arrays, checked, and their signatures in the request."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ....errors import DeviceError, ProblemError
from ....gemm.block_scaling import BLOCK
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...arrays.memory_overlap import overlap
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

    def check_apart(self, out: ArrayView) -> None:
        """Raise ProblemError if ``out`` shares memory with the scales."""
        for name, view in zip("ab", self, strict=True):
            if overlap(out, view):
                raise ProblemError(f"out must not share memory with the scales of {name}")


def request_with_scales(request: Request, scales: BlockScales) -> tuple[Request, ScaleViews]:
    """The request with the signatures of the scales.

    Raises ProblemError for matrices, or scales, whose shapes do not fit, DtypeError for types that
    are not supported, DeviceError for scales that are not where A is.
    """
    check_request(request)
    (m, n, k), scaling = request.mnk, scales.scaling
    depth = -(-k // BLOCK)
    rows, columns = -(-m // scaling.rows), -(-n // scaling.columns)
    views = ScaleViews(array_view.view(scales.a), array_view.view(scales.b))
    shapes = (*request.batch, rows, depth), (*request.batch, depth, columns)
    for name, view, shape in zip(("a", "b"), views, shapes, strict=True):
        _check(f"the scales of {name}", view, shape, request.a.device)
    a, b = (_strides(view, request.a.device) for view in views)
    stacked, types = bool(request.batch), (views.a.dtype, views.b.dtype)
    signatures = (
        OperandSignature(types[0], (a[-2], a[-1], a[0] if stacked else 0)),
        OperandSignature(types[1], (b[-1], b[-2], b[0] if stacked else 0)),
    )
    scaling = replace(scaling, types=types)
    return request._replace(scales=BlockScaleRequest(scaling, *signatures)), views


def _check(name: str, view: ArrayView, shape: tuple[int, ...], where: str) -> None:
    if view.shape != shape:
        shown, given = ("×".join(map(str, x)) for x in (shape, view.shape))
        raise ProblemError(f"{name} must have shape {shown}, got {given}")
    if view.device != where:
        raise DeviceError(f"{name} must be on {where}, where a is, got {view.device}")
    if view.address % view.itemsize:
        raise ProblemError(f"{name} must be aligned to its elements, got {view.address:#x}")


def _strides(view: ArrayView, where: str) -> tuple[int, ...]:
    """The strides in elements on the device, where arrays on the CPU become contiguous."""
    if where != "cpu":
        return tuple(view.strides)
    strides, step = [], 1
    for size in reversed(view.shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
