"""``benchmarks/gemm.py``: what its options ask for."""

from __future__ import annotations

import gemm
import pytest
from compare.rows import GROUPS, Row, random_shapes

from tilewright.gemm import TABLE


def test_without_options_all_groups_are_measured() -> None:
    given = gemm.parsed([])
    assert given.groups == list(GROUPS)
    assert len(given.asked) == 104
    assert given.configs == [None]


def test_hosts_and_shapes_stand_alone_or_beside_groups() -> None:
    assert gemm.parsed(["--hosts"]).asked == []
    assert {r.group for r in gemm.parsed(["--hosts", "--rows", "s8,tf32"]).asked} == {"s8", "tf32"}
    own = gemm.parsed(["--shapes", "300x200x100", "--types", "bf16,f16", "--layouts", "nt"])
    shape = "shapes", 300, 200, 100
    assert own.asked == [Row(*shape, "bf16", "nt"), Row(*shape, "f16", "nt")]


def test_random_rows_are_the_seeds() -> None:
    asked = gemm.parsed(["--rows", "random", "--random", "7", "--seed", "3"]).asked
    assert [(r.m, r.n, r.k) for r in asked] == random_shapes(7, 3)


def test_configurations() -> None:
    configs = gemm.parsed(["--configs", "chosen,tma:128x128x64:2p:5/1x1@8,table"]).configs
    assert configs[:2] == [None, "tma:128x128x64:2p:5/1x1@8"]
    assert configs[2:] == [str(config) for config in TABLE]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rows", "headlines"], "no rows 'headlines'; there are headline, skinny"),
        (["--shapes", "128x128"], "'128x128': a shape is three sizes"),
        (["--pairs", "5"], "at least 6 pairs"),
    ],
)
def test_what_is_not_there_is_refused(words: list[str], said: str, capsys) -> None:
    with pytest.raises(SystemExit):
        gemm.parsed(words)
    assert said in capsys.readouterr().err
