"""Functions for kernel authors: elementary functions, atomics, reductions, vector accesses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from error_messages import raises_message
from rows import every_row
from tilewright.builder import Builder, kernel, ptr, trace, u32
from tilewright.errors import EpilogueError, KernelError
from tilewright.run import launch
from tracing import lines

Array = np.ndarray[Any, Any]
FUNCTIONS = ("exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid", "sqrt", "rsqrt")


def run(body: Callable[..., None], *arrays: Array, block: int = 32) -> None:
    """Launch ``body(k, pointer, …)`` on one CTA of the virtual machine."""
    names = body.__code__.co_varnames[1 : 1 + len(arrays)]
    types = (tilewright.dtypes.from_numpy(a.dtype).name for a in arrays)
    params = {n: f"ptr {t} align 16" for n, t in zip(names, types, strict=True)}
    traced = trace(body, params=params, block=block, name="f")
    launch(traced, (1, 1, 1), (block, 1, 1), arrays, device="vm")


@pytest.mark.vm
def test_functions_have_the_bits_of_those_of_arrays() -> None:
    def body(k: Builder, x: Any, y: Any) -> None:
        value = x[k.tid.x]
        for i, name in enumerate(FUNCTIONS):
            y[k.tid.x + 32 * i] = getattr(k, name)(value)
        y[k.tid.x + 32 * len(FUNCTIONS)] = k.rcp(value, approximate=True)
        gelu = k.elementwise(tilewright.gelu, value, approximate="tanh")
        y[k.tid.x + 32 * (len(FUNCTIONS) + 1)] = gelu

    x = np.linspace(-3, 5, 32, dtype=np.float32)
    y = np.zeros((len(FUNCTIONS) + 2, 32), np.float32)
    run(body, x, y)
    expected = [getattr(tilewright, name)(x) for name in FUNCTIONS]
    expected += [tilewright.reciprocal(x, approximate=True), tilewright.gelu(x, "tanh")]
    np.testing.assert_array_equal(y, np.stack(expected))


@pytest.mark.vm
def test_sin_and_cos() -> None:
    def body(k: Builder, x: Any, y: Any) -> None:
        y[k.tid.x], y[k.tid.x + 32] = k.sin(x[k.tid.x]), k.cos(x[k.tid.x])

    x, y = np.linspace(-3, 3, 32, dtype=np.float32), np.zeros((2, 32), np.float32)
    run(body, x, y)
    assert abs(y - np.stack([np.sin(x), np.cos(x)])).max() < 2**-20


def test_functions_refuse_other_registers() -> None:
    with raises_message(KernelError, "k.exp must be given a register of f32, got f16"):
        lines(lambda k, p: k.exp(p[0]), "ptr f16")
    with raises_message(KernelError, "registers must be f32"):
        lines(lambda k, p: k.elementwise(tilewright.gelu, p[0]), "ptr f16")
    with raises_message(KernelError, "k.elementwise of .*gelu.*missing a required argument"):
        lines(lambda k, p: k.elementwise(tilewright.gelu), "ptr f32")
    with pytest.raises(EpilogueError):
        lines(lambda k, p: k.elementwise(tilewright.gelu, p[0]), "ptr f64")


@pytest.mark.vm
@every_row(
    ("block", "op", "expected"),
    [(32, "add", sum(range(32))), (96, "max", 95.0), (256, "min", 0.0), (256, "add", 32640.0)],
)
def test_block_reduce(block: int, op: str, expected: float) -> None:
    def body(k: Builder, x: Any, y: Any) -> None:
        for turn in k.range(3):  # the shared memory of one call is used again
            y[turn * block + k.tid.x] = k.block_reduce(x[k.tid.x], op)

    x = np.random.default_rng(0).permutation(block).astype(np.float32)
    y = np.zeros((3, block), np.float32)
    run(body, x, y, block=block)
    assert (y == expected).all()


@pytest.mark.vm
def test_reductions_of_tuples_and_segments() -> None:
    """The largest value with its index; sums of segments of 8 lanes; 64-bit values."""

    def body(k: Builder, x: Any, y: Any, s: Any) -> None:
        def larger(a: Any, b: Any) -> Any:
            return k.max(a[0], b[0]), k.select(a[0] > b[0], a[1], b[1])

        value, index = k.block_reduce((x[k.tid.x], k.tid.x), larger)
        y[k.tid.x] = value
        y[k.tid.x + 64] = index.to("f32")
        s[k.tid.x] = k.warp_reduce(k.tid.x.to("u64"), "add", width=8)

    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    y, s = np.zeros((2, 64), np.float32), np.zeros(64, np.uint64)
    run(body, x, y, s, block=64)
    assert (y[0] == x.max()).all() and (y[1] == x.argmax()).all()
    np.testing.assert_array_equal(s, np.arange(64).reshape(8, 8).sum(1).repeat(8))


def test_wrong_reductions() -> None:
    def reduce(**options: Any) -> Callable[..., None]:
        def body(k: Builder, n: Any) -> None:
            k.warp_reduce(n, **options)

        return body

    with raises_message(KernelError, "a reduction must be add, mul"):
        lines(reduce(op="sum"), "u32")
    with raises_message(KernelError, "width must be a power of two up to 32, got 12"):
        lines(reduce(op="add", width=12), "u32")
    with raises_message(KernelError, "must be a multiple of 32 threads, got None"):
        lines(lambda k, n: k.block_reduce(n, "add"), "u32")


@pytest.mark.vm
def test_atomics() -> None:
    def body(k: Builder, x: Any, f: Any) -> None:
        i = k.tid.x
        k.atomic_add(x, i)
        k.atomic_max(x + 1, i)
        k.atomic_min(x + 2, i)
        k.atomic_or(x + 3, i)
        k.atomic_xor(x + 4, i)
        k.atomic_and(x + 5, i | 8)
        k.atomic_compare_exchange(x + 6, 7, 9)
        old = k.atomic_exchange(x + 7, i)
        with k.if_(old == 70):
            k.atomic_add(f, 0.5)

    x, f = np.array([0, 0, 99, 0, 0, 127, 7, 70], np.uint32), np.zeros(1, np.float32)
    run(body, x, f)
    assert x.tolist()[:7] == [496, 31, 0, 31, 0, 8, 9] and x[7] < 32 and f[0] == 0.5


@pytest.mark.vm
@every_row("type_", [np.float16, ml_dtypes.bfloat16, np.float32, np.uint8])
def test_vector_accesses(type_: Any) -> None:
    """16 bytes by one load and one store; converted values are rounded once."""
    count = 16 // np.dtype(type_).itemsize

    def body(k: Builder, x: Any, y: Any) -> None:
        at = k.tid.x * count
        values = k.load_vector(x + at, count, dtype=None if type_ is np.uint8 else "f32")
        k.store_vector(y + at, values)

    x = np.random.default_rng(0).integers(0, 255, 32 * count).astype(type_)
    y = np.zeros_like(x)
    run(body, x, y)
    np.testing.assert_array_equal(x, y)


def test_a_vector_is_one_instruction() -> None:
    def body(k: Builder, p: Any) -> None:
        k.store_vector(p + 8, k.load_vector(p + 16, 8, dtype="f32"))

    text = lines(body, "ptr bf16 align 16")
    assert [x.split()[0] for x in text if "global" in x] == ["ld.global.v4.b32", "st.global.v4.b32"]
    with raises_message(KernelError, "must be aligned to 16 bytes"):
        lines(body, "ptr bf16 align 8")
    with raises_message(KernelError, "got 3 elements of bf16"):
        lines(lambda k, p: k.load_vector(p, 3), "ptr bf16")


def test_every_public_method_has_a_docstring() -> None:
    public = [n for n in dir(Builder) if not n.startswith("_")]
    assert len(public) > 100
    assert not [n for n in public if not (inspect.getattr_static(Builder, n).__doc__ or "").strip()]


def test_a_kernel_has_its_own_signature() -> None:
    @kernel
    def scale(k, n: u32, x: ptr("f32", align=16), *, by=2):
        """x *= by."""

    assert str(inspect.signature(scale)) == "(n: 'u32', x: 'ptr f32 align 16', /, *, by=2)"
    assert scale.__doc__ == "x *= by."
