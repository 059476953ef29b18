"""Pictures of layouts, fragments, atoms, tiled MMAs and tiled copies as SVG, LaTeX and text;
pictures of epilogue graphs and of the issue slots of machine code; interactive pages that trace an
element; descriptions of matrix instructions.

Importing this package registers the pictures as the notebook display of these objects.
"""

from ..gemm.epilogue.graph import EpilogueGraph
from ..layout import ComposedLayout, Layout, Swizzle, Tensor
from ..mma import CopyAtom, Fragment, MmaAtom, MmaInstruction, TiledCopy, TiledMma
from ..notebook_display import register_renderer
from ..sparsity.sparse24 import Sparse24
from ..sparsity.sparse_block import SparseBlock
from .draw import draw
from .fragment_picture import draw_fragment
from .graphs.epilogue_picture import draw_epilogue
from .instruction_picture import draw_instruction
from .instruction_text import arithmetic_words
from .latex import latex, print_latex, print_latex_tv, tv_latex
from .layout_picture import draw_layout
from .layout_text import layout_text, print_layout, tv_text
from .pages.gemm_stage import OperandPath, Stage
from .pages.html_page import frame, page
from .pages.notebook_views import module_html, traced_html
from .pages.page_content import followed
from .pages.sparse_steps import follow_sparse
from .sass.issue_slots import draw_issue_slots
from .sparse_picture import draw_sparse
from .tiled_picture import draw_copy_atom, draw_tiled_copy, draw_tiled_mma, draw_tv

for _kind in (
    Layout, ComposedLayout, Swizzle, Tensor, Fragment, MmaInstruction, MmaAtom, CopyAtom, TiledMma,
    TiledCopy, EpilogueGraph, SparseBlock,
):  # fmt: skip
    register_renderer(_kind)(draw)
for _kind in (SparseBlock, Sparse24):
    followed.register(_kind, follow_sparse)
for _kind in (ComposedLayout, TiledMma, TiledCopy, Stage, SparseBlock):
    register_renderer(_kind, "html")(frame)

__all__ = [
    "Stage",
    "OperandPath",
    "draw",
    "draw_copy_atom",
    "draw_epilogue",
    "draw_fragment",
    "draw_instruction",
    "draw_issue_slots",
    "draw_layout",
    "draw_sparse",
    "draw_tiled_copy",
    "draw_tiled_mma",
    "draw_tv",
    "latex",
    "module_html",
    "traced_html",
    "layout_text",
    "page",
    "print_latex",
    "print_latex_tv",
    "print_layout",
    "tv_latex",
    "tv_text",
    "arithmetic_words",
]
