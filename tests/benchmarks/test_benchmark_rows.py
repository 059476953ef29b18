"""The rows: as many as there should be, with their figures; random ones that stay what they are."""

from __future__ import annotations

import math
import statistics

import pytest
from compare.rows import LARGEST, SMALLEST, random_shapes, rows_of


@pytest.mark.parametrize(
    ("group", "count", "figures"),
    [
        ("headline", 10, {1.0}),
        ("skinny", 8, {1.0}),
        ("layouts", 16, {None}),
        ("fp8", 10, {1.0}),
        ("s8", 2, {1.6, 1.35}),
        ("tf32", 2, {1.0}),
        ("f32", 6, {None}),
        ("random", 50, {0.85}),
    ],
)
def test_groups(group: str, count: int, figures: set[float | None]) -> None:
    rows = rows_of(group)
    assert len(set(rows)) == count
    assert {row.figure for row in rows} == figures


def test_a_row_reads_as_it_is_spoken_of() -> None:
    assert str(rows_of("headline")[3]) == "4096×28672×8192 bf16 TN"
    fast, exact = rows_of("fp8")[:2]
    assert (str(fast), str(exact)) == ("2048×2048×2048 e4m3 TN fast", "2048×2048×2048 e4m3 TN")
    assert {row.result for row in rows_of("fp8")} == {"bf16"}
    assert rows_of("tf32")[1].flops == 2 * 8192**3


def test_a_seed_is_always_the_same_shapes() -> None:
    assert random_shapes(3, 1) == random_shapes(50, 1)[:3]
    assert random_shapes(2, 0) == [(6914, 4281, 659), (269, 1090, 604)]


def test_random_sizes_are_log_uniform() -> None:
    sizes = [n for shape in random_shapes(2000, 0) for n in shape]
    assert min(sizes) >= SMALLEST and max(sizes) <= LARGEST
    logs = [math.log(n / SMALLEST, LARGEST / SMALLEST) for n in sizes]
    quarters = statistics.quantiles(logs, n=4)
    assert quarters == pytest.approx([0.25, 0.5, 0.75], abs=0.02)
    assert any(n % 8 for n in sizes)
