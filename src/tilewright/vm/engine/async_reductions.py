"""What asynchronous reductions do with elements: the meaning of ``atom``, compiled for the engine.

A reduction has a number: the operation's place in ``OPERATIONS``, counted from 1, and in the low
four bits the code that a tensor map has for the elements' type; 0 is none. ``reduce`` takes bytes
through vectors of 32 lanes with the same ``combine`` that evaluates ``atom`` and ``red``. An H200
differs from the PTX manual in two things: a sum of f32 keeps subnormals (``ADD.F32.RN`` in machine
code, where ``red`` has ``ADD.F32.FTZ.RN``), and a tensor map of f64 has sums.
"""

from __future__ import annotations

from collections.abc import Iterator

import llvmlite.ir as ir

from ...mma.tensor_maps.tensor_map_parameters import TYPES
from ...native.llvm_types import I32, I64, POINTER, declare, memcpy
from ...native.native_language import Native, i64, native
from ..llvm.expressions import LANES, lanes_of
from ..llvm.llvm_primitives import LlvmValues
from ..llvm.vector_memory import stack_buffer
from ..program.evaluator import combine
from ..state.records import FULL_MASK, WarpRecord

OPERATIONS = {  # what a map of s64 lacks is an illegal instruction on an H200
    "add": "u32 s32 u64 f16 bf16 f32 f32.ftz f64",
    "min": "u32 s32 u64 s64 f16 bf16",
    "max": "u32 s32 u64 s64 f16 bf16",
    "inc": "u32",
    "dec": "u32",
    "and": "u32 s32 u64",
    "or": "u32 s32 u64",
    "xor": "u32 s32 u64",
}
BITS_AS_INTEGER = {"b32": "u32", "b64": "u64"}
TYPE_BITS = 4
MAX_ELEMENT_BYTES = 8  # bytes of an element
BLOCK_BYTES = 64  # bytes at a time: 32 lanes of the smallest


def number(op: str, type_: str = "u8") -> int:
    """The number of a reduction; without a type, for a tensor map to say it."""
    order = list(OPERATIONS).index(op) + 1
    if (op, type_) == ("add", "s64"):
        type_ = "u64"
    return order << TYPE_BITS | TYPES[BITS_AS_INTEGER.get(type_, type_)].code


def _reductions() -> Iterator[tuple[int, str, str]]:
    """(number, operation, type)."""
    for op, types in OPERATIONS.items():
        for type_ in types.split():
            yield number(op, type_), op, type_


def _combined(m: LlvmValues, op: str, type_: str, old: ir.Value, new: ir.Value) -> ir.Value:
    """``f32.ftz`` is what ``atom`` does with f32 in global memory."""
    if (op, type_) == ("add", "f32"):
        return m.fadd("f32", old, new)
    in_global = m.const(1, 1)  # in shared memory there are sums of integers alone
    return combine(m, op, type_.partition(".")[0], old, (new,), in_global)


def _emit(module: ir.Module, native_: Native) -> None:
    function = declare(module, native_)
    which, target, source, size = function.args
    b = ir.IRBuilder(function.append_basic_block())
    old, new = (stack_buffer(b, LANES * MAX_ELEMENT_BYTES) for _ in range(2))
    unknown, done = (function.append_basic_block() for _ in range(2))
    here, there = (b.inttoptr(a, POINTER) for a in (target, source))
    memcpy(b, old, here, size)
    memcpy(b, new, there, size)
    switch = b.switch(which, unknown)
    ir.IRBuilder(unknown).ret(I64(1))
    for code, op, type_ in _reductions():
        case = function.append_basic_block(f"{op}_{type_}")
        switch.add_case(I64(code), case)
        b.position_at_end(case)
        lanes = lanes_of(8 * TYPES[type_].bytes)
        m = LlvmValues(b, module, I32(FULL_MASK))
        given = (b.load(area, typ=lanes, align=64) for area in (old, new))
        b.store(_combined(m, op, type_, *given), old, align=64)
        b.branch(done)
    b.position_at_end(done)
    memcpy(b, here, old, size)
    b.ret(I64(0))


@native(emit=_emit, deferred=True)
def reduce(which: i64, target: i64, source: i64, size: i64) -> i64:
    """Combine at most ``STRETCH`` bytes into those at ``target``; 1 for a number of none."""
    raise NotImplementedError


@native(deferred=True)
def reduce_bytes(which: i64, target: i64, source: i64, size: i64) -> i64:
    """Combine ``size`` bytes into those at ``target``, both host addresses."""
    done = 0
    while done < size:
        left = size - done
        reduce(which, target + done, source + done, left if left < BLOCK_BYTES else BLOCK_BYTES)
        done += BLOCK_BYTES
    return 0


@native
def load_reductions(w: WarpRecord) -> i64:
    """Called before a copy that reduces is issued: its part is then there when the copy lands."""
    return 0
