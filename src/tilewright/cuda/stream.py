"""Streams of any library as the integer handle that the driver takes.

None is the legacy default stream (0), which synchronizes with all blocking streams.
"""

from __future__ import annotations

from typing import Any

from ..errors import LaunchError

DEFAULT = 0


def stream_handle(stream: Any) -> int:
    """The handle of a stream: None, an int, a torch or CuPy stream, or an object with
    ``__cuda_stream__``.

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
    """CUDA's protocol: ``__cuda_stream__()``, formerly an attribute, gives (version, handle)."""
    protocol = getattr(stream, "__cuda_stream__", None)
    pair = protocol() if callable(protocol) else protocol
    if isinstance(pair, tuple) and len(pair) == 2:
        return int(pair[1])
    if hasattr(stream, "__int__") and not isinstance(stream, (float, str)):
        return int(stream)
    raise LaunchError(
        f"stream must be a CUDA stream, got {type(stream).__name__}",
        hint="pass None, a handle, a torch or CuPy stream, or an object with __cuda_stream__",
    )
