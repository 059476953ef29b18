"""GEMM problem: D = α A B + β C, by sizes, number formats, layouts and alignments.

A problem and a configuration determine the kernel. D and C are row-major: for a column-major D the
caller poses the problem Dᵀ = Bᵀ Aᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, isqrt
from typing import TYPE_CHECKING

import numpy as np

from .. import mma
from ..dtypes import DTYPES, DType
from ..errors import DtypeError, ProblemError, TargetError
from ..mma.sparsity import sparsity_pattern
from ..quantization.weight_format import UNIT_ROWS, WeightFormat
from ..target import DEFAULT_DEVICE, DeviceSpec
from .block_scaling import BLOCK, BlockScaling
from .epilogue.graph import ACCUMULATED_TYPE
from .grouping import Grouping, has_k_groups, has_row_groups

if TYPE_CHECKING:
    from .epilogue.bound_epilogue import BoundEpilogue

FP8 = ("e4m3", "e5m2")
PROMOTION_K = BLOCK  # the K extent after which 8-bit floats' accumulators are promoted to f32
# By A's format: the formats that B may have, and those that D may have, D's own default first.
SUPPORTED_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "f16": (("f16",), ("f16", "f32")),
    "bf16": (("bf16",), ("bf16", "f32")),
    "f32": (("f32",), ("f32",)),
    "f64": (("f64",), ("f64",)),
    "tf32": (("tf32",), ("f32",)),
    "e4m3": (FP8, ("bf16", "f16", "f32")),
    "e5m2": (FP8, ("bf16", "f16", "f32")),
    "s8": (("s8", "u8"), ("s32",)),
    "u8": (("s8", "u8"), ("s32",)),
}
# Types of less than a byte: packed along K, the first element in the lowest bits. A b1 product is
# the number of bits set in both rows.
PACKED_TYPES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "s4": (("s4", "u4"), ("s32",)),
    "u4": (("s4", "u4"), ("s32",)),
    "b1": (("b1",), ("s32",)),
}
SPARSE_TYPES = ("f16", "bf16", "tf32", *FP8, "s8", "u8", "s4", "u4")
EPILOGUE_RESULTS = ("f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s32")
ALIGNMENTS = (16, 8, 4, 2, 1)
SIZE_LIMIT = 2**31
PADDED_ROWS = 128  # groups of multiples of these are taken for equal ones
# Of a problem that represents all sizes: rows of D are aligned to 16 bytes (a pair has half as many
# columns), K of any type is whole bytes.
UNIT_SIZES = (1, 32, 8)


def validate(problem: object, device: object = DEFAULT_DEVICE) -> None:
    """Raise ProblemError unless ``problem`` is a Problem, TargetError unless ``device`` fits."""
    if not isinstance(problem, Problem):
        hint = "gemm.Problem(m, n, k) makes one"
        raise ProblemError(f"problem must be a gemm.Problem, got {problem!r:.60}", hint=hint)
    if not isinstance(device, DeviceSpec):
        hint = 'target.device_spec("H200") is one'
        raise TargetError(f"device must be a target.DeviceSpec, got {device!r:.60}", hint=hint)


def accumulator_type_of(a: str, has_weights: bool = False) -> str:
    """The type in which products of A's type accumulate; with prepared weights the type in which
    the sums of groups, times their scales, do.
    """
    if has_weights:
        return "f32"
    if a == "f64":
        return "f64"
    return "s32" if a in ("s8", "u8", *PACKED_TYPES) else "f32"


def result_types(a: str, has_weights: bool = False) -> tuple[str, ...]:
    """The formats that D may have for A's, the default first; with prepared weights the scales of
    groups make floats of integers' sums.
    """
    row = "e4m3" if has_weights and a == "s8" else a
    return (SUPPORTED_TYPES | PACKED_TYPES).get(row, ((), ()))[1]


def scalar_type_of(d: str) -> str:
    """The type of α and β for a D of this type."""
    return "f64" if d == "f64" else "f32"


@dataclass(frozen=True, slots=True)
class Problem:
    """M×K times K×N, ``batch`` times.

    ``a``, ``b``, ``d`` are formats by name (C has D's). ``a_major``: ``k`` (row-major A) or ``m``;
    ``b_major``: ``k`` (column-major B) or ``n``. ``align_*``: the bytes, 16 to 1, that divide the
    matrix' address and its leading dimension; an element at least. ``align_d`` becomes less where
    it does not divide the bytes of a row of D, so that no vector store passes the row's end.
    ``fast``: 8-bit floats accumulate in the tensor core, which keeps fewer bits than f32; otherwise
    the accumulator is promoted to f32 every 128 of K. ``epilogue``: what is computed from the
    accumulator instead of α acc + β C. ``pair``: A is multiplied by two matrices B of n/2 columns
    each, and the epilogue makes one D of n/2 columns from both accumulators. ``scaling``: blocks of
    8-bit floats along K have scales. ``weights``: B is prepared weights of this format (of a pair
    both are), converted to A's type ``b``. ``sparse``: ``a`` or ``b`` (of a pair both) is 2:4
    sparse (tf32: 1:2, 4-bit types: pairs) along K, and stored without half of its elements,
    K-major. ``groups``: there are ``batch`` groups of rows, each with a matrix B of its own, and M
    counts the rows of all groups, or is the capacity of each; or groups along K, each with a D of
    its own, and K counts all of them. ``accumulates_c``: C is in D's memory, of f32, and α = β = 1.
    Raises DtypeError, ProblemError.
    """

    m: int
    n: int
    k: int
    a: str = "f16"
    b: str = "f16"
    d: str = "f16"
    a_major: str = "k"
    b_major: str = "k"
    with_c: bool = False
    align_a: int = 16
    align_b: int = 16
    align_c: int = 16
    align_d: int = 16
    batch: int = 1
    fast: bool = False
    epilogue: BoundEpilogue | None = None
    pair: bool = False
    scaling: BlockScaling | None = None
    weights: WeightFormat | None = None
    sparse: str = ""
    groups: Grouping | None = None
    accumulates_c: bool = False

    def __post_init__(self) -> None:
        sizes = (("M", self.m), ("N", self.n), ("K", self.k), ("the batch", self.batch))
        for name, size in sizes:
            if not mma.array_inputs.is_integer(size) or not 0 <= size < SIZE_LIMIT:
                raise ProblemError(f"{name} must be an integer from 0 to 2^31 - 1, got {size!r}")
        for name, given in (("a", self.a), ("b", self.b), ("d", self.d)):
            if not isinstance(given, str):
                raise DtypeError(f"{name} must be a format's name, such as f16, got {given!r:.60}")
        for name, given in (("a_major", self.a_major), ("b_major", self.b_major)):
            if not isinstance(given, str):
                raise ProblemError(f"{name} must be text, k, m or n, got {given!r:.60}")
        for name in ("with_c", "fast", "accumulates_c"):
            if not isinstance(flag := getattr(self, name), bool | np.bool_):
                raise ProblemError(f"{name} must be True or False, got {flag!r:.60}")
        supported = SUPPORTED_TYPES | PACKED_TYPES
        right = supported.get(self.a, ((), ()))[0]
        if self.b not in right:
            allowed = ", ".join(f"{a} × {b}" for a, (right, _) in supported.items() for b in right)
            raise DtypeError(f"A of {self.a} times B of {self.b} is not supported; {allowed} are")
        results = result_types(self.a, self.weights is not None)
        if self.epilogue is not None:
            results = results if self.a == "f64" else EPILOGUE_RESULTS
            if self.pair and self.n % 2:
                raise ProblemError(f"N of a pair must be even, got {self.n}")
            if self.with_c:
                raise ProblemError("C must be an operand of the epilogue, got with_c and epilogue")
        if self.d not in results:
            raise DtypeError(f"a result from {self.a} must be {' or '.join(results)}, got {self.d}")
        if self.a_major not in ("k", "m") or self.b_major not in ("k", "n"):
            raise ProblemError(
                f"A is k- or m-major and B k- or n-major, not {self.a_major} and {self.b_major}"
            )
        if self.accumulates_c and not (self.with_c and self.d == ACCUMULATED_TYPE):
            given = f"with_c={self.with_c} and D of {self.d}"
            raise ProblemError(f"accumulates_c requires with_c and D of f32, got {given}")
        self._check_packed()
        self._check_scaling()
        self._check_weights()
        self._check_sparse()
        self._check_groups()
        self._check_alignments()

    def _check_packed(self) -> None:
        """Raise ProblemError where rows of packed elements are not whole bytes along K."""
        per = self.per_byte
        if per > 1 and (self.layout != "tn" or self.k % per):
            raise ProblemError(
                f"{self.a} must be K-major and K a multiple of {per}, got layout "
                f"{self.layout.upper()} and K {self.k}"
            )

    def _check_scaling(self) -> None:
        if self.scaling is None:
            return
        if self.a not in FP8:
            raise DtypeError(f"A with block scales must be of {' and '.join(FP8)}, got {self.a}")
        if self.pair and self.sparse:
            raise ProblemError("block scales of two matrices B exclude a sparse matrix")

    def _check_weights(self) -> None:
        if self.weights is None:
            return
        if self.weights.operand != self.a:
            raise DtypeError(f"weights for {self.weights.operand} exclude A of {self.a}")
        if self.b_major != "k":
            raise ProblemError(f"prepared weights must be a K-major B, got {self.b_major}-major")

    def _check_sparse(self) -> None:
        if self.sparse not in ("", "a", "b"):
            raise ProblemError(f"sparse must be a, b or empty, got {self.sparse!r:.60}")
        if self.sparse and self.a not in SPARSE_TYPES:
            raise DtypeError(f"a sparse A or B must be {', '.join(SPARSE_TYPES)}, got {self.a}")
        if self.sparse and self.weights is not None:
            raise ProblemError("a sparse matrix excludes prepared weights")

    def _check_groups(self) -> None:
        if self.groups is None:
            return
        groups, scaling = self.groups, self.scaling
        special = self.pair or self.weights or self.sparse or scaling
        excluded = {
            "C": self.with_c, "a sparse A": self.sparse == "a",
            "block scales of several rows": scaling and scaling.rows > 1 and groups.along == "m",
            "tensor copies of gathered scales": groups.gather and scaling and scaling.contiguous[0],
            "a list of packed, sparse or scaled matrices, or of pairs": groups.lists and special,
        }  # fmt: skip
        for what, given in excluded.items():
            if given:
                raise ProblemError(f"a grouped product excludes {what}")
        if self.a in ("f32", "f64", *PACKED_TYPES):
            hint = "precision='tf32x3', or 'tf32'" if self.a == "f32" else ""
            raise DtypeError(f"a grouped product of {self.a} is not supported", hint=hint)
        if self.has_k_groups and (self.a == "tf32" or self.pair or self.sparse or self.weights):
            raise ProblemError(f"groups along K must be of dense 8 or 16 bits, no pair, got {self}")
        groups.check_reductions(() if self.epilogue is None else self.epilogue.graph.reductions)

    def _check_alignments(self) -> None:
        narrow, wide = max(1, self.input.bits // 8), self.output.bits // 8
        sizes = {"align_a": narrow, "align_b": narrow, "align_c": wide, "align_d": wide}
        for name, size in sizes.items():
            allowed, given = [n for n in ALIGNMENTS if n >= size], getattr(self, name)
            if not mma.array_inputs.is_integer(given) or given not in allowed:
                raise ProblemError(f"{name} is {given!r:.60}; it is one of {allowed}")
        object.__setattr__(self, "align_d", gcd(self.align_d, self.d_columns * wide))

    @property
    def input(self) -> DType:
        return DTYPES[self.a]

    @property
    def output(self) -> DType:
        return DTYPES[self.d]

    @property
    def per_byte(self) -> int:
        """Elements of A or B in a byte: 1, or more of the packed types."""
        return max(1, 8 // self.input.bits)

    @property
    def accumulator_type(self) -> str:
        """The type of the accumulator."""
        return accumulator_type_of(self.a, self.weights is not None)

    @property
    def is_f64(self) -> bool:
        """Whether all matrices are f64."""
        return self.a == "f64"

    @property
    def scalar_type(self) -> str:
        """The type of α and β."""
        return scalar_type_of(self.d)

    @property
    def promoted(self) -> bool:
        """Whether accumulators are promoted: added in f32 outside the tensor core."""
        return self.a in FP8 and not self.weights and (not self.fast or self.scaling is not None)

    @property
    def accumulates(self) -> bool:
        """Whether D becomes a sum with D itself, of f32, which tensor copies can add to."""
        by_epilogue = bool(self.epilogue and self.epilogue.accumulated)
        return self.align_d == 16 and (by_epilogue or self.accumulates_c)

    @property
    def loads_c(self) -> bool:
        """Whether a kernel that can add to D loads C."""
        return self.with_c and not self.accumulates

    @property
    def batched(self) -> bool:
        """Whether there is a stack of matrices B."""
        return self.batch != 1 or self.groups is not None

    @property
    def has_row_groups(self) -> bool:
        """Whether the rows of all groups are one matrix."""
        return has_row_groups(self.groups)

    @property
    def has_k_groups(self) -> bool:
        """Whether there are groups along K."""
        return has_k_groups(self.groups)

    @property
    def gathers(self) -> bool:
        """Whether the kernel gathers rows of A."""
        return self.groups is not None and bool(self.groups.gather)

    @property
    def k_group_unit(self) -> int:
        """What groups along K begin at multiples of: 8-bit matrices are K-major, and copies of a
        k-block access no row window.
        """
        return BLOCK if self.has_k_groups and self.input.bits == 8 else 1

    @property
    def balanced(self) -> Problem:
        """A batch of products of the groups' average size, for the cost model."""
        return self._batch(0)

    @property
    def crowded(self) -> Problem:
        """The same where each group has as many rows as random choices rarely give it: two standard
        deviations more than the average. Groups of multiples of 128 rows are taken for padded ones.
        """
        padded = self.has_row_groups and self.m % (PADDED_ROWS * max(self.batch, 1)) == 0
        return self._batch(0 if padded else 2)

    def _batch(self, deviations: int) -> Problem:
        if self.groups is None:
            return self
        each = max(self.batch, 1)
        m = -(-self.m // each) if self.has_row_groups else self.m
        m += deviations * isqrt(m) if self.has_row_groups else 0
        k = -(-self.k // each) if self.has_k_groups else self.k
        return replace(self, m=m, k=k, groups=None)

    @property
    def d_batch(self) -> int:
        """The number of matrices D."""
        return 1 if self.has_row_groups else self.batch

    @property
    def d_columns(self) -> int:
        """Columns of D."""
        return self.n // 2 if self.pair else self.n

    @property
    def layout(self) -> str:
        """The name by BLAS: ``t`` for a row-major A or B, ``n`` for a column-major one, A first."""
        return ("t" if self.a_major == "k" else "n") + ("n" if self.b_major == "k" else "t")

    @property
    def flops(self) -> int:
        divided = self.has_row_groups or self.has_k_groups
        return 2 * self.m * self.n * self.k * (1 if divided else self.batch)

    @property
    def bytes(self) -> int:
        """The least memory traffic: each input read once, each result written once."""
        if self.groups is not None:
            return self.balanced.bytes
        inputs = (self.m * self.input.bits + self.n * self.b_bits) * self.k
        if self.sparse:  # half of the elements, and metadata of 4 bits for each chunk
            rows, chunk = self.sparse_rows, sparsity_pattern(self.a)[1]
            inputs += rows * self.k * 4 // chunk - rows * self.k * self.input.bits // 2
        outputs = self.m * self.d_columns * self.output.bits * (2 if self.with_c else 1)
        sizes = self.m, self.d_columns, self.batch
        more = self.epilogue.operand_bits(*sizes) if self.epilogue else 0
        return int(inputs + outputs) // 8 * self.batch + more // 8

    @property
    def b_bits(self) -> float:
        """Bits of memory for an element of B, with scales and zero points of prepared weights."""
        if self.weights is None:
            return self.input.bits
        return self.weights.unit_bytes * 8 / (UNIT_ROWS * self.weights.unit_k)

    @property
    def has_sparse_wgmma(self) -> bool:
        """Whether A of wgmma is sparse, from shared memory or as prepared weights."""
        return bool(self.sparse) or (self.weights is not None and self.weights.sparse)

    @property
    def sparse_rows(self) -> int:
        """Rows of the sparse matrix (of a pair: of both): M or N."""
        return self.m if self.sparse == "a" else self.n

    def with_sizes(self, m: int, n: int, k: int) -> Problem:
        """The same with other sizes."""
        return replace(self, m=m, n=n, k=k)

    def __str__(self) -> str:
        c = " + D" if self.accumulates else " + C" if self.with_c else ""
        batch = f"{self.batch} × " if self.batched else ""
        a = self.a if self.a == self.b else f"{self.a} × {self.b}"
        fast = " (fast accumulation)" if self.fast else ""
        sparse = self.sparse and f"sparse {self.sparse.upper()}"
        traits = self.scaling, self.weights, sparse, self.groups
        more = "".join(f", {x}" for x in traits if x)
        product = f"{batch}{self.m}×{self.n}×{self.k} {a} {self.layout.upper()}"
        return f"{product} → {self.d}{c}{fast}{more}"
