"""Pictures of a block of a sparse matrix: its elements, the metadata of its chunks, and the words
that the threads of a warpgroup read.

    s7           stored as element 7 of its row of the block; nothing for a zero
    1001         metadata of a chunk: its stored elements are 1 and 2
    r3 c9        bits of a word: of row 3, chunk 9
"""

from __future__ import annotations

import numpy as np

from ..mma.metadata_blocks import BLOCK_CHUNKS, BLOCK_ROWS, BLOCK_WORDS, chunk_size
from ..sparsity.sparse24 import Sparse24
from ..sparsity.sparse_block import WORD_CHUNKS, SparseBlock
from .cell_runs import Array, each, singles
from .grid import Axis, Grid
from .palette import EIGHT, LANES
from .panel import SPACE, Panel
from .svg import PAPER, Picture

TOP = 22


def draw_sparse(given: SparseBlock | Sparse24, title: str = "", *, hover: bool = True) -> str:
    """The SVG of a block, of a matrix of its first one: elements, metadata, words of the threads.

    Raises DeviceError for a matrix on a GPU.
    """
    block = given.block() if isinstance(given, Sparse24) else given
    to = Picture(title or heading(block))
    to.text(0, 13, title or heading(block), 14, bold=True)
    grids = elements_grid(block), metadata_grid(block), words_grid(block)
    x = 0
    for name, grid in zip(
        ("elements", "metadata of chunks", "words of threads"), grids, strict=True
    ):
        panel = Panel((name, "", ""), grid)
        panel.paint(to, x, TOP, panel.element, hover)
        x += panel.room(panel.element)[0] + SPACE
    return to.render()


def heading(block: SparseBlock) -> str:
    """Type and size of a block."""
    return f"64×{block.columns} elements of a 2:4 sparse matrix of {block.type}"


def elements_grid(block: SparseBlock) -> Grid:
    """The dense elements: colored if they are stored, by the instruction that reads them."""
    stored = block.stored_columns().ravel()
    cells = singles(BLOCK_ROWS, block.columns)
    chunk = cells.column // chunk_size(block.type)
    kind = np.where(stored < 0, -1, 2 * block.selectors()[chunk] + chunk % 2)
    colors = each(lambda n: PAPER if n < 0 else EIGHT[n], kind)
    texts = each(lambda n: "" if n < 0 else f"s{n}", stored)
    columns = Axis(block.columns, (chunk_size(block.type), BLOCK_CHUNKS))
    return Grid(1, Axis(BLOCK_ROWS), columns, cells, colors, (texts,), list)


def metadata_grid(block: SparseBlock) -> Grid:
    """The metadata of each chunk, with the color of the lane whose word has them."""
    thread, _ = block.places_of_chunks()
    colors = each(lambda t: LANES[t % len(LANES)], thread.ravel())
    texts = each(lambda code: f"{code:04b}", block.chunks.ravel().astype(np.int64))
    holders = each(lambda t: f"T{t}", thread.ravel())
    selectors = tuple(f"selector {n}" for n in np.unique(block.selectors()))
    columns = Axis(BLOCK_CHUNKS, (BLOCK_CHUNKS // len(selectors), len(selectors)), selectors)
    cells = singles(BLOCK_ROWS, BLOCK_CHUNKS)
    return Grid(1, Axis(BLOCK_ROWS), columns, cells, colors, (texts, holders), list)


def words_grid(block: SparseBlock) -> Grid:
    """The words, a row for each thread: bits 0–3 first."""
    chunks = chunks_of_words(block)
    row, chunk = np.divmod(chunks.ravel(), BLOCK_CHUNKS)
    cells = singles(BLOCK_WORDS, WORD_CHUNKS)
    colors = each(lambda t: LANES[t % len(LANES)], cells.row)
    texts = each(lambda r, c: f"r{r} c{c}", row, chunk)
    bits = tuple(f"{4 * i}–{4 * i + 3}" for i in range(WORD_CHUNKS))
    rows = Axis(BLOCK_WORDS, labels=tuple(f"T{t}" for t in range(BLOCK_WORDS)))
    return Grid(1, rows, Axis(WORD_CHUNKS, labels=bits), cells, colors, (texts,), list)


def chunks_of_words(block: SparseBlock) -> Array:
    """(128, 8): the number of the chunk, row by row, that each 4 bits of a word describe."""
    thread, bit = block.places_of_chunks()
    found = np.empty((BLOCK_WORDS, WORD_CHUNKS), np.int64)
    found[thread.ravel(), bit.ravel() // 4] = np.arange(thread.size)
    return found
