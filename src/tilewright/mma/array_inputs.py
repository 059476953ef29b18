"""What a caller gives, as arrays of bits: matrices, registers, metadata. What is none is refused.

A number's *code* is its bits as an unsigned integer, one number an element, in the smallest NumPy
type that has room (``DType.storage``). A matrix is given as codes or as NumPy's own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from ..errors import DtypeError, LayoutError

Bits = npt.NDArray[Any]


def as_array(given: npt.ArrayLike) -> Bits:
    """``given`` as an array, of whatever type. LayoutError where its rows differ in length."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        raise LayoutError(f"a {type(given).__name__} is no array: {error}") from None


def as_codes(given: npt.ArrayLike, t: DType) -> Bits:
    """A matrix of ``t`` as codes: it is given so, or of NumPy's type for ``t`` (bool for b1).

    Raises DtypeError for another type, and for a code of more bits than ``t`` has.
    """
    x = as_array(given)
    if x.dtype != t.storage:
        numbers = _numbers(t)
        if x.dtype not in numbers:
            named = " or ".join([*map(str, numbers), f"its bits as {t.storage}"])
            raise DtypeError(f"a matrix of {t} is {named}, not {x.dtype}")
        x = x.view(t.storage)
    return _fitting(x, t.bits, f"a code of {t}")


def _numbers(t: DType) -> list[np.dtype[Any]]:
    """NumPy's type of the same numbers; tf32, ue4m3 and what is bits alone have none."""
    if t.name == "b1":
        return [np.dtype(np.bool_)]
    try:
        return [t.numpy]
    except DtypeError:
        return []


def is_integer(given: object) -> bool:
    """Whether it is an integer, Python's or NumPy's."""
    return isinstance(given, int | np.integer)


def as_integers(given: npt.ArrayLike, what: str) -> Bits:
    """An array of integers of any size. DtypeError, saying ``what`` they are, for another."""
    x = as_array(given)
    if x.dtype.kind not in "iu":
        raise DtypeError(f"{what} are integers, not {x.dtype}")
    return x


def as_registers(given: npt.ArrayLike, size: int) -> Bits:
    """Registers of ``size`` bits, as unsigned integers; a negative one is its two's complement.

    Raises DtypeError for what is no integer, or is one of more bits.
    """
    x = as_integers(given, "registers")
    return _fitting(x, size, "a register").astype(f"u{size // 8}", copy=False)


def _fitting(x: Bits, bits: int, what: str) -> Bits:
    if x.size and 8 * x.dtype.itemsize > bits:
        for extreme in (int(x.max()), int(x.min())):
            if not -1 << bits - 1 <= extreme < 1 << bits:
                raise DtypeError(f"{what} has {bits} bits, {extreme:#x} is given")
    return x


def require_shape(x: Bits, shape: tuple[int, ...], what: str) -> Bits:
    """``x`` (…, *shape). LayoutError, saying ``what`` it is, where the last axes are others."""
    if x.shape[-len(shape) :] != shape:
        raise LayoutError(f"{what} {shape}, not {x.shape}")
    return x


def batch_shape(*arrays: Bits) -> tuple[int, ...]:
    """What the axes before the last two broadcast to. LayoutError where they don't."""
    leading = [x.shape[:-2] for x in arrays]
    try:
        return np.broadcast_shapes(*leading)
    except ValueError:
        shapes = ", ".join(map(str, dict.fromkeys(leading)))
        raise LayoutError(f"batches of {shapes} do not broadcast") from None
