"""Targets: who runs whose code, what each needs, and names that are none."""

from __future__ import annotations

from itertools import product

import pytest

from tilewright.errors import TargetError
from tilewright.target import (
    DEFAULT_DEVICE,
    FIRST_VERSION,
    LIMITS,
    Target,
    device_spec,
    lowest_version_for,
    parse_version,
    targets_of,
)  # fmt: skip

ALL = [Target.parse(name) for name in FIRST_VERSION]


def test_names_come_back() -> None:
    assert [t.name for t in ALL] == list(FIRST_VERSION)
    t = Target.parse("sm_90a")
    assert (t.number, t.suffix, str(t)) == (90, "a", "sm_90a")


@pytest.mark.parametrize("name", ["sm_91", "sm_80a", "compute_80", "90a", "", "sm_"])
def test_unknown_targets_are_errors(name: str) -> None:
    with pytest.raises(TargetError, match="unknown target"):
        Target.parse(name)


def test_who_runs_what() -> None:
    runs = lambda a, b: Target.parse(a).runs(b)  # noqa: E731
    assert runs("sm_90a", "sm_80") and runs("sm_90a", "sm_90") and runs("sm_90a", "sm_90a")
    assert not runs("sm_90", "sm_90a") and not runs("sm_100a", "sm_90a")
    assert not runs("sm_80", "sm_90")
    assert runs("sm_103a", "sm_100f") and runs("sm_100a", "sm_100f")
    assert not runs("sm_120a", "sm_100f") and not runs("sm_100", "sm_100f")
    assert not runs("sm_100a", "sm_103f")


def test_running_is_an_order() -> None:
    for a, b in product(ALL, ALL):
        assert a.runs(a)
        if a.runs(b):
            assert a >= b
            assert all(a.runs(c) for c in ALL if b.runs(c)), (a, b)


def test_versions() -> None:
    assert lowest_version_for("sm_90a") == (8, 0)
    assert parse_version("8.5") == (8, 5)
    assert all(t.first_version <= (9, 0) for t in targets_of((9, 0)))
    with pytest.raises(TargetError, match=r"must be like 8\.5, got '8'"):
        parse_version("8")


def test_an_sm_holds_at_least_one_block() -> None:
    for number, limits in LIMITS.items():
        assert limits.shared_per_block + limits.shared_reserved <= limits.shared_per_sm, number
        assert limits.threads_per_sm >= limits.threads_per_block
    with pytest.raises(TargetError, match="not known"):
        _ = Target.parse("sm_35").limits


def test_the_default_device_is_the_h200() -> None:
    h200 = device_spec("H200")
    assert h200 is DEFAULT_DEVICE
    assert (h200.target.name, h200.sms, h200.l2) == ("sm_90a", 132, 60 * 2**20)
    assert h200.limits.shared_per_block == 227 * 1024
    with pytest.raises(TargetError, match="H200"):
        device_spec("H300")
