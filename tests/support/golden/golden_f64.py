"""What an H200 computes of f64 with NaNs: the file and how it is made.

Each form on all pairs, or triples, of 16 numbers, 7 of them NaNs that differ in both words, quiet
and signaling, of both signs: whose payload a result has, and whether its sign is turned, can be
read off it. They are loaded in order: ptxas writes a sum's or product's operands in the order of
their loads, not of the PTX. ``benchmarks/f64_probe.py --golden`` writes the file. Conversions have
a file of their own (``golden_conversions``).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ptx_kernels import simt
from ptx_kernels.bulk_kernels import difference
from tilewright.ptx.isa import form

FILE = Path(__file__).parents[2] / "data" / "f64_sm_90a.npz"
ROUNDED = "add sub mul fma div rcp sqrt".split()
FORMS = [f"{op}.{rnd}.f64" for op in ROUNDED for rnd in ("rn", "rz", "rm", "rp")]
FORMS += ["neg.f64", "abs.f64", "min.f64", "max.f64"]

NANS = [0x7FF0000000000001, 0x7FF4000300000000, 0x7FF8000000000002, 0x7FFFFFFFFFFFFFFF,
        0xFFF0000000000005, 0xFFF8000000000000, 0xFFFC000600000007]  # fmt: skip
NUMBERS = [0, 1, 0x3FF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
           1 << 63, 0x800FFFFFFFFFFFFF, 0xBFF8000000000000, 0xFFF0000000000000]  # fmt: skip


def operands_of(opcode: str) -> list[np.ndarray]:
    """The operands of each result, as bits."""
    (specs,) = form(opcode).signatures
    every = [np.array(NANS + NUMBERS, np.uint64)] * (len(specs) - 1)
    return [x.ravel() for x in np.meshgrid(*every, indexing="ij")]


def results(opcode: str, launch) -> np.ndarray:
    """The result bits that ``launch`` returns for these operands."""
    operands = operands_of(opcode)
    registers = [f"%fd{i}" for i in range(len(operands))]
    loads = [simt.load(r, "f64", f"%a{i}") for i, r in enumerate(registers, 1)]
    body = f"{' '.join(loads)} {opcode} %fd9, {', '.join(registers)}; {simt.store('%fd9', 'f64')}"
    count = operands[0].size
    block = min(count, 256)
    buffers = [np.zeros_like(operands[0]), *operands]
    return launch(simt.kernel(body), buffers, grid=count // block, block=block)[0]


def mismatch(opcode: str, made: np.ndarray, expected: np.ndarray, most: int = 20) -> str:
    """How two results differ; empty if they don't."""
    return difference(made, expected, *operands_of(opcode), most=most)


def write(path: Path, found: dict[str, np.ndarray]) -> None:
    np.savez_compressed(path, **found)  # type: ignore[arg-type]


def read(path: Path = FILE) -> dict[str, np.ndarray]:
    """Form → results."""
    return dict(np.load(path))
