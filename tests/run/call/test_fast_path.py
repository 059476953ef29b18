"""A call that is repeated goes a short way, to the same result, and only where it may."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from tilewright.errors import ProblemError
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

TINY = "32x32x32:1x1:2"
SPLIT = "tma:64x64x64:1:2*2"
M, N, K = 48, 32, 64


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered(FAST_KIND):
        yield


def matrices(seed: int, *shapes: tuple[int, ...], dtype: Any = np.float16) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes]


def exact(a: Any, b: Any) -> Any:
    return a.astype(np.float32) @ b.astype(np.float32)


def product(a: Any, b: Any, **options: Any) -> tuple[Any, bool]:
    """The result, and whether the way was short."""
    seen.clear()
    d = tilewright.matmul(a, b, config=TINY, **options)
    return d.numpy(), not seen


def test_a_repeated_call_takes_the_fast_path() -> None:
    for number in range(3):
        a, b = matrices(number, (M, K), (K, N))
        d, short = product(Resident.of(a), Resident.of(b), out_dtype="f32")
        assert np.array_equal(d, exact(a, b)) and short is (number > 0)


def test_an_error_of_a_launch_is_raised_without_a_second_launch(monkeypatch: Any) -> None:
    a, b = (Resident.of(x) for x in matrices(5, (M, K), (K, N)))
    for _ in range(2):
        product(a, b, out_dtype="f32")
    launches: list[Any] = []

    def interrupted(*given: Any) -> None:
        launches.append(given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Machine, "_compiled", interrupted)
        product(a, b, out_dtype="f32")
    assert len(launches) == 1
    assert product(a, b, out_dtype="f32")[1]


def test_alternating_calls_of_one_shape() -> None:
    a, b = matrices(1, (K, K), (K, N))
    forms = [
        (Resident.of(a), Resident.of(b)),
        (Resident.of(np.ascontiguousarray(a.T)).T, Resident.of(b)),
        (Resident.of(a), Resident.of(np.ascontiguousarray(b.T)).T),
        (Resident.of(a).cut((K, K), (K, 1)), Resident.of(np.pad(b, ((0, 0), (0, 8)))).cut(
            (K, N), (N + 8, 1))),
    ]  # fmt: skip
    for round_ in range(2):
        for x, y in forms:
            out = Resident.empty((K, N), "f32")
            d, short = product(x, y, out=out)
            assert np.array_equal(d, exact(a, b)) and short is (round_ > 0)


def test_other_types_take_the_slow_path() -> None:
    for dtype in (np.float16, np.float16, ml_dtypes.bfloat16, np.float16, ml_dtypes.bfloat16):
        a, b = matrices(2, (M, K), (K, N), dtype=dtype)
        d, _ = product(Resident.of(a), Resident.of(b))
        assert np.array_equal(d.astype(np.float32), exact(a, b))


def test_each_alignment_has_a_fast_path() -> None:
    wide = matrices(3, (M, K + 8))[0]
    (b,) = matrices(4, (K, N))
    for offset, known in ((0, False), (0, True), (3, False), (8, True), (3, True)):
        a = Resident.of(wide).cut((M, K), (K + 8, 1), offset)
        d, short = product(a, Resident.of(b), out_dtype="f32")
        assert np.array_equal(d, exact(wide[:, offset : offset + K], b))
        assert short is known


def test_out_that_overlaps_an_input() -> None:
    a, b = matrices(5, (K, K), (K, K))
    x, y, d = Resident.of(a), Resident.of(b), Resident.empty((K, K), "f16")
    for out in (d, d, Resident.empty((K, K), "f16")):
        assert np.array_equal(product(x, y, out=out)[0], exact(a, b))
    for out in (x, y, x.cut((K, K), (K, 1))):
        with pytest.raises(ProblemError, match="out must not share memory with"):
            product(x, y, out=out)


def test_interleaved_columns_take_the_slow_path() -> None:
    """Their ranges overlap, they don't."""
    (whole,) = matrices(6, (K, 3 * K))
    for _ in range(2):
        there = Resident.of(whole)
        x, y, out = (there.cut((K, K), (3 * K, 1), i * K) for i in range(3))
        d, short = product(x, y, out=out)
        assert np.array_equal(d, exact(whole[:, :K], whole[:, K : 2 * K])) and not short


