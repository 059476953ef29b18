"""The kernel that writes −∞ to the outputs of ``atomic_maxima``, before a GEMM of each call.

It waits for the kernels before it, which may use the outputs, and lets the GEMM launch at once; the
GEMM waits for it.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Any

from ...builder import Builder, Reg, Traced
from ..kernel_launch import GemmKernel, KernelLaunch, LaunchShape
from ..kernel_scalars import global_pointer
from ..parameter_declaration import KernelParameters, parameter
from ..problem import Problem
from .atomic_maxima import NOTHING

THREADS = 32
_PROBLEM = Problem(1, 1, 1)  # one for all: the kernel depends on the names only


@dataclass(frozen=True)
class MaximaReset:
    """The kernel's identity: the parameters of the outputs that a launch resets.
    ``programmatic``: whether kernels launch before those ahead have ended (sm_90 and later).
    """

    names: tuple[str, ...]
    programmatic: bool


def launches(problem: Problem, programmatic: bool) -> tuple[KernelLaunch, ...]:
    """The launch, if the problem has such outputs."""
    maxima = problem.epilogue.maxima if problem.epilogue else ()
    if not maxima:
        return ()
    reset = MaximaReset(tuple(name for name, _, _ in maxima), programmatic)
    counts = {
        f"{name}_elements": 1 if "b" in output.reduced else problem.d_batch
        for name, _, output in maxima
    }
    kernel = GemmKernel(build, _PROBLEM, reset)
    shape = LaunchShape((1, 1, 1), (THREADS, 1, 1), None, programmatic)
    return (KernelLaunch(kernel, shape, _parameters(reset).pack(counts)),)


@lru_cache(maxsize=64)
def _parameters(reset: MaximaReset) -> type[Any]:
    fields: list[Any] = []
    for name in reset.names:
        fields.append((name, Reg, parameter("u64", address=name)))
        fields.append((f"{name}_elements", Reg, parameter("u32")))
    return make_dataclass("MaximaParameters", fields, bases=(KernelParameters,), frozen=True)


@lru_cache(maxsize=64)
def build(problem: Problem, reset: MaximaReset) -> Traced:
    """Trace the kernel."""

    def kernel(k: Builder, p: Any) -> None:
        if reset.programmatic:
            k.launch_dependent_grids()
            k.wait_for_prior_grids()
        for name in reset.names:
            output = global_pointer(k, getattr(p, name)).cast("f32")
            count = getattr(p, f"{name}_elements")
            for i in k.range(k.tid.x, count, THREADS, unroll=False):
                (output + i).store(k.const("f32", NOTHING))

    traced: Traced = _parameters(reset).trace(kernel, "gemm_maxima_reset", block=THREADS)
    return traced
