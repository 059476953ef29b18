"""What an instruction computes, in words, says what its arithmetic is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright import mma
from tilewright.view import arithmetic_words
from tilewright.view.instruction_text import metadata_words, needs_words, selector_words, status

START = "mma.sync.aligned."
SCALED = "block_scale.scale_vec::{}.f32.{}"
WORDS = {
    f"{START}m16n8k16.row.col.f32.f16.f16.f32 sm_90a": (
        "one fused sum of c and 16 products", "25 bits below", "at least, and added exactly",
        "toward zero to f32",
    ),
    f"{START}m16n8k16.row.col.f32.f16.f16.f32 sm_80": (
        "2 fused sums in turn, of 8 products each (k = 0 … 7; 8 … 15)", "24 bits below",
    ),
    f"{START}m16n8k16.row.col.f16.f16.f16.f16 sm_90a": ("to nearest, ties to even to f16",),
    f"{START}m16n8k32.row.col.f32.e4m3.e4m3.f32 sm_90a": (
        "converted to f16 first", "(k = 0, 1, 4, 5, …; 2, 3, 6, 7, …)", "begins with zero",
        "c is added at the end, in f32",
    ),
    f"{START}m16n8k32.row.col.f32.e4m3.e4m3.f32 sm_89": ("with 13 bits of mantissa",),
    f"{START}m16n8k4.row.col.f64.f64.f64.f64.rm sm_90a": ("order of k", "rounded down"),
    f"{START}m16n8k32.row.col.s32.s8.s8.s32 sm_80": ("exact", "wraps at 32 bits"),
    f"{START}m16n8k32.row.col.satfinite.s32.s8.s8.s32 sm_80": ("is clamped to s32",),
    f"{START}m16n8k256.row.col.s32.b1.b1.s32.xor.popc sm_80": ("the bits that differ",),
    f"{START}m8n8k4.row.col.f32.f16.f16.f32 sm_80": ("no tensor core", "from +0, then c"),
    f"{START}m8n8k4.row.col.f32.f16.f16.f32 sm_70": ("one fused sum of c and 4 products",),
    f"{START}m8n8k4.row.col.f32.f16.f16.f16 sm_75": (
        "one fused sum of c and 4 products", "23 bits below",
        "a subnormal c has the exponent -14, the least one of f16",
    ),
    "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32.satfinite sm_75": (
        "an infinity then becomes the largest finite number, a NaN +0; that is rounded to nearest",
    ),
    f"{START}m16n8k32.row.col.kind::mxf8f6f4.{SCALED.format('1X', 'e4m3.e2m1.f32.ue8m0')} sm_120a":
        ("by its two scales (ue8m0)", "c and 32 such terms"),
    f"{START}m16n8k64.row.col.kind::mxf4nvf4.{SCALED.format('4X', 'e2m1.e2m1.f32.ue4m3')} sm_120a":
        ("products of 16 neighbours", "c and 4 such terms", "35 bits below"),
}  # fmt: skip


@pytest.mark.parametrize("given", WORDS)
def test_arithmetic(given: str) -> None:
    opcode, arch = given.split()
    text = "; ".join(arithmetic_words(mma.instruction(opcode, arch)))
    for words in WORDS[given]:
        assert words in text


def test_every_form_is_described() -> None:
    for i in mma.ROWS[::5]:
        assert all(arithmetic_words(i))


@pytest.mark.parametrize(
    ("needs", "until", "words"),
    [
        ((("7.0", "sm_80"),), "", "PTX 7.0 for sm_80 and later"),
        ((("6.0", "sm_70"),), "6.5", "PTX 6.0 for sm_70 and later, until 6.5"),
        (
            (("8.7", "sm_100a"), ("8.8", "sm_100f"), ("8.7", "sm_120a")), "",
            "PTX 8.7 for sm_100a, sm_120a; 8.8 for sm_100f",
        ),
    ],
)  # fmt: skip
def test_needs(needs: tuple[tuple[str, str], ...], until: str, words: str) -> None:
    assert needs_words(needs, until) == words


def test_metadata_and_selectors() -> None:
    dense = mma.find(f"{START}m16n8k16.row.col.f32.f16.f16.f32")
    assert not metadata_words(dense) and not selector_words(dense)
    half = mma.find("mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert "2 of 4 neighbours" in metadata_words(half)[0]
    assert "two different ones" in metadata_words(half)[0]
    assert selector_words(half) == ("selector: 0, 1, 2, 3",)
    ordered = mma.find("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32")
    assert "2 pairs of 8 neighbours" in metadata_words(ordered)[0]
    assert "0b0100, 0b1000, 0b1001" in metadata_words(ordered)[0]
    tf32 = mma.find("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    assert "0b0100 (the first) or 0b1110 (the second)" in metadata_words(tf32)[0]


def test_what_nobody_measured_says_so() -> None:
    i = mma.find(f"{START}m16n8k16.row.col.f32.f16.f16.f32")
    assert status(i) == "bits on sm_90a: verified"
    assert status(replace(i, arch="sm_80")) == "bits on sm_80: published, not verified"
