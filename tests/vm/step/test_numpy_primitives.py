"""The NumPy evaluator's integers and lanes are Python's integers modulo 2^width."""

from __future__ import annotations

from fractions import Fraction
from math import trunc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.vm.step.numpy_primitives import LANES, NumpyValues, integers, value

pytestmark = pytest.mark.vm

M = NumpyValues()
WIDTHS = (8, 16, 32, 64, 128)
EDGES = (0, 1, 2, -1, -2)


def signed(x: int, width: int) -> int:
    return x - (x >> (width - 1) << width)


@st.composite
def operands(draw: st.DrawFn, count: int, widths: tuple[int, ...] = WIDTHS):
    """(width, values): random lanes, and among them 0, ±1, and the signed extremes."""
    width = draw(st.sampled_from(widths))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    edges = np.array([*EDGES, 1 << (width - 1), (1 << (width - 1)) - 1], dtype=object)
    made = []
    for _ in range(count):
        cuts = rng.integers(width, size=LANES)
        raw = [int.from_bytes(rng.bytes(width // 8)) >> int(cut) for cut in cuts]
        pick = rng.random(LANES) < 0.3
        lanes = np.where(pick, edges[rng.integers(len(edges), size=LANES)], np.array(raw, object))
        made.append(value(lanes, width))
    return width, *made


def lanes_of(a: np.ndarray) -> list[int]:
    return [int(x) for x in integers(a)]


BINARY = {
    "add": lambda x, y, w: x + y,
    "sub": lambda x, y, w: x - y,
    "mul": lambda x, y, w: x * y,
    "and_": lambda x, y, w: x & y,
    "or_": lambda x, y, w: x | y,
    "xor": lambda x, y, w: x ^ y,
}
BOTH_SIGNS = {
    "mul_high": lambda x, y, w: x * y >> w,
    "div": lambda x, y, w: trunc(Fraction(x, y)) if y else -1,
    "rem": lambda x, y, w: x - y * trunc(Fraction(x, y)) if y else -1,
}


@given(operands(2))
def test_binary_operations_are_pythons(case) -> None:
    width, a, b = case
    pairs = list(zip(lanes_of(a), lanes_of(b), strict=True))
    for name, law in BINARY.items():
        want = [law(x, y, width) % 2**width for x, y in pairs]
        assert lanes_of(getattr(M, name)(a, b)) == want, name


@given(operands(2), st.booleans())
def test_signed_and_unsigned_division_and_high_product(case, sign: bool) -> None:
    width, a, b = case
    pairs = list(zip(lanes_of(a), lanes_of(b), strict=True))
    if sign:
        pairs = [(signed(x, width), signed(y, width)) for x, y in pairs]
    for name, law in BOTH_SIGNS.items():
        want = [law(x, y, width) % 2**width for x, y in pairs]
        assert lanes_of(getattr(M, name)(a, b, sign)) == want, name


def test_division_as_ptx_defines_its_edges() -> None:
    a, b = M.const(32, 1 << 31), M.const(32, -1)
    assert M.div(a, b, True)[0] == 1 << 31
    assert M.rem(a, b, True)[0] == 0
    assert M.div(a, M.const(32, 0), False)[0] == 0xFFFFFFFF
    assert M.rem(a, M.const(32, 0), True)[0] == 0xFFFFFFFF


@given(operands(1), st.integers(0, 2**32 - 1) | st.integers(0, 130))
def test_shifts(case, count: int) -> None:
    width, a = case
    n = M.const(32, count)
    far = min(count, 200)
    assert lanes_of(M.shl(a, n)) == [(x << far) % 2**width for x in lanes_of(a)]
    assert lanes_of(M.lshr(a, n)) == [x >> far for x in lanes_of(a)]
    ashr = [(signed(x, width) >> far) % 2**width for x in lanes_of(a)]
    assert lanes_of(M.ashr(a, n)) == ashr


@given(operands(1))
def test_bits_are_counted(case) -> None:
    width, a = case
    texts = [f"{x:0{width}b}" for x in lanes_of(a)]
    assert lanes_of(M.popc(a)) == [t.count("1") for t in texts]
    assert lanes_of(M.clz(a)) == [len(t) - len(t.lstrip("0")) for t in texts]
    assert lanes_of(M.brev(a)) == [int(t[::-1], 2) for t in texts]
    assert lanes_of(M.not_(a)) == [2**width - 1 - x for x in lanes_of(a)]
    assert {M.popc(a).dtype, M.clz(a).dtype} == {np.dtype(np.uint32)}


@given(operands(2), st.booleans())
def test_comparisons(case, sign: bool) -> None:
    width, a, b = case
    pairs = list(zip(lanes_of(a), lanes_of(b), strict=True))
    if sign:
        pairs = [(signed(x, width), signed(y, width)) for x, y in pairs]
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        p = M.cmp(op, a, b, sign)
        assert p.dtype == bool
        assert list(p) == [getattr(x, f"__{op}__")(y) for x, y in pairs]


@given(operands(1), st.sampled_from([1, *WIDTHS]))
def test_widening_and_narrowing(case, to: int) -> None:
    width, a = case
    if to <= width:
        assert lanes_of(M.trunc(a, to)) == [x % 2**to for x in lanes_of(a)]
    if to >= width:
        assert lanes_of(M.zext(a, to)) == lanes_of(a)
        assert lanes_of(M.sext(a, to)) == [signed(x, width) % 2**to for x in lanes_of(a)]


@given(operands(1))
def test_join_undoes_split(case) -> None:
    width, a = case
    for part in (w for w in WIDTHS if w <= width):
        parts = M.split(a, part)
        assert [M.width(p) for p in parts] == [part] * (width // part)
        assert np.array_equal(M.join(*parts), a)
        assert lanes_of(parts[0]) == [x % 2**part for x in lanes_of(a)]


@pytest.mark.parametrize("width", [1, *WIDTHS])
def test_constants_and_predicates(width: int) -> None:
    minus_one = M.const(width, -1)
    assert M.width(minus_one) == width
    assert lanes_of(minus_one) == [2**width - 1] * LANES
    odd = M.cmp("eq", M.and_(M.lane(), M.const(32, 1)), M.const(32, 1))
    assert np.array_equal(M.zext(odd, 32), M.and_(M.lane(), M.const(32, 1)))
    assert lanes_of(M.sext(odd, 8)) == [0, 255] * 16
    picked = M.select(odd, minus_one, M.const(width, 0))
    assert lanes_of(picked) == [0, 2**width - 1] * 16
    assert M.width(picked) == width


def test_shuffle_takes_the_lane_modulo_32() -> None:
    plus_one = M.add(M.lane(), M.const(32, 1 - LANES * 3))
    for width in (1, 32, 128):
        a = M.trunc(M.lane(), width) if width < 32 else M.zext(M.lane(), width)
        got = lanes_of(M.shuffle(a, plus_one))
        assert got == [(i + 1) % 32 % 2**width for i in range(32)]


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_ballot_counts_active_lanes_only(votes: int, mask: int) -> None:
    m = NumpyValues()
    m.mask = mask
    p = m.trunc(m.lshr(m.const(32, votes), m.lane()), 1)
    assert lanes_of(m.ballot(p)) == [votes & mask] * LANES
    assert lanes_of(m.active()) == [mask] * LANES
