"""Kernel multistage with elements of less than a byte, s4, u4 and b1, packed along K: exact.

They have no arrays, so the kernels are launched with addresses of packed rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gemm_cases.packed_products import elements, product
from rows import every_row
from tilewright import gemm
from tilewright.errors import ConfigError, DtypeError, ProblemError, TargetError
from tilewright.gemm import Config, Problem, parse
from tilewright.gemm.cp_async.multistage_config import table
from tilewright.run import VmDevice
from tilewright.target import DEVICES, device_spec

pytestmark = pytest.mark.vm

PAIRS = [("s4", "s4"), ("s4", "u4"), ("u4", "s4"), ("u4", "u4"), ("b1", "b1")]
A100 = device_spec("A100")


CASES = {
    "whole tiles": ("32x32x512:1x2:3", (64, 64, 2048), {}),
    "edges": ("32x32x512:2x1:3", (33, 70, 808), {"align_a": 4, "align_b": 4}),
    "C, a stack": ("32x32x512:1x1:2", (20, 33, 1032), {"with_c": True, "batch": 3}),
    "split-K": ("32x64x512:1x2:2*3", (40, 70, 2200), {"with_c": True}),
    "one stage": ("32x32x512:1x2:1", (40, 33, 600), {"align_a": 8}),
    "persistent": ("32x32x1024:1x2:2p", (128, 128, 1104), {}),
    "no K": ("32x32x512:1x2:2", (20, 20, 0), {"with_c": True}),
}


@every_row("types", PAIRS, ids="×".join, parts=17)
@every_row(("config", "sizes", "more"), CASES.values(), ids=CASES)
def test_it_is_exact(
    types: tuple[str, str], config: str, sizes: tuple[int, int, int], more: dict[str, Any]
) -> None:
    m, n, k = sizes
    align = 16 if n % 4 == 0 else 4
    problem = Problem(m, n, k, *types, "s32", align_c=align, align_d=align, **more)
    a, b = elements(types[0], problem.batch, m, k), elements(types[1], problem.batch, n, k)
    c = np.random.default_rng(0).integers(-99, 99, (problem.batch, m, n)).astype(np.int32)
    gemm.check(problem, parse(config), A100)
    d = product(problem, parse(config), a, b, c, VmDevice(A100))
    want = a @ b.swapaxes(1, 2) + (c if problem.with_c else 0)
    assert np.array_equal(d, want)


@every_row("config", ["64x64x64:2x2:3:m16n8k32", "64x32x256:2x1:2"])
def test_both_instructions_of_s4(config: str) -> None:
    problem = Problem(40, 40, 300, "s4", "u4", "s32")
    a, b = elements("s4", 1, 40, 300), elements("u4", 1, 40, 300)
    d = product(problem, parse(config), a, b, np.zeros((1, 40, 40), np.int32), VmDevice(A100))
    assert np.array_equal(d, a @ b.swapaxes(1, 2))


ABLE = {name: gpu for name, gpu in DEVICES.items() if gpu.target.runs("sm_80")}


@every_row("name", ABLE)
@every_row("types", PAIRS, ids="×".join)
def test_every_device_has_a_configuration(name: str, types: tuple[str, str]) -> None:
    """Hopper too, by mma.sync."""
    for sizes in ((8192,) * 3, (16, 4096, 4096), (3, 5, 8)):
        problem = Problem(*sizes, *types, "s32")
        chosen = gemm.choose(problem, ABLE[name])
        gemm.check(problem, chosen, ABLE[name])
        assert isinstance(chosen, Config)


def test_the_table_has_as_many_bytes_of_k() -> None:
    depths = {t: {c.tile[2] for c in table(t, A100.target)} for t in ("f16", "s4", "b1")}
    assert depths == {"f16": {32, 64}, "s4": {128, 256}, "b1": {512, 1024}}


@pytest.mark.parametrize(
    ("fields", "error", "says"),
    [
        ({"k": 9}, ProblemError, "s4 must be K-major and K a multiple of 2, got layout TN and K 9"),
        ({"a": "b1", "b": "b1", "k": 12}, ProblemError, "b1 must be .* a multiple of 8, .* K 12"),
        ({"a_major": "m"}, ProblemError, "s4 must be K-major .* got layout NN"),
        ({"b": "s8"}, DtypeError, "A of s4 times B of s8 is not supported"),
        ({"d": "f32"}, DtypeError, "a result from s4 must be s32, got f32"),
    ],
)
def test_what_cannot_be_posed(fields: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        Problem(**{"m": 8, "n": 8, "k": 8, "a": "s4", "b": "s4", "d": "s32"} | fields)


def test_what_does_not_fit() -> None:
    problem = Problem(8, 8, 8, "s4", "s4", "s32")
    with pytest.raises(ConfigError, match="tile K must be at least 128 for s4, two instructions"):
        gemm.check(problem, parse("32x32x64:1x1:2"), A100)
    with pytest.raises(ConfigError, match="m16n8k32 of s4 needs warp tiles of at least 32×32"):
        gemm.check(problem, parse("32x32x64:1x2:2:m16n8k32"), A100)
    with pytest.raises(TargetError, match="tma does not multiply s4"):
        gemm.check(problem, parse("tma:64x64x128:1:2"), device_spec("H200"))
