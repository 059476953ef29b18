"""``tilewright draw``: draw layouts, instructions and tiles as SVG, HTML, LaTeX or text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import TilewrightError
from ...layout import Layout
from ...mma import (
    CopyAtom,
    CpAsync,
    Fragment,
    MmaAtom,
    MmaInstruction,
    UniversalCopy,
    find_fragment_move,
    make_tiled_copy,
    make_tiled_mma,
)
from ...mma import instruction as find_instruction
from ...mma.metadata_blocks import BLOCK_CHUNKS, BLOCK_ROWS, chunk_table
from ...sparsity.sparse24 import TYPES
from ...sparsity.sparse_block import SparseBlock
from ...view import draw, draw_tv, latex, layout_text, page, tv_text
from ...view.layout_planes import as_layout
from ...view.layout_text import terminal_has_colour
from ...view.output.legend import legend_of
from ...view.output.picture_output import THEMES, encoded, themed, with_legend
from ...view.tiled_picture import tv_fragment
from .. import console
from ..output_files import write

_ABOUT = """\
Draw a layout, in our notation or CuTe's ('(4,8):(8,1)', 'Sw<3,4,3> o _0 o (_64,_64):(_64,_1)'), a
swizzle, or the fragments of an opcode. --mma and --copy draw tiles by thread and value, --sparse
the elements and metadata of a sparse matrix. The suffix of the file selects the format: .svg, .png
and .pdf (by the package cairosvg), .html (an interactive page), .tex, .txt. Without a file, text is
printed."""

_CONVERTED = (".png", ".pdf")  # from SVG, by cairosvg
_OPCODE = re.compile(r"\s*[a-z][a-z0-9]*[.]")
_REQUIRED = {"atoms": "mma", "permutation": "mma", "a_from": "mma", "threads": "copy",
           "values": "copy", "type": "copy", "tv": "text"}  # fmt: skip


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "draw", help="draw layouts, instructions and tiles as SVG, HTML, LaTeX", description=_ABOUT
    )
    command.add_argument("text", nargs="?", metavar="LAYOUT | OPCODE", help="what to draw")
    command.add_argument(
        "-o", "--output", metavar="FILE", help=".svg, .png, .pdf, .html, .tex, .txt"
    )
    command.add_argument("--title", default="", help="title (default: the notation)")
    command.add_argument("--bits", type=int, default=0, help="bits per element; shows banks")
    command.add_argument("--tv", metavar="M,N", help="the layout maps (thread, value) to this tile")
    command.add_argument("--mma", metavar="OPCODE", help="a tiled MMA of this instruction")
    command.add_argument(
        "--atoms", metavar="M,N,K", help="numbers of atoms, or a layout (default: 1,1,1)"
    )
    command.add_argument(
        "--permutation",
        nargs=3,
        metavar=("M", "N", "K"),
        help="tilers of M, N, K: sizes or layouts; _ for none",
    )
    command.add_argument("--a-from", choices=("smem", "rmem"), help="state space of A for wgmma")
    command.add_argument(
        "--copy",
        metavar="OP",
        help="a copy atom: bits of a universal copy, cp.async.16, or an opcode",
    )
    command.add_argument("--threads", metavar="LAYOUT", help="tiled copy: layout (m,n) to thread")
    command.add_argument("--values", metavar="LAYOUT", help="tiled copy: layout (m,n) to value")
    command.add_argument(
        "--type", metavar="TYPE", help="type of the copied elements (default: b16)"
    )
    command.add_argument(
        "--sparse", metavar="TYPE", help="a block of a random 2:4 sparse matrix of this type"
    )
    command.add_argument("--theme", choices=THEMES, default="light", help="of a picture")
    command.add_argument("--legend", action="store_true", help="explain a picture's colours")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draw a layout, an instruction, a tiled MMA or a tiled copy."""
    format_ = _output_format(options)
    output: str | bytes = _render(options, ".svg" if format_ in _CONVERTED else format_)
    if format_ in _CONVERTED:
        output = encoded(str(output), options.output)
    write("-" if options.output is None else options.output, output)
    if options.output not in (None, "-"):
        size = len(output.encode() if isinstance(output, str) else output)
        console.row("drawn", f"{options.output}, {size / 1000:.0f} kB")
    return 0


