"""Coordinates to offsets and back.

A coordinate of a shape is a linear index (the first mode varies fastest) or a tuple with a
coordinate for each mode. Its offset is the inner product with the strides. ``offset_of`` folds the
static parts in Python; dynamic parts become terms of an ``OffsetSum``, with as few operations as
possible. An index beyond the shape's size continues in the last mode, as in CuTe.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

from ..errors import LayoutError
from .int_tuple import IntTuple, congruent, flatten, prefix_product, product, text
from .scaled_basis import ScaledBasis, add_coordinates, has_basis
from .symbolic import Number, OffsetSum, floordiv, is_power_of_two, mod, mul


def coalesce_modes(shape: IntTuple, stride: IntTuple) -> tuple[list[Number], list[Number]]:
    """Flat (shapes, strides) of the same function with the fewest modes, at least ``[1], [0]``."""
    shapes: list[Number] = []
    strides: list[Number] = []
    next_stride: Number = None  # the stride with which a mode continues the last one
    for s, d in zip(flatten(shape), flatten(stride), strict=True):
        if s.__class__ is int:
            if s == 1:
                continue
            if d.__class__ is int or d.__class__ is ScaledBasis:
                if d == next_stride:
                    shapes[-1] *= s
                else:
                    shapes.append(s)
                    strides.append(d)
                next_stride = d and shapes[-1] * strides[-1]
                continue
        shapes.append(s)
        strides.append(d)
        next_stride = 0 if d.__class__ is int and d == 0 else None
    return (shapes, strides) if shapes else ([1], [0])


def crd2idx(crd: IntTuple, shape: IntTuple, stride: IntTuple = None) -> Number:
    """The offset of a coordinate: ``crd2idx((1, 2), (4, 8), (8, 1)) == 10``.

    ``stride`` defaults to column-major. ``None`` in the coordinate counts as 0. For strides that
    are coordinates (``ScaledBasis``) the result is a coordinate.
    """
    if stride is None:
        if crd.__class__ is int:
            return crd
        stride = prefix_product(shape)
    offset = _all_static(crd, shape, stride)
    if offset is not None:
        return offset
    if not congruent(shape, stride):
        raise LayoutError(f"crd2idx: nesting differs: shape {text(shape)}, stride {text(stride)}")
    return offset_at(crd, shape, stride)


def offset_at(crd: IntTuple, shape: IntTuple, stride: IntTuple) -> Number:
    """``crd2idx`` for a shape and a stride with the same nesting."""
    offset = _all_static(crd, shape, stride)
    if offset is not None:
        return offset
    if has_basis(stride):
        return _coordinate_of(crd, shape, stride)
    result = OffsetSum()
    offset_of(crd, shape, stride, result)
    return result.total()


def _coordinate_of(crd: IntTuple, shape: IntTuple, stride: IntTuple) -> IntTuple:
    """The inner product of a coordinate with strides that are coordinates."""
    if stride.__class__ is not tuple:
        if crd.__class__ is tuple:
            raise LayoutError(f"coordinate {text(crd)} does not match shape {text(shape)}")
        crd = 0 if crd is None else crd
        return (stride * crd).coordinate() if stride.__class__ is ScaledBasis else mul(crd, stride)
    if crd.__class__ is not tuple:
        crd = idx2crd(0 if crd is None else crd, shape)
    if len(crd) != len(shape):
        raise LayoutError(f"coordinate {text(crd)} does not match shape {text(shape)}")
    total: IntTuple = 0
    for part in map(_coordinate_of, crd, shape, stride):
        total = add_coordinates(total, part)
    return total


def _all_static(crd: IntTuple, shape: IntTuple, stride: IntTuple) -> int | None:
    """The offset if everything is static and the nesting agrees, else None: the fast path of
    ``offset_of``.
    """
    if crd.__class__ is int:
        return _number_static(crd, shape, stride)
    if crd.__class__ is not tuple or shape.__class__ is not tuple or stride.__class__ is not tuple:
        return None
    if not len(crd) == len(shape) == len(stride):
        return None
    offset = 0
    for c, s, d in zip(crd, shape, stride):  # noqa: B905 (strict costs time; lengths are equal)
        if c.__class__ is int and d.__class__ is int and s.__class__ is not tuple:
            offset += c * d
        else:
            part = _all_static(c, s, d)
            if part is None:
                return None
            offset += part
    return offset


def _number_static(index: int, shape: IntTuple, stride: IntTuple) -> int | None:
    if shape.__class__ is not tuple:
        return index * stride if stride.__class__ is int else None
    if stride.__class__ is not tuple or len(shape) != len(stride):
        return None
    offset = 0
    last = len(shape) - 1
    for i, s in enumerate(shape):
        d = stride[i]
        if s.__class__ is int and d.__class__ is int:
            if i == last:
                return offset + index * d
            offset += index % s * d
            index //= s
            continue
        size = product(s)
        if size.__class__ is not int:
            return None
        part = _number_static(index if i == last else index % size, s, d)
        if part is None:
            return None
        offset += part
        index //= size
    return offset


def offset_of(crd: IntTuple, shape: IntTuple, stride: IntTuple, result: OffsetSum) -> None:
    """Add the offset of a coordinate to ``result``."""
    if crd.__class__ is int:
        if stride.__class__ is tuple:
            _static_index(crd, flatten(shape), flatten(stride), result)
        else:
            result.add(crd, stride)
    elif crd.__class__ is tuple:
        if shape.__class__ is not tuple or len(crd) != len(shape):
            raise LayoutError(f"coordinate {text(crd)} does not match shape {text(shape)}")
        for c, s, d in zip(crd, shape, stride, strict=True):
            offset_of(c, s, d, result)
    elif crd is not None:
        if isinstance(crd, (list, str, float)) or not hasattr(crd, "__mul__"):
            expected = "a number or a tuple of coordinates"
            raise LayoutError(f"a coordinate must be {expected}, got {crd!r}")
        if isinstance(crd, Integral):
            offset_of(int(crd), shape, stride, result)
        else:
            _dynamic_index(crd, shape, stride, result)


def _static_index(
    index: int, shapes: tuple[Any, ...], strides: tuple[Any, ...], out: OffsetSum
) -> None:
    last = len(shapes) - 1
    for i, (s, d) in enumerate(zip(shapes, strides, strict=True)):
        if index.__class__ is int and index == 0:
            return
        c = index if i == last else mod(index, s)
        if c.__class__ is int and d.__class__ is int:
            out.static += c * d
        else:
            out.add(c, d)
        index = floordiv(index, s) if i < last else 0


def _dynamic_index(index: Any, shape: IntTuple, stride: IntTuple, out: OffsetSum) -> None:
    """Terms ``(index // weight % s) * d`` of the coalesced modes.

    Power-of-two modes with the same ratio of stride to weight share one term: ``(index & mask) *
    ratio``.
    """
    shapes, strides = coalesce_modes(shape, stride)
    masks: dict[tuple[int, int], int] = {}
    weight: Number = 1
    last = len(shapes) - 1
    for i, (s, d) in enumerate(zip(shapes, strides, strict=True)):
        ratio = _ratio(weight, s, d) if i < last else None
        if ratio:
            masks[ratio] = masks.get(ratio, 0) | (s - 1) * weight
        elif d.__class__ is not int or d != 0:
            digit = floordiv(index, weight)
            out.add(digit if i == last else mod(digit, s), d)
        weight = mul(weight, s) if i < last else weight
    for (up, down), mask in masks.items():
        low = mask & -mask
        value = mod(index, mask + 1) if low == 1 and is_power_of_two(mask + 1) else index & mask
        out.add(floordiv(value, down), up, unit=max(low // down, 1))


def _ratio(weight: Number, s: Number, d: Number) -> tuple[int, int] | None:
    """(d / weight, 1) or (1, weight / d) where a mask can extract the digit."""
    if not (is_power_of_two(weight) and is_power_of_two(s) and d.__class__ is int) or d == 0:
        return None
    if d % weight == 0:
        return d // weight, 1
    return (1, weight // d) if d > 0 and weight % d == 0 else None


def idx2crd(idx: IntTuple, shape: IntTuple, stride: IntTuple = None) -> IntTuple:
    """The coordinate of a number: ``idx2crd(10, (4, 8)) == (2, 2)``.

    With strides, the coordinate whose offset in a compact layout is ``idx``:
    ``idx2crd(10, (4, 8), (8, 1)) == (1, 2)``.
    """
    if stride is not None and not congruent(shape, stride):
        raise LayoutError(f"idx2crd: nesting differs: shape {text(shape)}, stride {text(stride)}")
    if idx is None or isinstance(idx, (str, float, list)):
        raise LayoutError(f"idx2crd: expected a number or a tuple of numbers, got {idx!r}")
    if idx.__class__ is tuple:
        if shape.__class__ is not tuple or len(idx) != len(shape):
            raise LayoutError(f"idx2crd: {text(idx)} does not match shape {text(shape)}")
        strides = (None,) * len(shape) if stride is None else stride
        return tuple(map(idx2crd, idx, shape, strides))
    if stride is None:
        return _digits(idx, shape)
    flat = list(zip(flatten(shape), flatten(stride), strict=True))
    if not all(d.__class__ is int and s.__class__ is int for s, d in flat):
        return _digits_by_stride(idx, shape, stride, -1)
    return _digits_by_stride(idx, shape, stride, 1 + sum((s - 1) * d for s, d in flat))


def _digits(idx: Number, shape: IntTuple) -> IntTuple:
    """The digit of each mode; the last mode takes the whole quotient."""
    if shape.__class__ is not tuple:
        return idx
    out = []
    weight: Number = 1
    last = max((i for i, s in enumerate(shape) if not _is_one(s)), default=-1)
    for i, s in enumerate(shape):
        if _is_one(s):
            out.append(_zeros(s))
            continue
        size = product(s)
        digit = floordiv(idx, weight)
        out.append(_digits(digit if i == last else mod(digit, size), s))
        weight = mul(weight, size) if i < last else weight
    return tuple(out)


def _zeros(shape: IntTuple) -> IntTuple:
    return tuple(map(_zeros, shape)) if shape.__class__ is tuple else 0


def _is_one(shape: IntTuple) -> bool:
    return all(s.__class__ is int and s == 1 for s in flatten(shape))


def _digits_by_stride(idx: Number, shape: IntTuple, stride: IntTuple, cosize: int) -> IntTuple:
    if shape.__class__ is tuple:
        modes = zip(shape, stride, strict=True)
        return tuple(_digits_by_stride(idx, s, d, cosize) for s, d in modes)
    if (stride.__class__ is int and stride == 0) or _is_one(shape):
        return 0
    digit = floordiv(idx, stride)
    if idx.__class__ is not int and 0 < cosize <= mul(shape, stride):
        return digit  # the outermost mode
    return mod(digit, shape)


def crd2crd(crd: IntTuple, dst_shape: IntTuple, src_shape: IntTuple = None) -> IntTuple:
    """The coordinate of ``dst_shape`` with the linear index of ``crd`` in ``src_shape``."""
    if crd.__class__ is not tuple:
        if dst_shape.__class__ is tuple:
            return idx2crd(crd, dst_shape)
        if crd.__class__ is int and dst_shape.__class__ is int and crd >= dst_shape:
            raise LayoutError(f"crd2crd: the coordinate must be below {dst_shape}, got {crd}")
        return crd
    if dst_shape.__class__ is not tuple:
        if src_shape is None:
            raise LayoutError(f"crd2crd: src_shape is required to convert {text(crd)} to a number")
        return crd2idx(crd, src_shape)
    if len(crd) != len(dst_shape):
        raise LayoutError(f"crd2crd: {text(crd)} does not match shape {text(dst_shape)}")
    sources = (None,) * len(crd) if src_shape is None else src_shape
    return tuple(map(crd2crd, crd, dst_shape, sources))
