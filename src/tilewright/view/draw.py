"""``draw``: the picture of any object that has one."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ..errors import LayoutError
from ..gemm.epilogue.graph import EpilogueGraph
from ..layout import ComposedLayout, Layout, Swizzle, Tensor
from ..mma import CopyAtom, Fragment, MmaAtom, MmaInstruction, TiledCopy, TiledMma, make_tiled_mma
from ..sparsity.sparse24 import Sparse24
from ..sparsity.sparse_block import SparseBlock
from .fragment_picture import draw_fragment
from .graphs.epilogue_picture import draw_epilogue
from .instruction_picture import draw_instruction
from .layout_picture import draw_layout
from .sparse_picture import draw_sparse
from .tiled_picture import draw_copy_atom, draw_tiled_copy, draw_tiled_mma


@singledispatch
def draw(given: Any, title: str = "", **how: Any) -> str:
    """The SVG of a layout (composed, of a tensor, a shape), a swizzle, a fragment, an instruction,
    an atom, a TiledMma, a TiledCopy, an epilogue graph or a block of a sparse matrix. ``how`` are
    the options of the function that draws it: ``draw_layout``, ….

    Raises LayoutError for anything else, and for objects that can't be drawn.
    """
    kinds = "a layout, instruction, atom, TiledMma, TiledCopy, epilogue graph or sparse matrix"
    raise LayoutError(f"expected {kinds}, got {given!r}")


for _kind in (Layout, ComposedLayout, Tensor, Swizzle, tuple, int):
    draw.register(_kind, draw_layout)
draw.register(Fragment, draw_fragment)
draw.register(CopyAtom, draw_copy_atom)
draw.register(TiledMma, draw_tiled_mma)
draw.register(TiledCopy, draw_tiled_copy)
draw.register(EpilogueGraph, draw_epilogue)
draw.register(SparseBlock, draw_sparse)
draw.register(Sparse24, draw_sparse)


@draw.register
def _(given: MmaInstruction, title: str = "", **how: Any) -> str:
    return draw_instruction(given, **how)


@draw.register
def _(given: MmaAtom, title: str = "", **how: Any) -> str:
    return draw_tiled_mma(make_tiled_mma(given), title, **how)
