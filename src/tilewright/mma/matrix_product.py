"""Products of whole matrices by one instruction's arithmetic: what a kernel of it computes, to the
bit.

The order of K is what decides the bits: each element of C meets the instruction's K after K,
whatever threads, tiles and copies are around it. ``k.gemm`` of the kernel builder does the same on
a thread's fragments.
"""

from __future__ import annotations

import numpy as np

from ..dtypes import dtype
from ..errors import LayoutError
from ..layout import Tensor
from ..layout.tensor import check_tensors
from .array_inputs import Bits, as_codes
from .tiles.atom import MmaAtom
from .tiles.tiled_mma import TiledMma


def gemm(mma: MmaAtom | TiledMma, *tensors: Tensor) -> None:
    """D = A B + C of NumPy tensors: ``gemm(mma, d, a, b, c)``, or without ``d``, which is ``c``.

    A (M, K), B (N, K), C and D (M, N) are multiples of the instruction's shape, or of the
    TiledMma's tile. Elements are numbers or codes (``mma.array_inputs``); tf32 also takes f32.
    Raises LayoutError for other shapes and for an instruction with more operands, DtypeError for
    another format.
    """
    if len(tensors) not in (3, 4):
        raise LayoutError("gemm takes (mma, d, a, b, c), or (mma, a, b, c)")
    check_tensors(*tensors)
    if not isinstance(mma, (MmaAtom, TiledMma)):
        raise LayoutError(f"gemm is by an MmaAtom or a TiledMma, not by {mma!r}")
    d, a, b, c = tensors if len(tensors) == 4 else (tensors[2], *tensors)
    atom, tile = (mma.atom, mma.tile_size_mnk) if isinstance(mma, TiledMma) else (mma, None)
    row = atom.instruction
    if len(row.operands) != 4 or row.tiles > 1:
        raise LayoutError(f"gemm has no operands for {row}: it is for one product of A, B and C")
    _check(d, a, b, c, tile or atom.shape_mnk)
    m, n, k = atom.shape_mnk
    _codes(d, row.d)  # D's format is looked at before the work is done
    left = _tiles(_codes(a, row.a), m, k)
    right = np.swapaxes(_tiles(_codes(b, row.b), n, k), -1, -2)
    acc = _tiles(_codes(c, row.c), m, n)
    if row.c != row.d and left.shape[1] > 1:
        raise LayoutError(
            f"gemm: {row} takes C of {row.c} and gives D of {row.d}, which does not go on as C:"
            f" K is at most {k}"
        )
    for step in range(left.shape[1]):
        acc = row(left[:, None, step], right[None, :, step], acc)
    whole = np.swapaxes(acc, 1, 2).reshape(d.size(0), d.size(1))
    d.engine[d.layout.indices()] = whole.ravel("F").view(d.dtype.numpy)


def _check(d: Tensor, a: Tensor, b: Tensor, c: Tensor, tile: tuple[int, int, int]) -> None:
    shapes = [tuple(t.size(i) for i in range(len(t))) for t in (a, b, c, d)]
    (m, k), (n, depth), of_c, of_d = shapes if {len(s) for s in shapes} == {2} else [(0, 1)] * 4
    if depth != k or of_c != (m, n) or of_d != of_c:
        raise LayoutError(f"gemm of A, B, C, D {shapes}: they are (M,K), (N,K), (M,N), (M,N)")
    for name, size, of in zip("MNK", (m, n, k), tile, strict=True):
        if size % of:
            raise LayoutError(f"gemm: {name} is {size}, no multiple of the {of} of {tile}")


def _codes(tensor: Tensor, type_: str) -> Bits:
    t, values = dtype(type_), tensor.to_numpy()
    as_registers = t.name == "tf32" and values.dtype == np.float32
    return as_codes(values.view(t.storage) if as_registers else values, t)


def _tiles(matrix: Bits, rows: int, columns: int) -> Bits:
    """(M, N) → (tiles down, tiles across, rows, columns)."""
    down, across = matrix.shape[0] // rows, matrix.shape[1] // columns
    return np.swapaxes(matrix.reshape(down, rows, across, columns), 1, 2)
