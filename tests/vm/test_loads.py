"""Loads and stores: whatever the lanes' addresses are like, each lane has its own bytes."""

from __future__ import annotations

import numpy as np
import pytest

from simt import kernel, launch
from tilewright.vm import Machine

BYTES = 2048
RNG = np.random.default_rng(7)
REGISTERS = {1: "%h", 2: "%h", 4: "%r", 8: "%rd"}
GROUPS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2), (4, 4), (8, 1), (8, 2)]
ORDERS = {
    "in line": np.arange(32),
    "one place": np.full(32, 5),
    "backwards": np.arange(32)[::-1],
    "every third": np.arange(32) * 3 % 32,
    "anywhere": RNG.integers(0, 32, 32),
}
SPACES = {  # what brings BYTES bytes from %a1 there, %t being the thread; %rd9: where they are
    "global": ("", "mov.u64 %rd9, %a1;", "global"),
    "generic": ("", "mov.u64 %rd9, %a1;", ""),
    "shared": (".shared", "mov.u64 %rd9, room;", "shared"),
    "generic shared": (".shared", "mov.u64 %rd9, room; cvta.shared.u64 %rd9, %rd9;", ""),
    "local": (".local", "mov.u64 %rd9, room;", "local"),
    "generic local": (".local", "mov.u64 %rd9, room; cvta.local.u64 %rd9, %rd9;", ""),
}


def body(space: str, size: int, count: int, guard: str) -> str:
    """Thread t copies the group of elements at byte %a2[t] to the t-th group of %a0 …"""
    where, place, suffix = SPACES[space]
    names = ", ".join(f"{REGISTERS[size]}{20 + i}" for i in range(count))
    vector = f".v{count}.b{8 * size}" if count > 1 else f".b{8 * size}"
    held = f"{{{names}}}" if count > 1 else names
    copied = (
        ""
        if not where
        else f"""
      {where} .align 16 .b8 room[{BYTES}]; mov.u64 %rd1, room; mov.u32 %r1, 0;
      COPY: cvt.u64.u32 %rd2, %r1; add.u64 %rd3, %a1, %rd2; add.u64 %rd4, %rd1, %rd2;
      ld.global.u32 %r2, [%rd3]; st{where}.u32 [%rd4], %r2; add.u32 %r1, %r1, 4;
      setp.lt.u32 %p1, %r1, {BYTES}; @%p1 bra COPY; bar.sync 0;"""
    )
    return f"""{copied} {place} mad.wide.u32 %rd5, %t, 4, %a2; ld.global.u32 %r3, [%rd5];
      cvt.u64.u32 %rd6, %r3; add.u64 %rd6, %rd9, %rd6; mad.wide.u32 %rd7, %t, {size * count}, %a0;
      and.b32 %r4, %t, 1; setp.ne.u32 %p2, %r4, 0;
      {guard} ld{"." if suffix else ""}{suffix}{vector} {held}, [%rd6];
      {guard} st.global{vector} [%rd7], {held};"""


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("guard", ["", "@%p2"], ids=["all", "odd"])
def test_each_lane_loads_its_own_bytes(space, guard):
    given = RNG.integers(0, 256, BYTES, np.uint8)
    for size, count in GROUPS:
        text, group = kernel(body(space, size, count, guard)), size * count
        for name, order in ORDERS.items():
            out = np.zeros((32, group), np.uint8)
            offsets = (order * group).astype(np.uint32)
            made = launch(Machine(), text, [out, given, offsets])[0]
            expected = given.reshape(-1, group)[order]
            expected[0 if guard else 32 :: 2] = 0
            np.testing.assert_array_equal(made, expected, err_msg=f"{size}x{count} {name}")


def test_of_lanes_that_store_to_a_place_the_first_of_the_last_128_bytes_wins():
    for size, count in GROUPS:
        names = ", ".join(f"{REGISTERS[size]}{20 + i}" for i in range(count))
        vector = f".v{count}.b{8 * size}" if count > 1 else f".b{8 * size}"
        held, group = f"{{{names}}}" if count > 1 else names, size * count
        text = kernel(f"""mad.wide.u32 %rd5, %t, 4, %a2; ld.global.u32 %r3, [%rd5];
          cvt.u64.u32 %rd6, %r3; add.u64 %rd6, %a0, %rd6; mad.wide.u32 %rd7, %t, {group}, %a1;
          ld.global{vector} {held}, [%rd7]; st{vector} [%rd6], {held};""")
        for name, order in ORDERS.items():
            given = RNG.integers(0, 256, (32, group), np.uint8)
            offsets = (order * group).astype(np.uint32)
            made = launch(Machine(), text, [np.zeros_like(given), given, offsets])[0]
            expected = np.zeros_like(given)
            turn = min(32, 128 // group)  # turns one after the other, the lowest lane of each wins
            for first in range(0, 32, turn):
                for lane in reversed(range(first, first + turn)):
                    expected[order[lane]] = given[lane]
            np.testing.assert_array_equal(made, expected, err_msg=f"{size}x{count} {name}")
