"""Copies side by side: which part of source and destination each thread of a block has.

``TiledCopy`` covers a tile (``tiler_mn``) with threads and values: ``layout_tv_tiled`` maps
(thread, value) to a place in it, values counted as the atom's reference side has them. What an
instruction reads and writes follows from the atom: ldmatrix reads rows and gives other threads'
fragments.

    S (M,N)  →  tidfrg_S  (Thr, (FrgV,FrgX), (RestM,RestN,…))
             →  partition_S of one thread  ((FrgV,FrgX), RestM, RestN, …)

``retile`` views a fragment that was partitioned otherwise (by a TiledMma) as this copy wants it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import LayoutError
from ...layout import (
    Layout,
    coalesce,
    composition,
    left_inverse,
    logical_product,
    make_layout,
    product,
    product_each,
    raked_product,
    rank,
    right_inverse,
    size,
    upcast,
    zipped_divide,
)
from ...layout import filter as filtered
from ...layout.algebra.partition import sliced
from ...layout.symbolic import Number
from ...notebook_display import Drawable
from .atom import CopyAtom
from .tiled_mma import TiledMma, check_thread, check_whole

ONE_VALUE = Layout(1)


@dataclass(frozen=True, slots=True)
class TiledCopy(Drawable):
    """An atom tiled over the threads and values of ``layout_tv_tiled``, in a tile ``tiler_mn``.

    LayoutError where threads or values are no whole number of the atom's, or outside of the tile.
    """

    atom: CopyAtom
    layout_tv_tiled: Layout
    tiler_mn: tuple[Any, ...]

    def __post_init__(self) -> None:
        _check("a TiledCopy is of a CopyAtom", CopyAtom, self.atom)
        _check("(thread, value) of a TiledCopy is a layout", Layout, self.layout_tv_tiled)
        _check("a TiledCopy's tile is a tuple of tilers", tuple, self.tiler_mn)
        tile = product(tuple(size(tiler) for tiler in self.tiler_mn))
        if len(self.layout_tv_tiled) != 2 or self.layout_tv_tiled.cosize() > tile:
            raise LayoutError(
                f"{self.layout_tv_tiled} does not map (thread, value) to the {tile} of a tile"
            )
        for mode, what in enumerate(("threads", "values")):
            have, wanted = self.layout_tv_tiled.size(mode), self.atom.layout_ref.size(mode)
            if have % wanted:
                raise LayoutError(
                    f"a TiledCopy of {have} {what}: {self.atom.op} is of {wanted} {what} of "
                    f"{self.atom.dtype}"
                )

    @property
    def size(self) -> int:
        """Threads."""
        return int(self.layout_tv_tiled.size(0))

    # --- tensors by thread and value ---

    def tidfrg_S(self, tensor: Any) -> Any:
        """A source (M,N,…) → (Thr, (FrgV,FrgX), (RestM,RestN,…)), of a layout or tensor."""
        return self._tidfrg(tensor, self.atom.layout_src)

    def tidfrg_D(self, tensor: Any) -> Any:
        """A destination (M,N,…) → (Thr, (FrgV,FrgX), (RestM,RestN,…)), of a layout or tensor."""
        return self._tidfrg(tensor, self.atom.layout_dst)

    def _tidfrg(self, tensor: Any, side: Layout) -> Any:
        check_whole(tensor, tuple(map(size, self.tiler_mn)), "a TiledCopy")
        thrval = self._thrval(side)

        def cut(layout: Layout) -> Layout:
            tiled = zipped_divide(layout, self.tiler_mn)
            held = composition(tiled[0], thrval)
            return make_layout(held[0], held[1], tiled[1])

        return tensor.map_layout(cut)

    def _thrval(self, side: Layout) -> Layout:
        """(thread, (atom's value, atom)) → place in the tile, of what a side reads or writes."""
        ref = self.atom.layout_ref
        atoms = zipped_divide(self.layout_tv_tiled, (ref.size(0), ref.size(1)))
        one = composition(atoms[0], composition(right_inverse(ref), side))
        both = make_layout(*(make_layout(one[i], atoms[1][i]) for i in range(2)))
        made: Layout = coalesce(both, (1, (1, 1)))
        return made

    def layout_S_TV(self) -> Layout:
        """(thread, value) → place in the tile, of what is read."""
        return self._tv(self.atom.layout_src)

    def layout_D_TV(self) -> Layout:
        """(thread, value) → place in the tile, of what is written."""
        return self._tv(self.atom.layout_dst)

    def _tv(self, side: Layout) -> Layout:
        made: Layout = composition(self._tile(), self._thrval(side))
        return made

    def _tile(self) -> Layout:
        """The tile as a layout, columns one after another."""
        return Layout(tuple(t.shape if isinstance(t, Layout) else t for t in self.tiler_mn))

    def retile(self, tensor: Any) -> Any:
        """A thread's (V, M, N, …), partitioned otherwise, as ((atom's value, atoms), M, N, …).

        LayoutError where V, or the parts in M and N that a copy takes together, are not whole.
        """
        check_whole(tensor, (1,) * (1 + len(self.tiler_mn)), "retile")
        values, tiled_values = tensor.size(0), self.layout_tv_tiled.size(1)
        if tiled_values % values and values % tiled_values:
            raise LayoutError(
                f"retile: {values} values of a thread and the {tiled_values} of the copy's tile do "
                "not divide each other"
            )
        inverse = composition(right_inverse(self.layout_tv_tiled), self._tile())
        taken = upcast(inverse, self.size * values)  # place → which V of the tiled values it is in
        held = logical_product(Layout(values), right_inverse(taken))
        order = zipped_divide(held, self.atom.layout_ref.size(1))
        tile = (values, *product_each(taken.shape))
        check_whole(tensor, tile, "retile")

        def view(layout: Layout) -> Layout:
            tiled = zipped_divide(layout, tile)
            return make_layout(composition(tiled[0], order), *list(tiled[1])[1:])

        return tensor.map_layout(view)

    # --- one thread ---

    def thr_slice(self, thr_idx: Number) -> ThrCopy:
        """The thread's part of everything; its number may be dynamic. LayoutError where there is no
        such thread.
        """
        check_thread(thr_idx, self.size, "TiledCopy")
        return ThrCopy(self, thr_idx)

    get_slice = thr_slice

    def __str__(self) -> str:
        tiler = ",".join(map(str, self.tiler_mn))
        return (
            f"TiledCopy\n  Tiler_MN:       ({tiler})\n"
            f"  TiledLayout_TV: {self.layout_tv_tiled}\n{self.atom}"
        )


@dataclass(frozen=True, slots=True)
class ThrCopy:
    """One thread of a TiledCopy."""

    tiled: TiledCopy
    thr_idx: Number

    def partition_S(self, tensor: Any) -> Any:
        """A source (M,N,…) → what this thread reads of it, ((FrgV,FrgX), RestM, RestN, …)."""
        return self._part(self.tiled.tidfrg_S(tensor))

    def partition_D(self, tensor: Any) -> Any:
        """A destination (M,N,…) → what this thread writes of it, ((FrgV,FrgX), RestM, RestN, …)."""
        return self._part(self.tiled.tidfrg_D(tensor))

    def _part(self, parts: Any) -> Any:
        return sliced(parts, (self.thr_idx, None, (None,) * rank(parts.shape[2])))

    def retile(self, tensor: Any) -> Any:
        """A thread's fragment (V, M, N, …), partitioned otherwise, as this copy wants it."""
        return self.tiled.retile(tensor)

    retile_S = retile_D = retile


# --- tiling an atom -------------------------------------------------------------------------------


def make_tiled_copy(
    atom: CopyAtom, thr_layout: Layout, val_layout: Layout = ONE_VALUE
) -> TiledCopy:
    """By layouts (m,n) → thread and (m,n) → value: each thread has a block of values.

    ``make_tiled_copy(atom, Layout((16, 8), (8, 1)), Layout((1, 8)))``: 16 rows of 8 threads, each
    with 8 neighbours of a row.
    """
    for what, numbers in (("threads", thr_layout), ("values", val_layout)):
        _check(f"{what} are a layout, (m,n) to their number", Layout, numbers)
        if right_inverse(numbers).size() != numbers.size():
            raise LayoutError(f"{what} {numbers} are not numbered from 0 on, each once")
    places = raked_product(thr_layout, val_layout)
    counted = Layout((thr_layout.size(), val_layout.size()))
    tv = composition(right_inverse(places), counted)
    return TiledCopy(atom, tv, product_each(places.shape))


def make_tiled_copy_tv(atom: CopyAtom, layout_tv: Layout, tiler_mn: tuple[Any, ...]) -> TiledCopy:
    """By (thread, value) → place in a tile, columns one after another."""
    return TiledCopy(atom, layout_tv, tiler_mn)


def make_tiled_copy_A(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """Threads and values as the TiledMma has A's."""
    m, _, k = _tile_of(mma)
    return TiledCopy(atom, mma.layout_A_TV(), (m, k))


def make_tiled_copy_B(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """Threads and values as the TiledMma has B's."""
    _, n, k = _tile_of(mma)
    return TiledCopy(atom, mma.layout_B_TV(), (n, k))


def make_tiled_copy_C(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """Threads and values as the TiledMma has C's."""
    m, n, _ = _tile_of(mma)
    return TiledCopy(atom, mma.layout_C_TV(), (m, n))


def _check(rule: str, kind: type, *given: object) -> None:
    for x in given:
        if not isinstance(x, kind):
            raise LayoutError(f"{rule}, not {x!r}")


def _tile_of(mma: TiledMma) -> tuple[int, int, int]:
    _check("threads and values are those of a TiledMma", TiledMma, mma)
    return mma.tile_size_mnk


def make_tiled_copy_C_atom(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """The smallest that goes with the TiledMma's C: of each thread's values the first ones, as many
    as the atom moves.
    """
    _check("a TiledCopy is of a CopyAtom", CopyAtom, atom)
    m, n, _ = _tile_of(mma)
    tv = mma.layout_C_TV()
    values = atom.layout_src.size(1)
    if values > tv.size(1):
        raise LayoutError(
            f"{atom.op} moves {values} values of {atom.dtype}, and a thread has {tv.size(1)} of C"
        )
    first = composition(tv, Layout((tv.size(0), values)))
    return _smallest(atom, first, (m, n))


def make_cotiled_copy(atom: CopyAtom, atom_tv_layout: Layout, data_layout: Layout) -> TiledCopy:
    """By (thread, value) → offset, in data that ``data_layout`` (coordinate → offset) has.

    LayoutError where a value's offset is not an offset of the data.
    """
    _check("(thread, value), and data, are layouts", Layout, atom_tv_layout, data_layout)
    places = make_layout(left_inverse(data_layout), Layout(1, 0))
    tv = composition(places, atom_tv_layout)
    back = composition(make_layout(data_layout, Layout(1, 0)), tv)
    if coalesce(back, (1, 1)) != coalesce(atom_tv_layout, (1, 1)):
        raise LayoutError(f"{atom_tv_layout} has offsets that {data_layout} has not")
    return _smallest(atom, tv, product_each(data_layout.shape))


def _smallest(atom: CopyAtom, tv: Layout, shape: tuple[int, ...]) -> TiledCopy:
    """(thread, value) → place in a shape, on the smallest tile that holds all of these places."""
    sides = range(len(shape))
    tiler = tuple(
        filtered(composition(Layout(shape, tuple(int(i == j) for j in sides)), tv)) for i in sides
    )
    tile = composition(Layout(shape), tiler)
    return TiledCopy(atom, composition(left_inverse(tile), tv), tiler)


def make_tiled_copy_S(atom: CopyAtom, copy: TiledCopy) -> TiledCopy:
    """Threads and values as another copy reads them."""
    _check("threads and values are those of a TiledCopy", TiledCopy, copy)
    return TiledCopy(atom, copy.layout_S_TV(), copy.tiler_mn)


def make_tiled_copy_D(atom: CopyAtom, copy: TiledCopy) -> TiledCopy:
    """Threads and values as another copy writes them."""
    _check("threads and values are those of a TiledCopy", TiledCopy, copy)
    return TiledCopy(atom, copy.layout_D_TV(), copy.tiler_mn)
