"""What is no kernel, and what a kernel may not do: each is an error where it is written."""

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
    with pytest.raises(KernelError, match=r"generator or async|not a Python function"):
        kernel(function)
    with pytest.raises(KernelError, match=r"generator or async|not a Python function"):
        trace(function)


def test_a_kernel_returns_nothing() -> None:
    def body(k, x):
        return x[0]

    with pytest.raises(KernelError, match="returns nothing"):
        trace(body, params=ARRAY, name="f")


@pytest.mark.parametrize("index", [1.5, "1", (1, 2), slice(2), None, np.arange(3)])
def test_an_index_of_a_pointer_is_whole(index: Any) -> None:
    uses = (
        lambda k, x: x[index],
        lambda k, x: x + index,
        lambda k, x: x - index,
        lambda k, x: x.add_bytes(index),
        lambda k, x: k.var(x).advance(index),
    )
    for use in uses:
        with pytest.raises(KernelError, match="not an index"):
            trace(use, params=ARRAY, name="f")


@pytest.mark.parametrize("offset", [1.5, "4", None, np.float64(4), np.array(4.0)])
def test_an_offset_of_an_address_is_whole(offset: Any) -> None:
    def body(k, x):
        k.emit("ld.global.f32", (x.address(), offset))

    with pytest.raises(KernelError, match="is an address, not"):
        trace(body, params=ARRAY)


@pytest.mark.parametrize("index", [1.5, "1", None])
def test_an_index_of_an_array_of_registers_is_whole(index: Any) -> None:
    with pytest.raises(KernelError, match="their index is static, not"):
        trace(lambda k: k.array("f32", 4)[index], name="f")


def test_numpy_whole_numbers_are_indices() -> None:
    assert lines(lambda k, x: x[np.int64(2)], "ptr f32") == lines(lambda k, x: x[2], "ptr f32")
    assert lines(lambda k, x: (np.int64(2) + x)[0], "ptr f32")[-1].endswith("+8]")


@pytest.mark.parametrize("use", [list, lambda x: 1 in x, lambda x: [*x]])
def test_a_pointer_is_not_iterated_over(use: Any) -> None:
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
    with pytest.raises(KernelError, match=r"does not go with|expected a value"):
        trace(lambda k, x: use(x), params=ARRAY, name="f")


def test_a_number_beyond_all_floats_does_not_fit() -> None:
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
def test_what_another_trace_made_is_refused(use: Any, over: bool, request: Any) -> None:
    params = {"x": "ptr f32", "a": "f32"}
    old = SimpleNamespace()

    def inner() -> None:
        with pytest.raises(KernelError, match=r"another trace|trace that is over"):
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
def test_an_exception_that_leaves_a_block_breaks_the_kernel(block: str, more: bool) -> None:
    def body(k):
        with pytest.raises(ZeroDivisionError):
            left(k, block)
        if more:
            k.barrier()

    with pytest.raises(KernelError, match=r"left a k\.|exception"):
        trace(body)
    with pytest.raises(ZeroDivisionError):
        trace(lambda k: left(k, block), name="f")


def test_each_error_of_a_trace_that_is_over_names_its_own_line() -> None:
    old = SimpleNamespace()
    trace(lambda k, x: vars(old).update(x=x, k=k), params=ARRAY, name="f")

    def load() -> None:
        old.x[0]

    def wait() -> None:
        old.k.barrier()

    for use in (load, wait):
        with pytest.raises(KernelError, match="trace that is over") as caught:
            use()
        assert caught.value.location.line == use.__code__.co_firstlineno + 1


def test_what_broke_a_kernel_is_told_each_time() -> None:
    errors = []

    def body(k):
        for _ in k.range(4):
            break
        for _ in range(2):
            with pytest.raises(KernelError, match="break or return") as caught:
                k.barrier()
            errors.append(caught.value)

    with pytest.raises(KernelError, match="break or return") as caught:
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
def test_an_immediate_is_what_the_instruction_takes(name: str, number: int, kind: Any) -> None:
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
def test_what_the_hint_for_a_type_says_can_be_done(opcode: str, given: str) -> None:
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


def test_a_half_is_packed_into_a_word() -> None:
    with pytest.raises(KernelError, match=r"hint: k\.pack\('b32', low, high\) joins two"):
        trace(lambda k: k.stmatrix(k.shared("f16", 64), [k.const("f16", 1.0)]), name="f")


@pytest.mark.parametrize("f", [math.sqrt, float, np.float32, np.exp, np.sqrt, np.add.reduce])
def test_a_function_of_a_number_is_none_of_a_register(f: Any) -> None:
    with pytest.raises(KernelError, match=r"has no value(.|\n)*name the instruction: k\.ptx"):
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
def test_a_loop_counts_by_whole_numbers(bounds: Any, unroll: Any) -> None:
    with pytest.raises(KernelError, match="loop bounds must be integers or registers, got"):
        trace(lambda k: list(k.range(*bounds, unroll=unroll)), name="f")


@pytest.mark.parametrize("unroll", [None, True])
def test_a_step_of_0_has_no_end(unroll: Any) -> None:
    with pytest.raises(KernelError, match="a loop with step 0 has no end"):
        trace(lambda k: list(k.range(0, 4, 0, unroll=unroll)), name="f")
