"""Cases of primitives, a meaning over ``m`` each, and the operands that they are tried on: all
tuples of special bits, halfway cases, and random bits.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from references import f64_operands
from tilewright.dtypes import dtype
from tilewright.vm.llvm.expressions import LANES

Meaning = Callable[..., object]


@dataclass(frozen=True)
class Case:
    """A meaning over primitives; a kind of operand is a format's name or a width."""

    name: str
    kinds: tuple[str | int, ...]
    meaning: Meaning


def width_of(kind: str | int) -> int:
    return kind if isinstance(kind, int) else max(8, dtype(kind).bits)


def storage(width: int) -> np.dtype:
    return np.dtype({1: "?", 128: object}.get(width, f"u{width // 8}"))


def special(kind: str | int) -> list[int]:
    """Bits that are trouble."""
    width = width_of(kind)
    if isinstance(kind, int):
        ends = [0, 1, 2, 3, 5, 7, 1 << (width - 1)]
        ends += [(1 << k) for k in (4, 5, 6, 7, 23, 24, 25, 31, 32, 52, 53, 54, 63) if k < width]
        return sorted({e + d & (1 << width) - 1 for e in ends for d in (-1, 0, 1)})
    t = dtype(kind)
    one, step = t.bias << t.mantissa, 1 << t.mantissa
    codes = [0, 1, 2, 3, step >> 1, step - 1, step, step + 1]  # subnormals and the least normal
    codes += [one - step, one - 1, one, one + 1, one + step // 2, one + step]  # around ½ and 1
    codes += [one + step + step // 2]  # 3
    codes += [one + step * e + 1 for e in (t.mantissa, t.mantissa + 1)]  # around the integers' end
    codes += [t.max_finite + d for d in (-1, 0, 1, 2)] + [-1]  # around infinity, and the last NaN
    top = (1 << (t.exponent + t.mantissa)) - 1
    codes = [min(c & top, top) << t.unused for c in codes]
    signs = (0, 1 << (t.bits - 1)) if t.signed else (0,)
    return sorted({c | s for c in codes for s in signs})


def random(kind: str | int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random bits; every other one such that sums interact and ties happen."""
    width = width_of(kind)
    words = rng.integers(0, 1 << 64, (2, count), dtype=np.uint64).astype(object)
    bits = (words[0] << 64 | words[1]) & (1 << width) - 1
    plain = near_ties(width, bits, rng) if isinstance(kind, int) else near_one(kind, bits, rng)
    bits = bits if isinstance(kind, int) else bits & (1 << dtype(kind).bits) - 1
    return np.where(np.arange(count) % 2 == 0, bits, plain).astype(storage(width))


def near_ties(width: int, bits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Integers a bit longer than a float's significand, and their neighbours, of any size."""
    length = rng.choice([2, 9, 12, 25, 54], len(bits)).astype(object)
    ones = bits % (1 << length) | 1 | 1 << length - 1
    moved = ones << rng.integers(0, width, len(bits)).astype(object)
    return (moved + rng.integers(-1, 2, len(bits)).astype(object)) & (1 << width) - 1


def near_one(kind: str, bits: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Numbers around one, many of them short."""
    t, count = dtype(kind), len(bits)
    codes = (t.bias << t.mantissa) + rng.integers(-6 << t.mantissa, 6 << t.mantissa, count)
    codes = np.clip(codes, 0, t.max_finite) & -(1 << rng.integers(0, t.mantissa + 1, count))
    sign = (bits & 1) << (t.bits - 1) if t.signed else 0
    return codes.astype(object) << t.unused | sign


def halfway(kind: str, dest: str, rng: np.random.Generator) -> np.ndarray:
    """Numbers of a wide format on, just below and above the steps and half steps of another."""
    t, d = dtype(kind), dtype(dest)
    if t.mantissa <= d.mantissa:
        return np.zeros(0, storage(width_of(kind)))
    fields = np.arange(d.least - d.mantissa - 3, d.bias + 3) + t.bias
    fields = np.clip(np.concatenate([fields[:40], fields[-40:]]), 0, (1 << t.exponent) - 2)
    unit = 1 << (t.mantissa - d.mantissa - 1)
    steps = rng.integers(0, 1 << (d.mantissa + 1), (4, len(fields))) * unit
    codes = ((fields << t.mantissa) + steps)[..., None] + np.array([-1, 0, 1])
    codes = np.maximum(codes, 0).ravel()
    sign = rng.integers(0, 2, codes.size).astype(object) << (t.bits - 1)
    return ((codes.astype(object) << t.unused) | sign).astype(storage(width_of(kind)))


def operands(case: Case) -> list[np.ndarray]:
    """All tuples of special bits (a sample where that is too many), then random ones."""
    rng = np.random.default_rng(zlib.crc32(case.name.encode()))
    if case.name.startswith("middling"):
        return f64_operands.operands(case.name.split(".")[1], rng)
    every = [special(kind) for kind in case.kinds]
    if len(every) == 3:
        every = [rng.permutation(np.array(e, object))[:9].tolist() for e in every]
    fixed = zip(*itertools.product(*every), strict=True)
    made = []
    for kind, bits in zip(case.kinds, fixed, strict=True):
        parts = [np.array(bits, object), random(kind, 600, rng)]
        if case.name.startswith("fcvt"):
            parts.append(halfway(str(kind), case.name.split(".")[2], rng))
        made.append(np.concatenate([p.astype(storage(width_of(kind))) for p in parts]))
    return [np.resize(m, -(-len(m) // LANES) * LANES) for m in made]
