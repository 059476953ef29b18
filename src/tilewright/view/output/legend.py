"""What the colours of a picture mean."""

from __future__ import annotations

from typing import Any

from ...gemm.epilogue.graph import EpilogueGraph
from ...layout import ComposedLayout, Layout, Swizzle, Tensor
from ...mma import MmaAtom, MmaInstruction
from ...sparsity.sparse24 import Sparse24
from ...sparsity.sparse_block import SparseBlock
from ..graphs.epilogue_picture import COLORS
from ..palette import EIGHT, LANES
from .picture_output import Swatch

_LAYOUTS = (Layout, ComposedLayout, Tensor, Swizzle, tuple, int)


def legend_of(given: Any, bits: int = 0) -> tuple[str, list[Swatch]]:
    """The legend's title and lines for the picture of an object; ``bits`` of a layout's element."""
    if isinstance(given, EpilogueGraph):
        return "colours: the kind of value", [(c, kind) for kind, c in COLORS.items()]
    if isinstance(given, (SparseBlock, Sparse24)):
        names = (f"instruction {i // 2}, {'odd' if i % 2 else 'even'} chunks" for i in range(8))
        return "colours of stored elements: the instruction of the block that reads them", list(
            zip(EIGHT, names, strict=True)
        )
    if isinstance(given, _LAYOUTS):
        return _layout_legend(bits)
    title, lines = _lane_legend()
    instruction = given.instruction if isinstance(given, MmaAtom) else given
    if isinstance(instruction, MmaInstruction) and instruction.asynchronous:
        title += "; of B, in shared memory: a row (16 bytes) of a core matrix"
        lines += [(EIGHT[i], f"B: row {i} of each core matrix of 8 rows") for i in range(8)]
    return title, lines


def _layout_legend(bits: int) -> tuple[str, list[Swatch]]:
    if bits:
        banks = (f"banks {4 * i}–{4 * i + 3}" for i in range(8))
        return "colours: 16 bytes of shared memory, which are 4 banks", list(
            zip(EIGHT, banks, strict=True)
        )
    offsets = (f"offsets {i}, {i + 8}, {i + 16}, …" for i in range(8))
    return "colours: the offset modulo 8", list(zip(EIGHT, offsets, strict=True))


def _lane_legend() -> tuple[str, list[Swatch]]:
    """A hue for each quad of lanes; its second tint stands for all four."""
    quads = [(LANES[4 * q + 1], f"T{4 * q}–T{4 * q + 3} of each warp") for q in range(8)]
    return "colours: a hue for a quad of lanes, a tint for a lane of it", quads
