"""Transposed copies of matrices, by the relayout kernels that products use."""

from __future__ import annotations

from math import prod
from typing import Any

from ..cuda import stream_handle
from ..errors import ProblemError
from ..lazy_imports import untraced
from ..run import device as device_by_name
from ..run.arrays import array_view
from ..run.arrays.array_view import ArrayView
from ..run.arrays.dlpack import compact_strides
from ..run.devices.array_placement import (
    device_for_arrays,
    stream_for_arrays,
    wait_for_hidden_streams,
)
from ..run.devices.device_protocol import device_allocations
from ..run.relayout.relayout import RelayoutSpec, prepare
from .row_call import check_apart, finished


@untraced
def transpose(x: Any, *, out: Any = None, device: Any = None, stream: Any = None) -> Any:
    """A contiguous copy of ``x`` with the last two dimensions exchanged, of its library and type.

    ``x``: any type of 1, 2, 4 or 8 bytes, of two or three dimensions and any strides. ``out``: a
    contiguous array of the result's shape and type, which does not overlap ``x``. ``device``:
    where arrays on the CPU are copied; ``stream``: the GPU's stream. Raises ProblemError.
    """
    view = array_view.view(x)
    if len(view.shape) not in (2, 3):
        raise ProblemError(f"x must have two or three dimensions, got shape {tuple(view.shape)}")
    shape = (*view.shape[:-2], view.shape[-1], view.shape[-2])
    y = array_view.empty_like_kind(x, shape, view.dtype) if out is None else out
    target = array_view.view(y)
    contiguous = array_view.is_contiguous(target)
    if (tuple(target.shape), target.dtype) != (shape, view.dtype) or not contiguous:
        got = f"{target.dtype} of shape {tuple(target.shape)}"
        raise ProblemError(f"out must be contiguous, {view.dtype} of shape {shape}, got {got}")
    check_apart(view, target)
    if prod(shape):
        launch = _launch_staged if view.device == "cpu" else _launch_in_place
        launch(x, view, y, target, device, stream)
        array_view.mark_written([y])
    return finished(x, y, out)


def _spec(view: ArrayView, strides: tuple[int, ...]) -> RelayoutSpec:
    """The copy of ``view``, whose target is its transpose."""
    shape = tuple(view.shape)
    compact = compact_strides((*shape[:-2], shape[-1], shape[-2]))
    target = (*compact[:-2], compact[-1], compact[-2])
    return RelayoutSpec(shape, view.itemsize, strides, target)


def _launch_in_place(
    x: Any, view: ArrayView, y: Any, target: ArrayView, device: Any, stream: Any
) -> None:
    if target.device != view.device:
        raise ProblemError(f"out must be on {view.device}, got an array on {target.device}")
    on = device_for_arrays(view.device, device)
    handle = stream_for_arrays(on, x, y) if stream is None else stream_handle(stream)
    prepare(on, (_spec(view, tuple(view.strides)),))((view.address, target.address), handle)
    wait_for_hidden_streams(on, handle, (x, y))


def _launch_staged(
    x: Any, view: ArrayView, y: Any, target: ArrayView, device: Any, stream: Any
) -> None:
    on, handle = device_by_name(device), stream_handle(stream)
    source, result = (array_view.bits(v) for v in (view, target))
    rows = source.reshape(-1, source.shape[-1])
    with device_allocations(on) as allocations:
        for _ in range(2):
            allocations.append(on.alloc(rows.nbytes))
        on.upload(allocations[0], rows, rows.shape[1])
        prepare(on, (_spec(view, compact_strides(view.shape)),))(allocations, handle)
        on.wait(handle)
        on.download(result.reshape(1, -1), allocations[1], result.size)
