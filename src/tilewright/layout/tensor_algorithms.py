"""What is done to all elements of tensors of NumPy memory, with the bits that a kernel gives.

``k.copy``, ``k.fill``, ``k.transform`` and ``k.axpby`` of the kernel builder do the same in a
kernel. Numbers convert as PTX converts them: rounded to the nearest, to integers toward zero and
saturated. Where several elements of a tensor share a place, the last one stays.
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
    """dst = src, where ``pred`` (a tensor of predicates, for each element) holds; nothing else is
    read.
    """
    _same_size(src, dst, *([] if pred is None else [pred]))
    wanted = None if pred is None else [i for i, p in enumerate(pred.elements()) if p]
    _write(dst, _converted(_values(src, wanted), src.dtype, dst.dtype), wanted)


def fill(tensor: Tensor, value: Any) -> None:
    """Write one number everywhere."""
    check_tensors(tensor)
    t = tensor.dtype
    _write(tensor, np.broadcast_to(encode(t, value).view(t.numpy), (tensor.size(),)))


def clear(tensor: Tensor) -> None:
    """Write zeros everywhere."""
    fill(tensor, 0)


def transform(*tensors_and_function: Any) -> None:
    """``transform(x, f)``: x = f(x); ``transform(x, …, y, f)``: y = f(x, …).

    ``f`` takes all elements of each tensor as one array, and returns as many.
    """
    if len(tensors_and_function) < 2 or not callable(tensors_and_function[-1]):
        raise LayoutError("transform takes tensors, and a function of their elements last")
    *tensors, function = tensors_and_function
    *sources, result = tensors if len(tensors) > 1 else tensors * 2
    _same_size(*sources, result)
    with exact.quiet():
        made = np.asarray(function(*map(_values, sources)))
    _write(result, _converted(made, from_numpy(made.dtype), result.dtype))


def axpby(alpha: float, x: Tensor, beta: float, y: Tensor) -> None:
    """y = alpha · x + beta · y, in x's format: alpha · x is rounded, then beta · y + that once
    more. A beta of 0 does not read y.
    """
    _same_size(x, y)
    t = x.dtype
    with exact.quiet():
        made = _number(alpha, t) * _values(x)
    if beta:
        made = _fma(t, _number(beta, t), _converted(_values(y), y.dtype, t), made)
    _write(y, _converted(made, t, y.dtype))


def _number(value: float, t: DType) -> Any:
    return encode(t, value).view(t.numpy)[()]


def _fma(t: DType, a: Any, b: Elements, c: Elements) -> Elements:
    """a · b + c, rounded once."""
    if t.kind != "float":
        return np.asarray(a * b + c)
    factor = np.full(b.shape, a, t.numpy)
    x, y, z = (v.view(t.storage) for v in (factor, b, c))
    return np.asarray(exact.fma(t.name, x, y, z).view(t.numpy))


def _converted(values: Elements, given: DType, t: DType) -> Elements:
    """Numbers of one format in another."""
    if t is given:
        return values
    floats = given.kind == "float"
    numbers = decode(given, np.ascontiguousarray(values).view(given.storage))
    rounding = "rz" if floats and t.kind != "float" else "rn"
    return encode(t, numbers, rounding).view(t.numpy)


def _values(tensor: Tensor, wanted: list[int] | None = None) -> Elements:
    """The elements, or those of the wanted numbers."""
    if isinstance(tensor.engine, ArrayEngine):
        return np.asarray(tensor.engine[_offsets(tensor, wanted)])
    return np.array(list(tensor.elements() if wanted is None else map(tensor.__getitem__, wanted)))


def _write(tensor: Tensor, values: Elements, wanted: list[int] | None = None) -> None:
    tensor.engine[_offsets(tensor, wanted)] = values


def _offsets(tensor: Tensor, wanted: list[int] | None) -> Elements:
    every = tensor.layout.indices()
    return every if wanted is None else every[wanted]


def _same_size(*tensors: Tensor) -> None:
    check_tensors(*tensors)
    if len({t.size() for t in tensors}) != 1:
        shapes = ", ".join(str(t.layout) for t in tensors)
        raise LayoutError(f"tensors of {shapes}: they have different numbers of elements")
