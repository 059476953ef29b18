"""What a tensor copy does: an H200's copies byte by byte, loops written out, loads and stores."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensor_maps
from examples import examples
from tilewright.errors import LayoutError
from tilewright.layout import parse
from tilewright.mma import TensorMap, TmaTiling, make_smem_layout
from tilewright.mma.tensor_maps.tma_copy import copy_addresses, load, store


def each_byte(found) -> np.ndarray:
    """(byte of shared memory, byte of global memory or -1) of what is written, in its order."""
    unit = np.arange(found.unit)
    source = np.where(found.source < 0, -found.unit, found.source).ravel("F")[:, None] + unit
    pairs = np.stack([(found.shared.ravel("F")[:, None] + unit).ravel(), source.ravel()])
    return np.where(pairs < 0, -1, pairs)[:, np.argsort(pairs[0], kind="stable")]


def test_copies_are_an_h200s_byte_by_byte():
    """Loads and stores, tiled and im2col, interleaved or not, with steps, swizzles and edges."""
    seen = Counter()
    for copy in tensor_maps.copies():
        where = (str(copy.map), copy.coordinates, copy.offsets, copy.start, copy.store)
        try:
            found = copy_addresses(copy.map, copy.coordinates, copy.offsets, copy.start, copy.store)
        except LayoutError:
            found = None
        seen[copy.store, found is None] += 1
        assert (found is None) == (copy.digest is None), where
        if found is None:
            continue
        pairs = each_byte(found)
        if copy.store:
            pairs = pairs[:, pairs[1] >= 0]
        else:
            assert found.bytes == copy.bytes, where
        assert tensor_maps.digest(pairs) == copy.digest, where
    assert min(seen.values()) >= 100


def test_loads_round_to_tf32():
    data = np.load(tensor_maps.COPIES)
    words, rounded = data["words"], data["rounded"]
    m = TensorMap.tiled(0, "tf32.ftz", (1024,), (), (256,))
    shared = np.zeros(4096, np.uint8)
    for i in range(0, 1024, 256):
        load(m, words.view(np.uint8), shared, (i,), start=4 * i)
    assert (shared.view("<u4") == rounded).all()
    stored = np.zeros(1024, np.uint8)
    store(m, stored, words.view(np.uint8), (0,))
    assert (stored.view("<u4")[:256] == words[:256]).all()


# --- loops ----------------------------------------------------------------------------------------


def swizzled(address: int, swizzle: int) -> int:
    """Pieces of 16 bytes in a line of 128 change places with the line's number."""
    piece, line = address // 16 % 8, address // 128
    return address + 16 * ((piece ^ line % (swizzle // 16 or 1)) - piece)


def tiled(m: TensorMap, coordinates, start):
    """(byte of shared memory, byte of global memory or -1) of each element of a box, one by one."""
    size, row = m.element_bytes, m.box[0] * m.element_bytes
    steps = m.element_strides[1:]
    extents = [-(-e // step) for e, step in zip(m.box[1:], steps, strict=True)]
    for line, index in enumerate(product(*map(range, extents[::-1]))):
        outer = [c + i * s for c, i, s in zip(coordinates[1:], index[::-1], steps, strict=True)]
        for i in range(m.box[0]):
            at = (coordinates[0] + i, *outer)
            inside = all(0 <= c < n for c, n in zip(at, m.shape, strict=True))
            byte = sum(c * s for c, s in zip(at, (size, *m.strides), strict=True))
            place = start + line * (m.swizzle or row) + i * size
            yield swizzled(place, m.swizzle), byte if inside else -1


@st.composite
def copies_of_boxes(draw):
    rank = draw(st.integers(1, 5))
    type_ = draw(st.sampled_from(["u8", "f16", "f32", "f64"]))
    size, swizzle = {"u8": 1, "f16": 2, "f32": 4, "f64": 8}[type_], draw(st.sampled_from([0, 64]))

    def some(low: int, high: int, count: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    row = draw(st.integers(1, 4)) * 16 // size
    strides = [16 * s for s in some(0, 40, rank - 1)]
    box, steps = [row, *some(1, 5, rank - 1)], some(1, 3, rank)
    m = TensorMap.tiled(0, type_, some(1, 12, rank), strides, box, steps, swizzle=swizzle)
    piece = draw(st.integers(-3, 5)) * 16 // size
    return m, (piece, *some(-4, 12, rank - 1)), 128 * draw(st.integers(0, 9))


@examples(60)
@given(copies_of_boxes())
def test_addresses_are_those_of_nested_loops(copy):
    m, coordinates, start = copy
    found = copy_addresses(m, coordinates, start=start)
    pairs = zip(found.shared.ravel("F").tolist(), found.source.ravel("F").tolist(), strict=True)
    assert list(pairs) == list(tiled(m, coordinates, start))
    assert found.bytes == m.element_bytes * found.source.size


def test_im2col_walks_pixels_as_a_convolution_does():
    """Filter tap (r, s) of a 3x3 convolution with padding 1: all of its pixels, then the next's."""
    n, h, w, c = 2, 4, 5, 16
    image = np.arange(n * h * w * c, dtype=np.uint8).reshape(n, h, w, c)
    m = TensorMap.im2col(
        0, "u8", (c, w, h, n), (c, c * w, c * w * h), (-1, -1), (-1, -1), c, n * h * w
    )
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for r, s in product(range(3), range(3)):
        shared = np.full(n * h * w * c, 0xEE, np.uint8)
        load(m, image.ravel(), shared, (0, -1, -1, 0), (s, r))
        assert (shared.reshape(n, h, w, c) == padded[:, r : r + h, s : s + w]).all()


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("swizzle", "shape"), [(128, (64, 128)), (64, (64, 64)), (0, (32, 32))])
def test_boxes_fill_a_tile_according_to_its_layout(swizzle, shape):
    matrix = np.arange(100 * 144, dtype=np.uint16).reshape(100, 144)
    tensor, tile = parse("(100,144):(144,1)"), make_smem_layout("f16", "K", shape, swizzle)
    m, shared = TensorMap.of(tensor, tile, "u16"), np.zeros(2 * shape[0] * shape[1], np.uint8)
    for box in TmaTiling.of(tensor, tile, 16).parts:
        load(m, matrix.view(np.uint8).ravel(), shared, box.coordinates, start=box.offset)
    filled = shared.view(np.uint16)[tile.indices()].reshape(shape, order="F")
    assert (filled == matrix[: shape[0], : shape[1]]).all()


def test_outside_is_filled_and_not_written():
    m = TensorMap.tiled(0, "f16", (5, 3), (16,), (8, 4), oob_fill="nan")
    memory, shared = np.arange(48, dtype=np.uint8), np.zeros(64, np.uint8)
    load(m, memory, shared, (0, 1))
    rows = shared.view(np.uint16).reshape(4, 8)
    assert (rows[:2, :5] == memory.view(np.uint16).reshape(3, 8)[1:, :5]).all()
    assert (rows[:2, 5:] == 0x7FF7).all() and (rows[2:] == 0x7FF7).all()
    target = np.full(48, 0xEE, np.uint8)
    store(m, target, np.arange(64, dtype=np.uint8), (0, 2))
    assert (target[:32] == 0xEE).all()
    assert (target[32:] == np.arange(16)).all()  # the padding of the row's last piece too


F16 = TensorMap.tiled(0, "f16", (64, 64), (128,), (32, 8))
IMAGE = TensorMap.im2col(0, "u8", (16, 7, 5, 2), (16, 112, 560), (-1, 0), (0, -1), 16, 8)


@pytest.mark.parametrize(
    ("m", "where", "says"),
    [
        (F16, {"coordinates": (4, 0)}, "coordinate 0 must be a multiple of 8 (16 bytes), got 4"),
        (F16, {"coordinates": (0,)}, "expected 2 coordinates and 0 offsets"),
        (F16, {"coordinates": (0, 0), "start": 64}, "a multiple of 128 in shared memory, got 64"),
        (F16, {"coordinates": (0, -1), "store": True}, "a store must not be negative"),
        (IMAGE, {"coordinates": (0, 0, 0, 0)}, "4 coordinates and 2 offsets"),
        (IMAGE, {"coordinates": (0, 7, 0, 0), "offsets": (0, 0)},
         "coordinate 1 must be in the bounding box, -1 … 6, got 7"),
        (IMAGE, {"coordinates": (0, 0, 4, 0), "offsets": (0, 0)}, "0 … 3, got 4"),
        (IMAGE, {"coordinates": (0, 0, 0, 0), "offsets": (256, 0)}, "offsets must be 0 … 255"),
        (IMAGE, {"coordinates": (0, 0, 0, 0), "store": True}, "of a store must be inside"),
        (TensorMap.tiled(0, "u8", (16, 1 << 32), (16,), (16, 1)), {"coordinates": (0, 0)},
         "sizes must be at most 2^31"),
    ],
)  # fmt: skip
def test_copies_that_fault_on_hardware_are_rejected(m, where, says):
    with pytest.raises(LayoutError, match=re.escape(says)):
        copy_addresses(m, **where)
