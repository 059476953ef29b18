"""Random numbers for kernels to work on."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType


def normal(rng: np.random.Generator, shape: tuple[int, ...], t: DType) -> npt.NDArray[Any]:
    """Normal numbers of a format, of f32's precision or f64's. Integers have a deviation of 30 and
    eight bits; those without a sign lie around 128.
    """
    drawn: Any = np.float64 if t.name == "f64" else np.float32
    numbers = rng.standard_normal(shape, dtype=drawn)
    if t.kind in ("int", "uint"):
        low, high = t.range
        numbers = np.rint(numbers * 30)
        if t.kind == "uint":
            return np.clip(np.abs(numbers + 128), 0, min(high, 255))
        return np.clip(numbers, max(low, -128), min(high, 127))
    return numbers
