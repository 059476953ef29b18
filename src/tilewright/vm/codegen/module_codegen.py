"""Generates kernel metadata and the LLVM modules of regions and of matrix instructions. Imported
only after a cache miss.
"""

from __future__ import annotations

import llvmlite.ir as ir

from ... import mma
from ...ptx.isa import form
from ..matrix.mma_function import MmaFunction, symbol
from ..program.kernel_metadata import KernelMetadata
from ..program.program import Program
from ..program.program_analysis import reads_reserved_smem, uses_grid_barrier
from .region import Region
from .wgmma_function import WgmmaFunction

REGION = 512  # operations of a region at most, unless one block has more


def metadata(p: Program) -> KernelMetadata:
    """The properties of a program that a launch needs."""
    starts = _starts(p)
    ends = (*starts[1:], len(p.blocks))
    return KernelMetadata(
        name=p.name,
        shared_bytes=p.shared_bytes,
        local_bytes=p.local_bytes,
        uses_dynamic_stack=p.uses_dynamic_stack,
        max_threads=p.max_threads,
        exact_block=p.exact_block,
        cluster=p.cluster,
        divergent=p.divergent,
        communicates_across_ctas=p.communicates_across_ctas,
        uses_grid_barrier=uses_grid_barrier(p.ops),
        reads_reserved_smem=reads_reserved_smem(p.ops),
        calls_host_functions=p.calls_host_functions,
        uses_cp_async=any("async" in op.form.effects for op in p.ops),
        uses_bulk_copies=any("bulk_copy" in op.form.features for op in p.ops),
        frame_bytes=p.frame_bytes,
        blocks=len(p.blocks),
        regions=tuple((s, _matrices(p, s, e)) for s, e in zip(starts, ends, strict=True)),
    )


def _starts(program: Program) -> list[int]:
    """The first blocks of the regions."""
    starts, size = [0], 0
    for block in program.blocks:
        if size and size + len(block.ops) > REGION:
            starts.append(block.index)
            size = 0
        size += len(block.ops)
    return starts


def _matrices(program: Program, first: int, last: int) -> tuple[str, ...]:
    """The opcodes of the matrix instructions in these blocks."""
    forms = {op.form for block in program.blocks[first:last] for op in block.ops}
    return tuple(sorted(f.opcode for f in forms if isinstance(f.entry, mma.MmaInstruction)))


def region(program: Program, first: int, last: int, arch: str) -> ir.Module:
    """Blocks ``first`` … ``last - 1`` of a program."""
    module = ir.Module(f"{program.name}.{first}")
    Region.create(program, module, first, last, arch).compile()
    return module


def matrix(name: str, opcodes: tuple[str, ...], arch: str) -> ir.Module:
    """The function ``name``, which implements one of the matrix instructions ``opcodes``."""
    rows = [form(opcode).entry.on(arch) for opcode in opcodes]
    row = {symbol(row): row for row in rows}[name]
    module = ir.Module(name)
    (WgmmaFunction if row.asynchronous else MmaFunction)(module, row).emit()
    return module
