"""Boxes of tensor copies: CuTe's maps, and every element of a tile in one box and in its place."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import DtypeError, LayoutError
from tilewright.layout import Layout, make_tensor, parse
from tilewright.mma import TensorMap, TmaTiling, make_smem_layout

K = "(1000,512):(512,1)"
MN = "(1000,512):(1,1000)"
K3 = "(1000,512,7):(512,1,512000)"

# What CuTe's make_tma_copy makes (CUTLASS 4.2, g++): bits, tensor, tile in shared memory, tiler →
# sizes, strides in elements, box.
CUTE = [
    (16, K, "Sw<3,3,3> o ((8,16),(64,2)):((64,512),(1,8192))", None,
     (512, 1000), (512,), (64, 128)),
    (16, K, "Sw<2,3,3> o ((8,16),(32,4)):((32,256),(1,4096))", None,
     (512, 1000), (512,), (32, 128)),
    (16, K, "((8,16),(8,16)):((8,64),(1,1024))", None, (512, 1000), (512,), (8, 128)),
    (32, K, "Sw<3,2,3> o ((8,16),(32,4)):((32,256),(1,4096))", None,
     (512, 1000), (512,), (32, 128)),
    (8, K, "Sw<3,4,3> o ((8,16),(128,1)):((128,1024),(1,0))", None,
     (512, 1000), (512,), (128, 128)),
    (16, MN, "Sw<3,3,3> o ((64,2),(8,8)):((1,512),(64,1024))", None,
     (1000, 512), (1000,), (64, 8)),
    (16, MN, "((8,16),(8,8)):((1,64),(8,1024))", None, (1000, 512), (1000,), (8, 8)),
    (16, MN, "Sw<3,3,3> o ((64,2),(8,8)):((1,4096),(64,512))", None,
     (1000, 512), (1000,), (64, 64)),
    (16, K3, "Sw<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))", None,
     (512, 1000, 7), (512, 512000), (64, 128, 1)),
    (16, K3, "Sw<3,3,3> o ((8,16),(64,1),(1,2)):((64,512),(1,0),(0,8192))", (128, 64, 2),
     (512, 1000, 7), (512, 512000), (64, 128, 2)),
    (32, "(1024,32,512):(64,1,65536)", "(16,8,2):(16,1,8)", None,
     (32, 512, 1024), (65536, 64), (8, 2, 16)),
    (32, "((32,40),((8,8),656)):((1,32),((1280,10240),81920))", "(32,(8,2)):(1,(32,256))",
     (32, (8, 2)), (32, 8, 656, 40, 8), (1280, 81920, 32, 10240), (32, 8, 2, 1, 1)),
    (16, "(64,9,8,7,6,5,3):(1,64,576,4608,32256,193536,967680)", "(32,2,2):(1,32,64)", None,
     (64, 9, 8, 7, 90), (64, 576, 4608, 32256), (32, 2, 2, 1, 1)),
    (16, "(64,9,8):(1,0,576)", "(32,4,2):(1,32,128)", None, (64, 9, 8), (0, 576), (32, 4, 2)),
    (16, "(64,1,8):(1,0,576)", "(32,1,2):(1,0,32)", None, (64, 8), (576,), (32, 2)),
    (16, "(4096):(1)", "(256):(1)", None, (4096,), (), (256,)),
]  # fmt: skip


@pytest.mark.parametrize("case", CUTE, ids=str)
def test_maps_are_cutes(case):
    bits, tensor, shared, tile, sizes, strides, box = case
    found = TmaTiling.of(parse(tensor), parse(shared), bits, tile)
    assert found.shape == sizes
    assert found.strides == tuple(stride * bits // 8 for stride in strides)
    assert found.box == box


def test_a_tile_wider_than_a_swizzled_row_is_several_boxes():
    tile = make_smem_layout("f16", "K", (128, 128))
    found = TmaTiling.of(parse(K), tile, 16)
    assert [(part.coordinates, part.offset) for part in found.parts] == [
        ((0, 0), 0), ((64, 0), 128 * 128),
    ]  # fmt: skip
    assert str(found.coordinates) == "(1000,512):(1@1,1@0)"


TILES = [
    *((K, "K", swizzle, (128, 64)) for swizzle in (0, 32, 64, 128)),
    *((MN, "MN", swizzle, (128, 64)) for swizzle in (0, 32, 64, 128)),
    (K3, "K", 64, (64, 96, 2)),
]


@pytest.mark.parametrize(("tensor", "major", "swizzle", "shape"), TILES)
def test_boxes_copy_every_element_to_its_offset(tensor, major, swizzle, shape):
    """A box's elements, in order, follow one another in the unswizzled shared tile."""
    tensor, shared = parse(tensor), make_smem_layout("f16", major, shape, swizzle)
    found = TmaTiling.of(tensor, shared, 16, shape)
    inner = getattr(shared, "inner", shared)
    stands = {}  # coordinate in the map → byte in shared memory
    for index in np.ndindex(shape):
        stands[found.coordinates(index)] = int(inner(index)) * 2
    copied = {}
    for part in found.parts:
        for i, index in enumerate(np.ndindex(found.box[::-1])):
            at = tuple(a + b for a, b in zip(part.coordinates, index[::-1], strict=True))
            copied[at] = part.offset + 2 * i
    assert copied == stands


def test_extents_beyond_256_are_cut():
    found = TmaTiling.of(Layout((1024, 64), (64, 1)), Layout((512, 64), (64, 1)), 16)
    assert found.box == (64, 256)
    assert [part.coordinates for part in found.parts] == [(0, 0), (0, 256)]


def test_a_map_of_a_tensor_has_its_type():
    array = np.zeros((256, 128), np.float16)
    shared = make_smem_layout("f16", "K", (64, 64))
    m = TensorMap.of(make_tensor(array), shared, address=1 << 20, l2_promotion=128)
    assert str(m) == (
        "f16 (128,256):(2,256) at 0x100000, box (64,64), swizzle 128, l2_promotion 128"
    )
    with pytest.raises(DtypeError, match="needs dtype, got None"):
        TensorMap.of(Layout((256, 128), (128, 1)), shared)


@pytest.mark.parametrize(
    ("tensor", "shared", "says"),
    [
        (
            MN,
            "Sw<3,3,3> o ((8,16),(64,2)):((64,512),(1,8192))",
            "must be contiguous in the same mode",
        ),
        (K, "Sw<3,4,3> o (128,64):(64,1)", "the swizzle of a tensor copy .* must be"),
        (K, "(128,64):(72,1)", "must begin at a multiple of 128 .*, got 144"),
        (K, "Sw<3,3,3> o (128,32):(32,1)", "must begin at a multiple of 128 .*, got 64"),
        (K, "(128,64):(64,2)", "must be contiguous in the same mode"),
    ],
)
def test_tiles_without_a_box_are_rejected(tensor, shared, says):
    with pytest.raises(LayoutError, match=says):
        TmaTiling.of(parse(tensor), parse(shared), 16)
