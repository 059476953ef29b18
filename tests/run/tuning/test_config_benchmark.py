"""What the tuner asks of a bench, on the virtual machine: whose times say nothing, and whose bits
do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tilewright import gemm
from tilewright.errors import DeviceError
from tilewright.run import Plan, plan
from tilewright.run.tuning.autotuner import tune
from tilewright.run.tuning.config_benchmark import ConfigBenchmark
from tilewright.run.tuning.search_space import candidates

pytestmark = pytest.mark.vm


class Counter:
    """Does the work once for each round, and counts it."""

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


@pytest.mark.parametrize(
    "given",
    [
        {"layout": "tn"}, {"layout": "nt", "c": True, "out_dtype": "f32"}, {"dtype": "tf32"},
        {"dtype": "e4m3,e5m2", "layout": "nn", "batch": 2}, {"dtype": "s8,u8", "batch": 3},
        {"dtype": "e4m3", "fast_accum": True}, {"dtype": "bf16", "layout": "nn"}, {"dtype": "f32"},
        {"dtype": "f64", "layout": "nt", "c": True},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("most", [2, pytest.param(1000, marks=pytest.mark.slow)])
def test_all_configurations_give_the_same_bits(given: dict[str, Any], most: int) -> None:
    """Cut along K or not, swapped or not, of any tile: sums of small whole numbers are exact."""
    odd = given in ({"layout": "tn"}, {"dtype": "bf16", "layout": "nn"})
    found = plan(75, 101 if odd else 112, 173 if odd else 192, device="vm", **given)
    with bench(found) as there:
        assert there.heuristic == gemm.choose(there.problem, found.device.target)
        every = candidates(there.problem, found.device.target)
        some = every[:: max(16, -(-len(every) // most))]
        bits = {there.check(there.assemble(config)) for config in some}
        assert len(some) > 1 and len(bits) == 1 and None not in bits


class Spoiled(ConfigBenchmark):
    """Its kernel leaves one element of D as it was, or writes one beside it."""

    spoil = 0

    def _work(self, way: Any, views: Any) -> Any:
        work, d = super()._work(way, views), views["d"]

        def spoiled(stream: int) -> None:
            work(stream)
            self.device.upload(d.address + 2 * self.spoil, np.full((1, 1), 7, np.uint16), 1)

        return spoiled


def test_a_wrong_element_is_seen() -> None:
    """In a row that is known it is wrong; elsewhere the bits are not the others'."""
    found = plan(64, 64, 64, device="vm")
    assert found.request is not None
    with Spoiled(found.request, found.device, Counter()) as there:
        entry = there.assemble(there.heuristic)
        assert there.check(entry) is None
        there.spoil = 64
        assert there.check(entry) is not None
    with bench(found) as right:
        assert right.check(right.assemble(right.heuristic)) is not None


def test_a_replay_takes_all_matrices_in_turn() -> None:
    found = plan(64, 64, 64, device="vm")
    with bench(found) as there:
        addresses = {s.views["d"].address for s in there._sets}
        size = sum(2 * 64 * 64 for _ in "abd")
        assert len(addresses) == 256 and size * 256 < found.device.target.l2
        (own,) = there.times([there.assemble(there.heuristic)], 3)
        assert own == [10 / there._calls] * 3
        assert there._calls >= 256


def test_the_tuner_on_this_bench() -> None:
    """The second of a pair takes twice as long here, so the heuristic's choice stays."""
    found = plan(64, 64, 64, device="vm")
    with bench(found) as there:
        result = tune(there, candidates(there.problem, found.device.target)[:4], 30.0)
        assert result.chosen.config == there.heuristic and not result.failed
        kept = result.result(there.problem, found.device.target, "none")
        assert kept.holds(there.problem, found.device.target)
        assert there._timer.closed == 0
    assert there._timer.closed == 4


def test_times_of_the_machine_are_refused() -> None:
    found = plan(64, 64, 64, device="vm")
    assert found.request is not None
    with pytest.raises(DeviceError, match="tuning needs a GPU"):
        ConfigBenchmark(found.request, found.device)
