"""Registers of each operand of a tensor-core instruction, from its shape."""

from __future__ import annotations

import re

from ..sass_text import SassText

_LANES = 32
_SHAPE = re.compile(r"\.(?:SP\.)?(\d+)(?:x(\d+)x(\d+))?(?:\.|$)")
_WARPS = 4  # of a warpgroup


def matrix_widths(text: SassText) -> list[int]:
    """The width of each operand; 1 for those that are not register vectors."""
    found = _SHAPE.search(text.opcode)
    if found is None:
        return [1] * len(text.operands)
    if text.opcode.startswith(("HGMMA", "IGMMA", "QGMMA", "BGMMA")):
        return _warpgroup_widths(text, int(found[2]))
    return _warp_widths(text, *_shape(found[1], found[2], found[3]))


def _shape(first: str, second: str | None, third: str | None) -> tuple[int, int, int]:
    """(M, N, K) of 16816, 1688, 168256 or 8x8x4."""
    if second is not None and third is not None:
        return int(first), int(second), int(third)
    m = 16 if first.startswith("16") else 8
    rest = first[len(str(m)) :]
    return m, int(rest[0]), int(rest[1:])


def _warpgroup_widths(text: SassText, n: int) -> list[int]:
    """64 × N accumulators over 128 threads; A is 4 registers where it is not a descriptor."""
    narrow = re.search(r"x\d+\.F16", text.opcode) is not None
    accumulators = 64 * n // (_LANES * _WARPS) // (2 if narrow else 1)
    widths = [accumulators, 4, *[1] * (len(text.operands) - 2)]
    descriptor = next(i for i, x in enumerate(text.operands) if "gdesc" in x.kind)
    if descriptor + 1 < len(widths):
        widths[descriptor + 1] = accumulators
    return widths


def _warp_widths(text: SassText, m: int, n: int, k: int) -> list[int]:
    """Operands D, A, B, C of a warp's instruction, and a register of metadata."""
    name = text.opcode.split(".")[0]
    bits = _input_bits(name, text.opcode)
    sparse = 2 if ".SP" in text.opcode else 1
    a = m * k // sparse * bits // 32 // _LANES
    b = k * n * bits // 32 // _LANES
    wide = 64 if name == "DMMA" else 16 if name == "HMMA" and ".F32" not in text.opcode else 32
    c = m * n * wide // 32 // _LANES
    widths = [max(1, c), max(1, a), max(1, b), max(1, c)]
    return (widths + [1] * len(text.operands))[: len(text.operands)]


def _input_bits(name: str, opcode: str) -> int:
    if name == "DMMA":
        return 64
    if name == "BMMA":
        return 1
    if name == "IMMA":
        return 4 if ".S4" in opcode or ".U4" in opcode else 8
    if name == "QMMA":
        return 8
    return 32 if ".TF32" in opcode else 16
