"""Whether a product of random numbers is right: each element against float64, within a bound.

The bound is what f32 sums of random numbers may lose, or f64's. FMAs add K one by one (f64's matrix
instruction too), other matrix instructions in steps of 16; each may lose two units in the last
place of a partial sum (of 8-bit floats it keeps 13 bits behind the point, not 23); a sum of
products that are random in sign stays within six standard deviations, σ² = Σ a² b². To that comes
the rounding of D, and of inputs to tf32. Sums of integers are exact, modulo 2³²; what is beyond D's
type, or f32's in which it is made, is infinite. A missing product shows where there are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import dtypes

_STEP = 16
_UNIT = 2.0**-23
_UNITS = {1: 2.0**-13, 8: 2.0**-52}  # of inputs of so many bytes
_TF32 = 2.0**-11  # how far a number may be from tf32, relative
_DEVIATIONS = 6.0
_PRODUCTS = 1 << 31  # beyond so many, rows and columns are sampled
_MOST_ROWS, _MOST_COLUMNS = 256, 1024


@dataclass(frozen=True)
class Verdict:
    """The largest error, the bound at that element, the largest share of its bound that any error
    takes (above 1 is wrong), and what was looked at.
    """

    error: float
    bound: float
    share: float
    where: tuple[int, int]
    looked_at: str

    @property
    def right(self) -> bool:
        return self.share <= 1.0


@dataclass(frozen=True)
class Case:
    """D = α A B + β C as it came out."""

    a: Any
    b: Any
    d: Any
    c: Any = None
    alpha: float = 1.0
    beta: float = 0.0
    tf32: bool = False  # a and b are rounded to it


def verdict(case: Case, dtype: str, rng: np.random.Generator) -> Verdict:
    """Judge a result of this type; large ones by a sample of rows and columns."""
    (m, k), n = case.a.shape, case.b.shape[1]
    rows, columns = np.arange(m), np.arange(n)
    looked_at = "all elements"
    if m * n * k > _PRODUCTS:
        rows, columns = _some(m, _MOST_ROWS, rng), _some(n, _MOST_COLUMNS, rng)
        looked_at = f"{len(rows)} of {m} rows × {len(columns)} of {n} columns, picked at random"
    if not len(rows) or not len(columns):
        return Verdict(0.0, 0.0, 0.0, (0, 0), "nothing: D is empty")
    exact, allowed = _reference(case, dtype, rows, columns)
    got = case.d[np.ix_(rows, columns)].astype(np.float64)
    same = (got == exact) | _overflows(got, exact, allowed, dtypes.dtype(dtype))
    error = np.where(same, 0.0, np.abs(got - exact))
    error = np.where(np.isnan(error), np.inf, error)
    share = error / allowed
    i, j = np.unravel_index(np.argmax(share), share.shape)
    largest = np.unravel_index(np.argmax(error), error.shape)
    where = int(rows[i]), int(columns[j])
    return Verdict(
        float(error[largest]), float(allowed[largest]), float(share[i, j]), where, looked_at
    )


def _some(size: int, most: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    return np.sort(rng.choice(size, min(size, most), replace=False))


def _overflows(got: Any, exact: Any, allowed: Any, t: dtypes.DType) -> Any:
    """Where D is infinite, and its number may be beyond the largest of the type."""
    if t.kind == "int":
        return np.zeros(got.shape, bool)
    largest = float(dtypes.decode(t, t.max_finite))
    return np.isinf(got) & (np.sign(got) == np.sign(exact)) & (np.abs(exact) + allowed > largest)


def _reference(case: Case, dtype: str, rows: Any, columns: Any) -> tuple[Any, Any]:
    """D in float64, rounded to nothing, and how far from it each element may be."""
    a, b = case.a[rows].astype(np.float64), case.b[:, columns].astype(np.float64)
    k = a.shape[1]
    exact = case.alpha * (a @ b)
    deviation = np.sqrt(np.square(a) @ np.square(b))
    by_fma = case.a.dtype in (np.float32, np.float64) and not case.tf32
    steps = -(-k // (1 if by_fma else _STEP)) + 2
    unit = _UNITS.get(case.a.dtype.itemsize, _UNIT)
    lost = unit * steps + 2 * _TF32 * case.tf32
    allowed = abs(case.alpha) * lost * _DEVIATIONS * deviation
    if case.c is not None and case.beta:
        more = case.beta * case.c[np.ix_(rows, columns)].astype(np.float64)
        allowed += min(unit, _UNIT) * np.abs(more)
        exact = exact + more
    t = dtypes.dtype(dtype)
    if t.kind == "int":
        half = 2.0 ** (t.bits - 1)
        return (exact + half) % (2 * half) - half, np.full_like(exact, 0.5)
    unit, least = 2.0 ** -(t.mantissa + 1), 2.0 ** (t.least - t.mantissa)
    return exact, allowed + unit * np.abs(exact) + least
