"""The native functions of the virtual machine's engine, in parts that are compiled together.

A part is loaded together with code that calls it; the parts that every launch needs are loaded
before it starts. The scheduler and the asynchronous units call each other through slots
(``Native.deferred``); as long as the part of a function is not loaded, it has nothing to do. So a
part is loaded if

- a region calls it to issue copies, wgmmas, reductions: ``bulk_copies``, ``tensor_copies``, …;
- the shape of the launch requires it: ``cluster``, ``checked``.

The parts are fixed, so that the compile cache does not depend on which kernel was run first.
"""

from __future__ import annotations

import json
from functools import cache

import llvmlite.ir as ir

from ...native.jit import Jit
from ...native.llvm_types import I32, I64, POINTER, declare
from ...native.native_language import Native, i64, native
from ...native.translator import translate
from ..check import async_checks, race_detector, vector_clocks
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
    async_checks,
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
# Optimization levels other than 2: a higher level takes longer and does not make these faster.
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
        mode = b.alloca(I32)
        b.store(I32(MXCSR), mode)
        type_ = ir.FunctionType(ir.VoidType(), [POINTER])
        b.call(ir.Function(module, type_, "llvm.x86.sse.ldmxcsr"), [mode])
    b.ret(I64(0))


@native(emit=_emit_float_mode)
def set_float_mode() -> i64:
    """Set the thread's floating-point mode: round to nearest, keep subnormals."""
    raise NotImplementedError


@native
def unloaded() -> i64:
    """The function in the slots of functions that are not loaded."""
    return 0


@cache
def parts() -> dict[str, list[Native]]:
    """The functions of each part."""
    functions = [f for m in MODULES for f in vars(m).values() if isinstance(f, Native)]
    unique = {id(f): f for f in (set_float_mode, unloaded, *functions) if not f.inline}
    assert len({f.name for f in unique.values()}) == len(unique), "two functions have one name"
    result: dict[str, list[Native]] = {}
    for f in unique.values():
        result.setdefault(f.part, []).append(f)
    return result


def contents_json() -> bytes:
    """For each part the names of its functions, and of the slots of deferred functions, as JSON."""
    names = {
        part: {f.name: f.slot if f.deferred else "" for f in functions}
        for part, functions in parts().items()
    }
    return json.dumps(names).encode()


def module(part: str, jit: Jit) -> ir.Module:
    """The LLVM module of a part."""
    result = ir.Module(part)
    result.features, result.triple = jit.features, jit.triple
    translate(result, parts()[part])
    return result
