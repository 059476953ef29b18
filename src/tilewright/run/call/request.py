"""Stage 1 of a call, request: shapes, strides, types and options of a ``matmul`` call, validated.

A request holds no addresses, so each distinct request is validated once. Only
``operands.output_overlap`` depends on addresses and runs for every call with ``out``.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ... import dtypes
from ...errors import DtypeError, ProblemError
from ...gemm.grouping import Grouping
from ...gemm.problem import SUPPORTED_TYPES, Problem, result_types, scalar_type_of
from ...quantization.weight_format import PreparedWeights, WeightFormat
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlaps_itself
from .matrix_layout import ArraySignature, signature_of

if TYPE_CHECKING:
    from ...gemm.block_scaling import BlockScaling
    from ...gemm.epilogue.graph import EpilogueGraph

TF32X3_TERMS = 3  # tf32 products that replace one f32 product
PRECISIONS = ("ieee", "tf32", "tf32x3")  # of f32 inputs
_VECTOR_HINT = "pass a vector as a matrix of one row, x[None, :], or of one column, x[:, None]"


class BlockScales(NamedTuple):
    """The arrays of scales of a product of A (M×K) and B (K×N), in blocks of 128 along K.

    ``a``: (M / rows, K / 128), ``b``: (K / 128, N / columns), rounded up, f32; of a stack of
    matrices, a stack of either. ``b2``: of the second matrix B of a pair.
    """

    scaling: BlockScaling
    a: Any
    b: Any
    b2: Any = None


class MatmulArguments(NamedTuple):
    """The arrays and factors of a call."""

    a: Any
    b: Any
    c: Any
    out: Any
    alpha: Any
    beta: Any
    scales: BlockScales | None = None


class MatmulOptions(NamedTuple):
    """The options of a call, as ``matmul`` takes them."""

    out_dtype: Any = None
    precision: str = "ieee"
    fast_accum: bool = False
    device: Any = None
    config: Any = None
    static: Any = None


class OperandSignature(NamedTuple):
    """An array of an epilogue: ``strides`` in elements along M, N and the batch, 0 where it does
    not vary. ``misalignment`` is its address modulo 16.
    """

    dtype: str
    strides: tuple[int, int, int]
    misalignment: int = 0


class EpilogueRequest(NamedTuple):
    """An epilogue graph and its arrays: the inputs in the graph's order (None: a scalar), then the
    tensor outputs after D."""

    graph: EpilogueGraph
    operands: tuple[OperandSignature | None, ...]

    @property
    def matrices(self) -> int:
        """The number of results with D's rows and columns: D, other tensors, reductions along the
        batch.
        """
        return sum(output.reduced in ("", "b") for output in self.graph.outputs)


class BlockScaleRequest(NamedTuple):
    """Block scales: the strides are along M (of A) or N (of B), along K, and of the batch. Those
    of the second matrix B of a pair are as those of the first.
    """

    scaling: BlockScaling
    a: OperandSignature
    b: OperandSignature


class WeightRequest(NamedTuple):
    """Prepared weights as B, K×N or a stack; the array of B is that of their units."""

    format: WeightFormat
    shape: tuple[int, ...]


class GroupRequest(NamedTuple):
    """Groups, and the number of them. ``rows``: of the product, if those of A are gathered;
    ``d_rows``: of D, if they are scattered; ``expected_rows``: of a group, if they are given;
    ``gathered``: the operands of the epilogue that have A's rows.
    """

    grouping: Grouping
    number: int
    rows: int | None = None
    d_rows: int | None = None
    expected_rows: int | None = None
    gathered: tuple[str, ...] = ()


class Request(NamedTuple):
    """D = α A B + β C, by the signatures of its arrays.

    ``out`` is None if D is a new array; ``dtype`` is D's type. ``reads_c``: there is a C, and β is
    not the number 0. ``precision`` applies to f32 inputs, ``fast_accum`` to 8-bit float inputs.
    ``epilogue``: what is computed instead of α A B + β C; ``b2``: the second matrix B, which A is
    multiplied by, too; ``scales``: of blocks of A and B; ``weights``: what B's array holds;
    ``groups``: of rows of A and D, each multiplied by a matrix of the stack B, or along K;
    ``accumulated``: the operand that is the array of D, of f32, if D is a sum with it and nothing
    else reads it: ``c``, where α and β are the number 1, or an input of the epilogue.
    """

    a: ArraySignature
    b: ArraySignature
    c: ArraySignature | None
    out: ArraySignature | None
    dtype: str
    reads_c: bool = False
    precision: str = "ieee"
    fast_accum: bool = False
    epilogue: EpilogueRequest | None = None
    b2: ArraySignature | None = None
    scales: BlockScaleRequest | None = None
    weights: WeightRequest | None = None
    groups: GroupRequest | None = None
    accumulated: str = ""

    @property
    def b_shape(self) -> tuple[int, ...]:
        """The shape of B."""
        return self.b.matrix_shape if self.weights is None else self.weights.shape

    @property
    def mnk(self) -> tuple[int, int, int]:
        """M, N, K."""
        m, k = self.a.matrix_shape[-2:]
        if self.groups is not None and self.groups.rows is not None:
            m = self.groups.rows
        return m, self.b_shape[-1], k

    @property
    def sparse(self) -> str:
        """The sparse matrix: ``a``, ``b`` or neither."""
        return "a" if self.a.sparse_axis else "b" if self.b.sparse_axis else ""

    @property
    def batch(self) -> tuple[int, ...]:
        """The number of matrices D, as a tuple of one, if they are a stack; else ()."""
        if self.groups is not None and self.groups.grouping.along == "k":
            return (self.groups.number,)
        return self.a.shape[:-2]

    @property
    def matrices(self) -> int:
        """The number of products."""
        return prod(self.batch) if self.groups is None else self.groups.number

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The shape of D."""
        m, n, _ = self.mnk
        if self.groups is not None and self.groups.d_rows is not None:
            m = self.groups.d_rows
        return (*self.batch, m, n)

    @property
    def is_tf32x3(self) -> bool:
        """Whether f32 inputs are multiplied as 3xTF32."""
        return self.precision == "tf32x3" and self.a.dtype == self.b.dtype == "f32"

    @property
    def mma_dtypes(self) -> tuple[str, str]:
        """The number formats in which A and B are multiplied."""
        names = {"f32": "f32" if self.precision == "ieee" and not self.sparse else "tf32"}
        if self.weights is not None:
            return self.a.dtype, self.weights.format.operand
        return names.get(self.a.dtype, self.a.dtype), names.get(self.b.dtype, self.b.dtype)

    @property
    def scale_dtype(self) -> str:
        """The type of α and β."""
        return scalar_type_of(self.dtype)

    def arrays(self) -> list[tuple[str, ArraySignature]]:
        """The names and signatures of the arrays of the call."""
        fields = (("a", self.a), ("b", self.b), ("b2", self.b2), ("c", self.c), ("out", self.out))
        return [(name, s) for name, s in fields if s is not None]


