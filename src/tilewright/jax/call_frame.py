"""XLA's foreign-function interface in ctypes: what a custom call receives, and how it fails.

The structures are those of ``xla/ffi/api/c_api.h`` (version 0.1 and later), which only grow at
their ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_void_p
from typing import Any, NamedTuple

from ..errors import DtypeError

_METADATA, _EXECUTE, _INTERNAL = 1, 3, 13  # an extension, a stage, an error code
_VERSION = 0, 1
_TYPES = {
    2: "s8", 4: "s32", 5: "s64", 6: "u8", 8: "u32", 10: "f16", 11: "f32", 12: "f64", 16: "bf16",
    19: "e5m2", 20: "e4m3",
}  # fmt: skip


class _Extension(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("type", c_int), ("next", c_void_p))


class _ApiVersion(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("major", c_int), ("minor", c_int),
    )  # fmt: skip


class _Metadata(ctypes.Structure):
    _fields_ = (("struct_size", c_size_t), ("version", _ApiVersion), ("traits", c_uint32))


class _MetadataExtension(ctypes.Structure):
    _fields_ = (("base", _Extension), ("metadata", POINTER(_Metadata)))


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("dtype", c_int), ("data", c_void_p),
        ("rank", c_int64), ("dims", POINTER(c_int64)),
    )  # fmt: skip


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("size", c_int64),
        ("types", POINTER(c_int)), ("items", POINTER(POINTER(_Buffer))),
    )  # fmt: skip


class _ByteSpan(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("length", c_size_t))


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("size", c_int64),
        ("types", POINTER(c_int)), ("names", POINTER(POINTER(_ByteSpan))),
        ("values", POINTER(POINTER(_ByteSpan))),
    )  # fmt: skip


class _ErrorArgs(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("message", c_char_p), ("code", c_int),
    )  # fmt: skip


class _StreamArgs(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("context", c_void_p),
        ("stream", c_void_p),
    )  # fmt: skip


_CreateError = ctypes.CFUNCTYPE(c_void_p, POINTER(_ErrorArgs))
_GetStream = ctypes.CFUNCTYPE(c_void_p, POINTER(_StreamArgs))


class _Api(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", c_void_p), ("version", _ApiVersion),
        ("internal", c_void_p), ("create_error", _CreateError), ("error_message", c_void_p),
        ("destroy_error", c_void_p), ("register", c_void_p), ("get_stream", _GetStream),
    )  # fmt: skip


class _CallFrame(ctypes.Structure):
    _fields_ = (
        ("struct_size", c_size_t), ("extension", POINTER(_Extension)), ("api", POINTER(_Api)),
        ("context", c_void_p), ("stage", c_int), ("args", _Buffers), ("results", _Buffers),
        ("attributes", _Attributes),
    )  # fmt: skip


class XlaBuffer(NamedTuple):
    """An array of XLA, row-major: its address, the name of its type, its shape."""

    address: int
    dtype: str
    shape: tuple[int, ...]


class XlaCall(NamedTuple):
    """A custom call: its arguments and results, its attribute, and the GPU's stream (0: CPU)."""

    args: list[XlaBuffer]
    results: list[XlaBuffer]
    attribute: str
    stream: int


Handler: Any = ctypes.CFUNCTYPE(c_void_p, POINTER(_CallFrame))


def handler(run: Callable[[XlaCall], None], on_gpu: bool) -> Any:
    """The C function that calls ``run``; an exception of ``run`` becomes an error of XLA. The
    caller keeps it alive.
    """

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if frame.extension and frame.extension.contents.type == _METADATA:
                _describe(frame.extension)
            elif frame.stage == _EXECUTE:
                run(_call(frame, on_gpu))
        except BaseException as error:  # nothing may pass through C
            message = f"{type(error).__name__}: {error}".encode()
            args = _ErrorArgs(ctypes.sizeof(_ErrorArgs), None, message, _INTERNAL)
            made: int | None = frame.api.contents.create_error(ctypes.byref(args))
            return made
        return None

    return Handler(handle)


def _describe(extension: Any) -> None:
    """Tell XLA the version of the interface."""
    metadata = ctypes.cast(extension, POINTER(_MetadataExtension)).contents.metadata.contents
    metadata.version.major, metadata.version.minor = _VERSION
    metadata.traits = 0


def _call(frame: Any, on_gpu: bool) -> XlaCall:
    attributes = frame.attributes
    assert attributes.size == 1, "a call has one attribute"
    span, stream = attributes.values[0].contents, 0
    if on_gpu:
        args = _StreamArgs(ctypes.sizeof(_StreamArgs), None, frame.context, None)
        frame.api.contents.get_stream(ctypes.byref(args))
        stream = args.stream or 0
    text = ctypes.string_at(span.data, span.length).decode()
    return XlaCall([*_buffers(frame.args)], [*_buffers(frame.results)], text, stream)


def _buffers(buffers: Any) -> Iterator[XlaBuffer]:
    for i in range(buffers.size):
        buffer = buffers.items[i].contents
        if buffer.dtype not in _TYPES:
            raise DtypeError(
                f"arrays must be {', '.join(_TYPES.values())}, got XLA's {buffer.dtype}"
            )
        shape = tuple(buffer.dims[d] for d in range(buffer.rank))
        yield XlaBuffer(buffer.data or 0, _TYPES[buffer.dtype], shape)
