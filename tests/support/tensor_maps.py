"""What the CUDA driver and an H200 answered about tensor maps: the file, and how it is read.

``MAPS`` has maps' parameters as CUDA's numbers, which of them driver 13.0 refused, and the first 80
bytes of what it made of the others: every field by itself through its values on many maps, and some
maps at random. Then the maps that tensormap.replace made of three. ``COPIES`` has single copies: a
digest of where each byte went, or that there was a fault; and what tf32 made of 1,024 words.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tilewright.mma.tensor_maps.tensor_map import TensorMap
from tilewright.mma.tensor_maps.tensor_map_parameters import TYPES
from tilewright.mma.tensor_maps.tensor_map_rules import FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES

DATA = Path(__file__).parents[1] / "data"
MAPS = DATA / "tensor_maps.npz"
COPIES = DATA / "tensor_copies.npz"
BLACKWELL = ("b4x16", "b4x16_p64", "b6x16_p32")
FIELDS = (
    "global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
    "elemtype", "interleave_layout", "swizzle_mode", "fill_mode",
)  # fmt: skip


def named(row: tuple, number: int):
    """The entry of a row, or a name that none has."""
    return row[number] if 0 <= number < len(row) else f"number {number}"


def make(p: list[int]) -> TensorMap:
    """The map of one row of parameters."""
    im2col, type_, rank, address = p[:4]
    sizes, strides, box, corners, steps = p[4:9], p[9:14], p[14:19], p[19:25], p[25:30]
    tensor = (
        address % (1 << 64),
        named((*TYPES, *BLACKWELL), type_),
        [size % (1 << 64) for size in sizes[:rank]],
        [stride % (1 << 64) for stride in strides[: max(rank - 1, 0)]],
    )
    rows = (INTERLEAVES, SWIZZLES, PROMOTIONS, FILLS)
    how = [named(row, number) for row, number in zip(rows, p[30:], strict=True)]
    if not im2col:
        return TensorMap.tiled(*tensor, box[:rank], steps[:rank], *how)
    spatial = max(rank - 2, 0)
    lower, upper = corners[:3][:spatial], corners[3:][:spatial]
    return TensorMap.im2col(*tensor, lower, upper, *box[:2], steps[:rank], *how)


def answers() -> Iterator[tuple[list[int], bytes | None]]:
    """(parameters, the map's 128 bytes or None where the driver refused it)."""
    data = np.load(MAPS)
    params = data["params"].T.tolist()
    refused = np.unpackbits(data["refused"])[: len(params)]
    maps = iter(data["maps"].T)
    for row, no in zip(params, refused, strict=True):
        yield row, None if no else next(maps).tobytes().ljust(128, b"\0")


def replacements() -> Iterator[tuple[bytes, str, int, int, bytes]]:
    """(map, field, entry, value, the map that tensormap.replace made)."""
    data = np.load(MAPS)
    bases = [base.tobytes() for base in data["bases"]]
    rows = zip(data["replaced"].T.tolist(), data["results"].T, strict=True)
    for (base, field, ordinal, value), result in rows:
        yield bases[base], FIELDS[field], ordinal, value, result.tobytes()


class Copy(NamedTuple):
    """A copy and what came of it; ``digest`` is None where it faulted."""

    map: TensorMap
    coordinates: list[int]
    offsets: list[int]
    start: int
    store: bool
    bytes: int
    digest: int | None


def copies() -> Iterator[Copy]:
    data = np.load(COPIES)
    rows = zip(data["params"].T.tolist(), data["copies"].T.tolist(), strict=True)
    for (params, row), digest in zip(rows, data["digests"].tolist(), strict=True):
        m = make(params)
        start, store, count, fault = row[8:]
        offsets = row[5 : 5 + m.rank - 2] if params[0] and not store else []
        result = None if fault else digest
        yield Copy(m, row[: m.rank], offsets, start, bool(store), count, result)


def digest(places: np.ndarray) -> int:
    """64 bits of a hash of (byte of shared memory, byte of global memory or -1) of each byte that
    was written, in the order of where.
    """
    data = np.ascontiguousarray(places, "<i8").tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")
