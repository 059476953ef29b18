"""Checks D of a GEMM on random matrices against float64, with an error bound for each element.

The bound covers the rounding errors of accumulation in f32, or in f64. FMAs, and the f64 matrix
instruction, accumulate one product at a time, other matrix instructions in steps of 16. Each step
may lose two units in the last place of the partial sum (with 8-bit floats the accumulator keeps 13
fraction bits, not 23). A sum of products with random signs stays within six standard deviations,
σ² = Σ a² b². The bound also covers the rounding of D and of tf32 inputs. Integer accumulation is
exact modulo 2³². An element beyond the range of D's type, or of the f32 accumulator, is infinite. A
missing product is detected only if K is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes, number_conversion

_STEP = 16
_UNIT = 2.0**-23
_UNITS = {1: 2.0**-13, 8: 2.0**-52}  # by bytes per input element
_TF32 = 2.0**-11  # relative rounding error of tf32
_DEVIATIONS = 6.0
_PRODUCTS = 1 << 31  # above this number of products, rows and columns are sampled
_MOST_ROWS, _MOST_COLUMNS = 256, 1024


@dataclass(frozen=True)
class ProductCheck:
    """The largest error and the bound of that element; the largest ratio of an error to its bound
    (above 1 is wrong) and where it is; which elements were checked.
    """

    error: float
    bound: float
    worst_ratio: float
    location: tuple[int, int]
    checked_elements: str

    @property
    def passed(self) -> bool:
        return self.worst_ratio <= 1.0


@dataclass(frozen=True)
class GemmOperands:
    """The operands of D = α A B + β C, and the computed D."""

    a: Any
    b: Any
    d: Any
    c: Any = None
    alpha: float = 1.0
    beta: float = 0.0
    tf32: bool = False  # a and b are rounded to tf32


def check_product(operands: GemmOperands, dtype: str, rng: np.random.Generator) -> ProductCheck:
    """Check D of this type; of a large D, a random sample of rows and columns."""
    (m, k), n = operands.a.shape, operands.b.shape[1]
    rows, columns = np.arange(m), np.arange(n)
    checked_elements = "all elements"
    if m * n * k > _PRODUCTS:
        rows, columns = _sample(m, _MOST_ROWS, rng), _sample(n, _MOST_COLUMNS, rng)
        checked_elements = (
            f"{len(rows)} of {m} rows × {len(columns)} of {n} columns, picked at random"
        )
    if not len(rows) or not len(columns):
        return ProductCheck(0.0, 0.0, 0.0, (0, 0), "nothing: D is empty")
    exact, allowed = _reference(operands, dtype, rows, columns)
    got = operands.d[np.ix_(rows, columns)].astype(np.float64)
    same = (got == exact) | _overflows(got, exact, allowed, dtypes.dtype(dtype))
    error = np.where(same, 0.0, np.abs(got - exact))
    error = np.where(np.isnan(error), np.inf, error)
    worst_ratio = error / allowed
    i, j = np.unravel_index(np.argmax(worst_ratio), worst_ratio.shape)
    largest = np.unravel_index(np.argmax(error), error.shape)
    location = int(rows[i]), int(columns[j])
    return ProductCheck(
        float(error[largest]),
        float(allowed[largest]),
        float(worst_ratio[i, j]),
        location,
        checked_elements,
    )


def _sample(size: int, most: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return np.sort(rng.choice(size, min(size, most), replace=False))


def _overflows(got: Any, exact: Any, allowed: Any, t: dtypes.DType) -> Any:
    """Where D is infinite and its exact value may be beyond the type's largest finite number."""
    if t.kind == "int":
        return np.zeros(got.shape, bool)
    largest = float(number_conversion.decode(t, t.max_finite))
    return np.isinf(got) & (np.sign(got) == np.sign(exact)) & (np.abs(exact) + allowed > largest)


def _reference(operands: GemmOperands, dtype: str, rows: Any, columns: Any) -> tuple[Any, Any]:
    """D in float64 without rounding to its type, and the error bound of each element."""
    a, b = operands.a[rows].astype(np.float64), operands.b[:, columns].astype(np.float64)
    k = a.shape[1]
    exact = operands.alpha * (a @ b)
    deviation = np.sqrt(np.square(a) @ np.square(b))
    by_fma = operands.a.dtype in (np.float32, np.float64) and not operands.tf32
    steps = -(-k // (1 if by_fma else _STEP)) + 2
    unit = _UNITS.get(operands.a.dtype.itemsize, _UNIT)
    lost = unit * steps + 2 * _TF32 * operands.tf32
    allowed = abs(operands.alpha) * lost * _DEVIATIONS * deviation
    if operands.c is not None and operands.beta:
        more = operands.beta * operands.c[np.ix_(rows, columns)].astype(np.float64)
        allowed += min(unit, _UNIT) * np.abs(more)
        exact = exact + more
    t = dtypes.dtype(dtype)
    if t.kind == "int":
        half = 2.0 ** (t.bits - 1)
        return (exact + half) % (2 * half) - half, np.full_like(exact, 0.5)
    unit, least = 2.0 ** -(t.mantissa + 1), 2.0 ** (t.least - t.mantissa)
    return exact, allowed + unit * np.abs(exact) + least
