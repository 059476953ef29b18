r"""Layouts, tiled MMAs and copies as LaTeX: a document for ``standalone`` whose picture TikZ draws,
as CuTe's ``print_latex`` does.

A node is an element, at (row, column); one unit is a centimetre, the first axis points down:

    \node[fill=c3] at (1,2) {19};                     offset 19, of colour 19 mod 8
    \node[fill=c3] at (1,2) {\shortstack{T3 \\ V0}};  thread 3, its value 0, of colour 3 mod 8
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from functools import singledispatch
from typing import Any

import numpy as np

from ..errors import LayoutError, raises
from ..layout import ComposedLayout, IntTuple, Layout, Swizzle, Tensor
from ..layout.composed_layout import AnyLayout
from ..mma import CopyAtom, Fragment, MmaAtom, MmaInstruction, TiledCopy, TiledMma, make_tiled_mma
from .fragment_cells import holders
from .layout_planes import plane
from .palette import EIGHT
from .tiled_picture import atom_fragment, copy_fragment, mma_fragment, tv_fragment

At = tuple[int, int]  # row and column of a picture's first element

HEAD = r"""\documentclass[tikz]{standalone}
%s
\begin{document}
\begin{tikzpicture}[x={(0cm,-1cm)},y={(1cm,0cm)},every node/.style={minimum size=1cm,outer sep=0pt}]
"""
FOOT = r"""\end{tikzpicture}
\end{document}
"""
COLOURS = "\n".join(rf"\definecolor{{c{i}}}{{HTML}}{{{c[1:]}}}" for i, c in enumerate(EIGHT))


@singledispatch
def latex(given: Any) -> str:
    """LaTeX of a layout (composed, of a tensor, a shape), a swizzle, a fragment, an instruction, an
    atom, a TiledMma or a TiledCopy.

    Raises LayoutError for anything else, and for a dynamic layout.
    """
    raise LayoutError(f"expected a layout, atom, TiledMma or TiledCopy, got {given!r}")


def print_latex(given: Any) -> None:
    """Print ``latex`` of it."""
    sys.stdout.write(latex(given))


@raises(LayoutError)
def tv_latex(layout_tv: AnyLayout, tile_mn: IntTuple) -> str:
    """LaTeX of a layout (thread, value) → index in a column-major tile (M, N)."""
    return latex(tv_fragment(layout_tv, tile_mn))


@raises(LayoutError)
def print_latex_tv(layout_tv: AnyLayout, tile_mn: IntTuple) -> None:
    """Print ``tv_latex`` of it."""
    sys.stdout.write(tv_latex(layout_tv, tile_mn))


@latex.register(Layout)
@latex.register(ComposedLayout)
@latex.register(Tensor)
@latex.register(Swizzle)
@latex.register(tuple)
@latex.register(int)
def _(given: Any) -> str:
    shown = plane(given)
    rows, columns = shown.shape[1:]
    lines: list[str] = []
    for i, offsets in enumerate(shown.offsets):
        at = (0, i * (columns + 2))
        if shown.counts:
            colours = np.arange(rows * columns).reshape(rows, columns)
        else:
            colours = offsets
        for (m, n), offset in np.ndenumerate(offsets):
            lines.append(_node(colours[m, n], m, at[1] + n, str(offset)))
        lines += [_grid(at, rows, columns), *_labels(at, rows, columns)]
    return _document([f"Layout: {shown.layout}"], lines)


@latex.register(MmaAtom)
@latex.register(MmaInstruction)
def _(given: Any) -> str:
    return latex(make_tiled_mma(given))


@latex.register
def _(given: Fragment) -> str:
    return _document([f"Layout TV: {given.layout}"], _held(given, (0, 0)))


@latex.register
def _(given: TiledMma) -> str:
    a, b, c = (mma_fragment(given, name) for name in "ABC")
    k = given.tile_size_mnk[2]
    lines = [
        *_held(c, (0, 0), labels=""),
        *_held(a, (0, -k - 1)),
        *_held(b, (-k - 1, 0)),
    ]
    notes = [f"Layout{name}: {f.layout}" for name, f in zip("ABC", (a, b, c), strict=True)]
    return _document([str(given.atom.instruction), *notes], lines)


@latex.register
def _(given: TiledCopy) -> str:
    return _sides(str(given.atom.op), copy_fragment(given, "S"), copy_fragment(given, "D"))


@latex.register
def _(given: CopyAtom) -> str:
    sides = (atom_fragment(given, layout) for layout in (given.layout_src, given.layout_dst))
    return _sides(str(given.op), *sides)


def _sides(op: str, source: Fragment, destination: Fragment) -> str:
    """A copy: the source, and the destination at its right."""
    columns = source.shape[-1]
    lines = [
        *_held(source, (0, 0)),
        *_held(destination, (0, columns + 3), labels="right"),
    ]
    notes = [f"Layout S TV: {source.layout}", f"Layout D TV: {destination.layout}"]
    return _document([op, *notes], lines)


# --- parts ---------------------------------------------------------------------------------------


def _document(notes: list[str], lines: Iterable[str]) -> str:
    comments = "".join(f"% {line}\n" for line in notes)
    return comments + HEAD % COLOURS + "\n".join(lines) + "\n" + FOOT


def _held(fragment: Fragment, at: At, labels: str = "left") -> Iterator[str]:
    """Thread and value of each element, of its first holder."""
    thread, value = (x[0, :, :, 0] for x in holders(fragment))
    for (m, n), t in np.ndenumerate(thread):
        if t >= 0:
            text = rf"\shortstack{{T{t} \\ V{value[m, n]}}}"
            yield _node(t, at[0] + m, at[1] + n, text)
    yield _grid(at, *thread.shape)
    if labels:
        yield from _labels(at, *thread.shape, right=labels == "right")


def _node(colour: int, row: int, column: int, text: str) -> str:
    return rf"\node[fill=c{colour % len(EIGHT)}] at ({row},{column}) {{{text}}};"


def _grid(at: At, rows: int, columns: int) -> str:
    end = (at[0] + rows, at[1] + columns)
    return rf"\draw[thick,shift={{(-0.5,-0.5)}}] ({at[0]},{at[1]}) grid ({end[0]},{end[1]});"


def _labels(at: At, rows: int, columns: int, *, right: bool = False) -> Iterator[str]:
    """The numbers of rows, left (or right), and of columns, above."""
    aside = at[1] + columns if right else at[1] - 1
    for m in range(rows):
        yield rf"\node at ({at[0] + m},{aside}) {{\Large\texttt{{{m}}}}};"
    for n in range(columns):
        yield rf"\node at ({at[0] - 1},{at[1] + n}) {{\Large\texttt{{{n}}}}};"
