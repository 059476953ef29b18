"""Ratios of consecutive times: their bounds are the binomial's and do not depend on drift."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compare.stats import Ratio, calls, geomean, round_order, spread
from hypothesis import given
from hypothesis import strategies as st

from tilewright.run.tuning.median_interval import MIN_SAMPLES, rank_of

RATIOS = st.lists(st.floats(0.1, 10), min_size=MIN_SAMPLES, max_size=80)


@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (10, 2), (20, 6), (30, 10), (40, 14), (100, 40)]
)
def test_ranks_are_those_of_the_tables(count: int, rank: int) -> None:
    assert rank_of(count) == rank


@given(st.integers(MIN_SAMPLES, 300))
def test_the_rank_is_the_greatest_that_covers(count: int) -> None:
    def missed(rank: int) -> float:
        return 2 * sum(math.comb(count, i) for i in range(rank)) / 2**count

    assert missed(rank_of(count)) <= 0.05 < missed(rank_of(count) + 1)


def test_too_few_have_no_bounds() -> None:
    with pytest.raises(ValueError, match="at least 6 values, got 5"):
        Ratio.of([1.0] * 5)


def test_a_known_answer() -> None:
    assert Ratio.of([n / 10 for n in range(30, 0, -1)]) == (1.55, 1.0, 2.1)


@given(RATIOS, st.randoms())
def test_order_does_not_matter_and_the_median_is_inside(ratios: list[float], mix) -> None:
    found = Ratio.of(ratios)
    mix.shuffle(ratios)
    assert Ratio.of(ratios) == found
    assert min(ratios) <= found.low <= found.median <= found.high <= max(ratios)


def test_the_bounds_hold_the_true_median_19_times_of_20() -> None:
    draws = np.random.default_rng(0).lognormal(math.log(1.07), 0.03, (2000, 30))
    held = [low <= 1.07 <= high for _, low, high in map(Ratio.of, draws.tolist())]
    assert 0.95 <= np.mean(held) <= 0.97  # 0.957 by the binomial


def test_a_drift_of_both_leaves_the_ratio() -> None:
    clocks = np.linspace(1, 0.8, 40)
    assert Ratio.of((clocks * 106 / (clocks * 100)).tolist()).low == pytest.approx(1.06)


def test_a_row_holds_a_hundredth_under_its_figure() -> None:
    assert Ratio(1.02, 0.99, 1.05).holds(1.0)
    assert not Ratio(1.02, 0.9899, 1.05).holds(1.0)


def test_both_of_a_pair_follow_the_same_one() -> None:
    order = [i for number in range(41) for i in round_order(number, 2)]
    for number in range(1, 41):
        before_the_pair, first, last = order[2 * number - 1 : 2 * number + 2]
        assert before_the_pair == first != last  # so the second of the pair follows it, too


@given(st.lists(st.floats(0.5, 2), min_size=1, max_size=20), st.floats(0.5, 2))
def test_the_geometric_mean_scales_and_inverts(values: list[float], factor: float) -> None:
    mean = geomean(values)
    assert geomean([factor * v for v in values]) == pytest.approx(factor * mean)
    assert geomean([1 / v for v in values]) == pytest.approx(1 / mean)


def test_a_replay_takes_two_milliseconds_or_three_calls() -> None:
    assert [calls(s) for s in (1e-2, 2.8e-3, 1.7e-4, 2e-5, 1e-6)] == [3, 3, 12, 100, 400]


def test_spread_is_of_the_medians_in_a_drift() -> None:
    clocks = [1 + n / 50 for n in range(40)]
    shares, wide = spread([[c * t for c in clocks] for t in (100, 102, 98, 100)])
    assert wide == pytest.approx(102 / 98 - 1)
    assert math.prod(shares) == pytest.approx(1)
