"""Instructions among lanes, by the manual's formulas lane by lane."""

from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from machine import Machine, one, run

pytestmark = pytest.mark.vm

LIGHT = settings(max_examples=20, deadline=None)
VALUES = [17 * i + 3 for i in range(32)]
FULL = 0xFFFFFFFF


def source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    step, limit, segment = b & 31, c & 31, c >> 8 & 31
    high = (lane & segment) | (limit & ~segment & 31)
    low = lane & segment
    at = {"up": lane - step, "down": lane + step, "bfly": lane ^ step}.get(
        mode, low | step & ~segment
    )
    valid = at >= high if mode == "up" else at <= high
    return (at if valid else lane), valid


@LIGHT
@given(
    st.sampled_from(["up", "down", "bfly", "idx"]),
    st.integers(0, 63),
    st.sampled_from([31, 0, 0x1F, 0x181F, 0x1800, 0x1C1F, 0x1E1F, 0x100F]),
)
def test_shfl(mode, b, c):
    moved, valid = run(f"shfl.sync.{mode}.b32", VALUES, b, c, FULL)
    for lane in range(32):
        at, inside = source(mode, lane, b, c)
        assert (moved[lane], valid[lane]) == (VALUES[at & 31], inside)


@LIGHT
@given(st.integers(1, FULL), st.integers(0, FULL))
def test_votes(members, bits):
    p = [bits >> i & 1 for i in range(32)]
    inside = [p[i] for i in range(32) if members >> i & 1]
    assert run("vote.sync.all.pred", p, members)[0] == all(inside)
    assert run("vote.sync.any.pred", p, members)[0] == any(inside)
    assert run("vote.sync.uni.pred", p, members)[0] == (len(set(inside)) == 1)
    assert run("vote.sync.ballot.b32", p, members)[0] == bits & members


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


REDUCE = {
    "add.s32": sum,
    "min.s32": lambda v: min(map(signed, v)),
    "max.u32": max,
    "and.b32": lambda v: reduce(int.__and__, v),
    "xor.b32": lambda v: reduce(int.__xor__, v),
}


@LIGHT
@given(
    st.lists(st.integers(0, FULL), min_size=32, max_size=32),
    st.integers(1, FULL),
    st.sampled_from(sorted(REDUCE)),
)
def test_redux_and_match_speak_of_their_members(values, members, op):
    there = [v for i, v in enumerate(values) if members >> i & 1]
    assert run(f"redux.sync.{op}", values, members)[0] == REDUCE[op](there) & FULL
    few = [v & 3 for v in values]
    equal = run("match.any.sync.b32", few, members)
    for i in range(32):
        mask = sum(1 << j for j in range(32) if few[j] == few[i] and members >> j & 1)
        assert equal[i] == mask


def test_two_groups_reduce_apart():
    low, high = 0xFFFF, 0xFFFF0000
    masks = [low] * 16 + [high] * 16
    assert run("redux.sync.add.u32", list(range(32)), masks) == [120] * 16 + [376] * 16
    assert run("match.all.sync.b32", [7] * 16 + list(range(16)), masks)[0] == [low] * 16 + [0] * 16


@pytest.mark.parametrize("members", [FULL, 0xFFFFFFF0, 1 << 31])
def test_elect_takes_the_lowest(members):
    leader, chosen = run("elect.sync", members)
    lowest = (members & -members).bit_length() - 1
    assert set(leader) == {lowest} and chosen == [i == lowest for i in range(32)]


def test_inactive_lanes_do_not_participate():
    m = Machine()
    m.mask = 0x0000FFFF
    assert run("redux.sync.add.u32", [1] * 32, FULL, machine=m)[0] == 16
    assert run("activemask.b32", machine=m)[0] == 0xFFFF
    assert run("vote.sync.all.pred", [1] * 16 + [0] * 16, FULL, machine=m)[0] == 1


def test_redux_f32_ignores_nans_unless_asked():
    three, nan = 0x40400000, 0x7FC00000
    values = [three, nan, 0x80000000, 0, *[three] * 28]
    assert run("redux.sync.min.f32", values, FULL)[0] == 0x80000000
    assert run("redux.sync.min.NaN.f32", values, FULL)[0] == 0x7FFFFFFF
    assert one("redux.sync.max.f32", nan, FULL) == 0x7FFFFFFF
