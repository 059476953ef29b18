"""Products of whole matrices with the arithmetic of one instruction: the bits of a kernel's result.

Only the order of K determines the bits: each element of C accumulates one K extent of the
instruction after another, whatever the threads, tiles and copies. ``k.gemm`` of the kernel builder
does the same on a thread's fragments.
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
    """D = A B + C of NumPy tensors: ``gemm(mma, d, a, b, c)``, or without ``d`` into ``c``.
    A (M, K), B (N, K), C and D (M, N) are multiples of the instruction's shape, or of the
    TiledMma's tile. Elements are numbers or codes (``mma.array_inputs``); tf32 also accepts f32.
    Raises LayoutError for other shapes and for an instruction with more operands, DtypeError for
    another format.
    """
    if len(tensors) not in (3, 4):
        raise LayoutError(f"gemm expects (mma, [d,] a, b, c), got {len(tensors)} tensors")
    check_tensors(*tensors)
    if not isinstance(mma, (MmaAtom, TiledMma)):
        raise LayoutError(f"gemm expects an MmaAtom or a TiledMma, got {mma!r}")
    d, a, b, c = tensors if len(tensors) == 4 else (tensors[2], *tensors)
    atom, tile = (mma.atom, mma.tile_size_mnk) if isinstance(mma, TiledMma) else (mma, None)
    row = atom.instruction
    if len(row.operands) != 4 or row.tiles > 1:
        raise LayoutError(f"gemm supports instructions with operands D, A, B, C only, got {row}")
    _check(d, a, b, c, tile or atom.shape_mnk)
    m, n, k = atom.shape_mnk
    _codes(d, row.d)  # check D's format before computing
    left = _tiles(_codes(a, row.a), m, k)
    right = np.swapaxes(_tiles(_codes(b, row.b), n, k), -1, -2)
    acc = _tiles(_codes(c, row.c), m, n)
    if row.c != row.d and left.shape[1] > 1:
        types = f"D of {row.d} can't be C of {row.c}"
        raise LayoutError(f"gemm: K must be at most {k} for {row}: its {types}")
    for step in range(left.shape[1]):
        acc = row(left[:, None, step], right[None, :, step], acc)
    whole = np.swapaxes(acc, 1, 2).reshape(d.size(0), d.size(1))
    d.engine[d.layout.indices()] = whole.ravel("F").view(d.dtype.numpy)


def _check(d: Tensor, a: Tensor, b: Tensor, c: Tensor, tile: tuple[int, int, int]) -> None:
    shapes = [tuple(t.size(i) for i in range(len(t))) for t in (a, b, c, d)]
    (m, k), (n, depth), of_c, of_d = shapes if {len(s) for s in shapes} == {2} else [(0, 1)] * 4
    if depth != k or of_c != (m, n) or of_d != of_c:
        expected = "(M,K), (N,K), (M,N), (M,N)"
        raise LayoutError(f"gemm: A, B, C, D must have shapes {expected}, got {shapes}")
    for name, size, of in zip("MNK", (m, n, k), tile, strict=True):
        if size % of:
            raise LayoutError(f"gemm: {name} must be a multiple of {of} (tile {tile}), got {size}")


def _codes(tensor: Tensor, type_: str) -> Bits:
    t, values = dtype(type_), tensor.to_numpy()
    f32_bits = t.name == "tf32" and values.dtype == np.float32
    return as_codes(values.view(t.storage) if f32_bits else values, t)


def _tiles(matrix: Bits, rows: int, columns: int) -> Bits:
    """(M, N) → (tiles down, tiles across, rows, columns)."""
    down, across = matrix.shape[0] // rows, matrix.shape[1] // columns
    return np.swapaxes(matrix.reshape(down, rows, across, columns), 1, 2)
