"""Elementwise algorithms on tensors of NumPy memory, with the bits of a kernel.

``k.copy``, ``k.fill``, ``k.transform`` and ``k.axpby`` of the kernel builder do the same in a
kernel. Conversions are PTX's: round to nearest; to integers toward zero with saturation. Where
several elements of a tensor have the same offset, the last one is written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import exact
from ..dtypes import DType, from_numpy
from ..errors import LayoutError
from ..number_conversion import decode, encode
from .engine import ArrayEngine
from .tensor import Tensor, check_tensors

Elements = NDArray[Any]


def copy(src: Tensor, dst: Tensor, *, pred: Tensor | None = None) -> None:
    """dst = src where ``pred`` (a tensor with a predicate for each element) is true. Other elements
    are not read.
    """
    _same_size(src, dst, *([] if pred is None else [pred]))
    selected = None if pred is None else [i for i, p in enumerate(pred.elements()) if p]
    _write(dst, _converted(_values(src, selected), src.dtype, dst.dtype), selected)


def fill(tensor: Tensor, value: Any) -> None:
    """Set all elements to a number."""
    check_tensors(tensor)
    t = tensor.dtype
    _write(tensor, np.broadcast_to(encode(t, value).view(t.numpy), (tensor.size(),)))


def clear(tensor: Tensor) -> None:
    """Set all elements to zero."""
    fill(tensor, 0)


def transform(*tensors_and_function: Any) -> None:
    """``transform(x, f)``: x = f(x); ``transform(x, …, y, f)``: y = f(x, …).

    ``f`` takes all elements of each tensor as one array, and returns an array of the same size.
    """
    if len(tensors_and_function) < 2 or not callable(tensors_and_function[-1]):
        raise LayoutError("transform expects tensors and, as the last argument, a function")
    *tensors, function = tensors_and_function
    *sources, result = tensors if len(tensors) > 1 else tensors * 2
    _same_size(*sources, result)
    with exact.quiet():
        values = np.asarray(function(*map(_values, sources)))
    _write(result, _converted(values, from_numpy(values.dtype), result.dtype))


def axpby(alpha: float, x: Tensor, beta: float, y: Tensor) -> None:
    """y = alpha · x + beta · y in x's format: alpha · x is rounded, then added by a fused
    multiply-add. For beta = 0, y is not read.
    """
    _same_size(x, y)
    t = x.dtype
    with exact.quiet():
        result = _number(alpha, t) * _values(x)
    if beta:
        result = _fma(t, _number(beta, t), _converted(_values(y), y.dtype, t), result)
    _write(y, _converted(result, t, y.dtype))


def _number(value: float, t: DType) -> Any:
    return encode(t, value).view(t.numpy)[()]


def _fma(t: DType, a: Any, b: Elements, c: Elements) -> Elements:
    """a · b + c, rounded once."""
    if t.kind != "float":
        return np.asarray(a * b + c)
    factor = np.full(b.shape, a, t.numpy)
    x, y, z = (v.view(t.storage) for v in (factor, b, c))
    return np.asarray(exact.fma(t.name, x, y, z).view(t.numpy))


def _converted(values: Elements, source: DType, t: DType) -> Elements:
    """Numbers converted from one format to another."""
    if t is source:
        return values
    floats = source.kind == "float"
    numbers = decode(source, np.ascontiguousarray(values).view(source.storage))
    rounding = "rz" if floats and t.kind != "float" else "rn"
    return encode(t, numbers, rounding).view(t.numpy)


def _values(tensor: Tensor, selected: list[int] | None = None) -> Elements:
    """All elements, or those with the selected indices."""
    if isinstance(tensor.engine, ArrayEngine):
        return np.asarray(tensor.engine[_offsets(tensor, selected)])
    items = tensor.elements() if selected is None else map(tensor.__getitem__, selected)
    return np.array(list(items))


def _write(tensor: Tensor, values: Elements, selected: list[int] | None = None) -> None:
    tensor.engine[_offsets(tensor, selected)] = values


def _offsets(tensor: Tensor, selected: list[int] | None) -> Elements:
    offsets = tensor.layout.indices()
    return offsets if selected is None else offsets[selected]


def _same_size(*tensors: Tensor) -> None:
    check_tensors(*tensors)
    if len({t.size() for t in tensors}) != 1:
        shapes = ", ".join(str(t.layout) for t in tensors)
        raise LayoutError(f"the tensors must have the same number of elements, got {shapes}")
