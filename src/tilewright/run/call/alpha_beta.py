"""α and β: numbers, one-element arrays, or one f32 (f64, where D is) that stays on the GPU.

A number on the GPU is read by the kernel when it runs, so a CUDA graph that was captured once takes
each replay's value.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...errors import DeviceError, DtypeError, ProblemError
from ..arrays import array_view
from .prepared_call import ScaleFactor, ScaleFactors

_ROUNDED = {"f32": struct.Struct("<f"), "f64": struct.Struct("<d")}


def scale(name: str, given: Any, device: str, dtype: str = "f32") -> ScaleFactor:
    """The factor of this name for arrays on ``device``, rounded to ``dtype``, f32 or f64, where it
    is a number.

    Raises ProblemError for what is no number, DtypeError and DeviceError for a GPU's array that is
    not of that type, or not where the matrices are.
    """
    if type(given) is float or type(given) is int:
        return ScaleFactor(_rounded(name, given, dtype))
    if isinstance(given, np.generic) or not array_view.is_array(given):
        return ScaleFactor(_number(name, given, dtype))
    view = array_view.view(given)
    if prod(view.shape) != 1:
        raise ProblemError(f"{name} has shape {view.shape}; it is a number or one element")
    if view.device == "cpu":
        only = given.item() if hasattr(given, "item") else _only(view)
        return ScaleFactor(_number(name, only, dtype))
    if view.device != device:
        raise DeviceError(f"{name} is on {view.device}, the matrices are on {device}")
    if view.dtype != dtype:
        raise DtypeError(f"{name} on the GPU is {view.dtype}; {dtype} is what the kernel reads")
    return ScaleFactor(1.0, view.address)


def both(alpha: Any, beta: Any, device: str, dtype: str) -> ScaleFactors:
    """α and β."""
    return scale("alpha", alpha, device, dtype), scale("beta", beta, device, dtype)


def _only(view: array_view.ArrayView) -> Any:
    return array_view.bits(view).view(dtypes.dtype(view.dtype).numpy).item()


def _number(name: str, given: Any, dtype: str) -> float:
    try:
        if isinstance(given, np.generic) and not _is_real(given.dtype):
            raise TypeError("NumPy would drop an imaginary part, and read text")
        value = given.__float__()  # float() would take text, too
    except OverflowError:
        raise _out_of_range(name, given, dtype) from None
    except (AttributeError, TypeError, ValueError):
        kind = type(given).__name__
        raise ProblemError(f"{name} is {given!r}, a {kind}; it is a real number") from None
    return _rounded(name, value, dtype)


def _is_real(given: np.dtype[Any]) -> bool:
    if given.kind in "biuf":
        return True
    try:  # bfloat16 and its like, which NumPy calls void
        return bool(dtypes.from_numpy(given))
    except DtypeError:
        return False


def _rounded(name: str, given: float, dtype: str) -> float:
    form = _ROUNDED[dtype]
    try:
        (value,) = form.unpack(form.pack(given))
    except (OverflowError, struct.error):  # the latter for an int that is no float64 either
        raise _out_of_range(name, given, dtype) from None
    return float(value)


def _out_of_range(name: str, given: Any, dtype: str) -> ProblemError:
    wide = isinstance(given, int) and given.bit_length() > 128  # Python may refuse to print it
    shown = f"an int of {given.bit_length()} bits" if wide else repr(given)
    return ProblemError(f"{name} is {shown}, which is out of {dtype}'s range")
