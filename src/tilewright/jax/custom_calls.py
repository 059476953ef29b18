"""The custom calls: products of arrays that XLA passes, on the CPU or on a GPU's stream.

A call's attribute is JSON, so that compiled and exported programs need no state of this process:
the operation, which matrices are transposed, the names of the operands, the options.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from functools import cache, partial
from math import prod
from typing import Any

import jax
import numpy as np

from .. import cuda, dtypes
from ..errors import ProblemError
from ..run import matmul, register
from ..run.arrays.array_kind import ArrayKind, ArrayView, Shape
from ..run.arrays.dlpack import compact_strides
from ..run.call.linear import layer_epilogue
from .call_frame import XlaBuffer, XlaCall, handler

TARGET = "tilewright"
_PLATFORMS = {"cpu": False, "CUDA": True}
_handlers: list[Any] = []  # C functions that XLA calls


class DeviceBuffer:
    """A view of an array of XLA on a GPU; strides count elements."""

    def __init__(
        self, buffer: XlaBuffer, stream: int, shape: Shape, strides: Shape, offset: int = 0
    ) -> None:
        self._buffer, self._stream, self._offset = buffer, stream, offset
        self.shape, self.strides = shape, strides

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def T(self) -> DeviceBuffer:
        return self._view(self.shape[::-1], self.strides[::-1])

    def swapaxes(self, i: int, j: int) -> DeviceBuffer:
        """The view with two dimensions exchanged."""
        shape, strides = [*self.shape], [*self.strides]
        for sizes in (shape, strides):
            sizes[i], sizes[j] = sizes[j], sizes[i]
        return self._view(tuple(shape), tuple(strides))

    def reshape(self, *shape: int) -> DeviceBuffer:
        """A contiguous view in another shape."""
        assert self.strides == compact_strides(self.shape)
        return self._view(shape, compact_strides(shape))

    def __getitem__(self, index: tuple[int, ...]) -> DeviceBuffer:
        """The array at an index of the first dimensions."""
        count = len(index)
        offset = sum(i * s for i, s in zip(index, self.strides, strict=False))
        return self._view(self.shape[count:], self.strides[count:], offset)

    def _view(self, shape: Shape, strides: Shape, offset: int = 0) -> DeviceBuffer:
        return DeviceBuffer(self._buffer, self._stream, shape, strides, self._offset + offset)

    def memory(self) -> ArrayView:
        """The memory of the view."""
        size = max(1, dtypes.dtype(self._buffer.dtype).bits // 8)
        address = self._buffer.address + self._offset * size
        device = _device_of(self._buffer.address) if prod(self.shape) else "cuda:0"
        return ArrayView(address, self.shape, self.strides, self._buffer.dtype, device, False, self)


def _device_of(address: int) -> str:
    return f"cuda:{cuda.ordinal_of(address)}"


def _no_result(array: Any, shape: Shape, dtype: str) -> Any:
    raise ProblemError(f"XLA allocates results; a call needs another one of {dtype}, {shape}")


register(
    lambda kind: issubclass(kind, DeviceBuffer),
    ArrayKind("xla", DeviceBuffer.memory, _no_result, lambda array: array._stream),
)


def _array(buffer: XlaBuffer, stream: int) -> Any:
    """The array of a buffer: of NumPy on the CPU."""
    if stream is not _ON_CPU:
        return DeviceBuffer(buffer, stream, buffer.shape, compact_strides(buffer.shape))
    t = dtypes.dtype(buffer.dtype)
    count = prod(buffer.shape) * max(1, t.bits // 8)
    memory = (ctypes.c_uint8 * count).from_address(buffer.address) if count else b""
    return np.frombuffer(memory, np.uint8).view(t.numpy).reshape(buffer.shape)


_ON_CPU: Any = None


def _run(call: XlaCall, on_gpu: bool) -> None:
    stream = call.stream if on_gpu else _ON_CPU
    what = json.loads(call.attribute)
    args = [_array(buffer, stream) for buffer in call.args]
    results = [_array(buffer, stream) for buffer in call.results]
    if not all(prod(b.shape) for b in call.results):
        return
    {"matmul": _matmul, "linear": _linear}[what["op"]](what, args, results)


def _matmul(what: dict[str, Any], args: list[Any], results: list[Any]) -> None:
    a, b = (
        x.swapaxes(x.ndim - 2, x.ndim - 1) if flipped else x
        for x, flipped in zip(args, what["transposed"], strict=True)
    )
    matmul(a, b, out=results[0], **what["options"])


def _linear(what: dict[str, Any], args: list[Any], results: list[Any]) -> None:
    """A layer; ``jax.vmap`` puts dimensions before those that its weights and vectors have."""
    named = dict(zip(what["operands"], args, strict=True))
    extra = named["w"].ndim - 2
    for index, y in _batches(results[0], extra):
        own = {name: _at(x, index) for name, x in named.items()}
        out: dict[str, Any] = {"y": y}
        for name, saved in zip(what["saved"], results[1:], strict=True):
            out[name] = _at(saved, index)
        _one_linear(what, own, out)


def _one_linear(what: dict[str, Any], named: dict[str, Any], out: dict[str, Any]) -> None:
    x, w, gate = named.pop("x"), named.pop("w"), named.pop("gate", None)
    rows, columns = prod(x.shape[:-1]), w.shape[0]
    if "residual" in named:
        named["residual"] = named["residual"].reshape(rows, columns)
    flat = {name: y.reshape(rows, columns) for name, y in out.items()}
    matmul(
        x.reshape(rows, x.shape[-1]), w.T if gate is None else (gate.T, w.T),
        out=flat if what["saved"] else flat["y"],
        epilogue=layer_epilogue(what["activation"], gate is not None, tuple(what["saved"])),
        **named, **what["options"],
    )  # fmt: skip


def _batches(y: Any, extra: int) -> Iterator[tuple[tuple[int, ...], Any]]:
    for index in np.ndindex(*y.shape[:extra]):
        yield index, y[index] if extra else y


def _at(x: Any, index: tuple[int, ...]) -> Any:
    """An operand's part for an index of the batch; an operand of size 1 is that of all."""
    if not index:
        return x
    return x[tuple(0 if n == 1 else i for i, n in zip(index, x.shape, strict=False))]


@cache
def registered() -> str:
    """The name of the custom call's target, registered with XLA for the CPU and for GPUs."""
    for platform, on_gpu in _PLATFORMS.items():
        function = handler(partial(_run, on_gpu=on_gpu), on_gpu)
        _handlers.append(function)
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform=platform)
    return TARGET
