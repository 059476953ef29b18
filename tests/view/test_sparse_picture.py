"""Pictures and pages of sparse matrices, compared with the instruction's fragments and with the
metadata words that kernels read.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

from rows import every_row
from tilewright import compress_24
from tilewright.errors import ProblemError
from tilewright.mma.metadata_blocks import pack_metadata
from tilewright.sparsity import SparseBlock
from tilewright.sparsity.sparse24 import TYPES, Sparse24
from tilewright.view import draw, page
from tilewright.view.pages.sparse_steps import follow_sparse

RNG = np.random.default_rng(7)


def matrix(type_: str) -> tuple[Sparse24, SparseBlock]:
    """A matrix of several blocks, and the one at row 64 and the second along K."""
    w = RNG.integers(1, 100, (128, 256)).astype(np.float32)
    sparse = compress_24(w if type_ == "tf32" else w.astype(np.float16), "magnitude")
    block = SparseBlock(type_, sparse.metadata_chunks()[64:128, 16:32])
    return sparse, block


@every_row("type_", TYPES)
def test_facts_are_those_of_the_arrays(type_: str) -> None:
    """Each element's stored column, and the bits of the word that its chunk has."""
    sparse, block = matrix("tf32" if type_ == "tf32" else "f16")
    block = SparseBlock(type_, block.chunks)
    words = pack_metadata(type_, block.chunks)[0, 0].view(np.uint32)
    first = follow_sparse(block).steps[0]
    row, _ = first.tile.coordinates()
    facts = first.facts
    shifted = words[facts["thread"]] >> facts["bit"].astype(np.uint32) & 15
    assert (shifted == block.chunks[row, facts["chunk"]]).all()
    kept = facts["stored"] >= 0
    assert kept.sum() * 2 == kept.size
    if type_ in ("f16", "tf32"):
        dense = sparse.decompress()[64:128, block.columns : 2 * block.columns]
        values = sparse.values[64:128, block.columns // 2 : block.columns]
        row, column = (x[kept] for x in first.tile.coordinates())
        assert (values[row, facts["stored"][kept]] == dense[row, column]).all()


@every_row("type_", ["f16", "s8", "tf32"])
def test_registers_are_those_of_the_instruction(type_: str) -> None:
    _, block = matrix("tf32" if type_ == "tf32" else "f16")
    block = SparseBlock(type_, block.chunks)
    steps = follow_sparse(block).steps
    fragment, depth = block.instruction.fragment("a"), block.instruction.stored_k
    row, column = fragment.coordinates()
    stored, facts = steps[0].facts["stored"], steps[-1].facts
    rows, _ = steps[0].tile.coordinates()
    for element in np.flatnonzero(stored >= 0)[::37]:
        thread, value = int(facts["holder"][element]), int(facts["own"][element])
        number, value = divmod(value, fragment.values)
        assert row[thread, value] == rows[element]
        assert column[thread, value] + number * depth == stored[element]


def test_pictures() -> None:
    sparse, block = matrix("f16")
    svg, html = draw(sparse), page(block)
    assert len(re.findall("s31<", svg)) == 64 and "metadata of chunks" in svg
    assert "selector 1" in svg and "T127" in svg
    assert all(x in html for x in ("words of metadata", "In registers", "2:4 sparse matrix of f16"))
    assert sparse.block(1, 1).chunks.tolist() == block.chunks.tolist()
    assert "svg" in block._repr_svg_()


def test_errors() -> None:
    sparse, block = matrix("f16")
    with pytest.raises(ProblemError, match="the block must be one of 2×4, got 2, 0"):
        sparse.block(2)
    with pytest.raises(ProblemError, match=r"chunks must have shape \(64, 16\), got \(2, 2\)"):
        SparseBlock("f16", np.zeros((2, 2), np.uint8))
    with pytest.raises(ProblemError, match="valid metadata of f16"):
        SparseBlock("f16", block.chunks * 0)
