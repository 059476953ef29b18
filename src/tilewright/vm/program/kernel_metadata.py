"""Properties of a compiled kernel, serialized beside its machine code for later launches."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


def region_name(first: int) -> str:
    """The symbol of the region that begins with block ``first``."""
    return f"region_{first}"


@dataclass(frozen=True)
class KernelMetadata:
    """Properties of a program that a launch needs.

    ``blocks`` is the number of basic blocks. ``regions`` has, for each separately compiled region,
    its first block and the opcodes of its matrix instructions. ``communicates_across_ctas``: CTAs
    may exchange data through global memory. ``uses_grid_barrier``: the kernel reads the address of
    the barrier of a cooperative launch. ``reads_reserved_smem``: it reads the address of the
    reserved shared memory. ``uses_cp_async`` and ``uses_bulk_copies``: it has such instructions.
    """

    name: str
    shared_bytes: int
    local_bytes: int
    uses_dynamic_stack: bool
    max_threads: int
    exact_block: tuple[int, ...]
    cluster: tuple[int, ...]
    divergent: bool
    communicates_across_ctas: bool
    uses_grid_barrier: bool
    reads_reserved_smem: bool
    calls_host_functions: bool
    uses_cp_async: bool
    uses_bulk_copies: bool
    frame_bytes: int
    blocks: int
    regions: tuple[tuple[int, tuple[str, ...]], ...]

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> KernelMetadata:
        fields = json.loads(data)
        for name in ("exact_block", "cluster"):
            fields[name] = tuple(fields[name])
        fields["regions"] = tuple((first, tuple(opcodes)) for first, opcodes in fields["regions"])
        return cls(**fields)
