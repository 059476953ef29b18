"""Hierarchical tuples of integers: the shapes, strides and coordinates of layouts.

An int tuple is a number, or a tuple of int tuples: ``4``, ``(4, 8)``, ``((2, 2), 8)``. Functions
recurse along the structure of their first argument. Names and argument orders are those of CuTe. A
leaf may be dynamic (see ``symbolic``); a function that needs a static value raises LayoutError.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Iterator
from numbers import Integral
from typing import Any, TypeAlias

from ..errors import LayoutError
from . import symbolic
from .scaled_basis import ScaledBasis
from .symbolic import Number, add, mul

IntTuple: TypeAlias = Any
"""A number, or a tuple of int tuples."""


class Integer(ABC):  # noqa: B024 (only for isinstance)
    """The class of integers for ``isinstance``: ``int``, but not ``bool``."""

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        return issubclass(other, int) and other is not bool


def is_int(x: object) -> bool:
    return isinstance(x, Integer)


def is_tuple(x: object) -> bool:
    return isinstance(x, tuple)


def is_static(t: IntTuple) -> bool:
    """Whether every leaf is static."""
    if t.__class__ is tuple:
        return all(map(is_static, t))
    return isinstance(t.value if t.__class__ is ScaledBasis else t, int)


def normalize(t: IntTuple, what: str) -> IntTuple:
    """``t`` with tuples and ``int`` (or dynamic) leaves; LayoutError for a leaf of another type."""
    if t.__class__ is int:
        return t
    if isinstance(t, (tuple, list)):
        return tuple([x if x.__class__ is int else normalize(x, what) for x in t])
    if isinstance(t, Integral):
        return int(t)
    not_a_number = isinstance(t, (float, str, bytes)) or hasattr(t, "__array__")
    if not_a_number or not hasattr(t, "__mul__"):
        raise LayoutError(f"{what} must be an integer or a tuple of integers, got {t!r}")
    return t


def text(t: IntTuple) -> str:
    """The notation of this package: ``(4,(2,3))``."""
    return f"({','.join(map(text, t))})" if t.__class__ is tuple else str(t)


def cute_text(t: IntTuple) -> str:
    """CuTe's notation, with static numbers underscored: ``(_4,(_2,_3))``."""
    if t.__class__ is tuple:
        return f"({','.join(map(cute_text, t))})"
    return f"_{t}" if is_static(t) else str(t)


def rank(t: IntTuple) -> int:
    """The number of modes: the length of a tuple, 1 for a number."""
    return len(t) if t.__class__ is tuple else 1


def depth(t: IntTuple) -> int:
    """The depth of nested tuples: 0 for a number."""
    return 1 + max(map(depth, t), default=0) if t.__class__ is tuple else 0


def flatten(t: IntTuple) -> tuple[Number, ...]:
    """The leaves from left to right: ``flatten(((2, 2), 8)) == (2, 2, 8)``."""
    if t.__class__ is not tuple:
        return (t,)
    out: list[Number] = []
    for x in t:
        if x.__class__ is tuple:
            out += flatten(x)
        else:
            out.append(x)
    return tuple(out)


def unflatten(leaves: Iterable[Any], like: IntTuple) -> IntTuple:
    """The leaves, nested as ``like``: ``unflatten((1, 2, 3), ((0, 0), 0)) == ((1, 2), 3)``.
    LayoutError where there are fewer leaves.
    """
    try:
        return _take(iter(leaves), like)
    except StopIteration:
        raise LayoutError(f"unflatten: too few leaves for {text(like)}") from None


def _take(leaves: Iterator[Any], like: IntTuple) -> IntTuple:
    return tuple([_take(leaves, x) for x in like]) if like.__class__ is tuple else next(leaves)


def product(a: IntTuple) -> Number:
    """The product of all leaves."""
    if a.__class__ is not tuple:
        return a
    result: Number = 1
    for x in a:
        if x.__class__ is tuple:
            x = product(x)
        if x.__class__ is int and result.__class__ is int:
            result *= x
        else:
            result = mul(result, x)
    return result


