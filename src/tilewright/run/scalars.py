"""α and β: numbers, one-element arrays, or one f32 that stays on the GPU.

A number on the GPU is read by the kernel when it runs, so a CUDA graph that was captured once takes
each replay's value.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DeviceError, DtypeError, ProblemError
from . import arrays
from .route import Scale

_F32 = struct.Struct("<f")


def scale(name: str, given: Any, device: str) -> Scale:
    """The factor of this name for arrays on ``device``, rounded to f32 where it is a number.

    Raises ProblemError for what is no number, DtypeError and DeviceError for a GPU's array that is
    not f32, or not where the matrices are.
    """
    if type(given) is float or type(given) is int:
        return Scale(_rounded(name, given))
    if isinstance(given, np.generic) or not _is_array(given):
        return Scale(_number(name, given))
    view = arrays.view(given)
    if prod(view.shape) != 1:
        raise ProblemError(f"{name} has shape {view.shape}; it is a number or one element")
    if view.device == "cpu":
        return Scale(_number(name, given.item() if hasattr(given, "item") else _only(view)))
    if view.device != device:
        raise DeviceError(f"{name} is on {view.device}, the matrices are on {device}")
    if view.dtype != "f32":
        raise DtypeError(f"{name} on the GPU is {view.dtype}; f32 is what the kernel reads")
    return Scale(1.0, view.address)


def _is_array(given: Any) -> bool:
    return hasattr(given, "__dlpack__") or hasattr(given, "__cuda_array_interface__")


def _only(view: arrays.ArrayView) -> Any:
    return arrays.bits(view).view(dtypes.dtype(view.dtype).numpy).item()


def _number(name: str, given: Any) -> float:
    try:
        if isinstance(given, np.generic) and not _is_real(given.dtype):
            raise TypeError("NumPy would drop an imaginary part, and read text")
        value = given.__float__()  # float() would take text, too
    except OverflowError:
        raise _out_of_range(name, given) from None
    except (AttributeError, TypeError, ValueError):
        kind = type(given).__name__
        raise ProblemError(f"{name} is {given!r}, a {kind}; it is a real number") from None
    return _rounded(name, value)


def _is_real(given: np.dtype[Any]) -> bool:
    if given.kind in "biuf":
        return True
    try:  # bfloat16 and its like, which NumPy calls void
        return bool(dtypes.from_numpy(given))
    except DtypeError:
        return False


def _rounded(name: str, given: float) -> float:
    try:
        (value,) = _F32.unpack(_F32.pack(given))
    except (OverflowError, struct.error):  # the latter for an int that is no float64 either
        raise _out_of_range(name, given) from None
    return float(value)


def _out_of_range(name: str, given: Any) -> ProblemError:
    wide = isinstance(given, int) and given.bit_length() > 128  # Python may refuse to print it
    shown = f"an int of {given.bit_length()} bits" if wide else repr(given)
    return ProblemError(f"{name} is {shown}, which is out of f32's range")
