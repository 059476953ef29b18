"""What an access costs: banks and sectors, against a count lane by lane, and as Nsight counts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layout_strategies import compact_layouts, layouts, spread_layouts, values
from symbol import Symbol
from tilewright.errors import LayoutError
from tilewright.layout import ComposedLayout, Layout, Swizzle
from tilewright.layout.memory.access_pattern import NOBODY, access
from tilewright.layout.memory.banks import bank_conflicts
from tilewright.layout.memory.sectors import coalescing

L = Layout
TILE = L((128, 64), (64, 1))  # f16, K contiguous
SWIZZLED = ComposedLayout(Swizzle(3, 3, 3), 0, TILE)
LINES = L(((8, 2, 2), 8), ((1, 8, 128 * 8), 128))  # lane → 8 of K in one row, as number in TILE


@st.composite
def accesses(draw):
    """(layout, bits, bytes): threads anywhere, each with some vectors of neighbours."""
    bits = draw(st.sampled_from([8, 16, 32, 64]))
    vector = draw(st.sampled_from([w for w in (1, 2, 4, 8, 16) if 8 * w >= bits]))
    count = 8 * vector // bits
    threads = draw(st.one_of(layouts(), spread_layouts))
    instructions = draw(st.integers(1, 3))
    shape = (threads.shape, (count, instructions))
    strides = (scaled(threads.stride, count), (1, count * draw(st.integers(0, 40))))
    return L(shape, strides), bits, vector


def scaled(stride, factor):
    if isinstance(stride, tuple):
        return tuple(scaled(d, factor) for d in stride)
    return stride * factor


def lane_by_lane(layout, bits, vector):
    """[(addresses of the lanes of a warp, in order)] of each request."""
    count, threads = 8 * vector // bits, layout.size(0)
    for first in range(0, threads, 32):
        for i in range(layout.size(1) // count):
            warp = range(first, min(first + 32, threads))
            yield [layout(t, i * count) * bits // 8 for t in warp]


def wavefronts(addresses, vector, loads):
    """As the module's docstring says it, one lane and one word at a time."""
    size = {8: 16, 16: 8}.get(vector, 32)
    pairs = [[(a, addresses[t ^ d]) for t, a in enumerate(addresses) if t ^ d < len(addresses)]
             for d in (1, 2)]  # fmt: skip
    if loads and vector >= 8 and any(all(a == b for a, b in p) for p in pairs):
        size *= 2
    total = 0
    for first in range(0, len(addresses), size):
        banks = [set() for _ in range(32)]
        for address in addresses[first : first + size]:
            for byte in range(address, address + vector):
                banks[byte // 4 % 32].add(byte // 4)
        total += max(map(len, banks))
    return total


# --- banks ---


@given(accesses(), st.sampled_from(["ld", "st"]))
def test_wavefronts_are_those_of_a_count_lane_by_lane(given_access, op):
    layout, bits, vector = given_access
    found = bank_conflicts(layout, bits, vector, op)
    expected = [wavefronts(r, vector, op == "ld") for r in lane_by_lane(layout, bits, vector)]
    assert found.wavefronts.ravel().tolist() == expected


@given(accesses())
def test_the_tables_hold_each_lane_and_the_counts(given_access):
    found = bank_conflicts(*given_access)
    for warp in range(found.wavefronts.shape[0]):
        for i in range(found.wavefronts.shape[1]):
            phases = found.phases(warp, i)
            assert sum(p.wavefronts for p in phases) == found.wavefronts[warp, i]
            assert len(phases) == found.ideal[warp, i]
            for phase in phases:
                held = {lane for bank in phase.banks for _, lanes in bank for lane in lanes}
                assert held == set(phase.lanes)
                assert all(w // 4 % 32 == b for b, ws in enumerate(phase.banks) for w, _ in ws)


@given(accesses(), st.integers(1, 9))
def test_conflicts_do_not_depend_on_where_the_lines_begin(given_access, lines):
    layout, bits, vector = given_access
    moved = ComposedLayout(Swizzle(0, 0, 0), lines * 128 * 8 // bits, layout)
    one, other = bank_conflicts(layout, bits, vector), bank_conflicts(moved, bits, vector)
    assert (one.wavefronts == other.wavefronts).all()


@pytest.mark.parametrize(
    ("layout", "bits", "op", "total", "conflicts"),
    [
        (L((32, 1), (1, 1)), 32, "ld", 1, 0),
        (L((32, 1), (2, 1)), 32, "ld", 2, 1),
        (L((32, 1), (32, 1)), 32, "ld", 32, 31),
        (L((32, 1), (33, 1)), 32, "ld", 1, 0),
        (L((32, 1), (0, 1)), 32, "ld", 1, 0),
        (L((32, 1), (1, 1)), 8, "ld", 1, 0),
        (L((32, 2), (2, 1)), 32, "ld", 2, 0),
        (L((32, 4), (4, 1)), 32, "ld", 4, 0),
        (L((32, 4), (128, 1)), 32, "ld", 32, 28),
        (L(((2, 16), 4), ((0, 4), 1)), 32, "ld", 2, 0),
        (L(((2, 16), 4), ((0, 4), 1)), 32, "st", 4, 0),
        (L(((2, 2, 8), 4), ((4, 0, 8), 1)), 32, "ld", 2, 0),
        (L(((8, 4), 4), ((4, 0), 1)), 32, "ld", 4, 0),
        (L((16, 4), (4, 1)), 32, "ld", 2, 0),
    ],
)
def test_known_patterns(layout, bits, op, total, conflicts):
    found = bank_conflicts(layout, bits, op=op)
    assert (found.total, found.conflicts) == (total, conflicts)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("family", ["ldmatrix", "stmatrix"])
def test_matrices_go_a_phase_each(count, family):
    op = f"{family}.x{count}"
    plain, swizzled = (bank_conflicts(x, 16, op=op, tv=LINES) for x in (TILE, SWIZZLED))
    assert (plain.total, swizzled.total) == (8 * count, count)
    assert [p.lanes for p in plain.phases()] == [
        tuple(range(8 * m, 8 * m + 8)) for m in range(count)
    ]


def test_lines_that_neighbours_share_save_nothing_but_their_banks():
    alike = L(((2, 16), 8), ((0, 8), 1))
    assert bank_conflicts(alike, 16, op="ldmatrix.x4").total == 4
    assert bank_conflicts(alike, 16, op="ld").total == 2


def test_colliding_lanes_are_named():
    assert str(bank_conflicts(L((8, 4), (64, 1)), bits=32)) == (
        "ld of 16 bytes, 1 request: 8 wavefronts, 1 without conflicts\n"
        "warp 0, instruction 0, lanes 0-7: 8 wavefronts\n"
        "  banks 0-3: a word each for lanes 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7"
    )
    assert str(bank_conflicts(TILE, 16, tv=L((32, 8), (1, 128)))).endswith(
        "  banks 0-3: a word each for lanes 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7"
    )


# --- sectors ---


@given(accesses())
def test_sectors_and_lines_are_those_of_a_count_byte_by_byte(given_access):
    layout, bits, vector = given_access
    found = coalescing(layout, bits, vector)
    lane_bytes = [
        {byte for address in lanes for byte in range(address, address + vector)}
        for lanes in lane_by_lane(layout, bits, vector)
    ]
    for counted, unit in ((found.sectors, 32), (found.lines, 128), (found.bytes, 1)):
        assert counted.ravel().tolist() == [
            len({b // unit for b in bytes_}) for bytes_ in lane_bytes
        ]
    assert found.ideal == sum(-(-len(bytes_) // 32) for bytes_ in lane_bytes)
    assert all(min(bytes_) % found.alignment == 0 for bytes_ in lane_bytes)
    held = found.lanes()
    assert len(held) == found.sectors[0, 0] and set().union(*held.values()) == set(
        range(min(32, layout.size(0)))
    )


@pytest.mark.parametrize(
    ("layout", "bits", "sectors", "efficiency"),
    [
        (L((32, 4), (4, 1)), 32, 16, 1.0),
        (L((32, 1), (1, 1)), 16, 2, 1.0),
        (L((32, 1), (33, 1)), 32, 32, 0.125),
        (L((32, 1), (0, 1)), 32, 1, 0.125),
    ],
)
def test_known_coalescing(layout, bits, sectors, efficiency):
    found = coalescing(layout, bits)
    assert (found.total, found.efficiency) == (sectors, efficiency)


# --- accesses ---


@given(st.one_of(compact_layouts(), spread_layouts), st.sampled_from([4, 8, 16, 32]))
def test_every_element_is_moved_once(layout, bits):
    """One thread with all values: its vectors cover the layout's bytes, whatever the order."""
    try:
        found = access(L((1, layout.shape), (0, layout.stride)), bits)
    except LayoutError:
        assert bits == 4  # halves of bytes
        return
    per = 8 * found.width // bits
    starts = (found.requests()[:, 0] * 8 // bits).tolist()
    assert sorted(s + i for s in starts for i in range(per)) == sorted(values(layout))


def test_idle_lanes_are_nobodys():
    assert access(L((40, 1), (1, 1)), 32).addresses[1, 0].tolist() == [
        *range(128, 160, 4), *[NOBODY] * 24
    ]  # fmt: skip
    assert (access(TILE, 16, op="ldmatrix.x2", tv=LINES).addresses[0, 0, 16:] == NOBODY).all()


@pytest.mark.parametrize(
    ("layout", "bits", "more", "message"),
    [
        (L((32, 4), (5, 1)), 32, {"vector": 16}, "thread 1's values 0 to 3 are at 5, 6, 7, 8: no"),
        (L((32, 4), (4, 1)), 32, {"vector": 2}, "whole elements of 32 bits, got 2 bytes"),
        (L((32, 3), (4, 1)), 32, {"vector": 8}, "must be a multiple of 2 (8 bytes), got 3"),
        (L((32, 4), (4, 1)), 24, {}, "elements must have 1, 2, 4"),
        (L((32, 4), (4, 1)), 32, {"op": "ldmatrix"}, "unknown access 'ldmatrix'"),
        (L((32, 4), (4, 1)), 32, {"op": None}, "unknown access None"),
        (L((16, 8), (8, 1)), 16, {"op": "ldmatrix.x4"}, "ldmatrix.x4 needs the addresses of 32"),
        (
            L((32, 4), (4, 1)),
            16,
            {"op": "ldmatrix.x4"},
            "must be a multiple of 8 (16 bytes), got 4",
        ),
        (L((32, 4), (-4, 1)), 32, {}, "offsets must not be negative, got -124"),
        (L((32, 4), (Symbol("n"), 1)), 32, {}, "is not static"),
        (L((32, 1), (1, 1)), 4, {}, "must be contiguous in whole bytes"),
        (
            L((8, 8)),
            16,
            {"tv": L((32, 4), (4, 1))},
            "must map to the 64 elements of (8,8):(1,8), got 127",
        ),
    ],
)
def test_impossible_accesses_are_rejected(layout, bits, more, message):
    with pytest.raises(LayoutError, match=re.escape(message)):
        access(layout, bits, **more)


def test_a_whole_tile_of_a_million_elements():
    big = L((1024, 1024), (1024, 1))
    found = bank_conflicts(big, 32, tv=L((256, 4096), (4096, 1)))
    assert found.wavefronts.size == 8 * 1024
