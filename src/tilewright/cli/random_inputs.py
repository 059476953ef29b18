"""Random input matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType


def normal(rng: np.random.Generator, shape: tuple[int, ...], t: DType) -> npt.NDArray[Any]:
    """Normally distributed numbers for a number format, as f32 or f64. Integers have a standard
    deviation of 30 and fit 8 bits; unsigned integers have a mean of 128.
    """
    drawn: Any = np.float64 if t.name == "f64" else np.float32
    numbers: npt.NDArray[Any] = rng.standard_normal(shape, dtype=drawn)
    if t.kind in ("int", "uint"):
        low, high = t.range
        numbers = np.rint(numbers * 30)
        if t.kind == "uint":
            numbers = np.abs(numbers + 128)
        bounds = (0, 255) if t.kind == "uint" else (-128, 127)
        np.clip(numbers, max(low, bounds[0]), min(high, bounds[1]), out=numbers)
    return numbers
