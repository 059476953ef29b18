"""The benchmark of configurations, on the virtual machine, whose bits are checked but whose times
mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rows import slow_but
from tilewright import gemm
from tilewright.errors import DeviceError
from tilewright.run import Plan, plan
from tilewright.run.tuning.autotuner import tune
from tilewright.run.tuning.config_benchmark import ConfigBenchmark
from tilewright.run.tuning.search_space import candidates

pytestmark = pytest.mark.vm


class Counter:
    """A timer that returns fixed times and counts the recordings that are closed."""

    def __init__(self) -> None:
        self.closed = 0

    def record(self, work: Any) -> Any:
        counter = self

        class Recorded:
            run = staticmethod(work)

            def close(self) -> None:
                counter.closed += 1

        return Recorded()

    def time_interleaved(self, recorded: Sequence[Any], rounds: int) -> list[list[float]]:
        return [[float(10 * i + 10)] * rounds for i, _ in enumerate(recorded)]


def bench(found: Plan) -> ConfigBenchmark:
    assert found.request is not None
    return ConfigBenchmark(found.request, found.device, Counter())


EXACT: list[dict[str, Any]] = [
    {"layout": "nt", "c": True, "out_dtype": "f32"}, {"dtype": "bf16", "layout": "nn"},
    {"dtype": "e4m3,e5m2", "layout": "nn", "batch": 2}, {"dtype": "s8,u8", "batch": 3},
    {"dtype": "f32"}, {"dtype": "e4m3", "sparse": "b", "fast_accum": True},
    {"layout": "tn"}, {"dtype": "tf32"}, {"dtype": "e4m3", "fast_accum": True},
    {"dtype": "f64", "layout": "nt", "c": True}, {"sparse": "a", "layout": "tt", "c": True},
    {"dtype": "tf32", "sparse": "b", "batch": 2}, {"dtype": "s8,u8", "sparse": "a"},
]  # fmt: skip


@pytest.mark.parametrize("given", slow_but(EXACT[:6:2], EXACT), ids=str)
@pytest.mark.parametrize("most", slow_but((2,), (2, 1000)))
def test_all_configurations_give_the_same_bits(given: dict[str, Any], most: int) -> None:
    """With split-K or not, swapped or not, for any tile: sums of small integers are exact."""
    odd = given in ({"layout": "tn"}, {"dtype": "bf16", "layout": "nn"})
    found = plan(75, 101 if odd else 112, 173 if odd else 192, device="vm", **given)
    with bench(found) as benchmark:
        assert benchmark.heuristic == gemm.choose(benchmark.problem, found.device.target)
        every = candidates(benchmark.problem, found.device.target)
        some = every[:: max(16, -(-len(every) // most))]
        bits = {benchmark.check(benchmark.assemble(config)) for config in some}
        assert len(some) > 1 and len(bits) == 1 and None not in bits


class Spoiled(ConfigBenchmark):
    """Its kernel overwrites one element of D, or one next to it."""

    spoil = 0

    def _work(self, prepared: Any, matrices: Any) -> Any:
        work, d = super()._work(prepared, matrices), matrices.views["d"]

        def spoiled(stream: int) -> None:
            work(stream)
            self.device.upload(d.address + 2 * self.spoil, np.full((1, 1), 7, np.uint16), 1)

        return spoiled


def test_a_wrong_element_is_detected() -> None:
    """In a reference row the check fails; elsewhere the bits differ from other configurations'."""
    found = plan(64, 64, 64, device="vm")
    assert found.request is not None
    with Spoiled(found.request, found.device, Counter()) as benchmark:
        entry = benchmark.assemble(benchmark.heuristic)
        assert benchmark.check(entry) is None
        benchmark.spoil = 64
        assert benchmark.check(entry) is not None
    with bench(found) as right:
        assert right.check(right.assemble(right.heuristic)) is not None


def test_a_replay_rotates_through_all_matrices() -> None:
    found = plan(64, 64, 64, device="vm")
    with bench(found) as benchmark:
        addresses = {s.views["d"].address for s in benchmark._sets}
        size = sum(2 * 64 * 64 for _ in "abd")
        assert len(addresses) == 256 and size * 256 < found.device.target.l2
        (own,) = benchmark.times([benchmark.assemble(benchmark.heuristic)], 3)
        assert own == [10 / benchmark._calls] * 3
        assert benchmark._calls >= 256


def test_tune_with_this_benchmark() -> None:
    """The second of a pair takes twice as long, so the heuristic's choice is chosen."""
    found = plan(64, 64, 64, device="vm")
    with bench(found) as benchmark:
        result = tune(benchmark, candidates(benchmark.problem, found.device.target)[:4], 30.0)
        assert result.chosen.config == benchmark.heuristic and not result.failed
        record = result.result(benchmark.problem, found.device.target, "none")
        assert record.holds(benchmark.problem, found.device.target)
        assert benchmark._timer.closed == 0
    assert benchmark._timer.closed == 4


def test_the_virtual_machine_has_no_timer() -> None:
    found = plan(64, 64, 64, device="vm")
    assert found.request is not None
    with pytest.raises(DeviceError, match="tuning needs a GPU"):
        ConfigBenchmark(found.request, found.device)
