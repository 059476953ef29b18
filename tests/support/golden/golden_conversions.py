"""What an H200 returned for every form of ``cvt``, as digests: the file and how it is made.

For each form, 64 bits of a hash of its results: over every operand where there is one of at most 16
bits, else over 2^16, a quarter random, the others next to what a conversion may get wrong.
``benchmarks/conversions_probe.py --golden`` writes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from golden.golden_matrix import digest
from ptx_kernels.conversion_kernels import PLANES, planes, size, sources
from references.hostile import Stream

FILE = Path(__file__).parents[2] / "data" / "conversions_sm_90a.npz"
COUNT = 1 << 16


def operands(opcodes: list[str]) -> np.ndarray:
    """(PLANES, n) operands for forms of the same source types, whichever forms they are."""
    types = sources(opcodes)
    bits = size(types[0])
    if len(types) > 1 or bits > 16:
        return planes(opcodes, COUNT, Stream(*types))
    made = np.zeros((PLANES, 1 << bits), np.uint64)
    made[0] = np.arange(1 << bits)
    return made


def digests(opcodes: list[str], results: np.ndarray) -> dict[str, int]:
    """Form → digest of its row of results."""
    return dict(zip(opcodes, map(digest, results), strict=True))


def write(path: Path, found: Mapping[str, int]) -> None:
    """Keep the digests, in the order of the forms' names."""
    names = sorted(found)
    np.savez_compressed(
        path,
        names=np.frombuffer("\n".join(names).encode(), np.uint8),
        digests=np.array([found[name] for name in names], np.uint64),
    )


def read(path: Path = FILE) -> dict[str, int]:
    """Form → digest."""
    data = np.load(path)
    names = data["names"].tobytes().decode().split("\n")
    return dict(zip(names, data["digests"].tolist(), strict=True))
