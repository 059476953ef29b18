"""Tiles of kernel tma: what its copies bring, by NumPy, stands where the layouts say, and once."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.gemm import Problem, parse
from tilewright.gemm.rasterization import tile_coordinates
from tilewright.gemm.tma import tma_operand as module
from tilewright.gemm.tma.tma_epilogue import EpilogueTile
from tilewright.gemm.tma.tma_operand import GlobalMatrix, TmaOperand
from tilewright.layout import parse as parse_layout
from tilewright.mma import TensorMap
from tilewright.mma.tensor_maps import tma_copy

Array = np.ndarray[Any, Any]

#: type, extent, depth, contiguous, sharers
TILES = [
    ("bf16", 128, 64, "k", 1), ("bf16", 192, 128, "k", 1), ("f16", 64, 256, "k", 2),
    ("f16", 24, 64, "k", 1), ("bf16", 256, 64, "k", 4), ("e4m3", 128, 128, "k", 2),
    ("s8", 48, 256, "k", 1), ("tf32", 64, 32, "k", 1), ("tf32", 176, 64, "k", 2),
    ("bf16", 128, 64, "mn", 1), ("bf16", 256, 128, "mn", 2), ("f16", 192, 64, "mn", 1),
    ("f16", 96, 64, "mn", 1), ("bf16", 48, 64, "mn", 1), ("bf16", 128, 64, "mn", 2),
]  # fmt: skip


@dataclass
class AtOnce:
    """The words in which ``TmaOperand.load`` speaks to the builder, done at once on NumPy.

    ``shared`` counts how often each byte was written.
    """

    memory: Array
    shared: Array
    written: Array = field(init=False)

    def __post_init__(self) -> None:
        self.written = np.zeros(self.shared.size, int)

    def pointer(self, space: str, type_: str, address: int) -> int:
        return address

    def select(self, which: bool, one: Any, other: Any) -> Any:
        return one if which else other

    def map_address(self, map_: Any) -> Any:
        return map_

    def tma_load(
        self,
        there: int,
        map_: TensorMap,
        at: tuple[int, ...],
        barrier: Any,
        multicast_mask: Any = None,
    ) -> None:
        tma_copy.load(map_, self.memory, self.shared, at, start=there)
        found = tma_copy.copy_addresses(map_, at, start=there)
        np.add.at(self.written, np.add.outer(found.shared.ravel(), np.arange(found.unit)), 1)


def brought(
    tile: TmaOperand,
    count: int,
    depth: int,
    corner: tuple[int, int],
    batch: int | None = None,
    at_edge: bool = False,
) -> tuple[Array, Array, AtOnce]:
    """(the matrices, as numbers that tell elements apart; the tile, by (row, k); what was done)."""
    size, stack = tile.size, 1 if batch is None else batch + 2
    lines, length = (count, depth) if tile.contiguous == "k" else (depth, count)
    leading = -(-length * size // 16) * 16 // size + 16
    numbers = np.zeros((stack, lines, leading), f"u{size}")
    numbers[...] = (np.arange(numbers.size) * 2654435761 % 251 + 1).reshape(numbers.shape)
    if tile.type == "tf32":  # small integers, which rounding to tf32 leaves alone
        numbers = numbers.astype(np.float32)
    stacked = (stack, lines * leading) if batch is not None else ()
    done = AtOnce(numbers.view(np.uint8).ravel(), np.full(tile.bytes, 0xEE, np.uint8))
    matrix = GlobalMatrix(0, lines, length, leading, *stacked)
    map_ = tile.edge_map(matrix) if at_edge else tile.map(matrix)
    for share in range(tile.sharers):
        tile.load(done, 0, map_, (*corner, batch), None, share)  # type: ignore[arg-type]
    layout = tile.layout
    elements = done.shared.view(numbers.dtype)
    where = [[layout(row, k) for k in range(tile.depth)] for row in range(tile.extent)]
    matrices = numbers[:, :, :length]
    return matrices if tile.contiguous == "k" else matrices.swapaxes(1, 2), elements[where], done


@pytest.mark.parametrize("given", TILES, ids=str)
def test_each_element_is_brought_once_and_stands_where_the_layout_says(given: Any) -> None:
    tile = TmaOperand(*given)
    for corner in ((0, 0), (tile.extent, 2 * tile.depth)):
        ends = corner[0] + tile.extent + 3, corner[1] + tile.depth + 5
        matrix, found, done = brought(tile, *ends, corner)
        row, k = corner
        want = matrix[0, row : row + tile.extent, k : k + tile.depth]
        assert np.array_equal(found, want)
        assert (done.written == 1).all()


@pytest.mark.parametrize("given", TILES[::3], ids=str)
def test_zeros_stand_for_what_lies_beyond_the_edges(given: Any) -> None:
    tile = TmaOperand(*given)
    rows, depth = tile.extent - 5, tile.depth - 3
    matrix, found, done = brought(tile, rows, depth, (0, 0))
    assert np.array_equal(found[:rows, :depth], matrix[0])
    assert not found[rows:].any() and not found[:, depth:].any()
    assert (done.written == 1).all()


@pytest.mark.parametrize("given", [t for t in TILES if TmaOperand(*t).has_edge_map], ids=str)
def test_the_last_tile_s_map_brings_its_rows_and_no_zeros(given: Any) -> None:
    tile, builder = TmaOperand(*given), AtOnce(np.zeros(0), np.zeros(0))
    for rows in (1, tile.extent - 5, 2 * tile.extent, 3 * tile.extent - 5):
        corner = (rows - 1) // tile.extent * tile.extent
        maps: Any = "whole", "edge"
        map_, size = tile.map_and_bytes(builder, maps, corner, rows)  # type: ignore[arg-type]
        matrix, found, done = brought(tile, rows, tile.depth, (corner, 0), at_edge=map_ == "edge")
        here = rows - corner
        assert np.array_equal(found[:here], matrix[0, corner:])
        assert done.written.sum() == size == here * tile.depth * tile.size


def test_before_the_first_of_k_there_is_nothing() -> None:
    """Where there is no step along K, the kernel brings one from there."""
    for each in TILES[::2]:
        _, found, _ = brought(TmaOperand(*each), 300, 300, (0, -(1 << 16)))
        assert not found.any()


def test_a_stack_s_matrix() -> None:
    for each in (TILES[0], TILES[9]):
        tile = TmaOperand(*each)
        matrices, found, _ = brought(tile, tile.extent, tile.depth, (0, 0), batch=1)
        assert np.array_equal(found, matrices[1]) and not np.array_equal(found, matrices[0])


@pytest.mark.parametrize("given", TILES, ids=str)
def test_a_descriptor_may_start_at_every_part(given: Any) -> None:
    """A block of rows by an instruction's K lies as the first one does, from its own start on."""
    tile = TmaOperand(*given)
    inner, deep = tile.layout.inner, module.WGMMA_K // tile.size
    block = 64 if tile.extent % 64 == 0 else tile.extent
    for row in range(0, tile.extent, block):
        for part in range(tile.wgmmas_per_stage):
            start = tile.byte_offset(row, part * deep)
            assert start % 16 == 0 and start < 1 << 18
            for r, k in ((0, 0), (1, 0), (8, 1), (block - 1, deep - 1)):
                here = inner((row + r, part * deep + k)) * tile.size
                assert here == start + inner((r, k)) * tile.size
    assert tile.wgmmas_per_stage * deep == tile.depth
    assert tile.descriptor_bits(block) & 0x3FFF == 0  # the start is the kernel's to fill in


