"""What a call of ``matmul`` asks, and whether it may: ranks, shapes, types, places.

Everything here depends on signatures alone, so it is looked at once for all calls that are alike;
what depends on addresses (overlap) is ``check_output_overlap``, for each call that gives ``out``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import DeviceError, DtypeError, ProblemError
from ...gemm.problem import SUPPORTED_TYPES, Problem, scalar_type_of
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlap, overlaps_itself
from .matrix_layout import ArraySignature, signature

TF32X3_TERMS = 3  # products of tf32 that stand for one of f32
PRECISIONS = ("ieee", "tf32", "tf32x3")  # of f32 inputs
_AS_MATRIX = "a vector is a matrix of one row, x[None, :], or of one column, x[:, None]"


class Request(NamedTuple):
    """D = α A B + β C, by signatures. ``out`` None: a fresh D; ``dtype`` is D's; ``reads_c``: C is
    there and β is not the number 0. ``precision`` is of f32 inputs, ``fast`` of sums of 8-bit ones.
    """

    a: ArraySignature
    b: ArraySignature
    c: ArraySignature | None
    out: ArraySignature | None
    dtype: str
    reads_c: bool = False
    precision: str = "ieee"
    fast: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.a.shape[-2], self.b.shape[-1], self.a.shape[-1]

    @property
    def batch(self) -> tuple[int, ...]:
        """How many products, where a and b are stacks of matrices; else nothing."""
        return self.a.shape[:-2]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the result."""
        return (*self.batch, *self.sizes[:2])

    @property
    def threefold(self) -> bool:
        """Whether f32 is multiplied by three products of tf32."""
        return self.precision == "tf32x3" and self.a.dtype == self.b.dtype == "f32"

    @property
    def formats(self) -> tuple[str, str]:
        """The number formats in which A and B are multiplied."""
        names = {"f32": "f32" if self.precision == "ieee" else "tf32"}
        return names.get(self.a.dtype, self.a.dtype), names.get(self.b.dtype, self.b.dtype)

    @property
    def factors(self) -> str:
        """The format of α and β."""
        return scalar_type_of(self.dtype)

    def named(self) -> list[tuple[str, ArraySignature]]:
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
    precision: str = "ieee",
    fast: bool = False,
) -> Request:
    """What a call with these arrays asks; ``dtype`` None is out's type, or what the inputs give."""
    if not isinstance(fast, int | np.bool_):
        raise ProblemError(f"fast_accum must be True or False, got {fast!r:.60}")
    if dtype is not None:
        result = format_name(dtype)
    else:
        result = out.dtype if out is not None else result_of(a.dtype)
    return Request(
        signature(a),
        signature(b),
        None if c is None else signature(c),
        None if out is None else signature(out),
        result,
        reads_c,
        precision,
        bool(fast),
    )


def result_of(dtype: str) -> str:
    """D's format where nobody names one: the inputs', bf16 for 8-bit floats, s32 for integers."""
    return SUPPORTED_TYPES[dtype][1][0] if dtype in SUPPORTED_TYPES else dtype


def check(request: Request) -> None:
    """Raises ProblemError and DtypeError for what can't be multiplied."""
    for name, s in request.named():
        if len(s.shape) not in (2, 3):
            count = f"{len(s.shape)} dimension{'s' * (len(s.shape) != 1)}"
            hint = _AS_MATRIX if len(s.shape) < 2 else "reshape it to a stack of matrices"
            what = "a matrix has 2, a stack of them 3"
            raise ProblemError(f"{name} has {count}, {s.shape}; {what}", hint=hint)
    _check_types(request)
    a, b = request.a.shape, request.b.shape
    if a[-1] != b[-2]:
        raise ProblemError(
            f"a is {_shape(request.a)} and b is {_shape(request.b)}: "
            f"a has {a[-1]} columns, b has {b[-2]} rows; they must be as many"
        )
    if a[:-2] != b[:-2]:
        raise ProblemError(
            f"a is {_shape(request.a)} and b is {_shape(request.b)}: both are matrices, or as many",
            hint="expand the one (a stack's stride may be 0), or reshape the other to a matrix",
        )
    Problem(
        *request.sizes
    )  # refuses sizes by their letters, which a column-major D exchanges later
    for name, s in (("c", request.c), ("out", request.out)):
        if s is not None and s.shape != request.shape:
            shown = "×".join(map(str, request.shape))
            raise ProblemError(f"{name} is {_shape(s)}; the product is {shown}")
        if s is not None and s.dtype != request.dtype:
            raise DtypeError(
                f"{name} is {s.dtype}; the result is {request.dtype}",
                hint=f"give {name} that type, or out_dtype={s.dtype!r}",
            )
    if request.out is not None and overlaps_itself(request.out):  # type: ignore[arg-type]
        raise ProblemError(f"out's elements share memory: its strides are {request.out.strides}")


