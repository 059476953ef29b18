"""The tuner on a GPU: its clock, its bits, a whole search."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import cuda, gemm
from tilewright.run import plan
from tilewright.run.tuning.autotuner import tune
from tilewright.run.tuning.config_benchmark import ConfigBenchmark
from tilewright.run.tuning.search_space import candidates

pytestmark = pytest.mark.gpu


def bench(*sizes: int, **how: Any) -> ConfigBenchmark:
    found = plan(*sizes, device="cuda", **how)
    assert found.request is not None
    return ConfigBenchmark(found.request, found.device)


def test_twenty_calls_take_longer_than_one() -> None:
    with bench(512, 512, 512) as there:
        entry, gpu = there.assemble(there.heuristic), there.device.gpu
        assert there.check(entry) is not None
        work = there._work(entry.prepared, there._sets[0])
        one = cuda.Graph(gpu, work)
        twenty = cuda.Graph(gpu, work, 20)
        short, long = cuda.time_interleaved([one, twenty], 9, owner=gpu)
        one.close()
        twenty.close()
    assert len(short) == len(long) == 9
    assert all(5 < y / x < 25 for x, y in zip(short, long, strict=True))


@pytest.mark.parametrize(
    "how",
    [
        {"dtype": "bf16", "layout": "tn"}, {"dtype": "f16", "layout": "nn", "c": True},
        {"dtype": "e4m3", "layout": "tt", "batch": 2}, {"dtype": "s8"}, {"dtype": "tf32"},
        {"dtype": "f16", "sparse": "a"}, {"dtype": "e4m3", "sparse": "b", "batch": 2},
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.sm("sm_90a")
def test_all_configurations_give_the_same_bits(how: dict[str, Any]) -> None:
    with bench(700, 904, 1200, **how) as there:
        configs = candidates(there.problem, there.device.target)[::5]
        bits = {str(config): there.check(there.assemble(config)) for config in configs}
    assert len(set(bits.values())) == 1 and None not in bits.values(), bits


@pytest.mark.sm("sm_90a")
def test_a_search() -> None:
    """The slowest of all is not what is chosen, and what is chosen is no slower than usual."""
    with bench(1024, 1024, 1024, dtype="bf16") as there:
        slow = gemm.parse("tma:64x16x64:1:3")
        configs = [*candidates(there.problem, there.device.target)[:8], slow]
        found = tune(there, configs, 20.0)
    assert not found.failed and len(found.timings) == len(configs)
    assert found.chosen.config != slow == found.timings[-1].config
    assert found.gain.median >= 1
    kept = found.result(there.problem, there.device.target, "")
    assert kept.holds(there.problem, there.device.target)
