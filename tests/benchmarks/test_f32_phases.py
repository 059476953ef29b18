"""``benchmarks/f32_phases.py``: its kernel with clocks, by the buffers that it allocates."""

from __future__ import annotations

from math import prod

import f32_phases
import numpy as np
import pytest

import tilewright
from tilewright import gemm
from tilewright.gemm.cp_async.simt_config import SimtConfig
from tilewright.gemm.cp_async.simt_launch import launched_config
from tilewright.vm import Machine

pytestmark = pytest.mark.vm
SIZES = 48, 64, 72  # whole tiles


@pytest.mark.parametrize("config", ["16x32x8:4x8:3", "16x32x8:4x8:3*2", "16x32x8:4x8:3*2c"])
def test_each_cta_stores_its_clocks_in_order(config: str) -> None:
    """The product is in D, or with split-K its parts are in the workspace."""
    m, n, k = SIZES
    plan = tilewright.plan(*SIZES, dtype="f32", device="vm")
    problem, device = plan.problem, plan.device.target
    chosen = launched_config(SimtConfig.parse(f"simt:{config}"), device)
    rng, machine = np.random.default_rng(0), Machine()
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((m, k), (k, n)))
    held = {x: np.zeros(size // 4, np.float32) for x, size in
            f32_phases.buffers(problem, chosen, device).items()}  # fmt: skip
    held |= {"a": a, "b": b}
    places = {x: machine.upload(array) for x, array in held.items() if array.size}
    traced = f32_phases.with_clocks(problem, chosen)
    shape = gemm.launch_shape(problem, chosen, device)
    machine.load(traced.module)
    machine.launch(
        traced.name, shape.grid, shape.block,
        f32_phases.parameters(problem, chosen, device, places),
        shared=traced.dynamic_shared, cluster=shape.cluster,
    )  # fmt: skip
    clocks = machine.download(places["c"], like=held["c"]).view(np.int64)
    clocks = clocks.reshape(prod(shape.grid), f32_phases.WORDS)
    assert (np.diff(clocks[:, :6]) >= 0).all() and (clocks[:, 5] > 0).all()
    assert (clocks[:, 7] >= clocks[:, 6]).all()
    place = "w" if chosen.has_partials else "d"
    found = machine.download(places[place], like=held[place])
    assert found.sum() == (a @ b).sum()
