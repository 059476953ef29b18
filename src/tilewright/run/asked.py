"""What a call of ``matmul`` asks, and whether it may: ranks, shapes, types, places.

Everything here depends on signatures alone, so it is looked at once for all calls that are alike;
what depends on addresses (overlap) is ``check_overlap``, for each call that gives ``out``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..errors import DeviceError, DtypeError, ProblemError
from ..gemm.problem import INPUTS, Problem
from .arrays import ArrayView, overlap, overlaps_itself
from .placement import Signature, signature

_AS_MATRIX = "a vector is a matrix of one row, x[None, :], or of one column, x[:, None]"


class Asked(NamedTuple):
    """D = α A B + β C, by signatures. ``out`` None: a fresh D; ``dtype`` is D's; ``reads_c``: C is
    there and β is not the number 0.
    """

    a: Signature
    b: Signature
    c: Signature | None
    out: Signature | None
    dtype: str
    reads_c: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    def named(self) -> list[tuple[str, Signature]]:
        """The arrays that are there, with their names."""
        fields = (("a", self.a), ("b", self.b), ("c", self.c), ("out", self.out))
        return [(name, s) for name, s in fields if s is not None]


def ask(
    a: ArrayView,
    b: ArrayView,
    c: ArrayView | None,
    out: ArrayView | None,
    dtype: Any,
    reads_c: bool,
) -> Asked:
    """What a call with these arrays asks; ``dtype`` None is out's type, or the inputs'."""
    return Asked(
        signature(a),
        signature(b),
        None if c is None else signature(c),
        None if out is None else signature(out),
        format_name(dtype) if dtype is not None else (out or a).dtype,
        reads_c,
    )


def check(asked: Asked) -> None:
    """Raises ProblemError and DtypeError for what can't be multiplied."""
    for name, s in asked.named():
        if len(s.shape) != 2:
            count = f"{len(s.shape)} dimension{'s' * (len(s.shape) != 1)}"
            hint = _AS_MATRIX if len(s.shape) == 1 else "multiply its matrices one by one"
            raise ProblemError(f"{name} has {count}, {s.shape}; a matrix has 2", hint=hint)
    _check_types(asked)
    if asked.a.shape[1] != asked.b.shape[0]:
        raise ProblemError(
            f"a is {_shape(asked.a)} and b is {_shape(asked.b)}: "
            f"a has {asked.a.shape[1]} columns, b has {asked.b.shape[0]} rows; they must be as many"
        )
    m, n, k = asked.sizes
    Problem(m, n, k)  # refuses sizes by their letters, which a column-major D exchanges later
    for name, s in (("c", asked.c), ("out", asked.out)):
        if s is not None and s.shape != (m, n):
            raise ProblemError(f"{name} is {_shape(s)}; the product is {m}×{n}")
        if s is not None and s.dtype != asked.dtype:
            raise DtypeError(
                f"{name} is {s.dtype}; the result is {asked.dtype}",
                hint=f"give {name} that type, or out_dtype={s.dtype!r}",
            )
    if asked.out is not None and overlaps_itself(asked.out):  # type: ignore[arg-type]
        raise ProblemError(f"out's elements share memory: its strides are {asked.out.strides}")


def _shape(s: Signature) -> str:
    return "×".join(map(str, s.shape))


def _check_types(asked: Asked) -> None:
    allowed = " or ".join(INPUTS)
    for name, s in (("a", asked.a), ("b", asked.b)):
        if s.dtype not in INPUTS:
            raise DtypeError(
                f"{name} is {s.dtype}, which matmul does not support yet; a and b are {allowed}",
                hint=f"{name}.astype(numpy.float16), or ml_dtypes.bfloat16",
            )
    if asked.a.dtype != asked.b.dtype:
        raise DtypeError(
            f"a is {asked.a.dtype} and b is {asked.b.dtype}; both are {allowed}, one type for both"
        )
    if asked.dtype not in (asked.a.dtype, "f32"):
        raise DtypeError(
            f"a result of {asked.dtype} from {asked.a.dtype} is not supported; "
            f"{asked.a.dtype} and f32 are"
        )


def format_name(given: Any) -> str:
    """A number format by any of its names: ``"f32"``, ``np.float32``, ``torch.float32``."""
    if isinstance(given, str | dtypes.DType):
        if not isinstance(given, str) or given in dtypes.DTYPES:
            return dtypes.dtype(given).name
    library, _, word = str(given).partition(".")
    try:
        return dtypes.from_numpy(np.dtype(word if library == "torch" else given)).name
    except TypeError:  # numpy.dtype's, or DtypeError
        raise DtypeError(
            f"out_dtype is {given!r}; it is the inputs' type or f32", hint='out_dtype="f32"'
        ) from None


def check_overlap(a: ArrayView, b: ArrayView, c: ArrayView | None, out: ArrayView) -> None:
    """Raises ProblemError where ``out`` can't be written while the others are read."""
    if out.readonly:
        raise ProblemError("out is read-only")
    for name, view in (("a", a), ("b", b)):
        if overlap(out, view):
            raise ProblemError(f"out shares memory with {name}, which is read meanwhile")
    if c is not None and not _same(c, out) and overlap(out, c):
        raise ProblemError(
            "out shares memory with c without being the same matrix",
            hint="out and c may be one matrix (D = α A B + β D), or be apart",
        )


def _same(c: ArrayView, out: ArrayView) -> bool:
    return (c.address, c.shape, c.strides) == (out.address, out.shape, out.strides)


def place(*views: ArrayView | None) -> str:
    """The one device on which a, b, c and out are: "cpu", "cuda:0". DeviceError where they are
    not on one.
    """
    here = views[0].device  # type: ignore[union-attr]
    for name, view in zip(("b", "c", "out"), views[1:], strict=True):
        if view is not None and view.device != here:
            raise DeviceError(
                f"a is on {here} and {name} on {view.device}; all are on one device",
                hint=f"move {name} to {here}",
            )
    return here