def _output_format(options: argparse.Namespace) -> str:
    """The output format, from the suffix of the file. Raises TilewrightError for bad options."""
    kinds = "text", "mma", "copy", "sparse"
    selected = [name for name in kinds if getattr(options, name) is not None]
    if len(selected) != 1:
        raise TilewrightError(
            "draw needs exactly one of a layout or opcode, --mma, --copy, --sparse",
            hint="tilewright draw '(4,8):(8,1)' -o layout.svg",
        )
    for option, of in _REQUIRED.items():
        if getattr(options, option) is not None and of not in selected:
            needs = "a layout" if of == "text" else f"--{of}"
            raise TilewrightError(f"--{option.replace('_', '-')} requires {needs}")
    if options.output is None:
        return ".txt"
    ending = ".svg" if options.output == "-" else Path(options.output).suffix.lower()
    if ending not in (".svg", *_CONVERTED, ".html", ".tex", ".txt"):
        raise TilewrightError(
            f"{options.output!r} has no known suffix",
            hint="use .svg, .png, .pdf, .html, .tex or .txt",
        )
    if ending not in (".svg", *_CONVERTED) and (options.legend or options.theme != "light"):
        raise TilewrightError(f"--legend and --theme require .svg, .png or .pdf, got {ending}")
    return ending


def _render(options: argparse.Namespace, format_: str) -> str:
    if options.tv is not None:
        return _tv(options, format_)
    item = _object(options)
    kwargs = {"bits": options.bits} if options.text and not _OPCODE.match(options.text) else {}
    if format_ == ".svg":
        how = {"theme": options.theme, "legend": options.legend, **kwargs}
        return draw(item, options.title, **how)
    if format_ == ".html":
        return page(item, options.title, **kwargs)
    if format_ == ".tex":
        return latex(item)
    if isinstance(item, SparseBlock):
        return _words(item)
    return _text(options, item) if not kwargs else layout_text(item, colour=_colour(options))


def _colour(options: argparse.Namespace) -> bool:
    return options.output in (None, "-") and terminal_has_colour()


def _words(block: SparseBlock) -> str:
    """The metadata of a block as text: a row of chunks a line."""
    rows = [" ".join(f"{code:04b}" for code in row) for row in block.chunks.tolist()]
    return "\n".join(rows) + "\n"


def _sparse(type_: str) -> SparseBlock:
    """A block with random metadata, always the same."""
    if type_ not in TYPES:
        raise TilewrightError(f"--sparse must be one of {', '.join(TYPES)}, got {type_!r:.60}")
    ordered = np.unique(chunk_table(type_)[0])
    return SparseBlock(type_, np.random.default_rng(0).choice(ordered, (BLOCK_ROWS, BLOCK_CHUNKS)))


def _text(options: argparse.Namespace, item: Any) -> str:
    if isinstance(item, Fragment):
        return tv_text(item.layout, (item.rows, item.columns), colour=_colour(options))
    return f"{MmaAtom(item) if isinstance(item, MmaInstruction) else item}\n"


def _tv(options: argparse.Namespace, format_: str) -> str:
    layout, tile = Layout.parse(options.text), _numbers(options.tv)
    if format_ == ".svg":
        fragment = tv_fragment(layout, tile)
        svg = draw_tv(layout, tile, options.title)
        svg = with_legend(svg, *legend_of(fragment)) if options.legend else svg
        return themed(svg, options.theme)
    if format_ == ".html":
        return page(tv_fragment(layout, tile), options.title)
    if format_ == ".tex":
        return latex(tv_fragment(layout, tile))
    return tv_text(layout, tile, colour=_colour(options))


# --- objects -------------------------------------------------------------------------------------


def _object(options: argparse.Namespace) -> Any:
    if options.mma is not None:
        atoms = (1, 1, 1) if options.atoms is None else _numbers(options.atoms)
        permutation = tuple(map(_tiler, options.permutation or "___"))
        return make_tiled_mma(MmaAtom(options.mma, options.a_from or ""), atoms, permutation)
    if options.copy is not None:
        return _copy(options)
    if options.sparse is not None:
        return _sparse(options.sparse)
    if not _OPCODE.match(options.text):
        return Layout.parse(options.text)
    move = find_fragment_move(options.text.strip())
    if move is None:
        return find_instruction(options.text.strip())
    return move.fragment if move.instruction else CopyAtom(move, move.type)


def _numbers(text: str) -> Any:
    """Parse ``2,2,1``, or a shape or layout in parentheses."""
    return Layout.parse(text if "(" in text else f"({text})")


def _tiler(text: str) -> Any:
    return None if text == "_" else Layout.parse(text)


def _copy(options: argparse.Namespace) -> Any:
    """A copy atom, or a tiled copy if --threads is set."""
    atom = CopyAtom(_operation(options.copy), options.type or "b16")
    if options.threads is None:
        if options.values is not None:
            raise TilewrightError("--values requires --threads")
        return atom
    threads: Any = as_layout(Layout.parse(options.threads))
    values: Any = Layout(1) if options.values is None else as_layout(Layout.parse(options.values))
    return make_tiled_copy(atom, threads, values)


def _operation(text: str) -> Any:
    if text.isdecimal():
        return UniversalCopy(int(text))
    name, _, size = text.rpartition(".")
    return CpAsync(int(size)) if name == "cp.async" and size.isdecimal() else text
