"""Stage 5 of a call with arrays on a GPU: they are read and written where they are.

Only a matrix whose layout the kernel can't read is copied, on the device, into memory of the
array's own library.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ProblemError
from ...lazy_imports import deferred
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from .alpha_beta import ScaleFactor
from .matrix_layout import MAX_ALIGN, NO_GROUPS, OperandLayout, OperandViews, padded_leading_dim
from .prepared_call import Addresses, PreparedCall

if TYPE_CHECKING:
    from ..relayout import relayout, tf32x3
else:
    relayout = deferred("..relayout.relayout", __package__)
    tf32x3 = deferred("..relayout.tf32x3", __package__)


def launch_in_place(
    prepared: PreparedCall,
    views: OperandViews,
    scales: Sequence[ScaleFactor],
    stream: int,
    operands: tuple[int, ...] = (),
) -> None:
    """Launch the relayouts of A, B and C, the kernels, and the relayout of D. ``operands``: the
    addresses of an epilogue's arrays.
    """
    # Keeps the copies until all is launched; their library frees them in stream order.
    owners: list[Any] = []
    at = _relayout_inputs(prepared, views, owners, stream)
    layout = prepared.layouts["d"]
    d = allocate_copy(views.d, layout, owners) if layout.copied else views.d.address
    space = _allocate(views.a, prepared.workspace, owners) if prepared.workspace else 0
    scale_a, scale_b, scale_b2 = (
        view.address if view else 0 for view in views.scales or (None,) * 3
    )
    metadata, metadata2 = (view.address if view else 0 for view in views.metadata)
    addresses = Addresses(
        at["a"], at["b"], at.get("c", 0), d, space, at.get("b2", 0), operands,
        (scale_a, scale_b, scale_b2),
        (metadata, metadata2),
        group_addresses(views),
    )  # fmt: skip
    prepared.launch(addresses, scales, stream)
    if layout.copied:
        spec = relayout_spec(views.d, layout, back=True)
        relayout.prepare(prepared.device, (spec,))((d, views.d.address), stream)


def group_addresses(views: OperandViews) -> tuple[int, ...]:
    """The addresses of the sizes of groups, of the indices of rows, and of places."""
    return tuple(x.address if x else 0 for x in views.groups or NO_GROUPS)


def _relayout_inputs(
    prepared: PreparedCall, views: OperandViews, owners: list[Any], stream: int
) -> dict[str, int]:
    """The addresses of A, B and C, or of their copies, which are launched here."""
    inputs = {"a": views.a, "b": views.b} | ({} if views.c is None else {"c": views.c})
    if views.b2 is not None:
        inputs["b2"] = views.b2
    at = {name: view.address for name, view in inputs.items()}
    specs, ends = [], []
    for name, view in inputs.items():
        layout = prepared.layouts[name]
        if not layout.copied:
            continue
        at[name] = allocate_copy(view, layout, owners)
        if layout.k_repeats > 1:
            split = tf32x3.prepare(prepared.device, split_shape(name, view, layout))
            split((view.address, at[name]), stream)
            continue
        specs.append(relayout_spec(view, layout))
        ends += [view.address, at[name]]
    if specs:
        relayout.prepare(prepared.device, tuple(specs))(ends, stream)
    return at


def split_shape(name: str, view: ArrayView, layout: OperandLayout) -> tf32x3.SplitShape:
    """The 3xTF32 split of A or B into a copy with three times the K extent."""
    stored = layout.stored(view)
    count, rows, columns = (1, *stored.shape)[-3:]
    batch_stride, row_stride, column_stride = (0, *stored.strides)[-3:]
    if layout.row_major:
        shape, source = (count, rows, columns), (batch_stride, row_stride, column_stride)
    else:
        shape, source = (count, columns, rows), (batch_stride, column_stride, row_stride)
    return tf32x3.SplitShape(name, shape, source, layout.leading_dim, layout.batch_stride)


def relayout_spec(
    view: ArrayView, layout: OperandLayout, back: bool = False
) -> relayout.RelayoutSpec:
    """The relayout of a matrix or stack to the kernel's layout, or ``back`` from it."""
    view = view if back else layout.stored(view)
    size, shape = view.itemsize, view.shape
    strides = (layout.batch_stride, *layout.strides)[-len(shape) :]
    if back:
        return relayout.RelayoutSpec(shape, size, strides, view.strides)
    padded = not (layout.leading_dim | layout.batch_stride) * size % MAX_ALIGN
    return relayout.RelayoutSpec(shape, size, view.strides, strides, padded)


def allocate_copy(view: ArrayView, layout: OperandLayout, owners: list[Any]) -> int:
    """Memory for a copy, from the array's own library, which frees it in stream order."""
    count = padded_leading_dim(layout.elements(view.shape), view.itemsize, 16)
    try:
        return _allocate(view, count * view.itemsize, owners)
    except ProblemError as error:
        what = f"a matrix of shape {view.shape} and strides {view.strides} must be copied"
        hint = "make it contiguous: its library gives tilewright no memory for a copy"
        raise ProblemError(what, hint=hint) from error


def _allocate(view: ArrayView, nbytes: int, owners: list[Any]) -> int:
    """Device memory from the array's library."""
    owner = array_view.empty_like_kind(view.owner, (-(-nbytes // view.itemsize),), view.dtype)
    owners.append(owner)
    return array_view.view(owner).address
