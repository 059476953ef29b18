"""The reduction kernel of an epilogue: combines the partial results of all units, in order.

An output with few elements takes a CTA per element: a thread combines every 256th unit, then the
CTA combines its threads' results. Other outputs take a thread per element.
"""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from typing import Any

from ...builder import Builder, Reg, Traced
from ..kernel_launch import KernelArguments, LaunchShape
from ..kernel_scalars import global_pointer
from ..parameter_declaration import KernelParameters, parameter
from ..problem import Problem
from .reductions import ReductionRegion
from .tile_reductions import IDENTITY, WARP_LANES, butterfly, combine

THREADS = 256
WARP = 32
LOADS_IN_FLIGHT = 16  # of a thread


@dataclass(frozen=True)
class ReductionStep:
    """Which output a launch reduces, and how: the part of a kernel's identity that the problem does
    not have. ``wide``: a CTA per element. ``programmatic``: whether it may launch before the
    kernels ahead have ended, for which its target is sm_90 or later.
    """

    name: str
    reduction: str
    wide: bool
    programmatic: bool


@dataclass(frozen=True)
class ReductionParameters(KernelParameters):
    """``partials``: the workspace; the output's address follows in a parameter of its name."""

    partials: Reg = parameter("u64", address="w")
    offset: Reg = parameter("u64")
    elements: Reg = parameter("u32")
    units: Reg = parameter("u32")


def step_of(region: ReductionRegion, programmatic: bool) -> ReductionStep:
    """The step that reduces a region."""
    wide = region.kept in ("", "b")
    return ReductionStep(region.name, region.output.reduction, wide, programmatic)


def launch_shape(region: ReductionRegion, programmatic: bool) -> LaunchShape:
    """A CTA per element, or a thread per element."""
    wide = step_of(region, programmatic).wide
    ctas = region.elements if wide else -(-region.elements // THREADS)
    return LaunchShape((ctas, 1, 1), (THREADS, 1, 1), None, programmatic)


def kernel_arguments(region: ReductionRegion, offset: int) -> KernelArguments:
    """The parameter block for regions that begin ``offset`` bytes into the workspace."""
    values = {
        "offset": offset + region.offset, "elements": region.elements, "units": region.units,
    }  # fmt: skip
    arguments: KernelArguments = _parameters(region.name).pack(values)
    return arguments


@lru_cache(maxsize=64)
def _parameters(name: str) -> type[Any]:
    fields: list[Any] = [("output", Reg, parameter("u64", address=name))]
    bases = (ReductionParameters,)
    made: type[Any] = make_dataclass("OutputReductionParameters", fields, bases=bases, frozen=True)
    return made


def problem_class(problem: Problem) -> Problem:
    """One problem for all: the kernel depends on its step only."""
    return Problem(1, 1, 1)


@lru_cache(maxsize=64)
def build(problem: Problem, step: ReductionStep) -> Traced:
    """Trace the kernel."""

    def kernel(k: Builder, p: Any) -> None:
        if step.programmatic:
            k.wait_for_prior_grids()
            k.launch_dependent_grids()
        partials = global_pointer(k, p.partials + p.offset).cast("f32")
        output = global_pointer(k, p.output).cast("f32")
        (_reduce_by_cta if step.wide else _reduce_by_threads)(k, p, partials, output, step)

    name = f"gemm_epilogue_{step.reduction}"
    traced: Traced = _parameters(step.name).trace(kernel, name, block=THREADS)
    return traced


def _reduce_by_threads(k: Builder, p: Any, partials: Any, output: Any, step: ReductionStep) -> None:
    element = k.ctaid.x * THREADS + k.tid.x
    with k.if_(element < p.elements):
        total = _over_units(k, p, partials, element, 0, 1, step)
        (output + element).store(total)


def _reduce_by_cta(k: Builder, p: Any, partials: Any, output: Any, step: ReductionStep) -> None:
    element, reduction = k.ctaid.x, step.reduction
    total = _over_units(k, p, partials, element, k.tid.x, THREADS, step)
    total = butterfly(k, reduction, total, WARP_LANES)
    by_warp = k.shared("f32", THREADS // WARP)
    with k.when(k.laneid == 0):
        (by_warp + (k.tid.x >> 5)).store(total)
    k.barrier()
    with k.when(k.tid.x == 0):
        result = by_warp[0]
        for warp in range(1, THREADS // WARP):
            result = combine(k, reduction, result, by_warp[warp])
        (output + element).store(result)


def _over_units(
    k: Builder, p: Any, partials: Any, element: Any, first: Any, step: int, what: ReductionStep
) -> Any:
    """The partial results of an element, from unit ``first`` on in steps."""
    nothing = IDENTITY[what.reduction]
    total = k.var("f32", nothing)
    for unit in k.range(first, p.units, step * LOADS_IN_FLIGHT, unroll=False):
        units = [unit + i * step for i in range(LOADS_IN_FLIGHT)]
        nearest = [k.min(x, p.units - 1).to("u64") for x in units]
        loaded = [(partials + (x * p.elements.to("u64") + element.to("u64")))[0] for x in nearest]
        for x, value in zip(units, loaded, strict=True):
            value = k.select(x < p.units, value, nothing)
            total.set(combine(k, what.reduction, total, value))
    return total
