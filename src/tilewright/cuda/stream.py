"""Streams: whatever a library calls one, as the integer handle that the driver takes.

None is the legacy default stream (0), which waits for and is waited for by all blocking streams.
"""

from __future__ import annotations

from typing import Any

from ..errors import LaunchError

DEFAULT = 0


def stream_handle(stream: Any) -> int:
    """The stream as an integer, from None, an int, a torch or CuPy stream or ``__cuda_stream__``.

    Raises LaunchError for anything else.
    """
    if stream is None:
        return DEFAULT
    if isinstance(stream, int):
        return int(stream)
    for name in ("cuda_stream", "ptr"):  # torch.cuda.Stream, cupy.cuda.Stream
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    return _of_protocol(stream)


def _of_protocol(stream: Any) -> int:
    """CUDA's protocol: ``__cuda_stream__()`` gives (version, handle); once an attribute did."""
    protocol = getattr(stream, "__cuda_stream__", None)
    pair = protocol() if callable(protocol) else protocol
    if isinstance(pair, tuple) and len(pair) == 2:
        return int(pair[1])
    if hasattr(stream, "__int__") and not isinstance(stream, (float, str)):
        return int(stream)
    raise LaunchError(
        f"{type(stream).__name__!r} is no CUDA stream",
        hint="give None, a handle, a torch or CuPy stream, or an object with __cuda_stream__",
    )
