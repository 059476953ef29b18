"""Operators mean what they mean in Python, modulo 2^n, whatever instructions they become."""

from __future__ import annotations

import operator
from math import trunc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.layout import ComposedLayout, Layout, Swizzle, Tensor
from tracing import evaluate

WORDS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2, 31, 32, 2**31, 2**32 - 1]))
SMALL = st.one_of(st.integers(1, 40), st.sampled_from([1, 2, 64, 2**16, 2**31]))
BINARY = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip


@pytest.mark.parametrize("symbol", BINARY)
@given(a=WORDS, b=WORDS, n=SMALL)
def test_unsigned_operators_agree_with_python(symbol: str, a: int, b: int, n: int) -> None:
    f, divides = BINARY[symbol], symbol in ("//", "%")
    if divides and not (a and b):
        return

    def body(k, x, y):
        return f(x, y), f(x, n), f(n, y), f(a, n)

    got = evaluate(body, ("u32", "u32"), (a, b))
    assert [g % 2**32 for g in got] == [e % 2**32 for e in (f(a, b), f(a, n), f(n, b), f(a, n))]


@given(a=WORDS, shift=st.integers(0, 31))
def test_shifts_keep_the_sign_of_signed_registers(a: int, shift: int) -> None:
    signed = a - (a >> 31 << 32)

    def body(k, x, y):
        return x << shift, x >> shift, y >> shift, 1 << (x & 31)

    got = evaluate(body, ("u32", "s32"), (a, a))
    assert got == [(a << shift) % 2**32, a >> shift, (signed >> shift) % 2**32, 1 << (a & 31)]


@given(a=WORDS, b=WORDS.filter(bool))
def test_div_and_rem_round_toward_zero(a: int, b: int) -> None:
    x, y = (v - (v >> 31 << 32) for v in (a, b))
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    def body(k, p, q, r):
        return k.div(p, q), k.rem(p, q), k.div(r, 8), k.rem(r, 8)

    got = evaluate(body, ("s32", "s32", "u32"), (a, b, a))
    assert got == [quotient % 2**32, (x - y * quotient) % 2**32, a // 8, a % 8]
    assert quotient == trunc(quotient)


@given(a=WORDS, b=WORDS, n=WORDS)
def test_comparisons_and_choice(a: int, b: int, n: int) -> None:
    def body(k, x, y):
        return (
            *(k.select(p, 1, 0) for p in (x < y, x <= n, n > y, x == y, x != n, x >= y)),
            k.select((x < y) & ~(x == n) | (y > n) ^ (x < n), x, y),
            k.min(x, y),
            k.max(x, n),
        )

    expected = [a < b, a <= n, n > b, a == b, a != n, a >= b]
    mixed = (a < b) & (a != n) | (b > n) ^ (a < n)
    got = evaluate(body, ("u32", "u32"), (a, b))
    assert got == [*map(int, expected), a if mixed else b, min(a, b), max(a, n)]


@given(a=WORDS, b=WORDS)
def test_variables_change_and_copies_do_not(a: int, b: int) -> None:
    def body(k, x, y):
        v = k.var(x)
        before, alias = v + 0, v
        v += y
        v ^= 5
        kept = v * 1
        v.set(y)
        return before, kept, alias, v

    assert evaluate(body, ("u32", "u32"), (a, b)) == [a, ((a + b) % 2**32) ^ 5, b, b]


@given(a=st.integers(0, 2**64 - 1))
def test_conversions_of_integers(a: int) -> None:
    def body(k, x, y):
        return (
            x.to("u32"),
            x.to("s32").to("s64").view("u64"),
            y.to("u64"),
            x.to("s16").to("s32"),
            k.unpack(x)[1],
            k.pack("b64", *reversed(k.unpack(x))),
        )

    low = a % 2**32
    signed = low - (low >> 31 << 32)
    half = a % 2**16
    expected = [low, signed % 2**64, low, (half - (half >> 15 << 16)) % 2**32, a >> 32]
    got = evaluate(body, ("u64", "u32"), (a, low))
    assert got == [*expected, low << 32 | a >> 32]


@given(row=st.integers(0, 63), column=st.integers(0, 15))
def test_layouts_of_registers_are_layouts_of_numbers(row: int, column: int) -> None:
    layouts = [
        Layout((64, (8, 2)), (8, (1, 512))),
        Layout(((4, 16), 16), ((3, 12), 200)),
        ComposedLayout(Swizzle(3, 3, 3), 0, Layout((64, 16), (64, 1))),
    ]

    def body(k, x, y):
        return [layout((x, y)) for layout in layouts]

    got = evaluate(body, ("u32", "u32"), (row, column))
    assert got == [layout((row, column)) for layout in layouts]


@pytest.mark.parametrize("packed", [False, True], ids=["array", "tensor"])
def test_a_variable_is_read_when_an_instruction_uses_it(packed: bool) -> None:
    def body(k, x, y):
        t = k.make_rmem_tensor((2,), "u32") if packed else k.array("u32", 2)
        t[0], t[1] = x, y
        itself, view, plus, now = t[0], t[0].view("s32"), +t[0], k.mov(t[0])
        t[0], t[1] = k.mov(t[1]), k.mov(t[0])
        return t[0], t[1], itself, view, plus, now

    assert evaluate(body, ("u32", "u32"), (5, 7)) == [7, 5, 7, 7, 7, 5]


@pytest.mark.parametrize("t", ["u32", "u16"])
def test_overlapping_reads_and_writes(t: str) -> None:
    """A tensor copied onto part of itself, as memmove does, and transposed in place."""

    def body(k, x, y):
        moved = k.make_rmem_tensor((4,), t)
        square = k.make_rmem_tensor(Layout((2, 2), (1, 2)), t)
        k.clear(moved), k.clear(square)
        for i in range(4):
            moved[i] = square[i] = (x + i).to(t)
        k.copy(Tensor(moved.engine, Layout(3)), Tensor(moved.engine + 1, Layout(3)))
        k.transform(Tensor(square.engine, Layout((2, 2), (2, 1))), square, lambda e: e)
        return [e[i].to("u32") for e in (moved.engine, square.engine) for i in range(4)]

    assert evaluate(body, ("u32", "u32"), (5, 0)) == [5, 5, 6, 7, 5, 7, 6, 8]
