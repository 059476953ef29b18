"""Matrix instructions side by side: which part of A, B and C each thread of a block has.

``TiledMma`` repeats an atom over warps (``atom_layout_mnk``) and so covers a tile of M×N×K;
``permutation_mnk`` may give a side another size or order. A thread's slice cuts tensors up:

    C (M,N)  →  thrfrg_C  ((ThrV,(ThrM,ThrN)), (FrgV,(RestM,RestN,…)))
             →  partition_C of one thread        (FrgV, RestM, RestN, …)

A is (M,K) and B is (N,K). All of it is divisions and compositions of layouts, as in CuTe, and
thread numbers may be dynamic.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...errors import LayoutError
from ...layout import (
    IntTuple,
    Layout,
    append,
    complement,
    composition,
    injective,
    logical_divide,
    make_layout,
    product_each,
    right_inverse,
    size,
    tiled_product,
    zipped_divide,
)
from ...layout.algebra.partition import sliced
from ...layout.symbolic import Number
from ...notebook_display import Drawable
from ...target import LANES
from ..instruction import MmaInstruction
from .atom import MmaAtom

SIDES = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}  # operand → which two of M, N, K


@dataclass(frozen=True, slots=True, init=False)
class TiledMma(Drawable):
    """An atom tiled over threads by ``atom_layout_mnk``, (m,n,k) → the atom's number, or a shape.

    A permutation is None (as many as the atoms cover), a size, or a layout that says in which order
    the tensor's elements go to the atoms. LayoutError where it holds no whole number of atoms.

        TiledMma(atom, (2, 2, 1), (32, 32, 16))
    """

    atom: MmaAtom
    atom_layout_mnk: Layout
    permutation_mnk: tuple[Any, ...]
    thr_layout_vmnk: Layout = field(compare=False, repr=False)
    """(thread of the atom, atom's m, n, k) → thread."""

    def __init__(
        self,
        atom: MmaAtom,
        atom_layout_mnk: Layout | IntTuple = (1, 1, 1),
        permutation_mnk: tuple[Any, ...] = (None, None, None),
    ) -> None:
        if not isinstance(permutation_mnk, (tuple, list)):
            raise LayoutError(
                "a permutation is a tuple for M, N and K, (32, None, 16) say, not "
                f"{permutation_mnk!r}"
            )
        given = atom_layout_mnk
        layout = append(given if isinstance(given, Layout) else Layout(given), up_to_rank=3)
        permutations = (*permutation_mnk, *[None] * (3 - len(permutation_mnk)))
        if len(layout) != 3 or len(permutations) != 3:
            raise LayoutError(
                f"a TiledMma has three modes M, N and K, not those of {given}, {permutation_mnk}"
            )
        if not isinstance(atom, MmaAtom):
            raise LayoutError(f"a TiledMma is of an MmaAtom, not of {atom!r}")
        if not injective(layout):
            raise LayoutError(f"atoms {layout}: two have the same threads")
        object.__setattr__(self, "atom", atom)
        object.__setattr__(self, "atom_layout_mnk", layout)
        object.__setattr__(self, "permutation_mnk", permutations)
        object.__setattr__(self, "thr_layout_vmnk", tiled_product(atom.thr_id, layout))
        for i in range(3):
            self._check_permutation(i)

    def _check_permutation(self, i: int) -> None:
        given, covered = self._permutation(i), self._covered(i)
        order = given if isinstance(given, Layout) else Layout(given)
        why = ""
        if order.size() % covered:
            atoms = self.atom_layout_mnk.size(i)
            why = f"no whole number of the {covered} that {atoms} atoms cover"
        elif right_inverse(order).size() != order.size():
            why = f"not each number below {order.size()} once"
        if why:
            raise LayoutError(f"permutation of {'MNK'[i]}: {given} is {why}")

    def _covered(self, i: int) -> int:
        return int(self.atom.shape_mnk[i] * self.atom_layout_mnk.size(i))

    def _permutation(self, i: int) -> Any:
        given = self.permutation_mnk[i]
        return self._covered(i) if given is None else given

    @property
    def tile_size_mnk(self) -> tuple[int, int, int]:
        """(M, N, K) of the tile that all threads compute together."""
        m, n, k = (int(size(self._permutation(i))) for i in range(3))
        return m, n, k

    @property
    def size(self) -> int:
        """Threads."""
        return int(self.thr_layout_vmnk.size())

    # --- tensors by thread and value ---

    def thrfrg_A(self, tensor: Any) -> Any:
        """(M,K,…) → ((ThrV,(ThrM,ThrK)), (FrgV,(RestM,RestK,…))), of a layout or tensor."""
        return self._thrfrg(tensor, "A")

    def thrfrg_B(self, tensor: Any) -> Any:
        """(N,K,…) → ((ThrV,(ThrN,ThrK)), (FrgV,(RestN,RestK,…))), of a layout or tensor."""
        return self._thrfrg(tensor, "B")

    def thrfrg_C(self, tensor: Any) -> Any:
        """(M,N,…) → ((ThrV,(ThrM,ThrN)), (FrgV,(RestM,RestN,…))), of a layout or tensor."""
        return self._thrfrg(tensor, "C")

    def _thrfrg(self, tensor: Any, operand: str) -> Any:
        modes = SIDES[operand]
        tile = tuple(self.tile_size_mnk[i] for i in modes)
        check_whole(tensor, tile, f"partition_{operand}", "".join("MNK"[i] for i in modes))
        threads = self.thr_layout_vmnk
        of_atom = getattr(self.atom, f"layout_{operand}")

        def cut(layout: Layout) -> Layout:
            ordered = logical_divide(layout, tuple(self._permutation(i) for i in modes))
            atoms = zipped_divide(ordered, tuple(self.atom.shape_mnk[i] for i in modes))
            held = composition(atoms[0], of_atom)
            warps = zipped_divide(atoms[1], tuple(threads.size(i + 1) for i in modes))
            return make_layout(make_layout(held[0], warps[0]), make_layout(held[1], warps[1]))

        return tensor.map_layout(cut)

    def layout_A_TV(self, shape: IntTuple = None) -> Layout:
        """(thread, value) → place in M×K: the tile's, or of this shape."""
        return self._tv("A", shape)

    def layout_B_TV(self, shape: IntTuple = None) -> Layout:
        """(thread, value) → place in N×K: the tile's, or of this shape."""
        return self._tv("B", shape)

    def layout_C_TV(self, shape: IntTuple = None) -> Layout:
        """(thread, value) → place in M×N: the tile's, or of this shape."""
        return self._tv("C", shape)

    def _tv(self, operand: str, shape: IntTuple) -> Layout:
        sides = SIDES[operand]
        threads = self.thr_layout_vmnk
        if shape is None:
            shape = tuple(self.tile_size_mnk[i] for i in sides)
        parts = self._thrfrg(Layout(shape), operand)
        first = threads.size(sides[0] + 1), threads.size(sides[1] + 1)
        # thread → (ThrV, ThrM, ThrN, ThrK), and of these the two that the operand has
        number = composition(
            Layout((threads.size(), 1), (1, 0)),
            right_inverse(make_layout(threads, complement(threads))),
        )
        strides = {sides[0]: 1, sides[1]: first[0]}
        mnk = tuple(threads.size(i + 1) for i in range(3))
        chosen = Layout(mnk, tuple(strides.get(i, 0) for i in range(3)))
        every = make_layout(parts[0][0], composition(parts[0][1], chosen))
        return make_layout(composition(every, number), parts[1])

    # --- one thread ---

    def thr_slice(self, thr_idx: Number) -> ThrMma:
        """The thread's part of everything; its number may be dynamic. LayoutError where there is no
        such thread.
        """
        warps = -(-self.thr_layout_vmnk.cosize() // LANES)
        check_thread(thr_idx, warps * LANES, "TiledMma")
        return ThrMma(self, self.thr_layout_vmnk.get_flat_coord(thr_idx))

    get_slice = thr_slice

    def partition_shape_A(self, shape: IntTuple) -> IntTuple:
        """(FrgV, RestM, RestK, …) of what each thread has of A of this shape."""
        return self._partition_shape(shape, "A")

    def partition_shape_B(self, shape: IntTuple) -> IntTuple:
        """(FrgV, RestN, RestK, …) of what each thread has of B of this shape."""
        return self._partition_shape(shape, "B")

    def partition_shape_C(self, shape: IntTuple) -> IntTuple:
        """(FrgV, RestM, RestN, …) of what each thread has of C of this shape."""
        return self._partition_shape(shape, "C")

    def _partition_shape(self, shape: IntTuple, operand: str) -> IntTuple:
        parts = self._thrfrg(Layout(shape), operand)[1]
        return (parts[0].shape, *parts[1].shape)

    def __str__(self) -> str:
        permutations = ",".join("_" if p is None else str(p) for p in self.permutation_mnk)
        return (
            f"TiledMMA\n  ThrLayoutVMNK:  {self.thr_layout_vmnk}\n"
            f"  PermutationMNK: ({permutations})\n{self.atom}"
        )


@dataclass(frozen=True, slots=True)
class ThrMma:
    """One thread of a TiledMma, at (V, M, N, K) of its threads."""

    tiled: TiledMma
    thr_vmnk: tuple[Any, ...]

    def partition_A(self, tensor: Any) -> Any:
        """(M,K,…) → this thread's (FrgV, RestM, RestK, …), of a layout or tensor."""
        return self._part(tensor, "A")

    def partition_B(self, tensor: Any) -> Any:
        """(N,K,…) → this thread's (FrgV, RestN, RestK, …), of a layout or tensor."""
        return self._part(tensor, "B")

    def partition_C(self, tensor: Any) -> Any:
        """(M,N,…) → this thread's (FrgV, RestM, RestN, …), of a layout or tensor."""
        return self._part(tensor, "C")

    def _part(self, tensor: Any, operand: str) -> Any:
        parts = self.tiled._thrfrg(tensor, operand)
        first, second = SIDES[operand]
        thread = (self.thr_vmnk[0], (self.thr_vmnk[first + 1], self.thr_vmnk[second + 1]))
        rest = (None,) * len(product_each(parts.shape[1][1]))
        return sliced(parts, (thread, (None, rest)))


def check_thread(thr_idx: Number, threads: int, what: str) -> None:
    """LayoutError for a number that is known and no thread's."""
    if thr_idx.__class__ is int and not 0 <= thr_idx < threads:
        raise LayoutError(f"a {what} of {threads} threads has no thread {thr_idx}")


def check_whole(tensor: Any, tiles: tuple[int, ...], what: str, names: str = "") -> None:
    """LayoutError unless the first modes (named, if need be) of a tensor are whole tiles."""
    if not hasattr(tensor, "map_layout") or len(tensor) < len(tiles):
        raise LayoutError(
            f"{what} takes a layout or tensor of at least {len(tiles)} modes, not {tensor}"
        )
    for mode, tile in enumerate(tiles):
        have = tensor.size(mode)
        if have.__class__ is int and have % tile:
            name = f" ({names[mode]})" if names else ""
            raise LayoutError(
                f"{what}: mode {mode}{name} is of {have}, which the tile's {tile} do not divide",
                hint="of what local_tile cuts tiles are whole, and a predicate says what exists",
            )


def make_tiled_mma(
    atom: MmaAtom | MmaInstruction | str,
    atom_layout_mnk: Layout | IntTuple = (1, 1, 1),
    permutation_mnk: tuple[Any, ...] = (None, None, None),
) -> TiledMma:
    """A TiledMma of an atom, an instruction or its opcode."""
    one = atom if isinstance(atom, MmaAtom) else MmaAtom(atom)
    return TiledMma(one, atom_layout_mnk, permutation_mnk)
