"""Two matrices of packed weights as B of a call, as gated layers have them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....errors import ProblemError
from ....quantization.packed import Packed
from ....quantization.weight_format import PreparedWeights
from ...arrays import array_view
from .prepared_operand import downloaded, weight_operands


class PairOperands(NamedTuple):
    """The operands of products with two packed matrices. ``a``: two arrays if their columns are in
    different orders; ``factors``: the global scales, or None.
    """

    a: Any
    b: tuple[PreparedWeights, PreparedWeights]
    factors: tuple[Any, Any]


def is_weight_pair(b: Any) -> bool:
    """Whether B is two matrices of packed or prepared weights."""
    if not isinstance(b, tuple | list) or len(b) != 2:
        return False
    return all(isinstance(x, Packed | PreparedWeights) for x in b)


def pair_operands(a: Any, b: Any, *, grouped: bool = False) -> PairOperands:
    """A, with its columns in the order of the weights, and both B prepared for A's type, as
    ``weight_operands`` makes them of one. Raises ProblemError for two shapes.
    """
    one, other = b
    if tuple(one.shape) != tuple(other.shape):
        raise ProblemError(f"the two matrices b must have one shape, got {one} and {other}")
    first = weight_operands(a, one, grouped=grouped)
    same = _have_same_order(one, other)
    second = weight_operands(a, other, grouped=grouped, reorders=not same)
    left = first.a if same else (first.a, second.a)
    return PairOperands(left, (first.b, second.b), (first.factor, second.factor))


def _have_same_order(one: Any, other: Any) -> bool:
    """Whether both belong to the same order of A's columns; the values are compared once."""
    first, second = (getattr(x, "order", None) for x in (one, other))
    if first is None or second is None or first is second:
        return first is second
    known = one.orders.get(id(second))
    if known is None:
        known = one.orders[id(second)] = second, np.array_equal(_values(first), _values(second))
    same: bool = known[1]
    return same


def _values(order: Any) -> Any:
    is_on_host = array_view.view(order).device == "cpu"
    return np.asarray(order) if is_on_host else downloaded(order.reshape(1, -1))[0]
