"""The device and the stream on which a call with given arrays runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import DeviceError
from ..arrays import array_view
from .device import device
from .device_protocol import ExecutionDevice


def device_for_arrays(arrays_on: str, requested: Any) -> ExecutionDevice:
    """The device for arrays on ``arrays_on`` (``"cpu"``, ``"cuda:0"``) and the caller's
    ``device=``.

    Raises DeviceError if the arrays are on one GPU and another device is requested.
    """
    if arrays_on == "cpu":
        return device(requested)
    if requested is None or str(requested) in ("auto", "cuda", arrays_on):
        return device(arrays_on)
    chosen = device(requested)
    if chosen.name != arrays_on:
        raise DeviceError(
            f"device must be {arrays_on!r}, where the arrays are, got {requested!r}",
            hint="copy the arrays to the CPU or to the other GPU",
        )
    return chosen


def stream_for_arrays(on: ExecutionDevice, first: Any, *others: Any) -> int:
    """The current stream of ``first``'s library; waits for other libraries' other streams."""
    stream = array_view.stream_of(first)
    for other in others:
        if other is not None and type(other) is not type(first):
            theirs = array_view.stream_of(other)
            if theirs != stream:
                on.wait(theirs)
    return stream


def wait_for_hidden_streams(on: ExecutionDevice, stream: int, arrays: Iterable[Any]) -> None:
    """Wait for ``stream`` if an array's library does not order its work after it."""
    kinds = (array_view.kind_of(x) for x in arrays if array_view.is_array(x))
    if any(kind.finish is not None for kind in kinds):
        on.wait(stream)
