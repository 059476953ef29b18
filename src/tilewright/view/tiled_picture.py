"""Pictures of tiles by thread and value: (thread, value) layouts, TiledMma as A, B and C of the
product, TiledCopy as source and destination.

    T5     thread 5
    V3     its value 3, in CuTe's order; ``V4–5`` are two adjacent values

A (thread, value) layout over a tile is a fragment, so the cells are those of fragments.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ..errors import LayoutError, raises
from ..layout import IntTuple, Layout, composition, product_each, size
from ..layout.composed_layout import inside
from ..layout.scaled_basis import has_basis
from ..mma import CopyAtom, Fragment, FragmentMove, TiledCopy, TiledMma
from ..mma.tiles.tiled_mma import SIDES
from .cell_runs import plural
from .fragment_cells import GRAINS, MOST, VALUES, cells, check_grain
from .fragment_picture import fragment_grid, rule
from .layout_planes import as_layout, check_size
from .panel import SPACE, Panel, paint_band, paint_product
from .svg import FAINT, Picture

LINE_BITS = 128  # of a row of ldmatrix
WIDE = 1600  # of two panels side by side; else one is below the other
TOP = 44


@raises(LayoutError)
def draw_tv(
    layout_tv: Any, tile_mn: IntTuple, title: str = "", *, grain: str = "", hover: bool = True
) -> str:
    """The SVG of a layout (thread, value) → index in a column-major tile (M, N).

    The layout may also map to coordinates of the tile, with strides like those of
    ``make_identity_layout``. ``grain`` and ``hover`` are as for a fragment. Raises LayoutError for
    indices outside of the tile.
    """
    check_grain(grain)
    to = Picture(title or str(layout_tv))
    panel = _panel("", tv_fragment(layout_tv, tile_mn), grain)
    panel.paint(to, 0, 24 * bool(title), panel.element, hover)
    if title:
        to.text(0, 13, title, 14, bold=True)
    return to.render()


def tv_fragment(layout_tv: Any, tile_mn: IntTuple, type_: str = "b32", **how: Any) -> Fragment:
    """A (thread, value) layout over a tile as a fragment. Raises LayoutError for other modes."""
    given = as_layout(layout_tv)
    shape = product_each(Layout(tile_mn).shape)
    rows, columns = shape[0], prod(shape[1:])
    if len(given) != 2:
        raise LayoutError(f"a (thread, value) layout must have two modes, got {given}")
    for size_, what in ((given.size(), given), (rows * columns, f"a tile of {rows}×{columns}")):
        check_size(size_, str(what))
    if has_basis(inside(given).stride):
        given = composition(Layout(shape), given)
    return Fragment(type_, rows, columns, given, **how)


def _panel(name: str, fragment: Fragment, grain: str, where: str = "") -> Panel:
    rows, columns = fragment.shape[-2:]
    threads, values = fragment.threads, fragment.values
    caption = (
        f"{where}{threads} {plural('thread', threads)}, {values} {plural('value', values)} each"
    )
    first = f"{name} {rows}×{columns}".strip()
    return Panel((first, caption, rule(fragment)), fragment_grid(fragment, grain, VALUES))


# --- products ------------------------------------------------------------------------------------


def draw_tiled_mma(tiled: TiledMma, title: str = "", *, grain: str = "", hover: bool = True) -> str:
    """The SVG of a TiledMma: the threads and values of A (left), B (above, as K×N) and C.

    ``grain`` and ``hover`` are as for a fragment.
    """
    if not isinstance(tiled, TiledMma):
        raise LayoutError(f"expected a TiledMma, got {tiled!r}")
    check_grain(grain)
    to = Picture(title or str(tiled.atom.instruction))
    to.text(0, 13, title or tiled.atom.instruction.opcode, 14, bold=True)
    to.text(0, 29, _about(tiled), 10, ink=FAINT)
    operands = {name: mma_fragment(tiled, name) for name in SIDES}
    grain = grain or _common_grain(tiled, operands)
    panels = [
        [_panel(name, f, GRAINS[-1], "in shared memory: ")]
        if in_shared_memory(tiled, name)
        else [_panel(name, f, grain)]
        for name, f in operands.items()
    ]
    paint_product(to, *panels, TOP, hover)
    return to.render()


def mma_fragment(tiled: TiledMma, name: str, shape: IntTuple = None) -> Fragment:
    """Operand A, B or C of a TiledMma by thread and value, for its tile or a given shape. B, of
    shape N×K, is drawn as K×N.
    """
    shape = tuple(tiled.tile_size_mnk[i] for i in SIDES[name]) if shape is None else shape
    i, operand = tiled.atom.instruction, "d" if name == "C" else name.lower()
    how: dict[str, Any] = {"transposed": name == "B"}
    if not in_shared_memory(tiled, name):
        stored = i.fragment(operand)
        how |= {"container": stored.container, "low": stored.low}
    layout = getattr(tiled, f"layout_{name}_TV")(shape)
    return tv_fragment(layout, shape, getattr(i, operand), **how)


def in_shared_memory(tiled: TiledMma, name: str) -> bool:
    """Whether an operand is read from shared memory, so that every thread has all of it."""
    atom = tiled.atom
    return atom.instruction.asynchronous and (name == "B" or (name, atom.a_src) == ("A", "smem"))


def _common_grain(tiled: TiledMma, operands: dict[str, Fragment]) -> str:
    """The coarsest of the grains with which the operands in registers would be drawn separately."""
    held = [f for name, f in operands.items() if not in_shared_memory(tiled, name)]
    return max((cells(f).grain for f in held), key=GRAINS.index)


def _about(tiled: TiledMma) -> str:
    atoms = "×".join(str(n) for n in product_each(tiled.atom_layout_mnk.shape))
    tile = "×".join(map(str, tiled.tile_size_mnk))
    return f"{atoms} atoms (M×N×K), {tiled.size} threads: a tile of {tile}"


# --- copies --------------------------------------------------------------------------------------


def draw_tiled_copy(
    copy: TiledCopy, title: str = "", *, grain: str = "", hover: bool = True
) -> str:
    """The SVG of a TiledCopy: the threads that read the source and that write the destination.

    ``grain`` is by default an element, or a thread if elements are many; ``hover`` is as for a
    fragment.
    """
    if not isinstance(copy, TiledCopy):
        raise LayoutError(f"expected a TiledCopy, got {copy!r}")
    caption = (
        f"{copy.size} threads, a tile of {'×'.join(map(str, tile_of(copy)))} {copy.atom.dtype}"
    )
    sides = {"source": copy_fragment(copy, "S"), "destination": copy_fragment(copy, "D")}
    return _draw_sides(title or str(copy.atom.op), caption, sides, grain, hover)


def draw_copy_atom(atom: CopyAtom, title: str = "", *, grain: str = "", hover: bool = True) -> str:
    """The SVG of a CopyAtom: the threads that read and that write each value. A row is 16 bytes for
    matrix moves, else all values.
    """
    if not isinstance(atom, CopyAtom):
        raise LayoutError(f"expected a CopyAtom, got {atom!r}")
    caption = f"{atom.thr_id.size()} {plural('thread', atom.thr_id.size())}, values of {atom.dtype}"
    sides = {
        "source": atom_fragment(atom, atom.layout_src),
        "destination": atom_fragment(atom, atom.layout_dst),
    }
    return _draw_sides(title or str(atom.op), caption, sides, grain, hover)


def tile_of(copy: TiledCopy) -> tuple[int, ...]:
    """The sizes of a copy's tile."""
    return tuple(map(size, copy.tiler_mn))


