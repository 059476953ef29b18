"""The virtual machine's engine: its native functions, in the parts that they are compiled in.

A part is loaded when code that calls it is; what a launch itself needs is loaded before it begins.
The scheduler and all that is asynchronous call one another through slots (``Native.deferred``): a
function whose part was never loaded has nothing to do. So a part is loaded that

- a region calls, which may start copies, products, reductions: ``bulk``, ``tensors``, …;
- the shape of a launch asks for: ``cluster``, ``checked``.

The parts are fixed, so that what the store has does not depend on which kernel came first.
"""

from __future__ import annotations

import json
from functools import cache

import llvmlite.ir as ir

from ...native.jit import Jit
from ...native.llvm_types import I32, I64, POINTER, declare
from ...native.native_language import Native, i64, native
from ...native.translator import translate
from ..check import race_detector, vector_clocks
from ..state import lane_groups
from . import (
    async_copies,
    async_reductions,
    bulk_completion,
    bulk_copies,
    cluster_launches,
    cta_barriers,
    gather_scatter,
    host_calls,
    ldmatrix_stmatrix,
    local_stack,
    mbarrier_model,
    memory_access,
    scheduler,
    tensor_copies,
    vector_access,
    wgmma_groups,
    wgmma_operands,
)

MODULES = (
    lane_groups,
    vector_clocks,
    race_detector,
    memory_access,
    gather_scatter,
    vector_access,
    ldmatrix_stmatrix,
    host_calls,
    local_stack,
    mbarrier_model,
    cta_barriers,
    async_copies,
    wgmma_operands,
    wgmma_groups,
    async_reductions,
    tensor_copies,
    bulk_completion,
    bulk_copies,
    cluster_launches,
    scheduler,
)
# Levels of optimisation, where it is not 2: more takes LLVM longer and gains these nothing.
LEVELS = dict.fromkeys(
    (
        "gather_scatter",
        "vectors",
        "async_reductions",
        "tensor_copies",
        "bulk_copies",
        "wgmma_groups",
        "mbarrier_model",
    ),
    1,
)
MXCSR = 0x1F80  # round to nearest, no flushing, no traps


def _emit_float_mode(module: ir.Module, function: Native) -> None:
    b = ir.IRBuilder(declare(module, function).append_basic_block())
    if module.triple.startswith("x86_64"):
        place = b.alloca(I32)
        b.store(I32(MXCSR), place)
        type_ = ir.FunctionType(ir.VoidType(), [POINTER])
        b.call(ir.Function(module, type_, "llvm.x86.sse.ldmxcsr"), [place])
    b.ret(I64(0))


@native(emit=_emit_float_mode)
def set_float_mode() -> i64:
    """This thread rounds to nearest and keeps subnormals, whatever the process did before."""
    raise NotImplementedError


@native
def unloaded() -> i64:
    """What is in the slots of functions that are not loaded."""
    return 0


@cache
def parts() -> dict[str, list[Native]]:
    """The functions of each part."""
    found = [f for m in MODULES for f in vars(m).values() if isinstance(f, Native)]
    unique = {id(f): f for f in (set_float_mode, unloaded, *found) if not f.inline}
    assert len({f.name for f in unique.values()}) == len(unique), "two functions have one name"
    made: dict[str, list[Native]] = {}
    for f in unique.values():
        made.setdefault(f.part, []).append(f)
    return made


def contents_json() -> bytes:
    """For each part its functions' names, and the names of the slots of those that have one."""
    names = {
        part: {f.name: f.slot if f.deferred else "" for f in functions}
        for part, functions in parts().items()
    }
    return json.dumps(names).encode()


def module(part: str, jit: Jit) -> ir.Module:
    """A part, to be compiled."""
    made = ir.Module(part)
    made.features, made.triple = jit.features, jit.triple
    translate(made, parts()[part])
    return made
