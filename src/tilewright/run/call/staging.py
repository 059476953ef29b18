"""Stage 5 of a call with arrays on the CPU, staging: matrices uploaded, result downloaded.

Each matrix is copied once, row by row, directly to the layout that the kernel reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

from ...lazy_imports import deferred
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..devices.device_protocol import device_allocations
from .alpha_beta import ScaleFactor
from .matrix_layout import NO_GROUPS, OperandLayout, OperandViews
from .prepared_call import Addresses, PreparedCall

if TYPE_CHECKING:
    from ..relayout import tf32x3
else:
    tf32x3 = deferred("..relayout.tf32x3", __package__)


class StagedCall:
    """A call whose matrices are in device memory within a ``with`` block.

    >>> with StagedCall(prepared, views, scales) as call: call.start(); call.download()

    ``start`` may be repeated. If D has no elements, nothing is done.
    """

    def __init__(
        self, prepared: PreparedCall, views: OperandViews, scales: Sequence[ScaleFactor]
    ) -> None:
        self.prepared, self.views, self.scales = prepared, views, scales
        self._empty = 0 in views.d.shape
        self._stack = ExitStack()

    def __enter__(self) -> StagedCall:
        with ExitStack() as stack:  # an error while uploading frees what was uploaded
            self._allocations = stack.enter_context(device_allocations(self.prepared.device))
            if not self._empty:
                self._at = self._upload()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)

    def _upload(self) -> Addresses:
        prepared, views, layouts = self.prepared, self.views, self.prepared.layouts
        a = b = c = b2 = 0
        # α = 0 multiplies nothing, but a tile's prepared weights are copied (not by tensor maps)
        if self.scales[0].value or prepared.problem.weights is not None:
            a = self._upload_matrix(views.a, layouts["a"], "a")
            b = self._upload_matrix(views.b, layouts["b"], "b")
        d = self._upload_d() if self._reads_d() else self._alloc_matrix(views.d, layouts["d"])
        if views.c is not None:
            is_d = prepared.accumulated and layouts["c"] == layouts["d"]
            c = d if is_d else self._upload_matrix(views.c, layouts["c"])
        workspace = self._alloc(prepared.workspace) if prepared.workspace else 0
        if views.b2 is not None:
            b2 = self._upload_matrix(views.b2, layouts["b2"])
        scale_a, scale_b, scale_b2 = (
            0 if view is None else self._upload_compact(view)
            for view in views.scales or (None,) * 3
        )
        metadata, metadata2 = (
            0 if view is None else self._upload_compact(view) for view in views.metadata
        )
        groups = tuple(
            0 if view is None else self._upload_compact(view) for view in views.groups or NO_GROUPS
        )
        return Addresses(
            a, b, c, d, workspace, b2, scales=(scale_a, scale_b, scale_b2),
            metadata=(metadata, metadata2), groups=groups,
        )  # fmt: skip

    def _reads_d(self) -> bool:
        """Whether D's contents matter: the kernel writes the rows of groups only, or adds to D."""
        return self.views.groups is not None or bool(self.prepared.accumulated)

    def _upload_d(self) -> int:
        """Upload D with its contents."""
        return self._upload_matrix(self.views.d, self.prepared.layouts["d"])

    def _upload_compact(self, view: ArrayView) -> int:
        """Upload an array without gaps between its elements."""
        rows = np.ascontiguousarray(array_view.bits(view)).reshape(1, -1)
        address = self._alloc(rows.nbytes)
        self.prepared.device.upload(address, rows, rows.size)
        return address

    def _alloc_matrix(self, view: ArrayView, layout: OperandLayout) -> int:
        return self._alloc(layout.elements(view.shape) * view.itemsize)

    def _alloc(self, nbytes: int) -> int:
        address = self.prepared.device.alloc(nbytes)
        self._allocations.append(address)
        return address

    def _upload_matrix(self, view: ArrayView, layout: OperandLayout, name: str = "c") -> int:
        address = self._alloc_matrix(view, layout)
        for offset, rows in _matrices(layout.stored(view), layout):
            if layout.k_repeats > 1:
                rows = tf32x3.split_on_host(name, rows)
            self.prepared.device.upload(address + offset, rows, layout.leading_dim)
        return address

    def start(self, stream: int = 0) -> None:
        """Launch the kernels; the virtual machine returns when they have ended."""
        if not self._empty:
            self.prepared.launch(self._at, self.scales, stream)

    def download(self) -> None:
        """Wait for the kernels and copy D to the caller's array."""
        view, layout = self.views.d, self.prepared.layouts["d"]
        for offset, rows in () if self._empty else _matrices(view, layout):
            self.prepared.device.download(rows, self._at.d + offset, layout.leading_dim)
        array_view.mark_written([view.owner])


def _matrices(view: ArrayView, layout: OperandLayout) -> Iterator[tuple[int, Any]]:
    """Each matrix of a stack, transposed if column-major, and its byte offset on the device."""
    bits = array_view.bits(view)
    stack = bits if bits.ndim == 3 else bits[None]
    for i, matrix in enumerate(stack):
        yield i * layout.batch_stride * view.itemsize, matrix if layout.row_major else matrix.T
