"""The operations of asynchronous reductions: the meaning of ``atom``, compiled for the engine.

A reduction has a number: the position of the operation in ``OPERATIONS``, counted from 1, and in
the low four bits the element type's code in tensor maps; 0 means no reduction. ``reduce`` combines
vectors of 32 lanes with the same ``combine`` that evaluates ``atom`` and ``red``. An H200 differs
from the PTX manual in two points: adding f32 keeps subnormals (``ADD.F32.RN`` in machine code,
where ``red`` has ``ADD.F32.FTZ.RN``), and a tensor map of f64 supports ``add``.
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

OPERATIONS = {  # others with a tensor map of s64 are an illegal instruction on an H200
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
MAX_ELEMENT_BYTES = 8
BLOCK_BYTES = 64  # bytes combined at a time: 32 lanes of the smallest type


def number(op: str, type_: str = "u8") -> int:
    """The number of a reduction; without a type, that of the operation, to which the tensor map's
    type is added.
    """
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
    """Combine vectors. ``f32.ftz`` is the arithmetic of ``atom`` on f32 in global memory."""
    if (op, type_) == ("add", "f32"):
        return m.fadd("f32", old, new)
    in_global = m.const(1, 1)  # matters for floating-point add only, which shared memory lacks
    return combine(m, op, type_.partition(".")[0], old, (new,), in_global)


def _emit(module: ir.Module, native_: Native) -> None:
    function = declare(module, native_)
    reduction, target, source, size = function.args
    b = ir.IRBuilder(function.append_basic_block())
    old, new = (stack_buffer(b, LANES * MAX_ELEMENT_BYTES) for _ in range(2))
    unknown, done = (function.append_basic_block() for _ in range(2))
    target_pointer, source_pointer = (b.inttoptr(a, POINTER) for a in (target, source))
    memcpy(b, old, target_pointer, size)
    memcpy(b, new, source_pointer, size)
    switch = b.switch(reduction, unknown)
    ir.IRBuilder(unknown).ret(I64(1))
    for code, op, type_ in _reductions():
        case = function.append_basic_block(f"{op}_{type_}")
        switch.add_case(I64(code), case)
        b.position_at_end(case)
        lanes = lanes_of(8 * TYPES[type_].bytes)
        m = LlvmValues(b, module, I32(FULL_MASK))
        operands = (b.load(area, typ=lanes, align=64) for area in (old, new))
        b.store(_combined(m, op, type_, *operands), old, align=64)
        b.branch(done)
    b.position_at_end(done)
    memcpy(b, target_pointer, old, size)
    b.ret(I64(0))


@native(emit=_emit, deferred=True)
def reduce(number: i64, target: i64, source: i64, size: i64) -> i64:
    """Combine at most ``BLOCK_BYTES`` bytes into those at ``target``. Returns 1 if there is no
    reduction of this number.
    """
    raise NotImplementedError


@native(deferred=True)
def reduce_bytes(number: i64, target: i64, source: i64, size: i64) -> i64:
    """Combine ``size`` bytes at ``source`` into those at ``target`` (host addresses)."""
    done = 0
    while done < size:
        rest = size - done
        reduce(number, target + done, source + done, rest if rest < BLOCK_BYTES else BLOCK_BYTES)
        done += BLOCK_BYTES
    return 0


@native
def load_reductions(w: WarpRecord) -> i64:
    """Called before a reduction is issued, so that this part is loaded when it completes."""
    return 0
