"""``Sparse24`` and ``compress_24``: round trips, pruning, errors; metadata in wgmma.sp's order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rows import every_row
from tilewright import Sparse24, compress_24, mma, quantize
from tilewright.errors import DtypeError, MetadataError, ProblemError, TilewrightError
from tilewright.mma.metadata_blocks import (
    block_k,
    chunk_size,
    instructions_per_block,
    pack_metadata,
    positions_table,
    unpack_metadata,
)
from tilewright.sparsity import from_cutlass, to_cutlass, transposable_mask
from tilewright.sparsity.sparse24 import TYPES

RNG = np.random.default_rng(24)
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip


def dense(type_: str, *shape: int) -> np.ndarray[Any, Any]:
    """Whole numbers, a quarter of them zeros."""
    values = RNG.integers(-1, 3, shape) * RNG.integers(1, 30, shape)
    return (abs(values) if type_ == "u8" else values).astype(NUMPY[type_])


def reference(w: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """The larger half of each chunk, one by one."""
    result = np.zeros_like(w)
    for *lead, start in np.ndindex(*w.shape[:-1], w.shape[-1] // size):
        part = w[(*lead, slice(start * size, (start + 1) * size))]
        order = sorted(range(size), key=lambda i: (-abs(float(part[i])), i))[: size // 2]
        for i in order:
            result[(*lead, start * size + i)] = part[i]
    return result


def random_chunks(type_: str, rows: int, columns: int) -> np.ndarray[Any, Any]:
    valid = np.flatnonzero(positions_table(type_)[1])
    return RNG.choice(valid, (rows, columns)).astype(np.uint8)


@every_row("type_", TYPES)
@every_row("shape", [(1, 4), (70, 200), (2, 64, 256), (3, 0)])
def test_the_larger_half_of_each_chunk_is_kept(type_: str, shape: tuple[int, ...]) -> None:
    w = dense(type_, *shape)
    pruned = compress_24(w, prune="magnitude")
    expected = reference(w, chunk_size(type_))
    assert pruned.shape == shape and pruned.type == type_
    assert (pruned.decompress() == expected).all()
    again = compress_24(expected)
    assert (again.decompress() == expected).all()
    assert (pruned.T.decompress() == expected.swapaxes(-1, -2)).all()


@every_row("type_", TYPES)
def test_a_thread_has_the_words_of_its_instructions(type_: str) -> None:
    """The words of a block are the registers of wgmma.sp's fragments, for each selector."""
    chunks = random_chunks(type_, 64, block_k(type_) // chunk_size(type_))
    words = pack_metadata(type_, chunks)[0, 0]
    row = mma.catalogue(family="wgmma.sp", a=type_, n=8)[0]
    count = instructions_per_block(type_)
    indices = chunks if type_ == "tf32" else np.stack([chunks & 3, chunks >> 2], -1)
    each = indices.reshape(64, count, -1)
    fragment = row.fragment("metadata")
    assert fragment.copies == count
    for selector in range(count):
        registers = np.where(
            np.arange(128)[:, None] % 4 // (4 // count) == selector, words.view(np.uint32)[:, None],
            np.uint32(0xDEADBEEF),
        )  # fmt: skip
        assert (fragment.matrix(registers, selector) == each[:, selector]).all()
    assert (
        unpack_metadata(type_, pack_metadata(type_, chunks), 64, block_k(type_)) == chunks
    ).all()


@every_row("type_", TYPES)
def test_every_pattern_in_each_position_of_a_row(type_: str) -> None:
    size, count = chunk_size(type_), block_k(type_) // chunk_size(type_)
    for code in np.flatnonzero(positions_table(type_)[1]):
        for position in range(count):
            chunks = random_chunks(type_, 3, count)
            chunks[1, position] = code
            words = pack_metadata(type_, chunks)
            values = np.arange(1, 3 * count * size // 2 + 1).reshape(3, -1).astype(NUMPY[type_])
            w = Sparse24(values, words).decompress()
            stored = positions_table(type_)[0][code]
            part = w[1, position * size : (position + 1) * size]
            own = values[1].reshape(count, -1)[position]
            assert (part[stored] == own).all() and (part != 0).sum() == len(stored)


# Columns of rows that are multiples of 16 bytes, and of 32 or not; 160 are three blocks of s8.
COLUMNS = [("f16", 216), ("bf16", 208), ("tf32", 212), *((t, 208) for t in TYPES[3:]), ("s8", 160)]


@every_row("type_ columns", COLUMNS, parts=4)
def test_the_kernel_has_the_same_bits(type_: str, columns: int) -> None:
    w = dense(type_, 2, 70, columns)
    if type_ in ("s8", "u8"):  # every value, -128 among them
        w.view(np.uint8)[0] = RNG.integers(0, 256, w.shape[1:])
    by_numpy, by_kernel = (compress_24(w, "magnitude", device=on) for on in (None, "vm"))
    pruned = by_numpy.decompress()
    of_pruned = [compress_24(pruned, device=on) for on in (None, "vm")]
    for one, other in ((by_numpy, by_kernel), of_pruned):
        assert (one.metadata == other.metadata).all()
        assert (one.values.view(np.uint8) == other.values.view(np.uint8)).all()


@pytest.mark.parametrize("shape", [(0, 64), (4, 0), (0, 8, 64), (2, 0, 64)], ids=str)
@pytest.mark.parametrize("device", [None, "vm"])
def test_no_elements(shape: tuple[int, ...], device: str | None) -> None:
    matrix = compress_24(np.zeros(shape, np.float16), "magnitude", device=device)
    assert matrix.shape == shape and matrix.decompress().shape == shape
    assert Sparse24.from_arrays(matrix.to_arrays()).shape == shape


@every_row("type_ columns", COLUMNS, parts=3)
def test_the_kernel_takes_a_mask(type_: str, columns: int) -> None:
    """Of which chunks keep two or fewer elements, zeros among them: the bits of NumPy."""
    w, size = dense(type_, 2, 70, columns), chunk_size(type_)
    half = RNG.random((*w.shape[:2], w.shape[2] // size, size)).argsort(-1) < size // 2
    mask = half.reshape(w.shape) & (RNG.random(w.shape) < 0.8)
    one, other = (compress_24(w, mask, device=on) for on in (None, "vm"))
    assert (one.metadata == other.metadata).all()
    assert (one.values.view(np.uint8) == other.values.view(np.uint8)).all()


def test_a_mask_prunes_what_it_excludes() -> None:
    w = np.arange(1, 17).reshape(2, 8).astype(np.float16)
    mask = np.array([[1, 1, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 1, 1, 0]], bool)
    assert (compress_24(w, mask).decompress() == np.where(mask, w, 0)).all()


def test_nan_and_negative_zero() -> None:
    w = np.array([[np.nan, -0.0, 3, -0.0, -np.inf, np.nan, 1, 2]], np.float16)
    kept = compress_24(w[:, :4]).decompress()
    assert np.isnan(kept[0, 0]) and kept[0, 2] == 3 and not kept[0, [1, 3]].any()
    pruned = compress_24(w, "magnitude").decompress()
    assert np.isnan(pruned[0, 5]) and pruned[0, 4] == -np.inf and not pruned[0, 6:].any()


def test_saved_and_printed() -> None:
    w = compress_24(dense("bf16", 64, 128), "magnitude").T
    again = Sparse24.from_arrays(w.to_arrays())
    assert (again.decompress() == w.decompress()).all()
    assert repr(again) == "Sparse24(bf16 128×64)" and again.nbytes == 64 * 64 * 2 + 4 * 512


@every_row("type_ columns", [("f16", 256), ("bf16", 64), ("s8", 256)])
def test_cutlass_layout_round_trip(type_: str, columns: int) -> None:
    w = compress_24(dense(type_, 96, columns), "magnitude")
    values, metadata = to_cutlass(w)
    again = from_cutlass(values, metadata)
    assert (again.metadata == w.metadata).all() and again.values is w.values


def _two_bad() -> np.ndarray[Any, Any]:
    w = np.zeros((5, 16), np.float16)
    w[3, 8:11] = w[4, 1:4] = 1
    return w


def _stack() -> np.ndarray[Any, Any]:
    w = np.zeros((4, 5, 16), np.float16)
    w[2], w[3] = _two_bad(), 1
    return w


_GOOD = compress_24(np.zeros((64, 128), np.float16))


def _sparse() -> Sparse24:
    return compress_24(np.ones((4, 16), np.float16), "magnitude")


def _invalid(code: int) -> np.ndarray[Any, Any]:
    chunks = np.full((64, 32), 4, np.uint8)
    chunks[9, 5] = code
    return pack_metadata("f16", chunks)


@every_row(
    "call kind text",
    [
        (lambda: compress_24(_two_bad()), MetadataError, "row 3, columns 8 to 11: 3 of 4 are not"),
        (lambda: compress_24(np.ones((2, 2), np.float32)), MetadataError, "columns 0 to 1: 2 of 2"),
        (lambda: compress_24(_two_bad(), device="vm"), MetadataError, "columns 8 to 11: more"),
        (lambda: compress_24(_stack()), MetadataError, "matrix 2, row 3, columns 8 to 11: 3 of 4"),
        (
            lambda: compress_24(_stack(), device="vm"),
            MetadataError,
            "matrix 2, row 3, columns 8 to 11: more than 2 of 4 are not zero",
        ),
        (lambda: compress_24(_two_bad()[:, :12], device="vm"), ProblemError, "contiguous"),
        (lambda: compress_24(_sparse()), ProblemError, "w must be dense, got Sparse24"),
        (lambda: compress_24(_sparse(), device="vm"), ProblemError, "w must be dense"),
        (lambda: quantize(_sparse(), "e4m3"), ProblemError, "x must be dense, got Sparse24"),
        (lambda: transposable_mask(_sparse()), ProblemError, "w must be dense, got Sparse24"),
        (
            lambda: compress_24(_two_bad(), np.ones((2, 2), bool), device="vm"),
            ProblemError,
            "the mask must be Boolean of shape .*, got bool 2×2",
        ),
        (
            lambda: compress_24(np.ones((4, 16), np.float16), np.ones((4, 16), bool), device="vm"),
            MetadataError,
            "row 0, columns 0 to 3: more than 2 of 4 are kept",
        ),
        (lambda: compress_24(_two_bad(), np.ones((5, 16), bool)), MetadataError, "4 of 4 are kept"),
        (lambda: compress_24(_two_bad(), np.ones((5, 8), bool)), ProblemError, "shape 5×16"),
        (lambda: compress_24(_two_bad(), "largest"), ProblemError, "'magnitude' or a mask"),
        (lambda: compress_24(np.zeros((4, 6), np.int8)), ProblemError, "multiple of 4, got 4×6"),
        (lambda: compress_24(np.zeros((4, 8))), DtypeError, "got f64"),
        (lambda: compress_24("w"), ProblemError, "w must be an array"),
        (lambda: Sparse24(_GOOD.values, _GOOD.metadata[:, :3]), ProblemError, "1×4×128, got 1×3"),
        (lambda: Sparse24(_GOOD.values, _GOOD.metadata, "bf16"), DtypeError, "be bf16, got f16"),
        (lambda: Sparse24(_GOOD.values, _GOOD.metadata.view(np.float32)), DtypeError, "got f32"),
        (
            lambda: Sparse24(_GOOD.values, _invalid(0b1010)),
            MetadataError,
            "row 9, columns 20 to 23 must be one of 0b0001, .* got 0b1010",
        ),
        (lambda: to_cutlass(_GOOD.T), ProblemError, "not transposed"),
        (lambda: from_cutlass(_GOOD.values, _GOOD.metadata), DtypeError, "must be s16, got s32"),
    ],
)  # fmt: skip
def test_errors(call: Any, kind: type[TilewrightError], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()
