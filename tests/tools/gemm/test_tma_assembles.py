"""NVIDIA's assembler takes kernel tma in every form that is chosen, without spills and warnings."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from kernels import aligned
from ptxas import assemble, ptxas
from sampling import every
from tilewright.gemm import Problem, TmaConfig, build, finish, ranked, takes
from tilewright.target import DEFAULT_DEVICE

pytestmark = pytest.mark.skipif(ptxas() is None, reason="no ptxas")

TYPES = [
    ("bf16", "bf16", "bf16"), ("f16", "f16", "f32"), ("tf32", "tf32", "f32"),
    ("e4m3", "e5m2", "bf16"), ("s8", "u8", "s32"),
]  # fmt: skip
SIZES = [(8192, 8192, 8192), (1536, 1536, 4096), (64, 4096, 8192)]
MORE: dict[str, dict[str, Any]] = {
    "plain": {},
    "C": {"with_c": True},
    "a stack, turned": {"a_major": "m", "b_major": "n", "batch": 3},
    "unaligned, C": {"with_c": True, **aligned(16, 16, 4, 4)},
    "fast": {"fast": True},
}
BEST = 3  # configurations of each problem


@cache
def kernels() -> dict[str, tuple[Problem, TmaConfig]]:
    """The first few for each problem, by what makes them another kernel."""
    made = {}
    for types in TYPES:
        for name, more in MORE.items():
            for sizes in SIZES:
                problem = Problem(*sizes, *types, **more)
                tma = [c for _, c in ranked(problem, DEFAULT_DEVICE) if isinstance(c, TmaConfig)]
                for config in tma[:BEST]:
                    key = f"{types[0]}-{name}-{replace(config, group=8)}"
                    made[key] = takes(problem, config), config
    return made


@pytest.mark.parametrize("name", every(30, kernels()))
def test_it_assembles_without_spills(name: str) -> None:
    problem, config = kernels()[name]
    traced = build(problem, config)
    cubin = assemble(traced.ptx, "sm_90a")
    (usage,) = [u for u in cubin.usage if u.entry == traced.name]
    assert usage.spill_stores == 0
    assert not cubin.warnings
    assert usage.registers * config.threads <= 65536
    if config.split > 1:
        after = finish.build(problem, config)
        assert assemble(after.ptx, "sm_90a").usage[0].spill_stores == 0
