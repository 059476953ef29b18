"""Loads and stores: each lane accesses its own bytes for all patterns of addresses."""

from __future__ import annotations

import numpy as np
import pytest

from ptx_kernels.simt import kernel, launch
from rows import every_row
from tilewright.errors import VmFault
from tilewright.vm import Machine
from tilewright.vm.codegen import module_codegen

pytestmark = pytest.mark.vm

BYTES, FAR = 2048, 1 << 20
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


LONG = "// a region for each block\nbra.uni GO; GO:"  # as where code is more than a region has
KINDS = {"all": ("", ""), "odd": ("@%p2", ""), "long": ("", LONG)}
FEW = [(1, 1), (2, 4), (4, 1), (4, 4), (8, 1)]
SOME = [(kind, *g) for kind, (_, code) in KINDS.items() for g in (FEW if code else GROUPS)]


def split_into_regions(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile each block of ``LONG`` code as a region of its own."""
    if code:
        monkeypatch.setattr(module_codegen, "REGION", 1)


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


@every_row("space", SPACES, parts=7)
@every_row(("kind", "size", "count"), SOME)
def test_each_lane_loads_its_own_bytes(space, kind, size, count, monkeypatch):
    data, (guard, code) = RNG.integers(0, 256, BYTES, np.uint8), KINDS[kind]
    split_into_regions(code, monkeypatch)
    text, group = kernel(code + body(space, size, count, guard)), size * count
    for name, order in ORDERS.items():
        out = np.zeros((32, group), np.uint8)
        offsets = (order * group).astype(np.uint32)
        result = launch(Machine(), text, [out, data, offsets])[0]
        expected = data.reshape(-1, group)[order]
        expected[0 if guard else 32 :: 2] = 0
        np.testing.assert_array_equal(result, expected, err_msg=name)


@pytest.mark.parametrize("code", ["", LONG], ids=["short", "long"])
def test_of_lanes_with_one_address_the_first_of_the_last_phase_wins(code, monkeypatch):
    split_into_regions(code, monkeypatch)
    for size, count in FEW if code else GROUPS:
        names = ", ".join(f"{REGISTERS[size]}{20 + i}" for i in range(count))
        vector = f".v{count}.b{8 * size}" if count > 1 else f".b{8 * size}"
        held, group = f"{{{names}}}" if count > 1 else names, size * count
        text = kernel(f"""{code} mad.wide.u32 %rd5, %t, 4, %a2; ld.global.u32 %r3, [%rd5];
          cvt.u64.u32 %rd6, %r3; add.u64 %rd6, %a0, %rd6; mad.wide.u32 %rd7, %t, {group}, %a1;
          ld.global{vector} {held}, [%rd7]; st{vector} [%rd6], {held};""")
        for name, order in ORDERS.items():
            data = RNG.integers(0, 256, (32, group), np.uint8)
            offsets = (order * group).astype(np.uint32)
            result = launch(Machine(), text, [np.zeros_like(data), data, offsets])[0]
            expected = np.zeros_like(data)
            turn = min(32, 128 // group)  # turns one after the other, the lowest lane of each wins
            for first in range(0, 32, turn):
                for lane in reversed(range(first, first + turn)):
                    expected[order[lane]] = data[lane]
            np.testing.assert_array_equal(result, expected, err_msg=f"{size}x{count} {name}")


# --- what is wrong --------------------------------------------------------------------------------

WINDOWS = {
    "global": ("mov.u64 %rd9, %a1;", "global"),
    "generic": ("mov.u64 %rd9, %a1;", ""),
    "shared": (f".shared .align 16 .b8 room[{BYTES}]; mov.u32 %r9, room;", "shared"),
}
TWISTS = {  # what becomes of the offsets, for accesses of so many bytes
    "right": lambda a, unit: a,
    "up to the end": lambda a, unit: a + BYTES - unit - a.max(),
    "past the end": lambda a, unit: a + BYTES - a.max(),
    "before": lambda a, unit: a - unit * (1 + a.min() // unit) if a.min() == 0 else a - a.max() - 1,
    "misaligned": lambda a, unit: a + unit // 2,
    "one lane misaligned": lambda a, unit: a + (np.arange(32) == 17) * (unit // 2),
    "one lane beyond": lambda a, unit: a + (np.arange(32) == 30) * FAR,
    "two lanes beyond": lambda a, unit: a + (np.arange(32) % 16 == 9) * FAR,
}


def reach_kernel(space: str, size: int, count: int, stores: bool, kind: str) -> str:
    """Thread t accesses the t-th group, and then by the same instruction what is at offset %a2[t]
    bytes (signed) on."""
    guard, code = KINDS[kind]
    top, suffix = WINDOWS[space]
    names = ", ".join(f"{REGISTERS[size]}{20 + i}" for i in range(count))
    vector = f".v{count}.b{8 * size}" if count > 1 else f".b{8 * size}"
    held = f"{{{names}}}" if count > 1 else names
    place = "add.s32 %r8, %r9, %r7;" if suffix == "shared" else "add.s64 %rd8, %rd9, %rd6;"
    where = "[%r8]" if suffix == "shared" else "[%rd8]"
    opcode = f"{'st' if stores else 'ld'}{'.' * bool(suffix)}{suffix}{vector}"
    operands = f"{where}, {held}" if stores else f"{held}, {where}"
    return kernel(f"""{code} {top} mad.wide.u32 %rd5, %t, 4, %a2; ld.global.s32 %r3, [%rd5];
      and.b32 %r4, %t, 1; setp.ne.u32 %p2, %r4, 0; mul.lo.u32 %r7, %t, {size * count};
      mov.u32 %r6, 0;
      AGAIN: cvt.s64.s32 %rd6, %r7; {place}
      {guard} {opcode} {operands};
      mov.u32 %r7, %r3; add.u32 %r6, %r6, 1; setp.lt.u32 %p1, %r6, 2; @%p1 bra AGAIN;""")


@every_row("space", WINDOWS, parts=7)
@every_row("stores", [False, True], ids=["loads", "stores"])
@every_row("kind", KINDS)
@every_row(("size", "count"), FEW)
def test_the_lowest_faulting_lane_is_reported(space, stores, kind, size, count, monkeypatch):
    there = np.arange(32) % 2 == 1 if kind == "odd" else np.full(32, True)
    split_into_regions(KINDS[kind][1], monkeypatch)
    code, unit = reach_kernel(space, size, count, stores, kind), size * count
    for order in (ORDERS[name] for name in ("in line", "one place", "anywhere")):
        for twist in TWISTS.values():
            offsets = twist(order * unit, unit)
            wrong = (offsets % unit != 0) | (offsets < 0) | (offsets > BYTES - unit)
            fault = run_reach_kernel(code, offsets.astype(np.int32))
            first = np.flatnonzero(wrong & there)
            if not first.size:
                assert fault is None, offsets
                continue
            lane = int(first[0])
            why = "misaligned" if offsets[lane] % unit else "out of bounds"
            assert fault is not None, offsets
            assert (fault.kind, fault.thread[0]) == (why, lane), offsets


def run_reach_kernel(code: str, offsets: np.ndarray) -> VmFault | None:
    machine = Machine()
    data = [np.zeros(32, np.uint8), np.full(BYTES, 7, np.uint8), offsets]
    try:
        launch(machine, code, data)
    except VmFault as fault:
        return fault
    return None
