"""The scale factors α and β: numbers, one-element arrays, or one f32 (f64, if D is f64) on the GPU.

The kernel reads a factor on the GPU when it runs, so a captured CUDA graph uses the value of each
replay.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import DeviceError, DtypeError, ProblemError
from ..arrays import array_view

ALPHA, BETA = 1.0, 0.0  # defaults; these objects say that α and β are not given
_FORMATS = {"f32": struct.Struct("<f"), "f64": struct.Struct("<d")}


class ScaleFactor(NamedTuple):
    """A factor: a number, or the address of one on the device."""

    value: float
    address: int = 0


ScaleFactors = tuple[ScaleFactor, ScaleFactor]  # α, β


def alpha_and_beta(alpha: Any, beta: Any, device: str, dtype: str) -> ScaleFactors:
    """α and β for arrays on ``device``, rounded to ``dtype``."""
    return scale_factor("alpha", alpha, device, dtype), scale_factor("beta", beta, device, dtype)


def scale_factor(name: str, factor: Any, device: str, dtype: str = "f32") -> ScaleFactor:
    """The factor called ``name`` for arrays on ``device``; a number is rounded to ``dtype``.

    Raises ProblemError for anything but a real number, DtypeError and DeviceError for an array on a
    GPU that is not of type ``dtype`` (f32 or f64) or not on the device of the matrices.
    """
    if type(factor) is float or type(factor) is int:
        return ScaleFactor(_rounded(name, factor, dtype))
    if isinstance(factor, np.generic) or not array_view.is_array(factor):
        return ScaleFactor(_number(name, factor, dtype))
    view = array_view.view(factor)
    if prod(view.shape) != 1:
        raise ProblemError(f"{name} must be a number or have one element, got shape {view.shape}")
    if view.device == "cpu":
        element = factor.item() if hasattr(factor, "item") else _element(view)
        return ScaleFactor(_number(name, element, dtype))
    if view.device != device:
        raise DeviceError(f"{name} must be on {device}, where the matrices are, got {view.device}")
    if view.dtype != dtype:
        raise DtypeError(f"{name} on the GPU must be {dtype}, got {view.dtype}")
    return ScaleFactor(1.0, view.address)


def has_several(factor: Any) -> bool:
    """Whether a factor is an array of several elements, or of none, as an empty batch has."""
    if type(factor) is float or type(factor) is int or not array_view.is_array(factor):
        return False
    return bool(prod(factor.shape) != 1)


def _element(view: array_view.ArrayView) -> Any:
    return array_view.bits(view).view(dtypes.dtype(view.dtype).numpy).item()


def _number(name: str, factor: Any, dtype: str) -> float:
    try:
        if isinstance(factor, np.generic) and not _is_real(factor.dtype):
            raise TypeError("NumPy drops an imaginary part and parses text")
        value = factor.__float__()  # float() parses text
    except OverflowError:
        raise _out_of_range(name, factor, dtype) from None
    except (AttributeError, TypeError, ValueError):
        cls = type(factor).__name__
        raise ProblemError(f"{name} must be a real number, got {factor!r} ({cls})") from None
    return _rounded(name, value, dtype)


def _is_real(dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "biuf":
        return True
    try:  # ml_dtypes' types, whose kind is void
        return bool(dtypes.from_numpy(dtype))
    except DtypeError:
        return False


def _rounded(name: str, value: float, dtype: str) -> float:
    form = _FORMATS[dtype]
    try:
        (rounded,) = form.unpack(form.pack(value))
    except (OverflowError, struct.error):  # struct.error: an int that no float64 can hold
        raise _out_of_range(name, value, dtype) from None
    return float(rounded)


def _out_of_range(name: str, value: Any, dtype: str) -> ProblemError:
    wide = isinstance(value, int) and value.bit_length() > 128  # Python may refuse to print it
    shown = f"an int of {value.bit_length()} bits" if wide else repr(value)
    return ProblemError(f"{name} must be in the range of {dtype}, got {shown}")
