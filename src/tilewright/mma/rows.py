"""The matrix instructions, one row each: shape, types, and the PTX version and target it needs.

A row is the instruction as mathematics: it knows its fragments, and calling it on matrices gives
the bits that the tensor core of ``arch`` gives.

    >>> f = instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    >>> f.fragment("a").layout, f.fragment("a").count
    (((4,8),(2,2,2)):((32,1),(16,8,128)), 4)
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType, dtype
from ..errors import DtypeError, TargetError, UnknownInstruction
from ..target import Target
from .arithmetic import dot_accumulate
from .fragments import LANES, Fragment, accumulator, operand_a, operand_b

DEFAULT_ARCH = "sm_90a"


@dataclass(frozen=True, slots=True)
class Instruction:
    """D = A B + C: A (M×K, row) of type ``a``, B (K×N, column) of ``b``, C of ``c``, D of ``d``.

    ``ptx`` and ``target`` are the lowest that have it; ``arch`` is the one that it computes as.
    """

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    c: str
    ptx: str
    target: str
    arch: str = DEFAULT_ARCH

    def __post_init__(self) -> None:
        name = self.opcode
        assert dtype(self.a).kind == dtype(self.b).kind, f"{name}: A and B of different kinds"
        assert self.c == self.d, f"{name}: ptxas wants C and D of one type"
        for operand in "abcd":
            rows, columns = self._extent(operand)
            bits = rows * columns * dtype(getattr(self, operand)).bits
            assert bits % (32 * LANES) == 0, f"{name}: {operand} does not fill its registers"
            assert rows % 8 == 0, f"{name}: {operand} has {rows} rows"

    @property
    def shape(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def opcode(self) -> str:
        return f"mma.sync.aligned.{self.shape}.row.col.{self.d}.{self.a}.{self.b}.{self.c}"

    def __str__(self) -> str:
        return self.opcode

    def _extent(self, operand: str) -> tuple[int, int]:
        """Rows and columns as the layout has them: B is N×K."""
        return {"a": (self.m, self.k), "b": (self.n, self.k)}.get(operand, (self.m, self.n))

    def fragment(self, operand: str) -> Fragment:
        """The fragment of operand ``a``, ``b``, ``c`` or ``d``."""
        make = {"a": operand_a, "b": operand_b, "c": accumulator, "d": accumulator}[operand]
        return make(getattr(self, operand), *self._extent(operand))

    def on(self, arch: str) -> Instruction:
        """The same, computing as another architecture does."""
        return self if arch == self.arch else replace(self, arch=arch)

    def __call__(self, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> npt.NDArray[Any]:
        """D for A (…, M, K), B (…, K, N), C (…, M, N): one tile or a batch.

        Matrices are of the operands' NumPy types, or all are bits as unsigned integers; D is
        likewise.
        """
        given = [np.asarray(x) for x in (a, b, c)]
        types = [dtype(t) for t in (self.a, self.b, self.c)]
        left, right, start = (_bits(x, t) for x, t in zip(given, types, strict=True))
        made = dot_accumulate(left, right, start, self, self.arch)
        plain = all(x.dtype == t.storage for x, t in zip(given, types, strict=True))
        return made if plain else made.view(dtype(self.d).numpy)

    def execute(
        self, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike
    ) -> npt.NDArray[np.uint32]:
        """The same on a warp's registers: each operand (…, 32, count) of uint32."""
        left = self.fragment("a").matrix(a)
        right = self.fragment("b").matrix(b)
        start = self.fragment("c").matrix(c)
        made = dot_accumulate(left, right, start, self, self.arch)
        return self.fragment("d").registers(made)


def _bits(array: npt.NDArray[Any], t: DType) -> npt.NDArray[Any]:
    if array.dtype == t.storage:
        return array
    if array.dtype != t.numpy:
        raise DtypeError(
            f"a matrix of {t} is {t.numpy} or its bits as {t.storage}, not {array.dtype}"
        )
    return array.view(t.storage)


def _float(shape: str, type_: str, accumulators: str, ptx: str, target: str) -> list[Instruction]:
    m, n, k = (int(x) for x in shape.split())
    return [Instruction(m, n, k, c, type_, type_, c, ptx, target) for c in accumulators.split()]


ROWS: tuple[Instruction, ...] = (
    *_float("16 8 8", "f16", "f16 f32", "6.5", "sm_75"),
    *_float("16 8 16", "f16", "f16 f32", "7.0", "sm_80"),
    *_float("16 8 8", "bf16", "f32", "7.0", "sm_80"),
    *_float("16 8 16", "bf16", "f32", "7.0", "sm_80"),
)

_BY_OPCODE = {row.opcode: row for row in ROWS}


@cache
def instruction(opcode: str, arch: str = DEFAULT_ARCH) -> Instruction:
    """The row of an opcode, computing as ``arch`` does.

    Raises UnknownInstruction, naming the nearest, and TargetError where ``arch`` is too old for it.
    """
    row = _BY_OPCODE.get(opcode)
    if row is None:
        near = nearest(opcode)
        raise UnknownInstruction(f"no matrix instruction {opcode!r}", hint=f"nearest are {near}")
    if not Target.parse(arch).runs(row.target):
        raise TargetError(f"{opcode} needs {row.target}, not {arch}")
    return row.on(arch)


def nearest(opcode: str, count: int = 3) -> str:
    """The opcodes most like this one."""
    return ", ".join(difflib.get_close_matches(opcode, list(_BY_OPCODE), n=count, cutoff=0.0))


def catalogue(arch: str = "", **fields: object) -> tuple[Instruction, ...]:
    """The rows that ``arch`` has, with these fields: ``catalogue("sm_80", a="f16", k=16)``."""
    rows = [r for r in ROWS if not arch or Target.parse(arch).runs(r.target)]
    found = [r for r in rows if all(getattr(r, name) == value for name, value in fields.items())]
    return tuple(r.on(arch) if arch else r for r in found)