def _shape(s: ArraySignature) -> str:
    return "×".join(map(str, s.shape))


def _check_types(request: Request) -> None:
    left, right = request.a.dtype, request.b.dtype
    if not isinstance(request.precision, str) or request.precision not in PRECISIONS:
        allowed = ", ".join(map(repr, PRECISIONS))
        raise DtypeError(f"precision is {request.precision!r}; it is one of {allowed}")
    a, b = request.formats
    known = {"tf32": "f32 (as tf32)"}
    for name, given, t in (("a", left, a), ("b", right, b)):
        if t not in SUPPORTED_TYPES:
            allowed = ", ".join(known.get(x, x) for x in SUPPORTED_TYPES)
            raise DtypeError(
                f"{name} is {given}, which matmul does not support; {allowed} are",
                hint=_supported(name, given, SUPPORTED_TYPES.get(a) if name == "b" else None),
            )
    partners, results = SUPPORTED_TYPES[a]
    if b not in partners:
        allowed = " or ".join(known.get(x, x) for x in partners)
        hint = f"convert b to {partners[0]}, or a"
        raise DtypeError(f"a is {left} and b is {right}; with {left} goes {allowed}", hint=hint)
    if request.dtype not in results:
        raise DtypeError(
            f"a result of {request.dtype} from {left} is not supported; {' and '.join(results)} are"
            if len(results) > 1
            else f"a result of {request.dtype} from {left} is not supported; {results[0]} is"
        )


def _supported(name: str, given: str, beside: Any) -> str:
    """The formats to which an array of another can be converted, and what that keeps. ``beside``:
    what goes with the other array, where that is supported.
    """
    t = dtypes.dtype(given)
    if beside is not None:
        return f"convert {name} to {beside[0][0]}, which goes with a"
    if t.kind in ("int", "uint", "pred"):
        small = "s8" if t.kind == "int" else "u8"
        if t.bits <= 8:
            return f"convert {name} to {small}, which has all its values; sums are s32"
        wide = "or to f64, where integers are exact up to 2^53"
        return f"convert {name} to {small} where its values fit (sums are s32), {wide}"
    if t.kind == "float" and t.bits < 16 and t.name != "ue8m0":
        return f"convert {name} to f16, which has all its values"
    return f"convert {name} to f32"


def format_name(given: Any, name: str = "out_dtype") -> str:
    """A number format by any of its names: ``"f32"``, ``np.float32``, ``torch.float32``. Raises
    DtypeError, about the argument of that ``name``.
    """
    if isinstance(given, str | dtypes.DType):
        if not isinstance(given, str) or given in dtypes.DTYPES:
            return dtypes.dtype(given).name
    library, _, word = str(given).partition(".")
    try:
        if given is None:
            raise TypeError  # f64 to NumPy
        return dtypes.from_numpy(np.dtype(word if library == "torch" else given)).name
    except TypeError:  # numpy.dtype's, or DtypeError
        raise DtypeError(
            f"{name} is {given!r}, which is no number format", hint=f'{name}="f32"'
        ) from None


def check_output_overlap(a: ArrayView, b: ArrayView, c: ArrayView | None, out: ArrayView) -> None:
    """Raises ProblemError where ``out`` can't be written while the others are read."""
    if out.readonly:
        hint = "without out= the result is a new array; JAX's arrays never change"
        raise ProblemError("out is read-only", hint=hint)
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
