"""Invalid kernels and invalid operations in kernels: each error names the line in the source."""

from __future__ import annotations

import math
import operator
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rows import every_row
from tilewright.builder import kernel, trace
from tilewright.errors import KernelError
from tracing import lines

ARRAY = {"x": "ptr f32"}


def suspended(k):
    yield k


async def later(k):
    k.barrier()


async def both(k):
    yield k


@pytest.mark.parametrize("function", [suspended, later, both, 5, "name", print])
def test_only_a_plain_function_is_a_kernel(function: Any) -> None:
    with pytest.raises(KernelError, match=r"generator or async|must be a Python function"):
        kernel(function)
    with pytest.raises(KernelError, match=r"generator or async|must be a Python function"):
        trace(function)


def test_a_kernel_returns_nothing() -> None:
    def body(k, x):
        return x[0]

    with pytest.raises(KernelError, match="must return None"):
        trace(body, params=ARRAY, name="f")


@pytest.mark.parametrize("index", [1.5, "1", (1, 2), slice(2), None, np.arange(3)])
def test_an_index_of_a_pointer_is_an_integer(index: Any) -> None:
    uses = (
        lambda k, x: x[index],
        lambda k, x: x + index,
        lambda k, x: x - index,
        lambda k, x: x.add_bytes(index),
        lambda k, x: k.var(x).advance(index),
    )
    for use in uses:
        with pytest.raises(KernelError, match="an index of a pointer must be an int"):
            trace(use, params=ARRAY, name="f")


@pytest.mark.parametrize("offset", [1.5, "4", None, np.float64(4), np.array(4.0)])
def test_an_offset_of_an_address_is_an_integer(offset: Any) -> None:
    def body(k, x):
        k.emit("ld.global.f32", (x.address(), offset))

    with pytest.raises(KernelError, match="must be an address, got"):
        trace(body, params=ARRAY)


@pytest.mark.parametrize("index", [1.5, "1", None])
def test_an_index_of_a_register_array_is_an_integer(index: Any) -> None:
    with pytest.raises(KernelError, match="an index of registers must be static, got"):
        trace(lambda k: k.array("f32", 4)[index], name="f")


def test_numpy_integers_are_indices() -> None:
    assert lines(lambda k, x: x[np.int64(2)], "ptr f32") == lines(lambda k, x: x[2], "ptr f32")
    assert lines(lambda k, x: (np.int64(2) + x)[0], "ptr f32")[-1].endswith("+8]")


@pytest.mark.parametrize("use", [list, lambda x: 1 in x, lambda x: [*x]])
def test_a_pointer_cannot_be_iterated_over(use: Any) -> None:
    with pytest.raises(KernelError, match="no length"):
        trace(lambda k, x: use(x), params=ARRAY, name="f")


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x[0] * np.arange(3),
        lambda x: np.arange(3) * x[0],
        lambda x: x[0] == np.arange(3.0),
        lambda x: x[0].to("s32") + np.arange(3),
        lambda x: x.__setitem__(0, np.arange(3)),
    ],
)
def test_an_array_is_not_a_number(use: Any) -> None:
    with pytest.raises(KernelError, match=r"is not valid for|expected a value"):
        trace(lambda k, x: use(x), params=ARRAY, name="f")


def test_an_integer_out_of_the_range_of_floats() -> None:
    with pytest.raises(KernelError, match="an integer of 1329 bits does not fit f64"):
        trace(lambda k: k.const("f64", 10**400), name="f")


