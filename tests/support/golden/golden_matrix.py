"""What an H200 returned for every matrix instruction, as digests: the file and how it is made.

For each variant (``one_instruction.cases``) and kind of tiles (``hostile.kinds``), 64 bits of a
hash of D for the first tiles of seed 0. ``benchmarks/mma_probe.py --golden`` writes them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from ptx_kernels.one_instruction import Case
from references.hostile import kinds

FILE = Path(__file__).parents[2] / "data" / "matrix_sm_90a.npz"


def tiles(case: Case) -> int:
    """How many tiles a digest is of."""
    return 1 if case.i.asynchronous else 4


def digest(d: np.ndarray) -> int:
    """64 bits of a hash of D's bits."""
    data = np.ascontiguousarray(d).astype(d.dtype.newbyteorder("<")).tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def write(path: Path, cases, found) -> None:
    """Keep the digests of variants, in the order of their names."""
    rows = sorted((str(case), one.digests) for case, one in zip(cases, found, strict=True))
    names = "\n".join(name for name, _ in rows)
    digests = [digest for _, digests in rows for digest in digests.values()]
    np.savez_compressed(
        path, names=np.frombuffer(names.encode(), np.uint8), digests=np.array(digests, np.uint64)
    )


def read(cases, path: Path = FILE) -> dict[str, dict[str, int]]:
    """Variant → kind → digest, for those of ``cases`` that the file has."""
    data = np.load(path)
    by = {str(case): kinds(case.i) for case in cases}
    digests = iter(data["digests"].tolist())
    made = {}
    for name in data["names"].tobytes().decode().split("\n"):
        made[name] = {kind: next(digests) for kind in by[name]}
    return made
