"""One element of D worked out by hand, for what HMMA.884 does otherwise than later tensor cores.

HMMA.884 is m8n8k4 of f16 on sm_70 and sm_75, and wmma's f16 on sm_70: 23 bits below the largest
exponent, 4 products at a time (``tilewright.mma.generations`` has the sources).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright import mma
from tilewright.mma import MmaInstruction
from tilewright.number_conversion import encode

INF, NAN = float("inf"), float("nan")
MAX_F32, MAX_F16 = 2.0**128 - 2.0**104, 65504.0

Products = dict[int, tuple[float, float]]  # k → A's element and B's


class Case(NamedTuple):
    opcode: str
    arch: str
    products: Products
    c: float
    d: float

    @property
    def instruction(self) -> MmaInstruction:
        return mma.instruction(self.opcode, self.arch)

    def tiles(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, B and C as codes: the first element of D is the case's, the others are zero."""
        i = self.instruction
        a, b, c = (np.zeros(i.matrix_shape(name)) for name in "abc")
        for k, (x, y) in self.products.items():
            a[..., 0, k], b[..., k, 0] = x, y
        c[..., 0, 0] = self.c
        return encode(i.a, a), encode(i.b, b), encode(i.c, c)

    def wrong(self, d: np.ndarray) -> str:
        """What differs from the case in D of its tiles; empty if nothing does."""
        found, expected = d[..., 0, 0].flat[0], encode(self.instruction.d, self.d)
        if found == expected:
            return ""
        return f"{self.opcode} on {self.arch}: {found:#x}, not {expected:#x}, for {self[2:]}"


def quad(d: str, c: str) -> str:
    return f"mma.sync.aligned.m8n8k4.row.col.{d}.f16.f16.{c}"


def wmma(d: str, c: str, more: str = "") -> str:
    return f"wmma.mma.sync.aligned.row.col.m16n16k16.{d}.{c}{more}"


ONE_LOST = {0: (1.0, 1.0), 1: (2.0**-12, 2.0**-12)}  # 2^-24 beside 1
ONE_KEPT = {0: (1.0, 1.0), 1: (2.0**-12, 2.0**-11)}  # 2^-23 beside 1
CANCELLED = {0: (64.0, 64.0), 1: (-64.0, 64.0), 2: (2.0**-6, 2.0**-6)}  # 2^12 - 2^12 + 2^-12

BITS_KEPT = [
    Case(quad("f32", "f32"), "sm_70", ONE_LOST, -1.0, 0.0),
    Case(quad("f32", "f32"), "sm_75", ONE_LOST, -1.0, 0.0),
    Case(quad("f32", "f16"), "sm_75", ONE_LOST, -1.0, 0.0),
    Case(quad("f32", "f32"), "sm_75", ONE_KEPT, -1.0, 2.0**-23),
    Case(quad("f16", "f16"), "sm_75", CANCELLED, 0.0, 0.0),
    Case(wmma("f32", "f32"), "sm_70", ONE_LOST, -1.0, 0.0),
    # sm_75 has HMMA.1688 for all else: 24 bits
    Case(wmma("f32", "f32"), "sm_75", ONE_LOST, -1.0, 2.0**-24),
    Case("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "sm_75", ONE_LOST, -1.0, 2.0**-24),
]  # fmt: skip

# 2^-24 is subnormal as f16; 2^-38 is more than 23 bits below 2^-14, and less below 2^-24
TINY, LESS = {0: (2.0**-19, 2.0**-18)}, {0: (2.0**-19, 2.0**-19)}
SUBNORMAL_C = [
    *(
        case
        for arch in ("sm_70", "sm_75")
        for case in (
            Case(quad("f32", "f16"), arch, LESS, 2.0**-24, 2.0**-24),
            Case(quad("f32", "f16"), arch, TINY, 2.0**-24, 2.0**-24 + 2.0**-37),
            Case(quad("f32", "f16"), arch, LESS, 0.0, 2.0**-38),
            Case(quad("f32", "f32"), arch, LESS, 2.0**-24, 2.0**-24 + 2.0**-38),
        )
    ),
    Case(quad("f32", "f16"), "sm_80", LESS, 2.0**-24, 2.0**-24 + 2.0**-38),
    Case(wmma("f32", "f16"), "sm_70", LESS, 2.0**-24, 2.0**-24),
    Case(wmma("f32", "f16"), "sm_70", {4: LESS[0]}, 2.0**-24, 2.0**-24 + 2.0**-38),
    Case(wmma("f32", "f16"), "sm_75", LESS, 2.0**-24, 2.0**-24 + 2.0**-38),
]

ONE = {0: (1.0, 1.0)}
SATURATED = [
    *(
        case
        for arch in ("sm_70", "sm_75")
        for case in (
            Case(wmma("f32", "f32", ".satfinite"), arch, ONE, INF, MAX_F32),
            Case(wmma("f32", "f16", ".satfinite"), arch, ONE, -INF, -MAX_F32),
            Case(wmma("f32", "f32", ".satfinite"), arch, ONE, NAN, 0.0),
            Case(wmma("f16", "f16", ".satfinite"), arch, ONE, INF, MAX_F16),
            Case(wmma("f16", "f16", ".satfinite"), arch, ONE, NAN, 0.0),
            Case(wmma("f16", "f32", ".satfinite"), arch, ONE, -INF, -INF),  # f32's largest number
            Case(wmma("f16", "f32", ".satfinite"), arch, ONE, NAN, 0.0),
            Case(wmma("f16", "f32", ".satfinite"), arch, ONE, 1.5 * 2**-11, 1 + 2.0**-10),
        )
    ),
    Case(wmma("f32", "f32", ".satfinite"), "sm_80", ONE, INF, INF),
    Case(wmma("f16", "f32", ".satfinite"), "sm_80", ONE, 1.5 * 2**-11, 1.0),
]

CASES = [*BITS_KEPT, *SUBNORMAL_C, *SATURATED]


def by_instruction() -> list[list[Case]]:
    """All cases, those of one instruction on one architecture together."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in CASES:
        groups.setdefault(case[:2], []).append(case)
    return list(groups.values())
