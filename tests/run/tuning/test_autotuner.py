"""The autotuner finds the fastest configuration despite noise and clock drift, and no wrong one.

The benchmark is simulated: true times are known, with noise and drift, and its clock advances by
them. ``test_config_benchmark`` and ``test_autotuner_gpu`` test the real benchmark.
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
from tilewright.run.tuning.autotuner import FINALISTS, STAGE_ROUNDS, TuningOutcome, tune
from tilewright.run.tuning.search_space import candidates, neighbours
from tilewright.target import DEFAULT_DEVICE, DEVICES

PROBLEM = gemm.Problem(4096, 4096, 4096)
CONFIGS = [gemm.parse(f"tma:64x{n}x64:1:4") for n in range(8, 257, 8)]
ASSEMBLED = 0.01  # seconds


class Laboratory:
    """A simulated benchmark: ``us[i]`` is the true time of ``CONFIGS[i]``; ``noise`` is relative to
    each time, ``drift`` common to all.
    """

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
    """Times 2 % apart, 1 % noise, 10 % clock drift."""
    us = 100 * 1.02 ** np.random.default_rng(seed).permutation(len(CONFIGS))
    us[fastest] = 98
    found = Laboratory(us, noise=0.01, drift=0.1, seed=seed).tune()
    assert found.chosen.config == CONFIGS[fastest] and found.ended == "one candidate left"
    assert found.gain.low * 0.98 <= us[0] / 98 <= found.gain.high * 1.02


def test_the_heuristic_s_choice_stays_if_none_is_significantly_faster() -> None:
    found = Laboratory([100.0] * 20).tune()
    assert found.chosen == found.heuristic and found.heuristic.config == CONFIGS[0]
    assert found.ended == "no significant difference" and found.gain == (1, 1, 1)


def test_wrong_configurations_are_never_chosen() -> None:
    found = Laboratory([100, 50, 40, 30, 99], wrong=[1], odd=[2], broken=[3]).tune()
    assert found.chosen.config == CONFIGS[4]
    assert dict(found.failed).keys() == {CONFIGS[i] for i in (1, 2, 3)}
    assert "other bits" in dict(found.failed)[CONFIGS[2]]
    assert {s.config for s in found.timings} == {CONFIGS[0], CONFIGS[4]}


def test_a_fatal_error_names_the_configuration() -> None:
    with pytest.raises(CudaError, match=f"{CONFIGS[2]}: it faulted") as caught:
        Laboratory([5.0] * 4, fatal=[2]).tune()
    assert caught.value.fatal and caught.value.code == 700


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("wrong", "the heuristic's choice, gives wrong results"),
        ("odd", "the heuristic's choice, gives other bits"),
        ("broken", "it can't be assembled"),
    ],
)
def test_an_error_of_the_heuristic_s_choice_is_raised(fault: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Laboratory([100, 90, 80], **{fault: [0]}).tune()


@pytest.mark.parametrize(("stop", "measured"), [(3, 3), (12, 12), (32, 32), (33, 32)])
def test_ctrl_c_returns_the_outcome_so_far(stop: int, measured: int) -> None:
    """In qualification, in the first stage of the finals, in the second."""
    found = Laboratory(np.linspace(100, 85, len(CONFIGS)), noise=0.01, stop=stop).tune()
    assert found.ended == "stopped" and len(found.timings) == measured
    best = max(CONFIGS.index(s.config) for s in found.timings)
    if found.chosen == found.heuristic:
        assert measured <= 12
    else:
        assert found.gain.low > 1 and CONFIGS.index(found.chosen.config) > best - 8


def test_ctrl_c_before_any_measurement_is_raised() -> None:
    with pytest.raises(KeyboardInterrupt):
        Laboratory([100, 90], stop=0).tune()


@pytest.mark.parametrize("budget", [0.0, 0.2, 1.0, 5.0])
def test_the_time_limit(budget: float) -> None:
    """Exceeded by at most one stage of all finalists and one qualification."""
    laboratory = Laboratory(np.linspace(1000, 999, len(CONFIGS)), noise=0.01)
    found = laboratory.tune(budget)
    slack = (FINALISTS + 1) * STAGE_ROUNDS * 1000e-5
    assert laboratory.seconds <= budget + slack + ASSEMBLED
    assert found.timings


# --- the search space ----------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["H200", "A100", "RTX 4090"])
@pytest.mark.parametrize("sizes", [(4096, 4096, 4096), (16, 8192, 8192), (300, 200, 100)])
def test_candidates_are_valid_and_the_heuristic_s_choice_is_first(
    sizes: tuple[int, int, int], device: str
) -> None:
    problem, on = PROBLEM.with_sizes(*sizes), DEVICES[device]
    found = candidates(problem, on)
    assert found[0] == gemm.choose(problem, on)
    assert 10 <= len(found) == len(set(found)) <= 120
    for config in found:
        gemm.check(problem, config, on)


def test_neighbours_differ_in_one_option() -> None:
    config = gemm.choose(PROBLEM, DEFAULT_DEVICE)
    found = list(neighbours(config))
    fields = {*config.__dataclass_fields__} - {"in_cluster"}  # which belongs to split
    for other in found:
        assert sum(getattr(other, x) != getattr(config, x) for x in fields) <= 1
    changed = {x for o in found for x in fields if getattr(o, x) != getattr(config, x)}
    assert changed == {"stages", "group", "cluster", "split", "dynamic", "stream_k"}


def test_f64_candidates_have_several_instructions() -> None:
    """Those that fit the same tile: m16n8k16 would need a k-tile of 32."""
    problem = gemm.Problem(4096, 4096, 4096, "f64", "f64", "f64")
    found = candidates(problem, DEFAULT_DEVICE)
    assert {x.mma for x in found} == {(8, 8, 4), (16, 8, 4), (16, 8, 8)}
    assert {x.persistent for x in found} == {False, True}