FOREIGN = {
    "a coordinate": lambda k, x, a, old: k.tensor_address(k.tid.x.to("u64"), (old.i,)),
    "an operand": lambda k, x, a, old: a + old.a,
    "a viewed one": lambda k, x, a, old: k.add(a.view("b32").view("f32"), k.view(old.a, "f32")),
    "a stored value": lambda k, x, a, old: x.__setitem__(0, old.a),
    "part of a vector": lambda k, x, a, old: x.store((a, old.a)),
    "a destination": lambda k, x, a, old: k.mov(a, into=old.v),
    "a guard": lambda k, x, a, old: k.when(old.p).__enter__(),
    "a branch": lambda k, x, a, old: k.if_(old.p).__enter__(),
    "an address": lambda k, x, a, old: k.emit("ld.global.f32", old.x),
    "a shared address": lambda k, x, a, old: k.emit("ld.shared.f32", old.s),
    "a register and an offset": lambda k, x, a, old: k.emit("ld.global.f32", (old.x.base, 4)),
    "a pointer's base": lambda k, x, a, old: k.pointer("global", "f32", old.x.base),
    "its operator": lambda k, x, a, old: old.a + 1.0,
    "its load": lambda k, x, a, old: old.x[0],
    "its store": lambda k, x, a, old: old.s.__setitem__(0, a),
}