def test_what_the_module_shows() -> None:
    for contiguous in ("k", "mn"):
        layout = TmaOperand("bf16", 128, 64, contiguous).layout
        (shown,) = re.findall(rf"{contiguous[0].upper()}-major, .*(Sw<.*?)  ", module.__doc__ or "")
        assert all(layout(i, j) == parse_layout(shown)(i, j) for i, j in np.ndindex(128, 64))


# --- the way out --------------------------------------------------------------------------------

EPILOGUE_TILES = [
    ("bf16", "tma:128x64x64:2:2"), ("f16", "tma:64x48x64:1:2"), ("f32", "tma:64x72x64:1:2"),
    ("f32", "tma:64x256x64:2p:2"), ("bf16", "tma:64x40x64:1:2~"), ("f32", "tma:64x64x64:1:2~"),
    ("f32", "tma:64x64x64:1:2*2"),
]  # fmt: skip


@pytest.mark.parametrize(("d", "text"), EPILOGUE_TILES)
def test_an_epilogue_tile_is_stored_by_copies_that_cover_it(d: str, text: str) -> None:
    """Its boxes cover all elements of 64 rows of D by some columns, or (swapped)
    of some rows by 64 columns; its offsets in shared memory are all different.
    """
    config = parse(text)
    inputs = "f16" if d == "f16" else "bf16"
    d_tile = EpilogueTile.of(Problem(8, 8, 8, inputs, inputs, d), config)  # type: ignore[arg-type]
    shape = (64, d_tile.width)
    assert config.tile[1] % d_tile.width == 0
    places = {int(d_tile.layout(r, c)) for r in range(shape[0]) for c in range(shape[1])}
    assert places == set(range(64 * d_tile.width))
    turned = config.swap  # type: ignore[union-attr]
    assert (d_tile.d_rows, d_tile.d_columns) == (shape[::-1] if turned else shape)
    assert (
        d_tile.d_columns % d_tile.copy_columns == 0
        and d_tile.copy_columns * d_tile.size == d_tile.swizzle
    )
    memory = np.zeros(d_tile.bytes, np.uint8)
    shared = np.random.default_rng(0).integers(0, 256, d_tile.bytes, np.uint8)
    map_ = d_tile.map(GlobalMatrix(0, d_tile.d_rows, d_tile.d_columns, d_tile.d_columns))
    for i in range(d_tile.d_columns // d_tile.copy_columns):
        start = i * d_tile.d_rows * d_tile.swizzle
        tma_copy.store(map_, memory, shared, (i * d_tile.copy_columns, 0), start=start)
    elements = f"u{d_tile.size}"
    found = memory.view(elements).reshape(d_tile.d_rows, d_tile.d_columns)
    part = found.T if turned else found
    want = [
        [shared.view(elements)[d_tile.layout(r, c)] for c in range(shape[1])] for r in range(64)
    ]
    assert np.array_equal(part, want)


# --- the order of tiles -------------------------------------------------------------------------


@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 30))
def test_each_tile_has_one_number(rows: int, columns: int, group: int) -> None:
    k: Any = SimpleNamespace(min=min)
    walked = [tile_coordinates(k, i, rows, columns, group) for i in range(rows * columns)]
    assert sorted(walked) == [(i, j) for i in range(rows) for j in range(columns)]
    for (r, c), (s, d) in pairwise(walked):
        assert (s, d) == (r + 1, c) or (s % group == 0 and (d == c + 1 or d == 0))
