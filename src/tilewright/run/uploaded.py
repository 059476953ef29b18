"""A call whose arrays are on the CPU: its matrices in device memory, to be multiplied there.

Each matrix is copied once, line by line, straight to where the kernel reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ..errors import DeviceError
from . import arrays
from .arrays import ArrayView
from .device import Device
from .route import Part, Route, Scale

Views = tuple[ArrayView, ArrayView, ArrayView | None, ArrayView]  # A, B, C where it is read, D


@contextmanager
def borrowed(on: Device) -> Iterator[list[int]]:
    """Addresses put into the list are freed at the end; an error before goes before theirs."""
    addresses: list[int] = []
    try:
        yield addresses
    except BaseException:
        for address in addresses:
            with suppress(DeviceError):
                on.free(address)
        raise
    for address in addresses:
        on.free(address)


class Uploaded:
    """``with Uploaded(…) as there: there.start(); there.download()``. ``start`` may be repeated."""

    def __init__(self, way: Route, views: Views, alpha: Scale, beta: Scale) -> None:
        self.way, self.views, self.scales = way, views, (alpha, beta)
        self._stack = ExitStack()

    def __enter__(self) -> Uploaded:
        with ExitStack() as stack:  # an error while uploading frees what was uploaded
            self._addresses = stack.enter_context(borrowed(self.way.device))
            self._upload()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)

    def _upload(self) -> None:
        way, (va, vb, vc, vo), scales = self.way, self.views, self.scales
        inputs = (self._up(va, way.a), self._up(vb, way.b)) if scales[0].value else (0, 0)
        c = self._up(vc, way.c) if vc is not None and way.c is not None else 0
        self._d = self._room(vo, way.d)
        self._params = way.params(*inputs, c, self._d, *scales)

    def _room(self, view: ArrayView, part: Part) -> int:
        address = self.way.device.alloc(part.elements(view.shape) * view.itemsize)
        self._addresses.append(address)
        return address

    def _up(self, view: ArrayView, part: Part) -> int:
        address = self._room(view, part)
        self.way.device.upload(address, _lines(view, part), part.leading)
        return address

    def start(self, stream: int = 0) -> None:
        """Start the kernel; on the virtual machine, run it."""
        self.way.start(self._params, stream)

    def download(self) -> None:
        """Bring the result to where it belongs, once it is there."""
        vo, part = self.views[3], self.way.d
        self.way.device.download(_lines(vo, part), self._d, part.leading)


def _lines(view: ArrayView, part: Part) -> Any:
    bits = arrays.bits(view)
    return bits if part.rows else bits.T
