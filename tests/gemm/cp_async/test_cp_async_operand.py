"""A tile in shared memory: each element has one place, and no access meets another in its bank.

Shared memory serves 16 bytes of 8 threads at once where these lie in 8 different sixteenths of a
128-byte line.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from rows import every_row
from tilewright.gemm import TABLE
from tilewright.gemm.cp_async import cp_async_operand as operand_module
from tilewright.gemm.cp_async.cp_async_operand import CpAsyncOperand
from tilewright.gemm.cp_async.multistage_config import F64_TABLE
from tilewright.layout import make_tensor

CHUNK = 8  # elements in 16 bytes
GROUPS = 8  # of banks, 16 bytes each
EXTENTS = sorted({size for c in TABLE for size in c.tile[:2]})
TILES = [(extent, depth) for extent in EXTENTS for depth in (32, 64, 128)]


def operand(extent: int, depth: int, contiguous: str, threads: int = 128) -> CpAsyncOperand:
    return CpAsyncOperand("a", "f16", extent, depth, contiguous, 16, True, True, threads)


def offsets(tile: CpAsyncOperand) -> np.ndarray:
    """The element of shared memory for (row, k)."""
    layout = tile.layout
    rows, depths = range(tile.extent), range(tile.depth)
    return np.array([[layout(row, k) for k in depths] for row in rows])


def groups(elements: np.ndarray) -> np.ndarray:
    return elements // CHUNK % GROUPS


OperandTile = tuple[CpAsyncOperand, np.ndarray]


@cache
def tiles() -> list[OperandTile]:
    """Of every size, contiguous either way."""
    made = [operand(*shape, contiguous) for shape in TILES for contiguous in ("k", "mn")]
    return [(tile, offsets(tile)) for tile in made]


def named(tile: OperandTile) -> str:
    return f"{tile[0].extent}x{tile[0].depth}-{tile[0].contiguous}"


every_tile = every_row("tile", tiles, ids=named)


@every_tile
def test_each_element_has_its_own_place(tile: OperandTile) -> None:
    made, where = tile
    assert np.array_equal(np.sort(where, axis=None), np.arange(made.extent * made.depth))
    assert made.bytes == where.size * made.size


@every_tile
def test_sixteen_bytes_stay_together(tile: OperandTile) -> None:
    made, where = tile
    lines = where if made.contiguous == "k" else where.T
    chunks = lines.reshape(-1, CHUNK)
    assert np.array_equal(chunks, chunks[:, :1] + np.arange(CHUNK))
    assert not (chunks[:, 0] % CHUNK).any()


@every_tile
def test_ldmatrix_reads_meet_in_no_bank(tile: OperandTile) -> None:
    """The eight lines of every 8×8 matrix, whatever its place."""
    made, where = tile
    lines = where if made.contiguous == "k" else where.T
    starts = lines[:, ::CHUNK].reshape(-1, 8, lines.shape[1] // CHUNK)
    assert (np.sort(groups(starts), axis=1) == np.arange(GROUPS)[:, None]).all()


@every_tile
@every_row("threads", sorted({c.threads for c in TABLE}))
def test_copies_write_all_and_meet_in_no_bank(tile: OperandTile, threads: int) -> None:
    """Eight neighbouring threads write 16 bytes each; together, all write the tile once."""
    made, _ = tile
    made = operand(made.extent, made.depth, made.contiguous, threads)
    copy = made.copy
    memory = make_tensor(np.arange(made.extent * made.depth), made.layout)
    parts = [copy.thr_slice(t).partition_D(memory).to_numpy() for t in range(copy.size)]
    first = np.array([part[0].ravel() for part in parts])
    assert copy.size <= threads and first.shape == (copy.size, made.count)
    assert np.array_equal(np.sort(first, axis=None), np.arange(0, made.extent * made.depth, CHUNK))
    together = groups(first.T).reshape(-1, 8)
    assert (np.sort(together, axis=1) == np.arange(GROUPS)).all()


def test_what_the_module_shows() -> None:
    shown = operand_module.__doc__ or ""
    for contiguous in ("k", "mn"):
        assert str(operand(128, 64, contiguous).layout) in shown
        assert str(double(128, 16, contiguous).layout) in shown


# --- f64 ----------------------------------------------------------------------------------------

WIDE = sorted({(size, c.tile[2]) for c in F64_TABLE for size in c.tile[:2]})


def double(extent: int, depth: int, contiguous: str, align: int = 16) -> CpAsyncOperand:
    return CpAsyncOperand("a", "f64", extent, depth, contiguous, align, True, True, 128)


@pytest.mark.parametrize("contiguous", ["k", "mn"])
@pytest.mark.parametrize("shape", WIDE, ids=str)
def test_f64_s_fragments_and_copies_take_the_fewest_wavefronts(
    shape: tuple[int, int], contiguous: str
) -> None:
    """8 bytes of 16 lanes, or 16 bytes of 8, are all that is served at once."""
    made = double(*shape, contiguous)
    where = offsets(made)
    assert np.array_equal(np.sort(where, axis=None), np.arange(where.size))
    banks = where % 16
    fragments = banks.reshape(shape[0] // 4, 4, shape[1] // 4, 4).swapaxes(1, 2).reshape(-1, 16)
    assert (np.sort(fragments, axis=1) == np.arange(16)).all()
    lines = where if contiguous == "k" else where.T
    chunks = lines.reshape(-1, 2)
    assert np.array_equal(chunks, chunks[:, :1] + [0, 1])
    together = chunks[:, 0].reshape(-1, 8) // 2 % 8
    assert (np.sort(together, axis=1) == np.arange(8)).all()
