"""A call whose arrays are on the CPU: its matrices in device memory, to be multiplied there.

Each matrix is copied once, line by line, straight to where the kernel reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ...errors import DeviceError
from ...lazy_imports import deferred
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..devices.device import ExecutionDevice
from .call_record import OperandLayout
from .prepared_call import PreparedCall, ScaleFactor

if TYPE_CHECKING:
    from . import tf32x3
else:
    tf32x3 = deferred(".tf32x3", __package__)

Views = tuple[ArrayView, ArrayView, ArrayView | None, ArrayView]  # A, B, C where it is read, D


@contextmanager
def device_allocations(on: ExecutionDevice) -> Iterator[list[int]]:
    """Addresses put into the list are freed at the end; an error before goes before theirs."""
    addresses: list[int] = []
    try:
        yield addresses
    except BaseException:
        for address in addresses:
            with suppress(DeviceError):
                on.free(address)
        raise
    with ExitStack() as stack:  # all of them, whatever one says
        for address in addresses:
            stack.callback(on.free, address)


class StagedCall:
    """``with Uploaded(…) as there: there.start(); there.download()``. ``start`` may be repeated.
    Where D has no elements nothing is done.
    """

    def __init__(
        self, way: PreparedCall, views: Views, alpha: ScaleFactor, beta: ScaleFactor
    ) -> None:
        self.way, self.views, self.scales = way, views, (alpha, beta)
        self._empty = 0 in views[3].shape
        self._stack = ExitStack()

    def __enter__(self) -> StagedCall:
        with ExitStack() as stack:  # an error while uploading frees what was uploaded
            self._addresses = stack.enter_context(device_allocations(self.way.device))
            if not self._empty:
                self._upload()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)

    def _upload(self) -> None:
        way, (va, vb, vc, vo), scales = self.way, self.views, self.scales
        parts = way.parts
        inputs = (0, 0)
        if scales[0].value:
            inputs = self._up(va, parts["a"], "a"), self._up(vb, parts["b"], "b")
        c = self._up(vc, parts["c"]) if vc is not None else 0
        self._d = self._room(vo, parts["d"])
        space = self._space(way.workspace) if way.workspace else 0
        self._given = *inputs, c, self._d, space, scales

    def _room(self, view: ArrayView, part: OperandLayout) -> int:
        return self._space(part.elements(view.shape) * view.itemsize)

    def _space(self, count: int) -> int:
        address = self.way.device.alloc(count)
        self._addresses.append(address)
        return address

    def _up(self, view: ArrayView, part: OperandLayout, name: str = "c") -> int:
        address = self._room(view, part)
        for offset, lines in _matrices(view, part):
            if part.times > 1:
                lines = tf32x3.laid_out(name, lines)
            self.way.device.upload(address + offset, lines, part.leading)
        return address

    def start(self, stream: int = 0) -> None:
        """Start the kernel; on the virtual machine, run it."""
        if not self._empty:
            self.way.start(*self._given, stream)

    def download(self) -> None:
        """Bring the result to where it belongs, once it is there."""
        vo, part = self.views[3], self.way.parts["d"]
        for offset, lines in () if self._empty else _matrices(vo, part):
            self.way.device.download(lines, self._d + offset, part.leading)
        array_view.mark_written([vo.owner])


def _matrices(view: ArrayView, part: OperandLayout) -> Iterator[tuple[int, Any]]:
    """Each matrix of a stack, its lines as rows, and where it begins there, in bytes."""
    bits = array_view.bits(view)
    stack = bits if bits.ndim == 3 else bits[None]
    for i, matrix in enumerate(stack):
        yield i * part.apart * view.itemsize, matrix if part.rows else matrix.T
