"""What is asked: D = α A B + β C, by sizes, number formats, and how the matrices lie in memory.

A problem is all that a kernel is made from, together with a configuration. D and C are row-major
here: a column-major D is the problem Dᵀ = Bᵀ Aᵀ, which the caller poses instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..dtypes import DType, dtype
from ..errors import DtypeError, ProblemError

INPUTS = ("f16", "bf16")
ALIGNMENTS = (16, 8, 4, 2)
LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Problem:
    """M×K times K×N.

    ``a``, ``b``, ``d`` are formats by name (C has D's). ``a_major``: ``k`` (row-major A) or ``m``;
    ``b_major``: ``k`` (column-major B) or ``n``. ``align_*``: the bytes, 16 to 2, that divide the
    matrix' address and its leading dimension; an element at least. Raises DtypeError, ProblemError.
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

    def __post_init__(self) -> None:
        for name, size in (("M", self.m), ("N", self.n), ("K", self.k)):
            if not 0 <= size < LIMIT:
                raise ProblemError(f"{name} is {size}; it is at least 0 and less than 2^31")
        if self.a not in INPUTS or self.b != self.a:
            allowed = " or ".join(f"{t} × {t}" for t in INPUTS)
            raise DtypeError(f"A of {self.a} times B of {self.b} is not supported; {allowed} is")
        if self.d not in (self.a, "f32"):
            raise DtypeError(
                f"a result of {self.d} from {self.a} is not supported; {self.a} and f32 are"
            )
        if self.a_major not in ("k", "m") or self.b_major not in ("k", "n"):
            raise ProblemError(
                f"A is k- or m-major and B k- or n-major, not {self.a_major} and {self.b_major}"
            )
        self._check_alignments()

    def _check_alignments(self) -> None:
        wide = self.output.bits // 8
        sizes = {"align_a": 2, "align_b": 2, "align_c": wide, "align_d": wide}
        for name, size in sizes.items():
            allowed, given = [n for n in ALIGNMENTS if n >= size], getattr(self, name)
            if given not in allowed:
                raise ProblemError(f"{name} is {given}; it is one of {allowed}")

    @property
    def input(self) -> DType:
        return dtype(self.a)

    @property
    def output(self) -> DType:
        return dtype(self.d)

    @property
    def layout(self) -> str:
        """The name by BLAS: ``t`` for a row-major A or B, ``n`` for a column-major one, A first."""
        return ("t" if self.a_major == "k" else "n") + ("n" if self.b_major == "k" else "t")

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """The fewest that memory must move: each input read once, the result written once."""
        inputs = (self.m + self.n) * self.k * self.input.bits
        outputs = self.m * self.n * self.output.bits * (2 if self.with_c else 1)
        return (inputs + outputs) // 8

    def sized(self, m: int, n: int, k: int) -> Problem:
        """The same with other sizes."""
        return replace(self, m=m, n=n, k=k)

    def __str__(self) -> str:
        c = " + C" if self.with_c else ""
        return f"{self.m}×{self.n}×{self.k} {self.a} {self.layout.upper()} → {self.d}{c}"
