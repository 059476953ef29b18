"""Tensor maps: the driver's bits and refusals, the way back, and what tensormap.replace does."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from dataclasses import replace as with_field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensor_maps
from tilewright.errors import DtypeError, LayoutError, TilewrightError
from tilewright.mma import TensorMap
from tilewright.mma.tensor_maps.tensor_map_fields import replace
from tilewright.mma.tensor_maps.tensor_map_parameters import TYPES

A = TensorMap.tiled(0x7F0000000000, "f16", (1024, 512), (2048,), (64, 128), swizzle=128)
IMAGE = TensorMap.im2col(
    1 << 20, "bf16", (64, 14, 9, 64), (128, 1792, 16128), (-1, -1), (-1, -1), 64, 128, (1, 2, 2, 1)
)


def test_maps_and_rejections_are_the_drivers():
    verdicts = Counter()
    for parameters, encoded in tensor_maps.answers():
        try:
            found = tensor_maps.make(parameters)
        except (LayoutError, DtypeError):
            found = None
        assert (found is None) == (encoded is None), parameters
        verdicts[found is None] += 1
        if found is not None:
            assert found.encode() == encoded, parameters
            assert TensorMap.decode(encoded) == found
    assert min(verdicts.values()) > 5000


def test_tensormap_replace_is_the_hardwares():
    seen = Counter()
    for encoded, field, ordinal, value, result in tensor_maps.replacements():
        assert replace(encoded, field, value, ordinal) == result, (field, ordinal, value)
        seen[field] += 1
    assert set(seen) == set(tensor_maps.FIELDS)


@st.composite
def maps(draw) -> TensorMap:
    """Maps of all kinds, most of them legal."""

    def some(low: int, high: int, count: int, unit: int = 1) -> list[int]:
        one = st.integers(low, high).map(lambda x: x * unit)
        return draw(st.lists(one, min_size=count, max_size=count))

    rank, type_ = draw(st.integers(1, 5)), draw(st.sampled_from(list(TYPES)))
    interleave = draw(st.sampled_from([0, 16, 32])) if rank > 2 else 0
    row = max(1, draw(st.integers(1, 4)) * 16 // TYPES[type_].bytes)
    tensor = (
        draw(st.integers(0, (1 << 52) - 1)) * 32,
        type_,
        some(1, 1 << 30, rank),
        some(0, (1 << 35) - 1, rank - 1, 32),
    )
    how = {
        "element_strides": some(1, 8, rank),
        "interleave": interleave,
        "swizzle": draw(st.sampled_from([0, 64, 128])),
        "l2_promotion": draw(st.sampled_from([0, 64, 128, 256])),
        "oob_fill": draw(st.sampled_from(["zero", "nan"])) if TYPES[type_].floating else "zero",
    }
    if rank > 2 and draw(st.booleans()):
        lower, upper = some(-16, 0, rank - 2), some(0, 15, rank - 2)
        return TensorMap.im2col(*tensor, lower, upper, row, draw(st.integers(1, 1024)), **how)
    return TensorMap.tiled(*tensor, [row, *some(1, 6, rank - 1)], **how)


@given(maps())
def test_decode_is_the_way_back(m):
    assert TensorMap.decode(m.encode()) == m
    assert len(m.encode()) == 128


@given(maps(), st.integers(1, (1 << 52) - 1))
def test_a_map_moves_without_being_made_anew(m, where):
    moved = TensorMap.replace_address(m.encode(), 32 * where)
    assert moved == with_field(m, address=32 * where).encode()


def test_decode_ignores_the_drivers_bytes():
    encoded = replace(A.encode(), "box_dim", 32, 1)
    assert TensorMap.decode(encoded) == with_field(A, box=(64, 32))
    assert TensorMap.decode(encoded).encode()[:64] == encoded[:64]


def test_formats_without_a_type_of_their_own_are_moved_as_unsigned_integers():
    for given_, type_ in {"f16": "f16", "e4m3": "u8", "s16": "u16", ".tf32": "tf32"}.items():
        assert TensorMap.tiled(0, given_, (64,), (), (32,)).dtype == type_
    with pytest.raises(DtypeError, match="must have 1, 2, 4 or 8 bytes, got 4 bits"):
        TensorMap.tiled(0, "u4", (64,), (), (32,))
    with pytest.raises(DtypeError, match="b4x16 is supported by sm_100's tensor maps"):
        TensorMap.tiled(0, "b4x16", (64,), (), (32,))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"address": 8}, "the address must be a multiple of 16 below 2^57, got 0x8"),
        ({"address": 1 << 57}, "the address must be a multiple of 16 below 2^57"),
        ({"shape": (0, 512)}, "size 0 must be 1 … 4294967296, got 0"),
        ({"strides": (2040,)}, "stride 1 must be a multiple of 16 bytes below 2^40, got 2040"),
        ({"strides": ()}, "strides must have length 1 for rank 2, got ()"),
        ({"box": (64, 257)}, "box extent 1 must be 1 … 256, got 257"),
        ({"box": (4, 8)}, "a row of the box must be a multiple of 16 bytes, got 8"),
        ({"box": (128, 8)}, "at most the 128 bytes of its swizzle, got 256"),
        ({"box": (64,)}, "box must have length 2 for rank 2, got (64,)"),
        ({"element_strides": (1, 9)}, "element stride 1 must be 1 … 8, got 9"),
        ({"interleave": 16}, "must have 3 to 5 dimensions"),
        ({"swizzle": 96}, "swizzle must be one of 0, 32, 64, 128, got 96"),
        (
            {"oob_fill": "nan", "dtype": "u16"},
            "oob_fill='nan' needs floating-point elements, got u16",
        ),
    ],
)
def test_an_error_names_the_rule(change, says):
    with pytest.raises(LayoutError, match=re.escape(says)):
        with_field(A, **change)


def test_im2cols_rules():
    with pytest.raises(LayoutError, match="corner 0 must be -128 … 127, got -129"):
        with_field(IMAGE, box=with_field(IMAGE.box, lower=(-129, 0)))
    with pytest.raises(LayoutError, match="the bounding box of dimension 2 must not be empty"):
        with_field(IMAGE, box=with_field(IMAGE.box, upper=(0, -10)))
    with pytest.raises(LayoutError, match="a box must have at most 233472 bytes"):
        with_field(IMAGE, box=with_field(IMAGE.box, channels=256, pixels=1024))


@pytest.mark.parametrize("wrong", [None, 1.5, "x", (3, "a"), np.zeros(2), ...], ids=repr)
def test_the_fields_of_a_map_must_be_integers_and_names(wrong):
    for field in fields(TensorMap):
        with pytest.raises(TilewrightError, match=r"tensor map|number format"):
            with_field(A, **{field.name: wrong})
    with pytest.raises(LayoutError, match="tensor map: expected an integer, got"):
        TensorMap.replace_address(A.encode(), wrong)
    with pytest.raises(LayoutError, match=r"tensor map: expected .*integer.*, got"):
        TensorMap.tiled(0, "f16", (64, 64), wrong, (8, 8))


def test_invalid_bytes_of_a_map():
    for wrong in (b"\0" * 64, b"\xff" * 128, replace(A.encode(), "interleave_layout", 3)):
        with pytest.raises(LayoutError, match=r"must have 128 bytes|invalid tensor map"):
            TensorMap.decode(wrong)
    with pytest.raises(LayoutError, match=r"byte 61 must be 0x00 for f16 .*, got 0x01"):
        TensorMap.decode(A.encode()[:61] + b"\1" + A.encode()[62:])
    with pytest.raises(LayoutError, match=r"the address must be a multiple of 16 .*, got 0x0"):
        TensorMap.replace_address(A.encode(), 0)
    for read in (TensorMap.decode, lambda encoded: TensorMap.replace_address(encoded, 32)):
        with pytest.raises(LayoutError, match="a tensor map must have 128 bytes, got 64"):
            read(A.encode()[:64])
        for wrong in (None, "x" * 128, [0] * 128):
            with pytest.raises(LayoutError, match="a tensor map must be bytes, got"):
                read(wrong)
    with pytest.raises(LayoutError, match=r"must be one of global_address, rank.*, got 'pixels'"):
        replace(A.encode(), "pixels", 1)
    with pytest.raises(LayoutError, match=r"ordinal must be 0 to 4 .*, got 5"):
        replace(A.encode(), "box_dim", 1, 5)


def test_a_map_is_read_as_a_layout_and_its_box():
    assert str(A) == "f16 (1024,512):(2,2048) at 0x7f0000000000, box (64,128), swizzle 128"
    assert str(IMAGE) == (
        "bf16 (64,14,9,64):(2,128,1792,16128) at 0x100000, "
        "im2col (-1,-1)…(-1,-1), 64 channels of 128 pixels, steps (1,2,2,1)"
    )
