"""The steps of a block of a sparse matrix on a page.

dense element → stored element → metadata of its chunk → word of a thread, selector → register of A
"""

from __future__ import annotations

import numpy as np

from ...mma.metadata_blocks import BLOCK_CHUNKS, BLOCK_ROWS, chunk_size, instructions_per_block
from ...sparsity.sparse24 import Sparse24
from ...sparsity.sparse_block import WORD_CHUNKS, SparseBlock
from ..fragment_cells import holders
from ..grid import Axis
from ..layout_planes import Array
from ..palette import EIGHT
from ..sparse_picture import elements_grid, heading, metadata_grid, words_grid
from .page_content import Followed
from .page_steps import (
    NOWHERE,
    PageStep,
    PageTile,
    element_grid,
    holder_facts,
    on_tile,
    register_step,
)


def follow_sparse(given: SparseBlock | Sparse24, bits: int = 0) -> Followed:
    """The steps of a block, of a matrix of its first one. Raises DeviceError for one on a GPU."""
    block = given.block() if isinstance(given, Sparse24) else given
    tile = PageTile(("m", "k"), (BLOCK_ROWS, block.columns))
    facts = element_facts(block, tile)
    first = PageStep(
        "", "the dense elements", "s: the number of a stored element in its row", tile,
        elements_grid(block), on_tile(tile),
        "element {within} of chunk {chunk} of its row; stored column {stored} (-1: not stored)",
        facts,
    )  # fmt: skip
    steps = [first, _stored(block, tile, facts), *_metadata(block, tile, facts)]
    return Followed(
        heading(block), f"{block.instruction}", [*steps, _registers(block, tile, facts)]
    )


def element_facts(block: SparseBlock, tile: PageTile) -> dict[str, Array]:
    """Numbers of each dense element: where it, and the metadata of its chunk, are stored."""
    row, column = tile.coordinates()
    chunk, within = np.divmod(column, chunk_size(block.type))
    thread, bit = (x[row, chunk] for x in block.places_of_chunks())
    holder = holder_facts(thread, bit)
    return {
        "chunk": chunk, "within": within, "stored": block.stored_columns()[row, column],
        "code": block.chunks[row, chunk].astype(np.int64), "bit": bit, "last": bit + 3,
        "selector": block.selectors()[chunk],
        "thread": thread, "warp": holder["warp"], "lane": holder["lane"],
    }  # fmt: skip


def _stored(block: SparseBlock, tile: PageTile, facts: dict[str, Array]) -> PageStep:
    """The stored elements, half of the columns."""
    row, _ = tile.coordinates()
    columns = block.columns // 2
    place = np.where(facts["stored"] < 0, NOWHERE, row * columns + facts["stored"])
    held = np.full(BLOCK_ROWS * columns, NOWHERE)
    there = np.flatnonzero(place >= 0)
    held[place[there]] = there
    held = held.reshape(BLOCK_ROWS, columns)
    each = columns // BLOCK_CHUNKS

    def colors(_: Array, c: Array) -> list[str]:
        return [EIGHT[n % 2] for n in (c // each).tolist()]

    kind = np.broadcast_to(np.arange(columns), held.shape)
    axis = Axis(columns, (each, BLOCK_CHUNKS))
    grid = element_grid(tile, held, kind, colors, Axis(BLOCK_ROWS), axis)
    says = "column {stored} of the stored elements (-1: not stored)"
    about = f"{BLOCK_ROWS}×{columns}, row by row in memory"
    return PageStep("", "the stored elements", about, tile, grid, place[:, None], says, facts)


def _metadata(block: SparseBlock, tile: PageTile, facts: dict[str, Array]) -> list[PageStep]:
    row, _ = tile.coordinates()
    chunks = (row * BLOCK_CHUNKS + facts["chunk"])[:, None]
    words = (facts["thread"] * WORD_CHUNKS + facts["bit"] // 4)[:, None]
    count = instructions_per_block(block.type)
    read = f"{count} instruction{'s' * (count > 1)} read them" + ", by selector" * (count > 1)
    return [
        PageStep(
            "", "the metadata", "4 bits a chunk: the positions of its stored elements", tile,
            metadata_grid(block), chunks, "its chunk has the metadata {code}, bit 0 first", facts,
        ),
        PageStep(
            "", "the words of metadata", f"128 words, one a thread: {read}", tile,
            words_grid(block), words,
            "bits {bit}–{last} of the word of thread {thread} (warp {warp}, lane {lane}), which "
            "the instruction with selector {selector} reads",
            facts,
        ),
    ]  # fmt: skip


def _registers(block: SparseBlock, tile: PageTile, facts: dict[str, Array]) -> PageStep:
    """The registers of A, where A is in registers: those of all instructions of the block."""
    row, _ = tile.coordinates()
    instruction = block.instruction
    fragment = instruction.fragment("a")
    thread, value = (x[0][..., 0] for x in holders(fragment))  # by (row, stored column)
    number, column = np.divmod(np.maximum(facts["stored"], 0), instruction.stored_k)
    holder, own = thread[row, column], value[row, column] + number * fragment.values
    held = np.full(
        (thread.max() + 1, fragment.values * instructions_per_block(block.type)), NOWHERE
    )
    kept = np.flatnonzero(facts["stored"] >= 0)
    held[holder[kept], own[kept]] = kept
    per = max(1, fragment.word // fragment.bits)
    absent = facts["stored"] < 0
    found = {"holder": np.where(absent, -1, holder), "own": np.where(absent, -1, own)}
    says = "value {own} of thread {holder} (-1: not stored)"
    about = "A of wgmma.sp in registers; mma.sp has the same in each warp"
    return register_step("", "in registers", about, tile, held, per, says, found)
