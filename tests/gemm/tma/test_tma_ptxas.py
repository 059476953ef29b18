"""NVIDIA's assembler takes kernel tma as it is chosen: nothing spills, ``setmaxnreg`` is heeded, no
wgmma waits for another (the assembler warns where any of that is so).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ptxas import assemble, ptxas
from rows import every_row
from tilewright.gemm import (
    Problem,
    TmaConfig,
    build,
    parse,
    ranked,
    relayout_problem,
    splitk_reduction,
)
from tilewright.gemm.block_scaling import BlockScaling
from tilewright.target import device_spec

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

H200 = device_spec("H200")
BF16 = Problem(4096, 4096, 4096, "bf16", "bf16", "bf16")
LINES = BlockScaling(1, 1, contiguous=("mn", "mn"))
KINDS = {
    "bf16": BF16,
    "C": replace(BF16, with_c=True),
    "unaligned": replace(BF16, align_d=2),
    "unaligned, C": replace(BF16, with_c=True, align_c=8, align_d=2),
    "f32 from nt": replace(BF16, d="f32", a_major="m", b_major="n"),
    "stack": replace(BF16, batch=3),
    "f32 with C": replace(BF16, d="f32", with_c=True),
    "tf32": Problem(4096, 4096, 4096, "tf32", "tf32", "f32"),
    "e4m3": Problem(4096, 4096, 4096, "e4m3", "e5m2", "bf16"),
    "e4m3, fast": Problem(4096, 4096, 4096, "e4m3", "e4m3", "f16", fast=True),
    "s8": Problem(4096, 4096, 4096, "s8", "u8", "s32", with_c=True),
    "scales of columns": Problem(4096, 4096, 4096, "e4m3", "e4m3", "bf16", scaling=LINES),
    "scales of columns to f32": Problem(4096, 4096, 4096, "e4m3", "e4m3", "f32", scaling=LINES),
}
SIZES = (
    (4096, 4096, 4096), (4096, 28672, 8192), (16, 8192, 8192), (512, 512, 65536), (300, 70, 90),
    (300, 3000, 3000), (136, 7032, 4424),
)  # fmt: skip


def chosen(problem: Problem, size: tuple[int, int, int]) -> list[TmaConfig]:
    """For a size, the best first."""
    return [c for _, c in ranked(problem.with_sizes(*size), H200) if isinstance(c, TmaConfig)]


def check(problem: Problem, config: TmaConfig) -> None:
    relaid = relayout_problem(problem, config)
    kernels = [build(relaid, config, H200)]
    if config.split > 1:
        kernels.append(splitk_reduction.build(relaid, config))
    for kernel in kernels:
        cubin = assemble(kernel.ptx, "sm_90a")
        assert not cubin.warnings, config
        assert not cubin.spills, config


@every_row("kind", KINDS, parts=11)
@every_row("size", SIZES, ids=str)
def test_what_is_chosen_keeps_its_speed(kind: str, size: tuple[int, int, int]) -> None:
    for config in chosen(KINDS[kind], size)[:1]:
        check(KINDS[kind], config)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_so_does_what_is_next_best(kind: str) -> None:
    configs = (config for size in SIZES for config in chosen(KINDS[kind], size)[1:12])
    for config in dict.fromkeys(configs):
        check(KINDS[kind], config)


@pytest.mark.parametrize(
    "text",
    [
        "tma:128x256x64:2:4/2x1", "tma:128x192x64:2p:4+2", "tma:128x128x64:2:4*4",
        "tma:192x96x64:3:3", "tma:128x128x64:2p:5d", "tma:64x16x128:1:8*2~",
    ],
)  # fmt: skip
def test_every_way_through_the_kernel(text: Any) -> None:
    check(BF16, parse(text))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "tma:128x128x128:2:6", "tma:128x192x128:2:4+2", "tma:256x96x128:2:4", "tma:192x96x128:3:4",
        "tma:64x96x128:2p:4/2x1", "tma:128x128x128:2:5d", "tma:64x176x128:1:4*2~",
    ],
)  # fmt: skip
def test_sums_are_added_up_while_others_are_made(text: Any) -> None:
    """Its registers are read while wgmma writes others: that is where the assembler serialises."""
    check(KINDS["e4m3"], parse(text))  # type: ignore[arg-type]


@pytest.mark.parametrize("contiguous", [("mn", "mn"), ("k", "k"), ("", "")], ids=str)
@pytest.mark.parametrize(
    "text",
    [
        "tma:256x96x128:2:4~", "tma:128x128x128:2:4", "tma:256x96x128:2:4/1x2",
        "tma:192x96x128:3:3", "tma:128x160x128:2:4", "tma:128x144x128:2:4/2x1",
    ],
)  # fmt: skip
def test_scales_of_columns_are_held_in_registers(text: Any, contiguous: tuple[str, str]) -> None:
    """Beside two accumulators of each element, or three; a copy warp and clusters take some."""
    problem = replace(
        KINDS["scales of columns to f32"], scaling=replace(LINES, contiguous=contiguous)
    )
    check(problem, parse(text))  # type: ignore[arg-type]