@pytest.mark.parametrize("use", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("over", [True, False], ids=["after", "within"])
def test_values_of_another_trace(use: Any, over: bool, request: Any) -> None:
    params = {"x": "ptr f32", "a": "f32"}
    old = SimpleNamespace()

    def inner() -> None:
        with pytest.raises(KernelError, match=r"another trace|trace that has ended"):
            trace(lambda k, x, a: use(k, x, a, old), params=params, name="f")

    def leak(k, x, a):
        vars(old).update(a=a, v=k.var(a), p=a > 0.0, x=x, s=k.shared("f32", 4), i=k.tid.x)
        if not over and "its" not in request.node.name:
            inner()

    trace(leak, params=params)
    if over:
        inner()


def left(k, block: str) -> None:
    p = k.tid.x > 3
    if block == "else":
        with k.if_(p):
            k.barrier()
        with k.else_():
            raise ZeroDivisionError
    elif block == "range":
        for _ in k.range(4):
            raise ZeroDivisionError
    else:
        with k.if_(p) if block == "if" else k.while_(lambda: k.tid.x > 3):
            raise ZeroDivisionError


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("block", ["if", "else", "while", "range"])
def test_an_exception_that_leaves_a_block_invalidates_the_trace(block: str, more: bool) -> None:
    def body(k):
        with pytest.raises(ZeroDivisionError):
            left(k, block)
        if more:
            k.barrier()

    with pytest.raises(KernelError, match=r"left a (k\.|loop)"):
        trace(body)
    with pytest.raises(ZeroDivisionError):
        trace(lambda k: left(k, block), name="f")


def test_errors_after_the_end_of_a_trace_name_their_own_line() -> None:
    old = SimpleNamespace()
    trace(lambda k, x: vars(old).update(x=x, k=k), params=ARRAY, name="f")

    def load() -> None:
        old.x[0]

    def wait() -> None:
        old.k.barrier()

    for use in (load, wait):
        with pytest.raises(KernelError, match="trace that has ended") as caught:
            use()
        assert caught.value.location.line == use.__code__.co_firstlineno + 1


def test_each_error_repeats_what_invalidated_the_trace() -> None:
    errors = []

    def body(k):
        for _ in k.range(4):
            break
        for _ in range(2):
            with pytest.raises(KernelError, match="break, return or an exception") as caught:
                k.barrier()
            errors.append(caught.value)

    with pytest.raises(KernelError, match="break, return or an exception") as caught:
        trace(body)
    errors.append(caught.value)
    assert len({id(e) for e in errors}) == 3 and len({str(e) for e in errors}) == 1


IMMEDIATES = {  # what an instruction takes, of the numbers below
    "setmaxnreg": (lambda k, x, n: k.setmaxnreg(n, inc=True), (24, 32, 40, 256)),
    "barrier": (lambda k, x, n: k.barrier(n), (0, 1, 2, 8, 15)),
    "threads": (lambda k, x, n: k.barrier(0, n), (0, 32, 256, 1 << 20)),
    "parity": (lambda k, x, n: k.mbarrier_wait(k.shared("b64"), n), (0, 1)),
    "arrivals": (lambda k, x, n: k.mbarrier_init(k.shared("b64"), n), range(1, 1 << 20)),
    "bytes": (lambda k, x, n: k.mbarrier_arrive(k.shared("b64"), bytes=n), range(1 << 20)),
    "copied": (lambda k, x, n: k.bulk_store(x, k.shared("b8"), n), (0, 16, 32, 256)),
    "copies": (lambda k, x, n: k.cp_async_wait(n), range(1 << 41)),
    "bulk copies": (lambda k, x, n: k.bulk_wait(n), range(1 << 41)),
    "products": (lambda k, x, n: k.wgmma_wait(n), range(1 << 41)),
}
NUMBERS = [-32, -8, -1, 0, 1, 2, 8, 15, 16, 24, 32, 33, 40, 41, 256, 264, 1 << 20, 1 << 40]


@every_row("kind", [int, np.int64])
@every_row("number", NUMBERS)
@every_row("name", IMMEDIATES)
def test_range_of_immediates(name: str, number: int, kind: Any) -> None:
    use, allowed = IMMEDIATES[name]

    def body(k, x) -> None:
        use(k, x, kind(number))

    if number in allowed:
        trace(body, params=ARRAY)
        return
    with pytest.raises(KernelError, match=f"(not|got) .*{number}|{number} does not fit"):
        trace(body, params=ARRAY)


OPERANDS = "add.u32 add.s64 add.rn.f32 add.rn.f64 add.rn.f16 and.b16 and.b32 and.b64 fma.rn.f16x2"
GIVEN = "u8 s16 u32 s64 f16 bf16 f32 f64 b8 b16 b32 b64 f16x2 e4m3".split()


@every_row("opcode", [*OPERANDS.split(), "add.bf16x2", "fma.rn.bf16"])
@every_row("given", GIVEN)
def test_hints_for_types_work(opcode: str, given: str) -> None:
    def body(k):
        x = k.var(given)
        try:
            k.emit(opcode, *[x] * (3 if "fma" in opcode else 2))
        except KernelError as error:
            for method, t in re.findall(r"\.(view|to|pack)\('(\w+)'", error.hint):
                made = k.pack(t, x, x) if method == "pack" else getattr(x, method)(t)
                assert made.dtype.name == t
            assert error.hint or given[0] not in "us" or "x2" in opcode

    trace(body)


def test_a_half_must_be_packed_into_a_word() -> None:
    with pytest.raises(KernelError, match=r"hint: k\.pack\('b32', low, high\) joins two registers"):
        trace(lambda k: k.stmatrix(k.shared("f16", 64), [k.const("f16", 1.0)]), name="f")


@pytest.mark.parametrize("f", [math.sqrt, float, np.float32, np.exp, np.sqrt, np.add.reduce])
def test_functions_of_numbers_reject_registers(f: Any) -> None:
    with pytest.raises(KernelError, match=r"has no value(.|\n)*use k\.sqrt\(x\)"):
        trace(lambda k: f(k.var("f32")), name="f")


BINARY = "add sub mul truediv floordiv mod lshift rshift and_ or_ xor lt le gt ge eq ne".split()


@pytest.mark.parametrize("name", BINARY)
def test_operators_with_numpy_numbers(name: str) -> None:
    f, t = getattr(operator, name), "f32" if name == "truediv" else "u32"
    number = {"f32": np.float64, "u32": np.int64}[t](3)
    assert lines(lambda k, a: f(a, number), t) == lines(lambda k, a: f(a, number.item()), t)
    if "shift" not in name:
        assert lines(lambda k, a: f(number, a), t) == lines(lambda k, a: f(number.item(), a), t)


@pytest.mark.parametrize("bounds", [(2.5,), ("4",), (None, 4), (0, 4, 0.5), (0, np.arange(3))])
@pytest.mark.parametrize("unroll", [None, True])
def test_loop_bounds_are_integers(bounds: Any, unroll: Any) -> None:
    with pytest.raises(KernelError, match="loop bounds must be integers or registers, got"):
        trace(lambda k: list(k.range(*bounds, unroll=unroll)), name="f")


@pytest.mark.parametrize("unroll", [None, True])
def test_a_step_of_0(unroll: Any) -> None:
    with pytest.raises(KernelError, match="the step of a loop must not be 0"):
        trace(lambda k: list(k.range(0, 4, 0, unroll=unroll)), name="f")
