"""Validation of array arguments (matrices, registers, metadata) and their conversion to bits.

A number's *code* is its bits as an unsigned integer, one number per element, in the smallest NumPy
type that holds them (``DType.storage``). A matrix argument has codes or NumPy's own numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from ..errors import DtypeError, LayoutError

Bits = npt.NDArray[Any]


def as_array(given: npt.ArrayLike) -> Bits:
    """``given`` as an array of any type. LayoutError where its rows differ in length."""
    try:
        return np.asarray(given)
    except (TypeError, ValueError) as error:
        raise LayoutError(f"expected an array, got {type(given).__name__}: {error}") from None


def as_codes(given: npt.ArrayLike, t: DType) -> Bits:
    """A matrix of ``t`` as codes, from codes or from NumPy's type for ``t`` (bool for b1).

    Raises DtypeError for another type, and for a code with more bits than ``t``.
    """
    x = as_array(given)
    if x.dtype != t.storage:
        numbers = _numbers(t)
        if x.dtype not in numbers:
            allowed = " or ".join([*map(str, numbers), f"its bits as {t.storage}"])
            raise DtypeError(f"a matrix of {t} must be {allowed}, got {x.dtype}")
        x = x.view(t.storage)
    return _checked_width(x, t.bits, f"a code of {t}")


def _numbers(t: DType) -> list[np.dtype[Any]]:
    """NumPy's types for the same numbers; tf32, ue4m3 and untyped bits have none."""
    if t.name == "b1":
        return [np.dtype(np.bool_)]
    try:
        return [t.numpy]
    except DtypeError:
        return []


def is_integer(given: object) -> bool:
    """Whether ``given`` is an integer of Python or NumPy."""
    return isinstance(given, int | np.integer)


def as_integers(given: npt.ArrayLike, what: str) -> Bits:
    """An array of integers of any size. DtypeError, naming ``what`` they are, for another type."""
    x = as_array(given)
    if x.dtype.kind not in "iu":
        raise DtypeError(f"{what} must be integers, got {x.dtype}")
    return x


def as_registers(given: npt.ArrayLike, size: int) -> Bits:
    """Registers of ``size`` bits as unsigned integers; a negative one is its two's complement.

    Raises DtypeError for values that are not integers or have more bits.
    """
    x = as_integers(given, "registers")
    return _checked_width(x, size, "a register").astype(f"u{size // 8}", copy=False)


def _checked_width(x: Bits, bits: int, what: str) -> Bits:
    if x.size and 8 * x.dtype.itemsize > bits:
        for extreme in (int(x.max()), int(x.min())):
            if not -1 << bits - 1 <= extreme < 1 << bits:
                raise DtypeError(f"{what} must have at most {bits} bits, got {extreme:#x}")
    return x


def require_shape(x: Bits, shape: tuple[int, ...], what: str) -> Bits:
    """``x`` if its shape is (…, *shape); else LayoutError, naming ``what`` it is."""
    if x.shape[-len(shape) :] != shape:
        raise LayoutError(f"{what} must have shape {shape}, got {x.shape}")
    return x


def batch_shape(*arrays: Bits) -> tuple[int, ...]:
    """The broadcast shape of the axes before the last two. LayoutError if they don't broadcast."""
    leading = [x.shape[:-2] for x in arrays]
    try:
        return np.broadcast_shapes(*leading)
    except ValueError:
        shapes = ", ".join(map(str, dict.fromkeys(leading)))
        raise LayoutError(f"batches of {shapes} do not broadcast") from None
