"""The groups of rows: their sizes, figures and reproducible random shapes."""

from __future__ import annotations

import math
import statistics

import pytest
from compare.model_layers import LAYERS, TOKENS, layer_sizes
from compare.rows import GROUPS, LARGEST, SMALLEST, SURVEYS, random_shapes, rows_of


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
        ("layers", 183, {0.97}),
        ("multiples-of-8", 50, {0.92}),
        ("multiples-of-64", 50, {0.92}),
    ],
)
def test_groups(group: str, count: int, figures: set[float | None]) -> None:
    rows = rows_of(group)
    assert len(set(rows)) == count
    assert {row.figure for row in rows} == figures


def test_text_of_a_row() -> None:
    assert str(rows_of("headline")[3]) == "4096×28672×8192 bf16 TN"
    fast, exact = rows_of("fp8")[:2]
    assert (str(fast), str(exact)) == ("2048×2048×2048 e4m3 TN fast", "2048×2048×2048 e4m3 TN")
    assert str(rows_of("layers")[0]) == "GPT-2 qkv 1×2304×768 bf16 TN"
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


@pytest.mark.parametrize("multiple", [8, 64])
def test_random_multiples(multiple: int) -> None:
    rows = rows_of(f"multiples-of-{multiple}")
    assert not any(size % multiple for row in rows for size in (row.m, row.n, row.k))
    sizes = {size // multiple % 2 for row in rows for size in (row.m, row.n, row.k)}
    assert sizes == {0, 1}  # not multiples of more
    assert rows[:5] == rows_of(f"multiples-of-{multiple}", 5)
    assert rows != rows_of(f"multiples-of-{multiple}", seed=1)


def test_layers_of_models() -> None:
    assert len({(layer.n, layer.k) for layer in LAYERS}) == len(LAYERS) >= 40
    assert len({str(layer) for layer in LAYERS}) == len(LAYERS)
    assert len({layer.model for layer in LAYERS}) >= 10
    assert {layer.type for layer in LAYERS} == {"bf16", "e4m3"}
    sizes = layer_sizes()
    for layer in LAYERS:
        small, middle, large = (m for other, m in sizes if other is layer)
        assert small <= 64 < middle <= 512 < large
    counts = [sum(m == tokens for _, m in sizes) for tokens in TOKENS]
    assert max(counts) - min(counts) <= 1
    assert len(rows_of("layers", tokens=TOKENS)) == len(TOKENS) * len(LAYERS)
    assert {row.fast for row in rows_of("layers") if row.type == "e4m3"} == {True}


def test_surveys_are_not_of_the_table() -> None:
    assert not set(SURVEYS) & set(GROUPS)
