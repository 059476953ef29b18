"""What an H200 gives for random scalar programs, as digests: the file and how it is made.

The file keeps the opcodes that the programs are drawn from, so that rows may be added, and 64 bits
of a hash of all that each program stores; program and operands follow from its number, from 0 on.
``benchmarks/scalar_probe.py --golden FILE`` writes it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from scalar.scalar_forms import Families

FILE = Path(__file__).parents[2] / "data" / "scalar_sm_90a.npz"
COUNT = 500


def write(path: Path, families: Families, digests: list[int]) -> None:
    text = "\n".join(" ".join(opcodes) for opcodes in families)
    np.savez_compressed(
        path,
        families=np.frombuffer(text.encode(), np.uint8),
        digests=np.array(digests, np.uint64),
    )


def read(path: Path = FILE) -> tuple[Families, list[int]]:
    """The opcodes of each row, and each program's digest."""
    data = np.load(path)
    lines = data["families"].tobytes().decode().split("\n")
    return tuple(tuple(line.split()) for line in lines), data["digests"].tolist()
