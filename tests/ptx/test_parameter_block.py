"""Parameter blocks: where parameters lie and which values fit them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import LaunchError
from tilewright.ptx import parameter_block, parse
from tilewright.ptx.tree import Function

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"


def kernel(params: str) -> Function:
    return parse(f"{HEAD}.entry k({params}) {{ ret; }}").functions["k"]


MIXED = kernel(
    ".param .u64 a, .param .u32 n, .param .align 8 .b8 s[20], .param .u8 flag, .param .f64 x,"
    " .param .align 64 .b8 map[128]"
)


@pytest.mark.parametrize(
    ("declared", "size"),
    [
        ("a[] = {1, 2, 3}", 12),
        ("a[][3] = {{1, 2, 3}, {4}}", 24),
        ("a[][2] = {1, 2, 3}", 16),
        (".v2 .u32 a[] = {{1, 2}, {3, 4}}", 16),
        ("a[]", 0),
    ],
)
def test_an_open_array_is_as_long_as_its_values(declared: str, size: int) -> None:
    type_ = "" if declared[0] == "." else ".u32 "
    (variable,) = parse(f"{HEAD}.global {type_}{declared};").items
    assert parameter_block.size_and_align(variable)[0] == size  # type: ignore[arg-type]


def test_offsets_follow_alignment() -> None:
    block = parameter_block.layout(MIXED)
    assert [(p.offset, p.size) for p in block.parameters] == [
        (0, 8), (8, 4), (16, 20), (36, 1), (40, 8), (64, 128),
    ]  # fmt: skip
    assert (block.size, block.align) == (192, 64)
    assert parameter_block.layout(kernel("")).size == 0


@given(st.lists(st.sampled_from(["u8", "u16", "b32", "f32", "u64", "f64"]), max_size=8))
def test_parameters_never_overlap_and_are_aligned(types: list[str]) -> None:
    function = kernel(", ".join(f".param .{t} p{i}" for i, t in enumerate(types)))
    end = 0
    for p in parameter_block.layout(function).parameters:
        assert p.offset >= end and p.offset % p.size == 0 and p.offset - end < p.size
        end = p.offset + p.size


def test_a_block_has_the_layout_of_a_c_struct() -> None:
    args = (1 << 40, -1 & 0xFFFFFFFF, b"s" * 20, True, 2.5, bytes(range(128)))
    expected = struct.pack("<QI4x20sB3xd16x128s", *args)
    assert parameter_block.pack(MIXED, args) == expected


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        ("s32", -1, b"\xff" * 4),
        ("u32", -1, b"\xff" * 4),
        ("b16", 0xFFFF, b"\xff\xff"),
        ("f16", 1.0, b"\x00\x3c"),
        ("f32", 1, struct.pack("<f", 1)),
        ("b32", 1.0, struct.pack("<f", 1)),
        ("b16", np.float16(1), b"\x00\x3c"),
        ("u32", np.int32(-1), b"\xff" * 4),
        ("f64", np.float64(0.5), struct.pack("<d", 0.5)),
        ("u64", b"12345678", b"12345678"),
    ],
)
def test_values_that_fit(type_: str, value: object, data: bytes) -> None:
    assert parameter_block.pack(kernel(f".param .{type_} p"), [value]) == data


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        ("s32", 2**31), ("u32", 2**32), ("u8", -129), ("u32", 1.5), ("f32", 1e300), ("f32", "x"),
        ("u32", np.int64(1)), ("u32", np.float32(1)), ("f32", np.int32(1)), ("f32", np.float64(1)),
        ("u64", b"1234"), ("u64", None), ("f32", 10**400),
    ],
)  # fmt: skip
def test_an_error_names_the_parameter(type_: str, value: object) -> None:
    with pytest.raises(LaunchError, match=rf"parameter some_p \(\.{type_}\)"):
        parameter_block.pack(kernel(f".param .{type_} some_p"), [value])


def test_structs_need_bytes_of_their_size() -> None:
    with pytest.raises(LaunchError, match="20 raw bytes"):
        parameter_block.pack(kernel(".param .align 8 .b8 s[20]"), [1])
    with pytest.raises(LaunchError, match="expected 20 bytes, got 3"):
        parameter_block.pack(kernel(".param .align 8 .b8 s[20]"), [b"123"])


def test_the_number_of_arguments() -> None:
    with pytest.raises(LaunchError, match="6 parameters, got 1 arguments") as caught:
        parameter_block.pack(MIXED, [1])
    assert "n: .u32 at 8" in str(caught.value)
