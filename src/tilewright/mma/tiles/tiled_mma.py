"""Tiled matrix instructions: the partitions of A, B and C over the threads of a CTA.

``TiledMma`` repeats an atom over warps (``atom_layout_mnk``) and so covers a tile of M×N×K;
``permutation_mnk`` can change the size or order of a mode. A thread's slice partitions tensors:
    C (M,N)  →  thrfrg_C  ((ThrV,(ThrM,ThrN)), (FrgV,(RestM,RestN,…)))
             →  partition_C of one thread        (FrgV, RestM, RestN, …)

A is (M,K) and B is (N,K). All partitions are divisions and compositions of layouts, as in CuTe;
the thread index may be dynamic.
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
    """An atom tiled over threads by ``atom_layout_mnk``, (m,n,k) → the atom's index, or a shape.

    A permutation is None (the size that the atoms cover), a size, or a layout with the order in
    which the tensor's elements are assigned to the atoms. LayoutError unless it is a whole number
    of atoms.
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
                "a permutation must be a tuple for M, N and K such as (32, None, 16), got "
                f"{permutation_mnk!r}"
            )
        shape_or_layout = atom_layout_mnk
        if not isinstance(shape_or_layout, Layout):
            shape_or_layout = Layout(shape_or_layout)
        layout = append(shape_or_layout, up_to_rank=3)
        permutations = (*permutation_mnk, *[None] * (3 - len(permutation_mnk)))
        if len(layout) != 3 or len(permutations) != 3:
            raise LayoutError(
                "a TiledMma must have at most three modes M, N and K, got"
                f" {atom_layout_mnk}, {permutation_mnk}"
            )
        if not isinstance(atom, MmaAtom):
            raise LayoutError(f"a TiledMma needs an MmaAtom, got {atom!r}")
        if not injective(layout):
            raise LayoutError(f"the atoms must have different threads, got {layout}")
        object.__setattr__(self, "atom", atom)
        object.__setattr__(self, "atom_layout_mnk", layout)
        object.__setattr__(self, "permutation_mnk", permutations)
        object.__setattr__(self, "thr_layout_vmnk", tiled_product(atom.thr_id, layout))
        for i in range(3):
            self._check_permutation(i)

    def _check_permutation(self, i: int) -> None:
        permutation, covered = self._permutation(i), self._covered(i)
        order = permutation if isinstance(permutation, Layout) else Layout(permutation)
        rule = ""
        if order.size() % covered:
            atoms = self.atom_layout_mnk.size(i)
            rule = f"a multiple of the {covered} that {atoms} atoms cover"
        elif right_inverse(order).size() != order.size():
            rule = f"a bijection onto the numbers below {order.size()}"
        if rule:
            raise LayoutError(f"permutation of {'MNK'[i]} must be {rule}, got {permutation}")

    def _covered(self, i: int) -> int:
        return int(self.atom.shape_mnk[i] * self.atom_layout_mnk.size(i))

    def _permutation(self, i: int) -> Any:
        permutation = self.permutation_mnk[i]
        return self._covered(i) if permutation is None else permutation

    @property
    def tile_size_mnk(self) -> tuple[int, int, int]:
        """(M, N, K) of the tile that all threads compute together."""
        m, n, k = (int(size(self._permutation(i))) for i in range(3))
        return m, n, k

    @property
    def size(self) -> int:
        """Number of threads."""
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

        def partition(layout: Layout) -> Layout:
            ordered = logical_divide(layout, tuple(self._permutation(i) for i in modes))
            atoms = zipped_divide(ordered, tuple(self.atom.shape_mnk[i] for i in modes))
            thr_val = composition(atoms[0], of_atom)
            warps = zipped_divide(atoms[1], tuple(threads.size(i + 1) for i in modes))
            return make_layout(make_layout(thr_val[0], warps[0]), make_layout(thr_val[1], warps[1]))

        return tensor.map_layout(partition)

    def layout_A_TV(self, shape: IntTuple = None) -> Layout:
        """(thread, value) → index in M×K, of the tile or of a given shape."""
        return self._tv("A", shape)

    def layout_B_TV(self, shape: IntTuple = None) -> Layout:
        """(thread, value) → index in N×K, of the tile or of a given shape."""
        return self._tv("B", shape)

    def layout_C_TV(self, shape: IntTuple = None) -> Layout:
        """(thread, value) → index in M×N, of the tile or of a given shape."""
        return self._tv("C", shape)

    def _tv(self, operand: str, shape: IntTuple) -> Layout:
        sides = SIDES[operand]
        threads = self.thr_layout_vmnk
        if shape is None:
            shape = tuple(self.tile_size_mnk[i] for i in sides)
        parts = self._thrfrg(Layout(shape), operand)
        first = threads.size(sides[0] + 1), threads.size(sides[1] + 1)
        # thread → (ThrV, ThrM, ThrN, ThrK), then ThrV and the two modes of the operand
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
        """The slice of one thread, whose index may be dynamic. LayoutError if there is no such
        thread.
        """
        warps = -(-self.thr_layout_vmnk.cosize() // LANES)
        check_thread(thr_idx, warps * LANES, "TiledMma")
        return ThrMma(self, self.thr_layout_vmnk.get_flat_coord(thr_idx))

    get_slice = thr_slice

    def partition_shape_A(self, shape: IntTuple) -> IntTuple:
        """(FrgV, RestM, RestK, …), the shape of each thread's partition of A."""
        return self._partition_shape(shape, "A")

    def partition_shape_B(self, shape: IntTuple) -> IntTuple:
        """(FrgV, RestN, RestK, …), the shape of each thread's partition of B."""
        return self._partition_shape(shape, "B")

    def partition_shape_C(self, shape: IntTuple) -> IntTuple:
        """(FrgV, RestM, RestN, …), the shape of each thread's partition of C."""
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
    """One thread of a TiledMma, with coordinates (V, M, N, K) in ``thr_layout_vmnk``."""

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
    """LayoutError for a static index that is out of range."""
    if thr_idx.__class__ is int and not 0 <= thr_idx < threads:
        raise LayoutError(f"thread index of {what} must be 0 to {threads - 1}, got {thr_idx}")


def check_whole(tensor: Any, tiles: tuple[int, ...], what: str, names: str = "") -> None:
    """LayoutError unless the first modes (named, if need be) of a tensor are whole tiles."""
    if not hasattr(tensor, "map_layout") or len(tensor) < len(tiles):
        raise LayoutError(
            f"{what} needs a layout or tensor with at least {len(tiles)} modes, got {tensor}"
        )
    for mode, tile in enumerate(tiles):
        have = tensor.size(mode)
        if have.__class__ is int and have % tile:
            name = f" ({names[mode]})" if names else ""
            raise LayoutError(
                f"{what}: mode {mode}{name} must be a multiple of the tile's {tile}, got {have}",
                hint="use local_tile, whose tiles are whole, and predicates for elements outside",
            )


def make_tiled_mma(
    atom: MmaAtom | MmaInstruction | str,
    atom_layout_mnk: Layout | IntTuple = (1, 1, 1),
    permutation_mnk: tuple[Any, ...] = (None, None, None),
) -> TiledMma:
    """A TiledMma of an atom, an instruction or its opcode."""
    mma_atom = atom if isinstance(atom, MmaAtom) else MmaAtom(atom)
    return TiledMma(mma_atom, atom_layout_mnk, permutation_mnk)
