"""The tuner finds what is fastest, whatever the chip's clock does, and never what is wrong.

The bench is a laboratory: times are known, with noise and drift, and its clock is what they add up
to. What is measured on a GPU is looked at in ``test_config_benchmark`` and ``test_autotuner_gpu``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from tilewright import gemm
from tilewright.errors import ConfigError, CudaError
from tilewright.run.tuning.autotuner import BOUT, FIELD, TuningOutcome, tune
from tilewright.run.tuning.search_space import candidates, neighbours
from tilewright.target import DEFAULT_DEVICE, DEVICES

PROBLEM = gemm.Problem(4096, 4096, 4096)
CONFIGS = [gemm.parse(f"tma:64x{n}x64:1:4") for n in range(8, 257, 8)]
ASSEMBLED = 0.01  # seconds


class Laboratory:
    """``us[i]`` is the true time of ``CONFIGS[i]``; ``noise`` a share of it, ``drift`` of all."""

    def __init__(
        self, us: Sequence[float], noise: float = 0.0, drift: float = 0.0, seed: int = 0,
        wrong: Sequence[int] = (), odd: Sequence[int] = (), broken: Sequence[int] = (),
        stop: int | None = None, fatal: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.us = dict(zip(CONFIGS, us, strict=False))
        self.noise, self.drift, self.rng = noise, drift, np.random.default_rng(seed)
        self.wrong, self.odd, self.broken = ({CONFIGS[i] for i in x} for x in (wrong, odd, broken))
        self.fatal = {CONFIGS[i] for i in fatal}
        self.seconds, self.left = 0.0, stop

    def clock(self) -> float:
        return self.seconds

    def assemble(self, config: Any) -> Any:
        if config in self.broken:
            raise ConfigError("it can't be assembled")
        return config

    def check(self, config: Any) -> bytes | None:
        self.seconds += ASSEMBLED
        if config in self.fatal:
            raise CudaError("it faulted", code=700, name="CUDA_ERROR_ILLEGAL_ADDRESS", fatal=True)
        return None if config in self.wrong else b"odd" if config in self.odd else b"right"

    def times(self, configs: Sequence[Any], rounds: int) -> list[list[float]]:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt
        taken: list[list[float]] = [[] for _ in configs]
        for _ in range(rounds):
            for own, config in zip(taken, configs, strict=True):
                slow = 1 + self.drift * np.sin(self.seconds)
                own.append(self.us[config] * slow * (1 + self.noise * self.rng.standard_normal()))
                self.seconds += own[-1] * 1e-5  # ten calls
        return taken

    def tune(self, budget: float = 60.0) -> TuningOutcome:
        return tune(self, list(self.us), budget, clock=self.clock)


@given(st.integers(0, 31), st.integers(0, 10**6))
@examples(25)
def test_the_fastest_is_found(fastest: int, seed: int) -> None:
    """Two percent between them, noise of one, and a clock that drifts by ten."""
    us = 100 * 1.02 ** np.random.default_rng(seed).permutation(len(CONFIGS))
    us[fastest] = 98
    found = Laboratory(us, noise=0.01, drift=0.1, seed=seed).tune()
    assert found.chosen.config == CONFIGS[fastest] and found.ended == "sure"
    assert found.gain.low * 0.98 <= us[0] / 98 <= found.gain.high * 1.02


def test_the_heuristic_stays_where_none_is_surely_faster() -> None:
    found = Laboratory([100.0] * 20).tune()
    assert found.chosen == found.heuristic and found.heuristic.config == CONFIGS[0]
    assert found.ended == "a tie" and found.gain == (1, 1, 1)


def test_what_is_wrong_is_not_chosen_however_fast() -> None:
    found = Laboratory([100, 50, 40, 30, 99], wrong=[1], odd=[2], broken=[3]).tune()
    assert found.chosen.config == CONFIGS[4]
    assert dict(found.failed).keys() == {CONFIGS[i] for i in (1, 2, 3)}
    assert "other bits" in dict(found.failed)[CONFIGS[2]]
    assert {s.config for s in found.standings} == {CONFIGS[0], CONFIGS[4]}


def test_a_configuration_that_takes_the_gpu_with_it_is_named() -> None:
    with pytest.raises(CudaError, match=f"{CONFIGS[2]}: it faulted") as caught:
        Laboratory([5.0] * 4, fatal=[2]).tune()
    assert caught.value.fatal and caught.value.code == 700


@pytest.mark.parametrize("how", ["wrong", "odd", "broken"])
def test_a_heuristic_that_is_wrong_is_an_error(how: str) -> None:
    with pytest.raises(ConfigError):
        Laboratory([100, 90, 80], **{how: [0]}).tune()


@pytest.mark.parametrize(("stop", "measured"), [(3, 3), (12, 12), (32, 32), (33, 32)])
def test_ctrl_c_keeps_what_was_found(stop: int, measured: int) -> None:
    """In a first heat, in the first bout, in the second."""
    found = Laboratory(np.linspace(100, 85, len(CONFIGS)), noise=0.01, stop=stop).tune()
    assert found.ended == "stopped" and len(found.standings) == measured
    best = max(CONFIGS.index(s.config) for s in found.standings)
    if found.chosen == found.heuristic:
        assert measured <= 12
    else:
        assert found.gain.low > 1 and CONFIGS.index(found.chosen.config) > best - 8


def test_ctrl_c_before_anything_was_found_is_itself() -> None:
    with pytest.raises(KeyboardInterrupt):
        Laboratory([100, 90], stop=0).tune()


@pytest.mark.parametrize("budget", [0.0, 0.2, 1.0, 5.0])
def test_the_time_is_kept(budget: float) -> None:
    """But for one bout of the whole field, and the first heat."""
    laboratory = Laboratory(np.linspace(1000, 999, len(CONFIGS)), noise=0.01)
    found = laboratory.tune(budget)
    most = (FIELD + 1) * BOUT * 1000e-5
    assert laboratory.seconds <= budget + most + ASSEMBLED
    assert found.standings


# --- who is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["H200", "A100", "RTX 4090"])
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (16, 8192, 8192), (300, 200, 100)])
def test_rivals_fit_and_the_heuristic_is_the_first(
    sizes: tuple[int, int, int], device: str
) -> None:
    problem, on = PROBLEM.with_sizes(*sizes), DEVICES[device]
    found = candidates(problem, on)
    assert found[0] == gemm.choose(problem, on)
    assert 10 <= len(found) == len(set(found)) <= 120
    for config in found:
        gemm.check(problem, config, on)


def test_neighbours_differ_in_one_thing() -> None:
    config = gemm.choose(PROBLEM, DEFAULT_DEVICE)
    found = list(neighbours(config))
    fields = config.__dataclass_fields__
    for other in found:
        assert sum(getattr(other, x) != getattr(config, x) for x in fields) <= 1
    changed = {x for o in found for x in fields if getattr(o, x) != getattr(config, x)}
    assert changed == {"stages", "group", "cluster", "split", "dynamic"}


def test_f64_s_rivals_have_other_instructions() -> None:
    """Those that go with the same tile: m16n8k16 would take 32 of K."""
    problem = gemm.Problem(4096, 4096, 4096, "f64", "f64", "f64")
    found = candidates(problem, DEFAULT_DEVICE)
    assert {x.mma for x in found} == {(8, 8, 4), (16, 8, 4), (16, 8, 8)}
    assert {x.persistent for x in found} == {False, True}