def make_request(
    a: ArrayView,
    b: ArrayView,
    c: ArrayView | None,
    out: ArrayView | None,
    dtype: Any,
    reads_c: bool,
    precision: str = "ieee",
    fast_accum: bool = False,
) -> Request:
    """The request of a call; if ``dtype`` is None, D has out's type, else the inputs' default."""
    if not isinstance(fast_accum, int | np.bool_):
        raise ProblemError(f"fast_accum must be True or False, got {fast_accum!r:.60}")
    if dtype is not None:
        result = format_name(dtype)
    else:
        result = out.dtype if out is not None else default_result(a.dtype, _weights(b) is not None)
    return Request(
        signature_of(a),
        signature_of(b),
        None if c is None else signature_of(c),
        None if out is None else signature_of(out),
        result,
        reads_c,
        precision,
        bool(fast_accum),
        weights=_weights(b),
    )


def _weights(b: ArrayView) -> WeightRequest | None:
    owner = b.owner
    return WeightRequest(owner.format, owner.shape) if isinstance(owner, PreparedWeights) else None


def default_result(dtype: str, has_weights: bool = False) -> str:
    """D's default type: the inputs' type, bf16 for 8-bit floats, s32 for integers, and bf16 for s8
    times prepared weights.
    """
    return result_types(dtype, has_weights)[0] if dtype in SUPPORTED_TYPES else dtype


def check_request(request: Request) -> None:
    """Raise ProblemError or DtypeError for matrices that cannot be multiplied."""
    _check_ranks(request)
    _check_types(request)
    _check_sparse(request)
    _check_shapes(request)
    if request.out is not None and overlaps_itself(request.out):
        strides = request.out.strides
        raise ProblemError(f"out must have distinct elements, got overlapping strides {strides}")


def _check_ranks(request: Request) -> None:
    for name, s in request.arrays():
        if len(s.shape) not in (2, 3):
            hint = _VECTOR_HINT if len(s.shape) < 2 else "reshape it to a stack of matrices"
            expected = "2-D, or 3-D for a stack of matrices"
            raise ProblemError(f"{name} must be {expected}, got shape {s.shape}", hint=hint)


def _check_shapes(request: Request) -> None:
    a, b = request.a.matrix_shape, request.b_shape
    shapes = f"got a {_shape(request.a)} and b {'×'.join(map(str, b))}"
    if a[-1] != b[-2]:
        raise ProblemError(f"a must have as many columns as b has rows, {shapes}")
    if a[:-2] != b[:-2] and request.groups is None:
        raise ProblemError(
            f"a and b must be two matrices or two stacks of equal length, {shapes}",
            hint="expand one of them (a stack's stride may be 0), or reshape the other to a matrix",
        )
    b2 = request.b2
    if b2 is not None and (b2.shape, b2.dtype) != (request.b.shape, request.b.dtype):
        pair = f"{_shape(request.b)} {request.b.dtype} and {_shape(b2)} {b2.dtype}"
        raise ProblemError(f"the two matrices b must have one shape and type, got {pair}")
    # Reports bad sizes by the caller's letters, before M and N may be swapped.
    Problem(*request.mnk)
    for name, s in (("c", request.c), ("out", request.out)):
        if s is not None and s.shape != request.output_shape:
            shown = "×".join(map(str, request.output_shape))
            raise ProblemError(f"{name} must have the product's shape {shown}, got {_shape(s)}")
        if s is not None and s.dtype != request.dtype:
            raise DtypeError(
                f"{name} must have the result's type {request.dtype}, got {s.dtype}",
                hint=f"convert {name}, or pass out_dtype={s.dtype!r}",
            )


