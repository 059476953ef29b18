"""Fatbinaries: nvcc's own unpack to the same PTX however they were compressed, and what is none is
a typed error.
"""

from __future__ import annotations

import ctypes.util
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cudart import fatbin
from tilewright.errors import PtxError, TargetError
from tilewright.target import Target

DATA = Path(__file__).parents[1] / "data" / "fatbin"
PLAIN = (DATA / "scale_none.fatbin").read_bytes()
ZSTD = pytest.param(
    "zstd", marks=pytest.mark.skipif(not ctypes.util.find_library("zstd"), reason="no libzstd")
)


def texts(data: bytes) -> list[str]:
    return [entry.text() for found in fatbin.entries(data) for entry in found if entry.is_ptx]


@pytest.mark.parametrize("how", ["lz4", ZSTD])
def test_decompression(how: str) -> None:
    packed = (DATA / f"scale_{how}.fatbin").read_bytes()
    assert len(packed) < len(PLAIN)
    assert [t.strip() for t in texts(packed)] == [t.strip() for t in texts(PLAIN)]


def test_entries_as_text() -> None:
    (found,) = fatbin.entries(PLAIN)
    assert sorted(map(str, found)) == ["PTX for sm_80", "PTX for sm_90", "machine code for sm_90"]


def test_consecutive_fatbinaries() -> None:
    assert texts(PLAIN + bytes(8) + PLAIN) == 2 * texts(PLAIN)


@pytest.mark.parametrize(
    ("target", "best"), [("sm_80", "sm_80"), ("sm_86", "sm_80"), ("sm_90", "sm_80"),
                         ("sm_90a", "sm_90a"), ("sm_100a", "sm_80")]
)  # fmt: skip
def test_the_ptx_of_the_highest_usable_architecture(target: str, best: str) -> None:
    (found,) = fatbin.entries(PLAIN)
    assert f".target {best}\n" in fatbin.best_ptx(found, Target.parse(target))


def test_without_usable_ptx_the_error_lists_the_entries() -> None:
    (found,) = fatbin.entries(PLAIN)
    with pytest.raises(TargetError, match=r"sm_75 runs, got PTX for sm_80, PTX for sm_90a, m"):
        fatbin.best_ptx(found, Target.parse("sm_75"))
    code = [entry for entry in found if not entry.is_ptx]
    with pytest.raises(TargetError, match=r"got machine code for sm_90"):
        fatbin.best_ptx(code, Target.parse("sm_90a"))


def test_ptx_for_unknown_architectures_is_ignored() -> None:
    later = PLAIN.replace(b".target sm_90a", b".target sm_999")
    (found,) = fatbin.entries(later)
    assert ".target sm_80\n" in fatbin.best_ptx(found)
    with pytest.raises(TargetError, match="PTX for sm_999"):
        fatbin.best_ptx(found, Target.parse("sm_75"))


# --- LZ4 ---


def packed(data: bytes) -> bytes:
    """An LZ4 block: at each place the longest copy of what begins at most 64 bytes before."""
    out, literals, at = bytearray(), bytearray(), 0
    while at < len(data):
        length, distance = max((common(data, at, d), d) for d in range(min(at, 64) + 1))
        if length < 4:
            literals.append(data[at])
            at += 1
            continue
        sequence(out, literals, length - 4)
        out += distance.to_bytes(2, "little") + longer(length - 4)
        literals.clear()
        at += length
    sequence(out, literals, 0)
    return bytes(out)


def common(data: bytes, at: int, distance: int) -> int:
    length = 0
    while (
        distance and at + length < len(data) and data[at + length] == data[at + length - distance]
    ):
        length += 1
    return length


def sequence(out: bytearray, literals: bytearray, copied: int) -> None:
    out.append(min(len(literals), 15) << 4 | min(copied, 15))
    out += longer(len(literals)) + literals


def longer(length: int) -> bytes:
    if length < 15:
        return b""
    return b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


BYTES = st.binary(max_size=60) | st.lists(
    st.tuples(st.binary(min_size=1, max_size=5), st.integers(1, 300)), max_size=5
).map(lambda runs: b"".join(piece * n for piece, n in runs))


@given(BYTES)
def test_lz4_round_trip(data: bytes) -> None:
    assert fatbin.unpack_lz4(packed(data), len(data)) == data


@given(st.binary(max_size=40), st.integers(0, 200))
def test_invalid_lz4_is_an_error_or_has_the_stated_size(data: bytes, size: int) -> None:
    try:
        assert len(fatbin.unpack_lz4(data, size)) == size
    except PtxError:
        pass


@given(st.integers(0, len(PLAIN) - 1), st.binary(min_size=1, max_size=8))
def test_damaged_fatbinaries_are_errors_or_readable(at: int, written: bytes) -> None:
    try:
        texts(PLAIN[:at] + written + PLAIN[at + len(written) :])
    except PtxError:
        pass


def test_fatbinaries_of_a_program() -> None:
    stray = fatbin.MAGIC.to_bytes(4, "little")
    program = b"\x7fELF" + bytes(60) + PLAIN + stray + b"code" * 9 + PLAIN + stray
    (one,) = fatbin.entries(PLAIN)
    assert list(fatbin.in_program(program)) == [one, one]
    assert fatbin.best_ptx(one) == fatbin.best_ptx(one, Target.parse("sm_90a"))
