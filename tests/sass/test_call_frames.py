"""Call frames of moved code."""

from __future__ import annotations

import pytest

from tilewright.errors import CubinError
from tilewright.sass.call_frames import move_frame_section
from tilewright.sass.code_motion import CodeMotion

CIE = bytes.fromhex(
    "ffffffff 24000000 00000000 ffffffff ffffffff 0300047c ffffffff 0f0c8180 80280008 ff818028"
    "08818080 28000000"
)
# As nvJitLink 13.0 writes frames: the padding behind the first one is gone, but the second one
# names a CIE at 0x70, not at 0x68. The frames are of 128 bytes of code and advance by 4 · 4 and
# 4 · 20 bytes.
FRAME = (
    "ffffffff 2c000000 00000000 {cie} 00000000 00000000 80000000 00000000 04040000"
    "000c8180 80280004 14000000 00000000"
)
GROWN = CodeMotion({16 * i: 16 * i + 128 * (i >= 4) for i in range(8)}, 128, 256)


def section(second: int) -> bytes:
    frames = (
        bytes.fromhex(FRAME.format(cie=cie.to_bytes(8, "little").hex())) for cie in (0, second)
    )
    return b"".join(CIE + frame for frame in frames)


def test_a_frame_that_names_no_cie_has_the_one_before_it() -> None:
    length = len(section(0)) // 2
    assert length == 0x68
    named, stale = section(0x68), section(0x70)

    def grown(offset: int, _: int) -> tuple[CodeMotion, int]:
        return GROWN, 0

    moved = move_frame_section(named, grown)
    assert moved != named
    expected = bytearray(moved)
    expected[length + 0x3C : length + 0x44] = (0x70).to_bytes(8, "little")
    assert move_frame_section(stale, grown) == bytes(expected)


def test_a_frame_without_any_cie_is_an_error() -> None:
    frame = section(0x70)[0x68 + len(CIE) :]
    with pytest.raises(CubinError, match="a frame must name its CIE, got offset 0x70"):
        move_frame_section(frame, lambda *_: (GROWN, 0))