def _check_sparse(request: Request) -> None:
    for name, s, axis in (("a", request.a, -1), ("b", request.b, -2)):
        if s.sparse_axis not in (0, axis):
            raise ProblemError(
                f"a sparse {name} must be sparse along K, got {_shape(s)} sparse along "
                f"{'M' if name == 'a' else 'N'}",
                hint="compress_24(w) is sparse along the columns of w, its .T along the rows",
            )
    if request.a.sparse_axis and request.b.sparse_axis:
        raise ProblemError("a and b must not both be sparse", hint="b.decompress() is dense")
    if request.sparse and request.precision == "tf32x3":
        raise ProblemError("precision must not be 'tf32x3' with a sparse matrix")
    for name, other in request.arrays():
        like = request.b.sparse_axis if name == "b2" else 0
        if name not in ("a", "b") and other.sparse_axis != like:
            forms = ("sparse, as b is", "dense") if like else ("dense", "sparse")
            raise ProblemError(f"{name} must be {forms[0]}, got a {forms[1]} matrix")


def _shape(s: ArraySignature) -> str:
    return "×".join(map(str, s.matrix_shape))


def _check_types(request: Request) -> None:
    left, right = request.a.dtype, request.b.dtype
    precision: object = request.precision
    if not isinstance(precision, str) or precision not in PRECISIONS:
        allowed = ", ".join(map(repr, PRECISIONS))
        raise DtypeError(f"precision must be one of {allowed}, got {precision!r}")
    a, b = request.mma_dtypes
    shown = {"tf32": "f32 (as tf32)"}
    for name, dtype, t in (("a", left, a), ("b", right, b)):
        if t not in SUPPORTED_TYPES:
            allowed = ", ".join(shown.get(x, x) for x in SUPPORTED_TYPES)
            raise DtypeError(
                f"{name} must be one of {allowed}, got {dtype}",
                hint=_conversion_hint(name, dtype, SUPPORTED_TYPES.get(a) if name == "b" else None),
            )
    partners, results = SUPPORTED_TYPES[a][0], result_types(a, request.weights is not None)
    if b not in partners:
        allowed = " or ".join(shown.get(x, x) for x in partners)
        hint = f"convert b to {partners[0]}, or a"
        raise DtypeError(f"b must be {allowed} if a is {left}, got {right}", hint=hint)
    if request.dtype not in results and request.epilogue is None:
        allowed = " or ".join(results)
        raise DtypeError(f"the result of {left} inputs must be {allowed}, got {request.dtype}")


def _conversion_hint(name: str, dtype: str, a_row: Any) -> str:
    """What an unsupported array can be converted to, and what that preserves.

    ``a_row`` is a's row of ``SUPPORTED_TYPES``, if ``name`` is b and a is supported.
    """
    t = dtypes.dtype(dtype)
    if a_row is not None:
        return f"convert {name} to {a_row[0][0]}, which can be multiplied with a"
    if t.kind in ("int", "uint", "pred"):
        small = "s8" if t.kind == "int" else "u8"
        if t.bits <= 8:
            return f"convert {name} to {small}, which holds all its values; the accumulator is s32"
        wide = "or to f64, where integers are exact up to 2^53"
        return f"convert {name} to {small} if its values fit (the accumulator is s32), {wide}"
    if t.kind == "float" and t.bits < 16 and t.name != "ue8m0":
        return f"convert {name} to f16, which holds all its values"
    return f"convert {name} to f32"


def format_name(dtype: Any, name: str = "out_dtype") -> str:
    """A number format by any of its names: ``"f32"``, ``np.float32``, ``torch.float32``.

    Raises DtypeError about the argument called ``name``.
    """
    if isinstance(dtype, str | dtypes.DType):
        if not isinstance(dtype, str) or dtype in dtypes.DTYPES:
            return dtypes.dtype(dtype).name
    library, _, word = str(dtype).partition(".")
    try:
        if dtype is None:
            raise TypeError  # NumPy takes None for f64
        return dtypes.from_numpy(np.dtype(word if library == "torch" else dtype)).name
    except TypeError:  # numpy.dtype's, or DtypeError
        raise DtypeError(
            f"{name} must be a number format, got {dtype!r}", hint=f'{name}="f32"'
        ) from None
