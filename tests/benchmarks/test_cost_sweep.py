"""``benchmarks/cost_sweep.py``: its problems and candidates."""

from __future__ import annotations

from compare.rows import Row, random_shapes
from compare.sweep import candidates, is_held_out, problem_of, shapes
from cost_sweep import distinct_kernels

from tilewright import gemm
from tilewright.target import DEFAULT_DEVICE

SMALL = Row("layers", 256, 768, 3072)


def test_the_heuristics_best_come_first_then_other_structures_that_fit() -> None:
    problem, found = problem_of(SMALL), candidates(SMALL, 5, 12)
    best = [config for _, config in gemm.ranked(problem, DEFAULT_DEVICE)[:5]]
    assert found[:5] == best
    assert len(found) == len(set(found)) == 17
    for config in found:
        gemm.check(problem, config, DEFAULT_DEVICE)
    structures = {(c.tile[0], c.tile[2], c.pingpong, c.cluster, c.split > 1) for c in found[5:]}
    assert len(structures) > 8
    assert len({c.cluster for c in found}) > 4


def test_problems_are_others_for_each_seed() -> None:
    first, second = (list(shapes(seed, 6)) for seed in (7, 8))
    assert {row.m for row in first} >= {16, 64, 128, 256, 512, 1024, 4096}
    assert not {(r.m, r.n, r.k) for r in first[-9:]} & {(r.m, r.n, r.k) for r in second[-9:]}
    assert [(r.m, r.n, r.k) for r in first[-9:-3]] == random_shapes(6, 7, 8)
    held_out = sum(is_held_out(r.m, r.n, r.k) for r in first + second)
    assert 0.2 < held_out / len(first + second) < 0.5


def test_a_kernel_is_compiled_once() -> None:
    other = Row("layers", 128, 1536, 3072)
    sweep = [(SMALL, ["tma:64x64x64:1:8/1x1@8"]), (other, ["tma:64x64x64:1:8/1x1@8"])]
    assert len(distinct_kernels(sweep)) == 1
    assert len(distinct_kernels([*sweep, (Row("x", 128, 1000, 1001), sweep[0][1])])) == 1
    assert len(distinct_kernels([*sweep, (Row("x", 128, 1001, 1000), sweep[0][1])])) == 2
