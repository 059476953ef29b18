"""``tilewright draw``: layouts, instructions and tiles as SVG, a page, LaTeX or text."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

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
from ...view import draw, draw_tv, latex, layout_text, page, tv_text
from ...view.layout_planes import as_layout
from ...view.tiled_picture import tv_fragment
from .. import console
from ..output_files import write

_ABOUT = """\
Draws a layout in our notation or CuTe's ('(4,8):(8,1)', 'Sw<3,4,3> o _0 o (_64,_64):(_64,_1)'), a
swizzle, or what an opcode's threads hold; --mma and --copy draw tiles by thread and value. The
ending of the file says how: .svg, .html (a page on which elements are followed), .tex, .txt.
Without a file, text comes to the terminal."""

_OPCODE = re.compile(r"\s*[a-z][a-z0-9]*[.]")
_NEEDED = {"atoms": "mma", "permutation": "mma", "a_from": "mma", "threads": "copy",
           "values": "copy", "type": "copy", "tv": "text"}  # fmt: skip


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "draw", help="layouts, instructions and tiles as SVG, a page, LaTeX", description=_ABOUT
    )
    command.add_argument("text", nargs="?", metavar="LAYOUT | OPCODE", help="what to draw")
    command.add_argument("-o", "--output", metavar="FILE", help=".svg, .html, .tex or .txt")
    command.add_argument("--title", default="", help="instead of the notation")
    command.add_argument("--bits", type=int, default=0, help="of an element: shows its bank")
    command.add_argument("--tv", metavar="M,N", help="the layout is (thread, value) over this tile")
    command.add_argument("--mma", metavar="OPCODE", help="a tiled MMA of this instruction")
    command.add_argument("--atoms", metavar="M,N,K", help="how many, or a layout (default: 1,1,1)")
    command.add_argument(
        "--permutation", nargs=3, metavar=("M", "N", "K"), help="sizes or layouts; _ is none"
    )
    command.add_argument("--a-from", choices=("smem", "rmem"), help="where wgmma takes A from")
    command.add_argument(
        "--copy", metavar="OP", help="a copy: the bits of a plain one, cp.async.16, an opcode"
    )
    command.add_argument("--threads", metavar="LAYOUT", help="(m,n) to thread of a tiled copy")
    command.add_argument("--values", metavar="LAYOUT", help="(m,n) to value of a tiled copy")
    command.add_argument("--type", metavar="TYPE", help="of the elements copied (default: b16)")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Draw one thing. LayoutError, UnknownInstruction, … for what can't be drawn."""
    form = _form(given)
    made = _made(given, form)
    write("-" if given.output is None else given.output, made)
    if given.output not in (None, "-"):
        console.row("drawn", f"{given.output}, {len(made.encode()) / 1000:.0f} kB")
    return 0


def _form(given: argparse.Namespace) -> str:
    """How to draw, by the file's ending; TilewrightError where the options don't go together."""
    asked = [name for name in ("text", "mma", "copy") if getattr(given, name) is not None]
    if len(asked) != 1:
        raise TilewrightError(
            "a layout or opcode, --mma or --copy is drawn, one at a time",
            hint="tilewright draw '(4,8):(8,1)' -o layout.svg",
        )
    for option, of in _NEEDED.items():
        if getattr(given, option) is not None and of not in asked:
            needs = "a layout" if of == "text" else f"--{of}"
            raise TilewrightError(f"--{option.replace('_', '-')} goes with {needs}")
    if given.output is None:
        return ".txt"
    ending = ".svg" if given.output == "-" else Path(given.output).suffix.lower()
    if ending not in (".svg", ".html", ".tex", ".txt"):
        raise TilewrightError(
            f"{given.output!r} says nothing of how to draw", hint="end it in .svg .html .tex .txt"
        )
    return ending


def _made(given: argparse.Namespace, form: str) -> str:
    if given.tv is not None:
        return _tv(Layout.parse(given.text), _numbers(given.tv), given.title, form)
    thing = _thing(given)
    how = {"bits": given.bits} if given.text and not _OPCODE.match(given.text) else {}
    if form == ".svg":
        return draw(thing, given.title, **how)
    if form == ".html":
        return page(thing, given.title, **how)
    if form == ".tex":
        return latex(thing)
    return _text(thing) if not how else layout_text(thing)


def _text(thing: Any) -> str:
    if isinstance(thing, Fragment):
        return tv_text(thing.layout, (thing.rows, thing.columns))
    return f"{MmaAtom(thing) if isinstance(thing, MmaInstruction) else thing}\n"


def _tv(layout: Any, tile: Any, title: str, form: str) -> str:
    if form == ".svg":
        return draw_tv(layout, tile, title)
    if form == ".html":
        return page(tv_fragment(layout, tile), title)
    return latex(tv_fragment(layout, tile)) if form == ".tex" else tv_text(layout, tile)


# --- what is drawn -------------------------------------------------------------------------------


def _thing(given: argparse.Namespace) -> Any:
    if given.mma is not None:
        atoms = (1, 1, 1) if given.atoms is None else _numbers(given.atoms)
        permutation = tuple(map(_tiler, given.permutation or "___"))
        return make_tiled_mma(MmaAtom(given.mma, given.a_from or ""), atoms, permutation)
    if given.copy is not None:
        return _copy(given)
    if not _OPCODE.match(given.text):
        return Layout.parse(given.text)
    move = find_fragment_move(given.text.strip())
    if move is None:
        return find_instruction(given.text.strip())
    return move.fragment if move.instruction else CopyAtom(move, move.type)


def _numbers(text: str) -> Any:
    """``2,2,1`` as a shape; a shape or layout in parentheses as it is."""
    return Layout.parse(text if "(" in text else f"({text})")


def _tiler(text: str) -> Any:
    return None if text == "_" else Layout.parse(text)


def _copy(given: argparse.Namespace) -> Any:
    """An atom, or with threads a tiled copy."""
    atom = CopyAtom(_operation(given.copy), given.type or "b16")
    if given.threads is None:
        if given.values is not None:
            raise TilewrightError("--values goes with --threads")
        return atom
    values = Layout(1) if given.values is None else as_layout(Layout.parse(given.values))
    return make_tiled_copy(atom, as_layout(Layout.parse(given.threads)), values)


def _operation(text: str) -> Any:
    if text.isdecimal():
        return UniversalCopy(int(text))
    name, _, size = text.rpartition(".")
    return CpAsync(int(size)) if name == "cp.async" and size.isdecimal() else text
