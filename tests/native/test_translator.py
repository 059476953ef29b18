"""Native code computes what Python computes."""

from __future__ import annotations

import ctypes

import llvmlite.ir as ir
import pytest

from ptx_kernels.simt import kernel, load, run, store, zeros
from tilewright.native.intrinsics import below, highest, lowest, lshr, popcount, umod
from tilewright.native.jit import Jit
from tilewright.native.llvm_types import I32, I64, POINTER
from tilewright.native.native_language import Array, Ptr, Struct, i64, native, u8, u32
from tilewright.native.native_record import Record
from tilewright.native.translator import translate

pytestmark = pytest.mark.vm

BASE = 7


class Pair(Struct):
    small: u8
    values: Ptr[u32] = Array(4)
    large: i64


@native
def steps(n: i64) -> i64:
    """Collatz."""
    count = 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        count += 1
        if count > 1000:
            break
    return count


@native
def odd_squares(n: i64) -> i64:
    total = 0
    for i in range(1, n):
        if not i & 1:
            continue
        total += i * i if i > 2 or i == 1 else 0
    return total + BASE


@native
def guarded(p: Ptr[u32], n: i64) -> i64:
    """``and`` and ``if`` evaluate only what they need: p may be null."""
    value = p[n] if n >= 0 else -1
    if n >= 0 and p[0] != 0 and 0 < p[n] <= 100:
        value += 1000
    return value


@native
def fill(p: Pair, n: i64) -> i64:
    p.small = n
    p.large = -n
    for i in range(4):
        p.values[i] = n + i
    return p.small + p.values[3] + p.large + below(-1, 0) + lshr(-1, 63)


@native
def twice(n: i64) -> i64:
    return steps(n) + steps(n)


@native
def integer_intrinsics(a: i64, which: i64) -> i64:
    if which == 0:
        return popcount(a)
    if which == 1:
        return lowest(a)
    if which == 2:
        return highest(a)
    if which == 3:
        return below(a, BASE)
    if which == 4:
        return lshr(a, 3)
    return umod(a, BASE)


def compiled(*functions):
    jit, module = Jit(), ir.Module("test")
    translate(module, list(functions))
    loaded = jit.load(jit.compile(module), [f.name for f in functions])
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)
    return loaded, [call(loaded[f.name]) for f in functions]


def test_loops_and_conditions():
    _loaded, (steps_, squares, twice_) = compiled(steps, odd_squares, twice)
    for n in (1, 2, 7, 27, 97):
        assert steps_(n, 0) == steps.function(n)
        assert squares(n, 0) == odd_squares.function(n)
        assert twice_(n, 0) == 2 * steps.function(n)


def test_integer_intrinsics_return_the_same_in_python():
    _loaded, (call,) = compiled(integer_intrinsics)
    for a in (0, 1, 6, 40, BASE, -1, -BASE, 1 << 62, -1 << 63):
        for which in range(6):
            assert call(a, which) == integer_intrinsics.function(a, which)


def test_python_cannot_call_native_code():
    with pytest.raises(TypeError, match="steps is native code"):
        steps(1)


def test_a_call_of_a_python_function_is_an_error():
    @native
    def bad(n: i64) -> i64:
        return abs(n)

    with pytest.raises(NameError, match="abs is not a native function"):
        translate(ir.Module("test"), [bad])


def test_only_the_selected_operand_is_evaluated():
    _loaded, (call,) = compiled(guarded)
    words = (ctypes.c_uint32 * 3)(5, 6, 200)
    where = ctypes.addressof(words)
    assert [call(where, n) for n in (0, 1, 2)] == [1005, 1006, 200]
    assert call(0, -1) == -1


def test_python_and_native_code_agree_on_record_layout():
    _loaded, (call,) = compiled(fill)
    record = Record(Pair)
    assert call(record.address, 300) == 300 % 256 + 303 - 300 + 0 + 1
    assert (record.small, record.large, record.values.tolist()) == (44, -300, [300, 301, 302, 303])


def test_unsupported_python_is_an_error():
    @native
    def bad(n: i64) -> i64:
        return [n]

    with pytest.raises(SyntaxError, match="native code does not support List"):
        translate(ir.Module("test"), [bad])


def test_the_floating_point_mode_of_the_process_does_not_matter():
    """The machine sets its own mode; a kernel's results do not depend on the thread's."""
    jit, module = Jit(), ir.Module("mode")
    if not jit.triple.startswith("x86_64"):
        pytest.skip("MXCSR is x86's")
    function = ir.Function(module, ir.FunctionType(I64, [I64, I64]), "set_mode")
    b = ir.IRBuilder(function.append_basic_block())
    place = b.alloca(I32)
    b.store(b.trunc(function.args[0], I32), place)
    type_ = ir.FunctionType(ir.VoidType(), [POINTER])
    b.call(ir.Function(module, type_, "llvm.x86.sse.ldmxcsr"), [place])
    b.ret(I64(0))
    loaded = jit.load(jit.compile(module), ["set_mode"])
    set_mode = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 2)(loaded["set_mode"])
    text = kernel(f"{load('%f0', 'f32')} add.rn.f32 %f1, %f0, %f0; {store('%f1', 'f32')}")
    set_mode(0x1F80 | 0x8040 | 0x6000, 0)  # flush, denormals are zeros, round toward zero
    try:
        out, _ = run(text, [zeros(), zeros() + 3])
    finally:
        set_mode(0x1F80, 0)
    assert set(out) == {6}