def copy_fragment(copy: TiledCopy, side: str) -> Fragment:
    """The source (S) or destination (D) of a copy's tile, by thread and value."""
    layout = copy.layout_S_TV() if side == "S" else copy.layout_D_TV()
    return tv_fragment(layout, tile_of(copy), copy.atom.dtype.name)


def atom_fragment(atom: CopyAtom, layout: Layout) -> Fragment:
    """A side of an atom, by thread and value, its values in rows."""
    count = max(atom.layout_src.cosize(), atom.layout_dst.cosize())
    row = min(count, LINE_BITS // atom.dtype.bits) if isinstance(atom.op, FragmentMove) else count
    return tv_fragment(layout, (row, count // row), atom.dtype.name, transposed=True)


def _draw_sides(
    title: str, caption: str, sides: dict[str, Fragment], grain: str, hover: bool
) -> str:
    """Source and destination, side by side if they fit."""
    check_grain(grain)
    by_element = max(f.rows * f.columns for f in sides.values()) <= MOST[GRAINS[0]]
    grain = grain or GRAINS[0 if by_element else -1]
    to = Picture(title)
    to.text(0, 13, title, 14, bold=True)
    to.text(0, 29, caption, 10, ink=FAINT)
    panels = [(p, p.element) for p in (_panel(name, f, grain) for name, f in sides.items())]
    if sum(p.room(element)[0] + SPACE for p, element in panels) <= WIDE:
        paint_band(to, panels, 0, TOP, hover)
        return to.render()
    y = TOP
    for panel in panels:
        y = paint_band(to, [panel], 0, y, hover) + SPACE
    return to.render()
