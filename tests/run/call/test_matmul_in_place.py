"""Arrays that live in device memory are multiplied where they are.

They are a library's arrays on the virtual machine here, so that what runs for torch's on a GPU runs
on any machine: addresses go to the kernel, strided matrices are copied by a kernel, and factors may
stay on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from rows import every_row
from tilewright.errors import DeviceError, DtypeError, ProblemError

pytestmark = pytest.mark.vm

TINY = "32x32x32:1x1:2"
M, N, K = 50, 48, 72


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def numbers(*shape: int, dtype: Any = np.float16) -> Any:
    return np.random.default_rng(shape).integers(-4, 5, shape).astype(dtype)  # sums are exact


def product(a: Any, b: Any, **options: Any) -> Any:
    return tilewright.matmul(a, b, config=TINY, **options)


A, B = numbers(M, K), numbers(K, N)
EXACT = A.astype(np.float32) @ B.astype(np.float32)


def test_the_result_is_where_the_inputs_are() -> None:
    d = product(Resident.of(A), Resident.of(B), out_dtype="f32")
    assert isinstance(d, Resident)
    assert np.array_equal(d.numpy(), EXACT)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_layouts(layout: str) -> None:
    a, b = (
        Resident.of(x) if letter == "t" else Resident.of(np.ascontiguousarray(x.T)).T
        for letter, x in zip(layout, (A, B), strict=True)
    )
    assert np.array_equal(product(a, b, out_dtype="f32").numpy(), EXACT)


def test_a_matrix_without_a_contiguous_index_is_copied_by_a_kernel() -> None:
    wide = numbers(2 * M, 3 * K)
    a = Resident.of(wide).cut((M, K), (6 * K, 3))
    exact = wide[::2, ::3].astype(np.float32) @ B.astype(np.float32)
    assert np.array_equal(product(a, Resident.of(B), out_dtype="f32").numpy(), exact)
    back = Resident.of(wide).cut((M, K), (-3 * K, -1), offset=3 * K * M - 1)
    exact = wide[M - 1 :: -1, : -K - 1 : -1].astype(np.float32) @ B.astype(np.float32)
    assert np.array_equal(product(back, Resident.of(B), out_dtype="f32").numpy(), exact)


@every_row("dtype", [np.float16, ml_dtypes.float8_e4m3fn], parts=3)
@every_row("turn", [False, True], ids=["rows", "columns"])
def test_layouts_that_tma_cannot_read_are_copied_by_a_kernel(dtype: Any, turn: bool) -> None:
    a, b = numbers(M, K, dtype=dtype), numbers(K, N, dtype=dtype)
    wide = Resident.of(np.pad(a, ((0, 0), (1, 0)))).cut((M, K), (K + 1, 1), 1)
    if turn:
        wide = Resident.of(np.pad(a, ((0, 1), (0, 0))).T).cut((K, M), (M + 1, 1)).T
    depth = 128 // wide.memory.itemsize
    config = f"tma:128x64x{depth}:1:2"
    d = tilewright.matmul(wide, Resident.of(b), config=config, out_dtype="f32")
    assert np.array_equal(d.numpy(), EXACT)


def test_a_stack_is_copied_by_one_launch() -> None:
    stack = numbers(3, M, K + 1)
    a = Resident.of(stack).cut((3, M, K), (M * (K + 1), K + 1, 1))
    b = Resident.of(np.stack([B, B, B]))
    d = tilewright.matmul(a, b, config="tma:128x64x64:1:2", out_dtype="f32")
    exact = stack[:, :, :K].astype(np.float32) @ B.astype(np.float32)
    assert np.array_equal(d.numpy(), exact)


def test_out_without_a_contiguous_index() -> None:
    whole = Resident.of(np.full((2 * M, 2 * N), 7, np.float32))
    out = whole.cut((M, N), (4 * N, 2))
    assert product(Resident.of(A), Resident.of(B), out=out) is out
    seen = whole.numpy()
    assert np.array_equal(seen[::2, ::2], EXACT)
    assert (seen[1::2] == 7).all() and (seen[:, 1::2] == 7).all()


def test_a_column_major_out_with_c() -> None:
    c = numbers(M, N, dtype=np.float32)
    out = Resident.of(np.zeros((N, M), np.float32)).T
    product(Resident.of(A), Resident.of(B), c=Resident.of(c), beta=2.0, out=out)
    assert np.array_equal(out.numpy(), EXACT + 2 * c)


def test_factors_that_stay_on_the_device() -> None:
    c = numbers(M, N, dtype=np.float32)
    a, b, c_there = Resident.of(A), Resident.of(B), Resident.of(c)
    alpha, beta = (Resident.of(np.array([x], np.float32)) for x in (0.5, -2.0))
    d = product(a, b, c=c_there, alpha=alpha, beta=beta, out_dtype="f32")
    assert np.array_equal(d.numpy(), EXACT / 2 - 2 * c)
    nan, zero = Resident.of(np.full((M, N), np.nan, np.float32)), Resident.of(np.zeros(1, "f4"))
    assert np.array_equal(product(a, b, c=nan, beta=zero, out_dtype="f32").numpy(), EXACT)
    bad = Resident.of(np.full((M, K), np.nan, np.float16))
    d = product(bad, b, c=c_there, alpha=zero, beta=1.0, out_dtype="f32")
    assert np.array_equal(d.numpy(), c)


def test_factors_on_the_device_must_be_f32() -> None:
    a, b = Resident.of(A), Resident.of(B)
    with pytest.raises(DtypeError, match="alpha on the GPU must be f32, got f16"):
        product(a, b, alpha=Resident.of(np.ones(1, np.float16)))
    with pytest.raises(DeviceError, match="alpha must be on cpu"):
        product(A, B, alpha=Resident.of(np.ones(1, np.float32)), device="vm")


def test_arrays_stay_on_their_device() -> None:
    with pytest.raises(DeviceError, match=r"b must be on vm.*got b on cpu"):
        product(Resident.of(A), B)
    with pytest.raises(
        DeviceError, match="device must be 'vm', where the arrays are, got 'vm:A100'"
    ):
        product(Resident.of(A), Resident.of(B), device="vm:A100")


def test_out_must_not_overlap_inputs() -> None:
    a = Resident.of(numbers(64, 64))
    with pytest.raises(ProblemError, match="out must not share memory with a"):
        product(a, Resident.of(numbers(64, 64)), out=a)


@tilewright.kernel(block=32)
def doubled(k, x: "ptr f32"):  # noqa: F722
    """x = 2 x."""
    x[k.tid.x] = x[k.tid.x] * 2.0


def test_a_kernel_works_in_place() -> None:
    x = Resident.of(np.arange(32, dtype=np.float32))
    doubled[1](x)
    assert np.array_equal(x.numpy(), 2 * np.arange(32))


def test_empty_inputs() -> None:
    """torch's empty tensors begin at 0; D begins where no tensor map may."""
    on = Resident.of(A).on
    a, b = (Resident.empty(s, "f16", on).cut(s, (1, 1)) for s in ((M, 0), (0, N)))
    a, b = (Resident(x.memory._replace(address=0), on) for x in (a, b))
    for config in (TINY, "tma:64x16x64:1:2"):
        d = Resident.of(numbers(M * N + 1), on).cut((M, N), (N, 1), 1)
        tilewright.matmul(a, b, out=d, config=config)
        assert not d.numpy().any()
