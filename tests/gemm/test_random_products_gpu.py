"""2,000 random products on a GPU: exact, nothing else is written, some with a machine's bits."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import GemmCase, OperandLayout, check
from gemm_cases.problems import matrix
from gemm_cases.resident import registered
from gemm_cases.tma_cases import few
from tilewright.gemm import AnyConfig, Problem, ranked
from tilewright.gemm.problem import SUPPORTED_TYPES
from tilewright.run import VmDevice
from tilewright.run.devices.device_protocol import ExecutionDevice

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]

LARGEST = 5000
PARTS, EACH = 40, 50
COMPARED, SMALL = 5, 1 << 20  # of each part so many, with fewer products, on a virtual machine too
PAIRS = [
    (a, b, d) for a, (others, results) in SUPPORTED_TYPES.items() for b in others for d in results
]


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def size(draw: random.Random, largest: int) -> int:
    return round(math.exp(draw.random() * math.log(largest)))


def lie(draw: random.Random) -> OperandLayout:
    """Half of them aligned."""
    whole = [0, 8, 16, 32]
    if draw.random() < 0.5:
        return OperandLayout(
            draw.choice("tn"), draw.choice(whole), draw.choice(whole), draw.choice(whole)
        )
    return OperandLayout(
        draw.choice("tn"), draw.randrange(10), draw.randrange(10), draw.randrange(10)
    )


def product(draw: random.Random, largest: int = LARGEST) -> GemmCase:
    types = draw.choice(PAIRS)
    whole = types[2] == "s32"
    rounding = draw.random() < 0.5
    types = ("f32",) * 3 if types[0] == "tf32" else types
    layouts = lie(draw), lie(draw), lie(draw), lie(draw)
    sizes = size(draw, largest), size(draw, largest), size(draw, largest)
    return GemmCase(
        tuple(8 * -(-x // 8) if rounding else x for x in sizes),  # type: ignore[arg-type]
        types, layouts,
        1.0 if whole else draw.choice((1.0, 1.0, -0.5, 2.0, 0.0)),
        0.0 if whole else draw.choice((0.0, 0.0, 1.0, -2.0)),
        draw.choice((None, None, None, 1, 2, 3)), draw.random() < 0.5,
        draw.choice(("ieee", "tf32")),
    )  # fmt: skip


class Pick:
    """The configuration that is chosen, or any that fits."""

    def __init__(self, draw: random.Random, on: ExecutionDevice) -> None:
        self.place, self.on, self.taken = draw.choice((0.0, draw.random())), on, ""

    def __call__(self, problem: Problem) -> AnyConfig:
        fitting = ranked(problem, self.on.target)
        found = fitting[int(self.place * len(fitting))][1]
        self.taken = str(found)
        return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_random_products(part: int) -> None:
    draw = random.Random(part)
    for number in range(EACH):
        gemm_case, on = product(draw), few(draw.choice((132, 132, 132, 5, 2)))
        pick = Pick(draw, on)
        try:
            check(gemm_case, on, pick, number)
        except Exception as error:
            error.add_note(f"problem {number}: {gemm_case}, {pick.taken}")
            raise


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_the_machines_bits(part: int) -> None:
    draw, compared = random.Random(1000 + part), 0
    while compared < COMPARED:
        gemm_case, sms = product(draw, 300), draw.choice((132, 5, 2))
        if gemm_case.batch or math.prod(gemm_case.sizes) > SMALL:
            continue
        compared += 1
        pick = Pick(draw, few(sms))
        here, there = (
            multiplied(gemm_case, on, pick, compared)
            for on in (few(sms), VmDevice(replace(pick.on.target, name="machine")))
        )
        assert here == there, (gemm_case, pick.taken)


def multiplied(gemm_case: GemmCase, on: ExecutionDevice, pick: Pick, seed: int) -> bytes:
    rng, (m, n, k) = np.random.default_rng(seed), gemm_case.sizes
    given = gemm_case.numbers(rng)
    if gemm_case.types[2] != "s32":
        shapes = zip(((m, k), (k, n), (m, n)), gemm_case.types, strict=True)
        given = [matrix(rng, *shape, type_, "spread") for shape, type_ in shapes]
    a, b, c = (
        lie.place(x, rng)[1].view(x.dtype) for lie, x in zip(gemm_case.layouts, given, strict=False)
    )
    how: dict[str, Any] = {
        "c": c if gemm_case.beta else None, "out_dtype": gemm_case.types[2], "device": on,
        "precision": gemm_case.precision, "fast_accum": gemm_case.fast,
    }  # fmt: skip
    how["config"] = pick(tilewright.plan(a, b, **how).problem)
    made = tilewright.matmul(a, b, alpha=gemm_case.alpha, beta=gemm_case.beta, **how)
    return bytes(made.tobytes())
