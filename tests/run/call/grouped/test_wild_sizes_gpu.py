"""Sizes and indices in device memory that are impossible: nothing outside D is written."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright
from random_grouped_calls import random_sizes

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a"), pytest.mark.slow]

CALLS, BLOCK, CALLS_ALONG_K = 300, 20, 60
GUARD, MARGIN, POISON = 300, 16, 12345.0  # rows around D, columns beside it, and what they contain
CONFIGS = ("tma:64x64x64:1:3", "tma:128x64x64:2:3~", "tma:128x64x64:2p:3/2x1", "tma:64x32x64:1:3~")
CONFIGS_ALONG_K = (*CONFIGS[:2], "tma:128x128x64:2p:3/2x1")
WILD = np.array([-(2**31), -5, -1, 0, 1, 2**20, 2**31 - 1])


class WildCall(NamedTuple):
    """A call whose sizes and indices may have any values; ``rows``: for each group the rows of A
    and of D that these are taken for.
    """

    a: Any
    b: Any
    given: dict[str, Any]
    rows: list[tuple[Any, Any]]
    config: str


def wild_call(seed: int) -> WildCall:
    """The call of a seed: some sizes decrease, exceed the matrix or are negative."""
    rng = np.random.default_rng(seed)
    sizes, n, k = random_sizes(rng), 8 * int(rng.integers(1, 30)), 8 * int(rng.integers(1, 40))
    groups, form = len(sizes), ("offsets", "ends", "counts")[seed % 3]
    m = max(sizes) if form == "counts" else sum(sizes)
    values = {
        "counts": np.array(sizes), "ends": np.cumsum(sizes), "offsets": np.cumsum([0, *sizes])
    }[form]  # fmt: skip
    values = np.where(rng.random(len(values)) < 0.3, rng.choice(WILD, len(values)), values)
    values += np.where(rng.random(len(values)) < 0.3, rng.integers(-99, 99, len(values)), 0)
    values = values.clip(-(2**31), 2**31 - 1)
    lead = (groups, m) if form == "counts" else (m,)
    a, b = rng.standard_normal((*lead, k)), rng.standard_normal((groups, n, k))
    index = np.int32 if rng.random() < 0.5 else np.int64
    given = {"counts" if form == "counts" else "offsets": values.astype(index)}
    rows = _rows(form, values, m)
    if form != "counts" and rng.random() < 0.5:
        gather, scatter = rng.integers(0, m, m), rng.permutation(m)
        for indices in (gather, scatter):
            indices[rng.random(m) < 0.2] = rng.choice(WILD[[0, 1, 2, 5, 6]])
        given |= {"gather": gather.astype(index), "scatter": scatter.astype(index)}
        kept = (scatter >= 0) & (scatter < m)
        rows = [
            (gather[at].clip(0, m - 1)[kept[at]], scatter[at][kept[at]]) for at, _ in rows
        ]  # fmt: skip
    return WildCall(a, b, given, rows, CONFIGS[int(rng.integers(len(CONFIGS)))])


def _rows(form: str, values: Any, m: int) -> list[tuple[Any, Any]]:
    """The rows of each group: an end is at least the begin, and at most the rows of the matrix."""
    if form == "counts":
        counts = values.clip(0, m)
        return [((g, slice(0, int(c))),) * 2 for g, c in enumerate(counts)]
    end = int(values[0].clip(0, m)) if form == "offsets" else 0
    rows = []
    for value in values[1:] if form == "offsets" else values:
        begin, end = end, int(value.clip(end, m))
        rows.append((slice(begin, end),) * 2)
    return rows


@pytest.mark.parametrize("block", range(CALLS // BLOCK))
def test_nothing_outside_d_is_written(block: int) -> None:
    torch = pytest.importorskip("torch")
    for seed in range(BLOCK * block, BLOCK * block + BLOCK):
        call = wild_call(seed)
        a, b = (torch.from_numpy(x).cuda().bfloat16() for x in (call.a, call.b))
        given = {name: torch.from_numpy(x).cuda() for name, x in call.given.items()}
        shape = *a.shape[:-1], b.shape[1]
        around = torch.full(
            (*shape[:-2], 2 * GUARD + shape[-2], shape[-1] + MARGIN), POISON, device="cuda"
        ).bfloat16()
        before = around.clone()
        inside = (..., slice(GUARD, GUARD + shape[-2]), slice(0, shape[-1]))
        weights = [x.mT for x in b] if seed % 2 else b.mT
        tilewright.grouped_matmul(a, weights, out=around[inside], config=call.config, **given)
        d, expected = around[inside], before[inside].clone()
        for g, (of_a, of_d) in enumerate(call.rows):
            expected[of_d] = (a[of_a].float() @ b[g].float().mT).bfloat16()
        assert torch.allclose(d.float(), expected.float(), rtol=2e-2, atol=0.1), seed
        d[:] = before[inside]
        assert torch.equal(around, before), seed


@pytest.mark.parametrize("seed", range(CALLS_ALONG_K))
def test_along_k_the_nearest_possible_range_counts(seed: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    sizes, (m, n) = random_sizes(rng), 8 * rng.integers(1, 30, 2)
    ends = np.cumsum(sizes)
    depth = int(ends[-1])
    ends = np.where(rng.random(len(ends)) < 0.4, rng.choice(WILD, len(ends)), ends)
    a, b = (
        torch.from_numpy(rng.standard_normal((depth, int(x)))).cuda().bfloat16() for x in (m, n)
    )
    offsets = torch.from_numpy(ends.astype(np.int32)).cuda()
    around = torch.full((len(ends) + 2, int(m), int(n)), POISON, device="cuda").bfloat16()
    expected = around.clone()
    config = CONFIGS_ALONG_K[seed % len(CONFIGS_ALONG_K)]
    tilewright.grouped_matmul(
        a.mT, b, offsets=offsets, along="k", out=around[1:-1], config=config
    )  # fmt: skip
    for g, end in enumerate(ends):
        begin = int(ends[g - 1].clip(0, depth)) if g else 0
        rows = slice(begin, int(end.clip(begin, depth)))
        expected[g + 1] = (a[rows].float().mT @ b[rows].float()).bfloat16()
    assert torch.allclose(around.float(), expected.float(), rtol=2e-2, atol=0.1)
