"""``draw``: the picture of any object that has one."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from ..errors import LayoutError
from ..gemm.epilogue.graph import EpilogueGraph
from ..layout import ComposedLayout, Layout, Swizzle, Tensor
from ..mma import CopyAtom, Fragment, MmaAtom, MmaInstruction, TiledCopy, TiledMma, make_tiled_mma
from ..sass.machine.sm_timing import TimingReport
from ..sparsity.sparse24 import Sparse24
from ..sparsity.sparse_block import SparseBlock
from .fragment_picture import draw_fragment
from .graphs.epilogue_picture import draw_epilogue
from .instruction_picture import draw_instruction
from .layout_picture import draw_layout
from .output.legend import legend_of
from .output.picture_output import themed, with_legend, written
from .sass.issue_slots import draw_issue_slots
from .sparse_picture import draw_sparse
from .tiled_picture import draw_copy_atom, draw_tiled_copy, draw_tiled_mma


def draw(
    given: Any, title: str = "", *, file: Any = None, theme: str = "light", legend: bool = False,
    **how: Any,
) -> str:  # fmt: skip
    """The SVG of a layout (composed, of a tensor, a shape), a swizzle, a fragment, an instruction,
    an atom, a TiledMma, a TiledCopy, an epilogue graph, a block of a sparse matrix or a report of
    the timing model of machine code. ``how`` are the options of the function that draws it:
    ``draw_layout``, ….

    ``theme``: light or dark. ``legend``: what the colours mean, below the picture. ``file``: also
    write it, as SVG, PNG or PDF by the file's suffix; PNG and PDF need the package cairosvg.

    Raises LayoutError for anything else, and for objects that can't be drawn, MissingPackage for a
    file that needs cairosvg, OSError for a file that can't be written.
    """
    svg = _drawn(given, title, **how)
    if legend:
        svg = with_legend(svg, *legend_of(given, how.get("bits", 0)))
    svg = themed(svg, theme)
    if file is not None:
        written(svg, file)
    return svg


@singledispatch
def _drawn(given: Any, title: str = "", **how: Any) -> str:
    raise LayoutError(
        "expected a layout, instruction, atom, TiledMma, TiledCopy, epilogue graph, sparse matrix"
        f" or timing report, got {given!r}"
    )


for _kind in (Layout, ComposedLayout, Tensor, Swizzle, tuple, int):
    _drawn.register(_kind, draw_layout)
_drawn.register(Fragment, draw_fragment)
_drawn.register(CopyAtom, draw_copy_atom)
_drawn.register(TiledMma, draw_tiled_mma)
_drawn.register(TiledCopy, draw_tiled_copy)
_drawn.register(EpilogueGraph, draw_epilogue)
_drawn.register(SparseBlock, draw_sparse)
_drawn.register(Sparse24, draw_sparse)
_drawn.register(TimingReport, draw_issue_slots)


@_drawn.register
def _(given: MmaInstruction, title: str = "", **how: Any) -> str:
    return draw_instruction(given, **how)


@_drawn.register
def _(given: MmaAtom, title: str = "", **how: Any) -> str:
    return draw_tiled_mma(make_tiled_mma(given), title, **how)
