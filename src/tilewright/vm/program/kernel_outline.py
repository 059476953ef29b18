"""What a launch has to know of a kernel when its machine code is there already; kept beside it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


def region_name(first: int) -> str:
    """The name of the function of the region that begins with that block."""
    return f"region_{first}"


@dataclass(frozen=True)
class Outline:
    """What a program is like. ``blocks`` counts them; a region, a piece of machine code, is the
    first of its blocks and the opcodes of its matrix instructions. ``cooperates`` says whether it
    asks where all CTAs of a grid meet, ``reserves`` whether it asks for the system's part of shared
    memory, ``copies`` whether there are ``cp.async``, ``flies`` whether there are bulk copies.
    """

    name: str
    shared_bytes: int
    local_bytes: int
    takes_stack: bool
    max_threads: int
    exact_block: tuple[int, ...]
    cluster: tuple[int, ...]
    divergent: bool
    communicates: bool
    cooperates: bool
    reserves: bool
    calls: bool
    copies: bool
    flies: bool
    frame_bytes: int
    blocks: int
    regions: tuple[tuple[int, tuple[str, ...]], ...]

    def packed(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, data: bytes) -> Outline:
        found = json.loads(data)
        for name in ("exact_block", "cluster"):
            found[name] = tuple(found[name])
        found["regions"] = tuple((first, tuple(opcodes)) for first, opcodes in found["regions"])
        return cls(**found)