def product_each(t: IntTuple) -> tuple[Number, ...]:
    """The product of each mode: ``product_each(((2, 2), 8)) == (4, 8)``."""
    return tuple(map(product, t)) if t.__class__ is tuple else (t,)


def tuple_max(a: IntTuple) -> int:
    return max(map(tuple_max, a)) if a.__class__ is tuple else a


def signum(a: int) -> int:
    return (a > 0) - (a < 0)


def congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether two int tuples have the same nesting."""
    if a.__class__ is not tuple or b.__class__ is not tuple:
        return (a.__class__ is tuple) == (b.__class__ is tuple)
    return len(a) == len(b) and all(map(congruent, a, b))


def weakly_congruent(a: IntTuple, b: IntTuple) -> bool:
    """Whether ``b`` has the nesting of ``a``, or a deeper one where ``a`` has a number."""
    if a.__class__ is not tuple:
        return True
    return b.__class__ is tuple and len(a) == len(b) and all(map(weakly_congruent, a, b))


def evenly_divides(a: IntTuple, b: IntTuple) -> bool:
    """Whether tiles of shape ``b`` cover shape ``a`` without a remainder."""
    if b.__class__ is tuple:
        a = a if a.__class__ is tuple else (a,)
        return len(b) <= len(a) and all(map(evenly_divides, a, b))
    a, b = normalize(a, "shape"), normalize(b, "tile")
    return bool(product(a) == b * product(ceil_div(a, b)))


def compatible(a: IntTuple, b: IntTuple) -> bool:
    """Whether every coordinate of shape ``a`` is also one of shape ``b``: ``b`` refines ``a``."""
    if a.__class__ is not tuple:
        size = product(b)
        return bool(a is size or a == size)
    return b.__class__ is tuple and len(a) == len(b) and all(map(compatible, a, b))


def same(a: IntTuple, b: IntTuple) -> bool:
    """Equality without comparing dynamic leaves, which are equal only if identical."""
    if a.__class__ is tuple:
        return b.__class__ is tuple and len(a) == len(b) and all(map(same, a, b))
    if a.__class__ is ScaledBasis:
        return bool(a == b)
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


def _pairs(a: IntTuple, b: IntTuple, what: str) -> Iterable[tuple[IntTuple, IntTuple]]:
    if b.__class__ is not tuple or len(a) != len(b):
        raise LayoutError(f"{what}: {text(a)} and {text(b)} must have the same nesting")
    return zip(a, b, strict=True)


def inner_product(a: IntTuple, b: IntTuple) -> Number:
    """The sum of the products of corresponding leaves."""
    if a.__class__ is not tuple:
        if b.__class__ is tuple:
            raise LayoutError(f"inner_product: expected a number for {a}, got {text(b)}")
        return mul(a, b)
    total: Number = 0
    for x, y in _pairs(a, b, "inner_product"):
        total = add(total, inner_product(x, y))
    return total


def elem_scale(a: IntTuple, b: IntTuple) -> IntTuple:
    """Each leaf of ``a`` times the product of the corresponding part of ``b``."""
    if a.__class__ is tuple:
        return tuple(elem_scale(x, y) for x, y in _pairs(a, b, "elem_scale"))
    return mul(a, product(b))


def elem_less(a: IntTuple, b: IntTuple) -> Any:
    """Whether every leaf of ``a`` is less than its leaf of ``b``: a bool, or a dynamic predicate.

    Static comparisons emit nothing; dynamic ones are combined with ``&``.
    """
    if a.__class__ is not tuple:
        return a < product(b)
    result: Any = True
    for x, y in _pairs(a, b, "elem_less"):
        less = elem_less(x, y)
        if less is False or result is False:
            return False
        result = less if result is True else result if less is True else result & less
    return result


def shape_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """``a / b`` rounded up, where one divides the other. A number ``b`` is divided by the modes of
    ``a`` from the left.
    >>> shape_div((3, 4), 6)
    (1, 2)
    """
    return _divided(a, b, _exact_div, "shape_div")


def ceil_div(a: IntTuple, b: IntTuple) -> IntTuple:
    """``a / b`` rounded up, in each mode. A number ``b`` is divided by the modes from the left.
    >>> ceil_div((3, 4), 5)
    (1, 2)
    """
    return _divided(a, b, symbolic.ceil_div, "ceil_div")


def _divided(a: IntTuple, b: IntTuple, div: Callable[..., Number], what: str) -> IntTuple:
    if a.__class__ is not tuple:
        return div(a, product(b))
    if b.__class__ is tuple:
        return tuple(_divided(x, y, div, what) for x, y in _pairs(a, b, what))
    out = []
    for x in a:
        out.append(_divided(x, b, div, what))
        b = div(b, product(x))
    return tuple(out)


def _exact_div(a: Number, b: Number) -> Number:
    if a.__class__ is int and b.__class__ is int and (b == 0 or (a % b and (a == 0 or b % a))):
        raise LayoutError(f"shape_div: one must divide the other, got {a} and {b}")
    return symbolic.ceil_div(a, b)


def prefix_product(a: IntTuple, init: IntTuple = 1) -> IntTuple:
    """Column-major strides of a shape: ``prefix_product((3, 2, 4)) == (1, 3, 6)``."""
    if a.__class__ is not tuple:
        return init
    if init.__class__ is tuple:
        return tuple(prefix_product(x, i) for x, i in _pairs(a, init, "prefix_product"))
    out = []
    for x in a:
        if x.__class__ is tuple:
            out.append(prefix_product(x, init))
            init = mul(init, product(x))
        else:
            out.append(init)
            init = mul(init, x)
    return tuple(out)


def suffix_product(t: IntTuple, init: IntTuple = 1) -> IntTuple:
    """Row-major strides of a shape: ``suffix_product((3, 2, 4)) == (8, 4, 1)``."""
    if t.__class__ is not tuple:
        return init
    if init.__class__ is tuple:
        return tuple(suffix_product(x, i) for x, i in _pairs(t, init, "suffix_product"))
    out = []
    for x in reversed(t):
        out.append(suffix_product(x, init))
        init = mul(init, product(x))
    return tuple(reversed(out))


def compact_col_major(shape: IntTuple, current: IntTuple = 1) -> IntTuple:
    """Column-major strides as in CuTe: 0 for a size of 1."""
    return _no_ones(shape, prefix_product(shape, current))


def compact_row_major(shape: IntTuple, current: IntTuple = 1) -> IntTuple:
    """Row-major strides as in CuTe: 0 for a size of 1."""
    return _no_ones(shape, suffix_product(shape, current))


def _no_ones(shape: IntTuple, stride: IntTuple) -> IntTuple:
    if shape.__class__ is tuple:
        return tuple([_no_ones(s, d) for s, d in zip(shape, stride, strict=True)])
    return 0 if shape.__class__ is int and shape == 1 else stride


def has_none(a: IntTuple) -> bool:
    """Whether a coordinate contains ``None`` (CuTe's ``_``)."""
    if a.__class__ is not tuple:
        return a is None
    return any(x is None or (x.__class__ is tuple and has_none(x)) for x in a)


def _select(crd: IntTuple, t: IntTuple, keep: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
    if crd.__class__ is not tuple:
        return (t,) if keep(crd) else ()
    if t.__class__ is not tuple or len(crd) != len(t):
        raise LayoutError(f"{what}: coordinate {text(crd)} does not fit {text(t)}")
    return tuple(y for c, x in zip(crd, t, strict=True) for y in _select(c, x, keep, what))


def slice_(crd: IntTuple, trg: IntTuple) -> tuple[Any, ...]:
    """The parts of ``trg`` at the ``None`` of ``crd``."""
    return _select(crd, trg, lambda c: c is None, "slice")


def dice(crd: IntTuple, trg: IntTuple) -> tuple[Any, ...]:
    """The parts of ``trg`` at the numbers of ``crd``: those that ``slice_`` drops."""
    return _select(crd, trg, lambda c: c is not None, "dice")