def test_accumulating_in_place() -> None:
    a, b, c = matrices(7, (M, K), (K, N), (M, N))
    x, y, d = Resident.of(a), Resident.of(b), Resident.of(c.astype(np.float32))
    for times in (1, 2, 3):
        seen_d, short = product(x, y, c=d, beta=1.0, out=d)
        assert np.array_equal(seen_d, c + times * exact(a, b)) and short is (times > 1)
    other = Resident.of(c.astype(np.float32))
    for _ in range(2):
        assert np.array_equal(product(x, y, c=other, beta=1.0, out=d)[0], c + exact(a, b))
    assert np.array_equal(product(x, y, c=d, beta=1.0, out=d)[0], c + 2 * exact(a, b))


def test_one_array_as_both_operands() -> None:
    a, b = matrices(8, (K, K), (K, K))
    for first, second in ((a, a), (b, b), (a, b), (b, b), (a, b)):
        x = Resident.of(first)
        y = x if second is first else Resident.of(second)
        assert np.array_equal(product(x, y, out_dtype="f32")[0], exact(first, second))


def test_other_factors() -> None:
    a, b, c = matrices(9, (M, K), (K, N), (M, N))
    x, y, z = Resident.of(a), Resident.of(b), Resident.of(c.astype(np.float32))
    there = Resident.of(np.array([0.5], np.float32))
    on_cpu = np.array(2.0)
    pairs = (1.0, 0.0), (2, 0.0), (2, 1.5), (there, 1.5), (on_cpu, 1.5), (2, 0), (1, 1)
    for alpha, beta in pairs:
        d, _ = product(x, y, c=z, alpha=alpha, beta=beta, out_dtype="f32")
        factor = 0.5 if alpha is there else float(alpha)
        assert np.array_equal(d, factor * exact(a, b) + beta * c)
    on_cpu[()] = 4.0
    d, _ = product(x, y, c=z, alpha=on_cpu, beta=1.5, out_dtype="f32")
    assert np.array_equal(d, 4 * exact(a, b) + 1.5 * c)
    with pytest.raises(ProblemError, match="beta is not 0"):
        product(x, y, beta=1.0, out_dtype="f32")
    with pytest.raises(ProblemError, match="alpha must be"):
        product(x, y, c=z, alpha="1", beta=1.0, out_dtype="f32")


def test_a_plan_takes_the_fast_path() -> None:
    a, b = matrices(10, (M, K), (K, N))
    x, y, out = Resident.of(a), Resident.of(b), Resident.empty((M, N), "f32")
    plan = tilewright.plan(x, y, out=out, config=TINY)
    for number in range(3):
        seen.clear()
        assert plan.run(x, y, out=out) is out
        assert np.array_equal(out.numpy(), exact(a, b)) and (not seen) is (number > 0)
    with pytest.raises(ProblemError, match="the plan's problem"):
        plan.run(x, Resident.of(np.ascontiguousarray(b.T)).T, out=out)
    with pytest.raises(ProblemError, match="expected an array, got NoneType"):
        plan.run(x, None, out=out)


def test_a_workspace_and_two_kernels() -> None:
    a, b = matrices(11, (64, 512), (512, 64))
    for number in range(2):
        seen.clear()
        d = tilewright.matmul(Resident.of(a), Resident.of(b), out_dtype="f32", config=SPLIT)
        assert np.array_equal(d.numpy(), exact(a, b)) and (not seen) is (number > 0)


def test_factors_in_device_memory_are_arrays() -> None:
    a, b = matrices(12, (M, K), (K, N))
    x, y = Resident.of(a), Resident.of(b)
    for number in range(3):
        alpha = Resident.of(np.array([number + 0.5], np.float32))
        d, short = product(x, y, alpha=alpha, out_dtype="f32")
        assert np.array_equal(d, (number + 0.5) * exact(a, b)) and short is (number > 0)
    assert np.array_equal(product(x, y, alpha=2, out_dtype="f32")[0], 2 * exact(a, b))


def test_each_thread_has_its_own_parameter_blocks() -> None:
    def work(thread: int) -> None:
        for i in range(10):
            a, b = matrices(100 * thread + i, (M, K), (K, N))
            d = tilewright.matmul(Resident.of(a), Resident.of(b), out_dtype="f32", config=TINY)
            assert np.array_equal(d.numpy(), exact(a, b))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
