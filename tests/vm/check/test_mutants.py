"""The checked machine reports synchronization removed from a kernel; exceptions are listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import pytest

from ptx_kernels import hopper_gemm
from ptx_text.mutator import mutants
from rows import every_row
from tilewright import gemm
from tilewright.dtypes import dtype
from tilewright.errors import VmFault
from tilewright.gemm import AnyConfig, Config, MatrixStrides, Problem, SimtConfig
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.ptx import Module, parse
from tilewright.target import DEFAULT_DEVICE
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

SEEDS = range(4)
STEPS = 5_000_000
QUICK = 148  # of so many mutants one is tried where slow tests are not
FEW = replace(DEFAULT_DEVICE, sms=2)  # so that a CTA has several tiles


def ring(stages: int, cluster: int, module: Module | None, seed: int, **how: object) -> bytes:
    """The result of the kernel of ``hopper_gemm``, or of a mutant."""
    ptx, size = module or hopper_gemm.gemm(stages, cluster).ptx, (256, 128, 448)
    return hopper_gemm.on_machine(ptx, size, stages, cluster, seed, **how).tobytes()


def shipped(
    problem: Problem, config: AnyConfig, module: Module | None, seed: int, **how: object
) -> bytes:
    """The result of a kernel of the package for A and B (K-major), and C if it takes one."""
    rng, machine = np.random.default_rng(problem.m), Machine(seed=seed, **how)
    m, n, k = problem.m, problem.n, problem.k
    kinds = (dtype(x).numpy for x in (problem.a, problem.b, problem.d))
    shapes = zip(((m, k), (n, k), (m, n)), kinds, strict=True)
    a, b, c = (rng.standard_normal(s).astype(kind) for s, kind in shapes)
    places = tuple(machine.upload(x) for x in (a, b, c, np.full_like(c, np.nan)))
    lines = {
        "a": MatrixStrides(k),
        "b": MatrixStrides(k),
        "c": MatrixStrides(n),
        "d": MatrixStrides(n),
    }
    block = gemm.kernel_arguments(problem, config, lines).pack((*places, 0), ((1.0, 0), (0.5, 0)))
    traced, shape = gemm.build(problem, config, FEW), gemm.launch_shape(problem, config, FEW)
    machine.load(module or traced.module)
    how = {"shared": traced.dynamic_shared, "cluster": shape.cluster}
    how["programmatic"] = shape.programmatic
    machine.launch(traced.name, shape.grid, shape.block, bytes(block), **how)
    return machine.download(places[3], c).tobytes()


class Kernel(NamedTuple):
    """``run`` makes its bytes, of a mutant (or None) and a seed. ``same`` and ``other``: mutants
    that are no mistakes, or another product in good order, and why.
    """

    module: Module
    run: Callable[..., bytes]
    same: dict[str, str]
    other: dict[str, str]


RESULTS = {
    "load 1: 0 and 1 swapped": "a box of A from elsewhere",
    "load 2: 0 and 1 swapped": "a box of B from elsewhere",
    "store 1: dropped": "D stays where it is",
    "store 1: 0 and 1 swapped": "D goes elsewhere",
}
HARMLESS = {
    "descriptor 1: another leading": "a swizzled line is as long as the product reads",
    "descriptor 2: another leading": "a swizzled line is as long as the product reads",
    "store 1: twice": "the same bytes to the same place",
}
BY_VALUE = "α, or β, is a number here, no address"
FREE = "nobody else uses either barrier, or no more"
C_BARRIER = "dropped", "2 arrivals"
NO_C = "it is for C, and there is none"
BEGIN = "a stage's sums begin with what stands in their registers"


def harmless_in_tma(waits: int, ends: tuple[int, int]) -> dict[str, str]:
    """Harmless mutants of kernel tma: its first ``waits`` are for wgmma, the ``ends`` for D."""
    return HARMLESS | {
        "group 1: dropped": "setmaxnreg: the machine has registers for all",
        "group 2: dropped": "setmaxnreg: the machine has registers for all",
        "warp barrier 1: dropped": "the next barrier gathers the lanes too",
        "grid wait 1: dropped": BY_VALUE,
        "grid wait 2: dropped": BY_VALUE,
        "grid wait 4: dropped": "the first stage is full after the copying warp has waited",
        **{f"group wait {n}: 0 pending": "waits for more" for n in range(1, waits + 1)},
        **{
            f"group wait {n}: {what}": "there are two at the end, and either waits for all"
            for n in ends
            for what in ("dropped", "1 pending")
        },
    }


SHIPPED = harmless_in_tma(1, (4, 5))


def ring_kernel(stages: int, cluster: int, same: dict[str, str]) -> Kernel:
    other = RESULTS | {"product 1: adds, or not": "each stage's product begins anew"}
    module = parse(hopper_gemm.gemm(stages, cluster).ptx)
    return Kernel(module, partial(ring, stages, cluster), HARMLESS | same, other)


def shipped_kernel(
    sizes: tuple[int, int, int],
    config: AnyConfig,
    with_c: bool,
    same: dict[str, str],
    other: dict[str, str],
    kind: str = "bf16",
    d: str | None = None,
    more: tuple[int, ...] = (),
) -> Kernel:
    """``more``: further K extents to run the kernel with."""
    problem = Problem(*sizes, kind, kind, d or kind, with_c=with_c)
    module = gemm.build(problem, config, FEW).module
    problems = [problem, *(replace(problem, k=k) for k in more)]

    def run(module: Module | None, seed: int, **how: object) -> bytes:
        return b"".join(shipped(of, config, module, seed, **how) for of in problems)

    return Kernel(module, run, same, other)


def rings() -> dict[str, Kernel]:
    return {
        "ring": ring_kernel(3, 1, {
            "barrier 1: another barrier": FREE,
            "barrier 2: another barrier": FREE,
            "barrier 2: all threads": "the producer has ended, and barriers count the living",
        }),
        "ring-cluster": ring_kernel(2, 2, {"barrier 1: another barrier": FREE}),
    }  # fmt: skip


def tma() -> dict[str, Kernel]:
    return {
        "tma": shipped_kernel(
            (256, 192, 320), TmaConfig.parse("tma:128x64x64:2:3/2x1"), True,
            SHIPPED | {
                "barrier 1: dropped": "C's arrival orders the same",
                "wait 2: the mbarrier +8 bytes": "the last stage's release is waited for, earlier",
                "phase 3: never changes": "15 k-tiles of 3 stages: it changes after the last wait",
            },
            RESULTS | {"load 3: 0 and 1 swapped": "a box of C from elsewhere"},
        ),
        "tma-pingpong": shipped_kernel(
            (200, 192, 192), TmaConfig.parse("tma:64x64x64:2p:3"), False,
            SHIPPED | {
                "barrier 1: another barrier": FREE,
                "mbarrier 7: 3 arrivals": "the fourth warp is never so far behind here",
                **{f"mbarrier {n}: {what}": NO_C for n in (9, 10) for what in C_BARRIER},
            },
            RESULTS,
        ),
    }  # fmt: skip


def promoted() -> dict[str, Kernel]:
    """Exact sums of bytes."""
    return {
        "tma-by-stage": shipped_kernel(
            (150, 128, 640), TmaConfig.parse("tma:128x64x128:2:3"), False,
            harmless_in_tma(3, (7, 8)) | {
                "barrier 1: another barrier": FREE,
                **{f"mbarrier {n}: {what}": NO_C for n in (7, 8) for what in C_BARRIER},
            },
            RESULTS | {f"product {n}: adds, or not": BEGIN for n in (1, 5, 9, 13)},
            "e4m3", "bf16", (768,),
        ),
        "tma-by-halves": shipped_kernel(
            (400, 192, 400), TmaConfig.parse("tma:128x192x128:2:2"), False,
            harmless_in_tma(3, (7, 8)) | {
                "barrier 1: another barrier": FREE,
                "fence 3: dropped": "the fence before orders the same registers",
                **{f"store {n}: twice": HARMLESS["store 1: twice"] for n in (2, 3)},
                **{f"mbarrier {n}: {what}": NO_C for n in (5, 6) for what in C_BARRIER},
            },
            RESULTS | {
                **{f"product {n}: adds, or not": BEGIN for n in (1, 5, 9, 13)},
                **{
                    f"store {n}: {what}": "D stays where it is, or goes elsewhere"
                    for n in (2, 3)
                    for what in ("dropped", "0 and 1 swapped")
                },
                **{
                    f"descriptor {n}: starts {more} bytes later": "the other half reads the rest"
                    for n in (3, 5, 10, 12, 16, 18, 23, 25)
                    for more in (16, 32)
                },
            },
            "e4m3", "bf16", (384,),
        ),
    }  # fmt: skip


def others() -> dict[str, Kernel]:
    return {
        "multistage": shipped_kernel(
            (64, 64, 192), Config.parse("64x64x32:2x2:3"), False,
            {
                **{f"barrier {n}: another barrier": FREE for n in (1, 2, 3)},
                "group wait 1: 0 pending": "waits for more",
                "group wait 2: 0 pending": "waits for more",
                "group wait 3: dropped": "the last copies copy nothing",
                "group wait 3: 1 pending": "the last copies copy nothing",
                "warp barrier 1: dropped": "all have just met at the barrier before it",
            },
            {},
        ),
        "simt": shipped_kernel(
            (64, 64, 40), SimtConfig.parse("simt:64x64x8:8x16:3"), False,
            {
                **{f"barrier {n}: another barrier": FREE for n in (1, 2)},
                **{f"grid wait {n}: dropped": BY_VALUE for n in (1, 2)},
                "group wait 1: 0 pending": "waits for more",
                "group wait 2: 0 pending": "waits for more",
            },
            {}, "f32",
        ),
    }  # fmt: skip


@cache
def kernels() -> dict[str, Kernel]:
    return rings() | tma() | promoted() | others()


@cache
def all_mutants(kernel: str) -> dict[str, Module]:
    results = list(mutants(kernels()[kernel].module))
    assert len({m.name for m in results}) == len(results)
    return {m.name: m.module for m in results}


@cache
def expected(kernel: str) -> bytes:
    return kernels()[kernel].run(None, 0)


def cases() -> list[tuple[str, str]]:
    return [(kernel, name) for kernel in kernels() for name in all_mutants(kernel)]


@pytest.mark.timeout(600)
@every_row(("kernel", "name"), cases, parts=QUICK)
def test_mutants_are_reported(kernel, name):
    _, run, same, other = kernels()[kernel]
    module, how = all_mutants(kernel)[name], {"checked": True, "step_limit": STEPS}
    try:
        results = {run(module, seed, **how) for seed in SEEDS}
    except VmFault as error:
        assert error.kind != "step limit"
        assert name not in same | other, error
    else:
        assert name in same | other, "nothing names it"
        assert (results == {expected(kernel)}) == (name in same)


@pytest.mark.slow
@pytest.mark.timeout(600)
@every_row("kernel", kernels)
def test_the_unchanged_kernel_is_correct_for_every_seed(kernel):
    run = kernels()[kernel].run
    assert {run(None, seed, checked=True) for seed in range(50)} == {expected(kernel)}
