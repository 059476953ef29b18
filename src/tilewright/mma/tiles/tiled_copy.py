"""Tiled copies: the partitions of source and destination over the threads of a CTA.

``TiledCopy`` covers a tile (``tiler_mn``) with threads and values: ``layout_tv_tiled`` maps
(thread, value) to an index in it, with the values of the atom's reference side. The atom determines
what each thread reads and writes: with ldmatrix a thread reads rows, and other threads receive the
fragments.
    S (M,N)  →  tidfrg_S  (Thr, (FrgV,FrgX), (RestM,RestN,…))
             →  partition_S of one thread  ((FrgV,FrgX), RestM, RestN, …)

``retile`` views a fragment with another partition (of a TiledMma) with the partition of this copy.
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

    LayoutError unless threads and values are multiples of the atom's, inside the tile.
    """

    atom: CopyAtom
    layout_tv_tiled: Layout
    tiler_mn: tuple[Any, ...]

    def __post_init__(self) -> None:
        _check("a TiledCopy needs a CopyAtom", CopyAtom, self.atom)
        _check("(thread, value) of a TiledCopy must be a layout", Layout, self.layout_tv_tiled)
        _check("a TiledCopy's tile must be a tuple of tilers", tuple, self.tiler_mn)
        tile = product(tuple(size(tiler) for tiler in self.tiler_mn))
        if len(self.layout_tv_tiled) != 2 or self.layout_tv_tiled.cosize() > tile:
            raise LayoutError(
                f"(thread, value) must map to the {tile} elements of a tile, got"
                f" {self.layout_tv_tiled}"
            )
        for mode, what in enumerate(("threads", "values")):
            have, of_atom = self.layout_tv_tiled.size(mode), self.atom.layout_ref.size(mode)
            if have % of_atom:
                raise LayoutError(
                    f"{what} of a TiledCopy must be a multiple of {of_atom}, those of "
                    f"{self.atom.op} on {self.atom.dtype}, got {have}"
                )

    @property
    def size(self) -> int:
        """Number of threads."""
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

        def partition(layout: Layout) -> Layout:
            tiled = zipped_divide(layout, self.tiler_mn)
            parts = composition(tiled[0], thrval)
            return make_layout(parts[0], parts[1], tiled[1])

        return tensor.map_layout(partition)

    def _thrval(self, side: Layout) -> Layout:
        """(thread, (atom's value, atom)) → index in the tile, of the source or destination."""
        ref = self.atom.layout_ref
        atoms = zipped_divide(self.layout_tv_tiled, (ref.size(0), ref.size(1)))
        atom = composition(atoms[0], composition(right_inverse(ref), side))
        both = make_layout(*(make_layout(atom[i], atoms[1][i]) for i in range(2)))
        thrval: Layout = coalesce(both, (1, (1, 1)))
        return thrval

    def layout_S_TV(self) -> Layout:
        """(thread, value) → index in the tile, of the source."""
        return self._tv(self.atom.layout_src)

    def layout_D_TV(self) -> Layout:
        """(thread, value) → index in the tile, of the destination."""
        return self._tv(self.atom.layout_dst)

    def _tv(self, side: Layout) -> Layout:
        layout: Layout = composition(self._tile(), self._thrval(side))
        return layout

    def _tile(self) -> Layout:
        """The tile as a column-major layout."""
        return Layout(tuple(t.shape if isinstance(t, Layout) else t for t in self.tiler_mn))

    def retile(self, tensor: Any) -> Any:
        """View a thread's (V, M, N, …) of another partition as ((atom's value, atoms), M, N, …).

        LayoutError where V and the copy's values do not divide each other, or M and N are not
        multiples of the copy's tile.
        """
        check_whole(tensor, (1,) * (1 + len(self.tiler_mn)), "retile")
        values, tiled_values = tensor.size(0), self.layout_tv_tiled.size(1)
        if tiled_values % values and values % tiled_values:
            raise LayoutError(
                f"retile: values of a thread must divide or be a multiple of the {tiled_values} of "
                f"the copy's tile, got {values}"
            )
        inverse = composition(right_inverse(self.layout_tv_tiled), self._tile())
        groups = upcast(inverse, self.size * values)  # index → the group of V tiled values it is in
        tiled_order = logical_product(Layout(values), right_inverse(groups))
        order = zipped_divide(tiled_order, self.atom.layout_ref.size(1))
        tile = (values, *product_each(groups.shape))
        check_whole(tensor, tile, "retile")

        def view(layout: Layout) -> Layout:
            tiled = zipped_divide(layout, tile)
            return make_layout(composition(tiled[0], order), *list(tiled[1])[1:])

        return tensor.map_layout(view)

    # --- one thread ---

    def thr_slice(self, thr_idx: Number) -> ThrCopy:
        """The slice of one thread, whose index may be dynamic. LayoutError if there is no such
        thread.
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
        """A source (M,N,…) → the part that this thread reads, ((FrgV,FrgX), RestM, RestN, …)."""
        return self._part(self.tiled.tidfrg_S(tensor))

    def partition_D(self, tensor: Any) -> Any:
        """A destination (M,N,…) → the part it writes, ((FrgV,FrgX), RestM, RestN, …)."""
        return self._part(self.tiled.tidfrg_D(tensor))

    def _part(self, parts: Any) -> Any:
        return sliced(parts, (self.thr_idx, None, (None,) * rank(parts.shape[2])))

    def retile(self, tensor: Any) -> Any:
        """View a fragment (V, M, N, …) of another partition with the partition of this copy."""
        return self.tiled.retile(tensor)

    retile_S = retile_D = retile


# --- tiling an atom -------------------------------------------------------------------------------


def make_tiled_copy(
    atom: CopyAtom, thr_layout: Layout, val_layout: Layout = ONE_VALUE
) -> TiledCopy:
    """A TiledCopy from layouts (m,n) → thread and (m,n) → value: each thread has a block of values.

    ``make_tiled_copy(atom, Layout((16, 8), (8, 1)), Layout((1, 8)))``: 16 rows of 8 threads, each
    with 8 neighbours of a row.
    """
    for what, numbers in (("threads", thr_layout), ("values", val_layout)):
        _check(f"{what} must be a layout from (m,n) to their index", Layout, numbers)
        if right_inverse(numbers).size() != numbers.size():
            raise LayoutError(f"{what} must be numbered from 0 on, each once, got {numbers}")
    indices = raked_product(thr_layout, val_layout)
    compact = Layout((thr_layout.size(), val_layout.size()))
    tv = composition(right_inverse(indices), compact)
    return TiledCopy(atom, tv, product_each(indices.shape))


def make_tiled_copy_tv(atom: CopyAtom, layout_tv: Layout, tiler_mn: tuple[Any, ...]) -> TiledCopy:
    """A TiledCopy from a layout (thread, value) → column-major index in a tile."""
    return TiledCopy(atom, layout_tv, tiler_mn)


def make_tiled_copy_A(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """A TiledCopy with the threads and values of the TiledMma's A."""
    m, _, k = _tile_of(mma)
    return TiledCopy(atom, mma.layout_A_TV(), (m, k))


def make_tiled_copy_B(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """A TiledCopy with the threads and values of the TiledMma's B."""
    _, n, k = _tile_of(mma)
    return TiledCopy(atom, mma.layout_B_TV(), (n, k))


def make_tiled_copy_C(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """A TiledCopy with the threads and values of the TiledMma's C."""
    m, n, _ = _tile_of(mma)
    return TiledCopy(atom, mma.layout_C_TV(), (m, n))


def _check(rule: str, kind: type, *values: object) -> None:
    for x in values:
        if not isinstance(x, kind):
            raise LayoutError(f"{rule}, got {x!r}")


def _tile_of(mma: TiledMma) -> tuple[int, int, int]:
    _check("expected a TiledMma", TiledMma, mma)
    return mma.tile_size_mnk


def make_tiled_copy_C_atom(atom: CopyAtom, mma: TiledMma) -> TiledCopy:
    """The smallest TiledCopy for the TiledMma's C: it copies the first values of each thread, the
    number that the atom moves.
    """
    _check("a TiledCopy needs a CopyAtom", CopyAtom, atom)
    m, n, _ = _tile_of(mma)
    tv = mma.layout_C_TV()
    values = atom.layout_src.size(1)
    if values > tv.size(1):
        raise LayoutError(
            f"{atom.op} must move at most the {tv.size(1)} values of C of a thread, got {values}"
            f" of {atom.dtype}"
        )
    first = composition(tv, Layout((tv.size(0), values)))
    return _smallest(atom, first, (m, n))


def make_cotiled_copy(atom: CopyAtom, atom_tv_layout: Layout, data_layout: Layout) -> TiledCopy:
    """A TiledCopy from (thread, value) → offset in data with ``data_layout`` (coordinate → offset).

    LayoutError where a value's offset is not an offset of the data.
    """
    _check("(thread, value) and data must be layouts", Layout, atom_tv_layout, data_layout)
    indices = make_layout(left_inverse(data_layout), Layout(1, 0))
    tv = composition(indices, atom_tv_layout)
    back = composition(make_layout(data_layout, Layout(1, 0)), tv)
    if coalesce(back, (1, 1)) != coalesce(atom_tv_layout, (1, 1)):
        raise LayoutError(f"the offsets of {atom_tv_layout} must be offsets of {data_layout}")
    return _smallest(atom, tv, product_each(data_layout.shape))


def _smallest(atom: CopyAtom, tv: Layout, shape: tuple[int, ...]) -> TiledCopy:
    """A TiledCopy of (thread, value) → index in a shape, with the smallest tile for its indices."""
    sides = range(len(shape))
    tiler = tuple(
        filtered(composition(Layout(shape, tuple(int(i == j) for j in sides)), tv)) for i in sides
    )
    tile = composition(Layout(shape), tiler)
    return TiledCopy(atom, composition(left_inverse(tile), tv), tiler)


def make_tiled_copy_S(atom: CopyAtom, copy: TiledCopy) -> TiledCopy:
    """A TiledCopy with the threads and values of another copy's source."""
    _check("expected a TiledCopy", TiledCopy, copy)
    return TiledCopy(atom, copy.layout_S_TV(), copy.tiler_mn)


def make_tiled_copy_D(atom: CopyAtom, copy: TiledCopy) -> TiledCopy:
    """A TiledCopy with the threads and values of another copy's destination."""
    _check("expected a TiledCopy", TiledCopy, copy)
    return TiledCopy(atom, copy.layout_D_TV(), copy.tiler_mn)
