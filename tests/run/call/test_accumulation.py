"""Calls whose operand c is D itself: kernel ``tma`` adds to D by tensor copies, with the bits of
the kernel that reads c; every call looks at the arrays again.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.accumulation import (
    ADDED_BY_COPIES,
    CASES,
    PreparedCalls,
    added,
    products,
)
from gemm_cases.resident import FAST_KIND, Resident, registered
from gemm_cases.tma_cases import FEW
from rows import slow_but
from tilewright.errors import EpilogueError, ProblemError
from tilewright.run import VmDevice
from tilewright.target import device_spec

pytestmark = pytest.mark.vm
RNG = np.random.default_rng(0)
QUICK = [
    "swapped cluster", "column-major, split tail", "two operands are D",
    "along M, scaled", "beta, stream-K", "beta, stack", "split-K", "unaligned along K",
]  # fmt: skip


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> PreparedCalls:
    return PreparedCalls(monkeypatch)


@pytest.fixture
def uploads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The elements that each call uploads, if each appends a 0."""
    counts, upload = list[int](), VmDevice.upload

    def counted(device: Any, address: int, rows: Any, leading_dim: int) -> None:
        counts[-1] += rows.size
        upload(device, address, rows, leading_dim)

    monkeypatch.setattr(VmDevice, "upload", counted)
    return counts


@pytest.mark.parametrize("name", slow_but(QUICK, list(CASES)))
def test_the_bits_are_those_of_the_kernel_that_reads_c(
    name: str, prepared: PreparedCalls, uploads: list[int]
) -> None:
    case = CASES[name]()

    def call(*arguments: Any) -> Any:
        uploads.append(0)
        return case.call(*arguments)

    apart, joined = products(case._replace(call=call), VmDevice(FEW))
    assert np.array_equal(apart, joined)
    adds = name in ADDED_BY_COPIES
    assert prepared.adds_by_copies is adds
    first, second = uploads  # c is uploaded once, as D or as C; of groups D is uploaded, too
    assert first - second == case.c.size * ("along" in name and adds)


@pytest.mark.parametrize("name", slow_but(["along K, pingpong", "stream-K"], list(ADDED_BY_COPIES)))
def test_no_access_races(name: str) -> None:
    apart, joined = products(ADDED_BY_COPIES[name](), VmDevice(FEW, checked=True))
    assert np.array_equal(apart, joined)


@pytest.mark.parametrize("name", slow_but(["beta"], ["dense", "beta"]))
def test_architectures_without_tensor_copies_read_c(name: str, prepared: PreparedCalls) -> None:
    apart, joined = products(CASES[name](), VmDevice(device_spec("A100")))
    assert np.array_equal(apart, joined) and not prepared.adds_by_copies
    one, other = prepared
    assert one.request != other.request and one.problem == other.problem
    assert one.original_problem == other.original_problem and one.traced is other.traced


@pytest.mark.parametrize("shape", [(1024, 4096, 2048), (4096, 1536, 512)], ids=str)
def test_the_configuration_is_that_of_the_product_alone(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, d = np.empty((m, k), np.float16), np.empty((k, n), np.float16), np.empty((m, n), "f4")
    alone = tilewright.plan(a, b, epilogue=lambda acc: acc, out=d, device="vm")
    joined = tilewright.plan(a, b, epilogue=added, c=d, out=d, device="vm")
    assert joined.config == alone.config
    assert joined.problem.accumulates and str(joined.problem) == f"{alone.problem} + D"


# --- repeated calls: arrays of a library that stay in device memory ------------------------------


A, B = (RNG.integers(-4, 5, shape).astype(np.float16) for shape in ((64, 64), (64, 96)))
EXACT = A.astype(np.float32) @ B.astype(np.float32)


@pytest.fixture
def resident() -> Iterator[tuple[Resident, Resident]]:
    """A (column-major) and B; no earlier call has a fast path."""
    for name in ("epilogue_call", "matmul", "grouped.grouped_matmul"):
        import_module(f"tilewright.run.call.{name}")._fast_calls.by_key.clear()
    with registered(FAST_KIND):
        yield Resident.of(A.T).T, Resident.of(B)


def whole() -> Any:
    return RNG.integers(-9, 10, EXACT.shape).astype(np.float32)


def test_another_c_after_calls_in_place(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept, other = whole(), whole()
    d, c = Resident.of(kept), Resident.of(other)
    for times in (1, 2, 3):
        tilewright.matmul(x, y, epilogue=added, c=d, out=d)
        assert np.array_equal(d.numpy(), kept + times * EXACT)
        assert len(prepared) == 1  # the others take the fast path
    assert prepared.adds_by_copies
    for _ in range(2):
        tilewright.matmul(x, y, epilogue=added, c=c, out=d)
        assert np.array_equal(d.numpy(), other + EXACT)
        assert np.array_equal(c.numpy(), other)
    assert len(prepared) == 2 and not prepared.adds_by_copies
    tilewright.matmul(x, y, epilogue=added, c=d, out=d)  # its own fast path again
    assert np.array_equal(d.numpy(), other + 2 * EXACT)
    assert len(prepared) == 2


def test_two_arrays_of_the_same_memory_are_one(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept = whole()
    d = Resident.of(kept)
    alias = d.cut(d.shape, d.memory.strides)
    for times in (1, 2):
        tilewright.matmul(x, y, epilogue=added, c=alias, out=d)
        assert np.array_equal(d.numpy(), kept + times * EXACT)
    assert len(prepared) == 1 and prepared.adds_by_copies
    c = Resident.of(kept)
    tilewright.matmul(x, y, epilogue=added, c=c, out=d)
    assert np.array_equal(d.numpy(), kept + EXACT) and len(prepared) == 2


def test_a_matrix_is_a_stack_of_one(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept = whole()
    d = Resident.of(kept)
    stack = d.reshape(1, *kept.shape)
    for times in (1, 2):
        tilewright.matmul(x, y.reshape(1, 64, 96), epilogue=added, c=d, out=stack)
        assert np.array_equal(d.numpy(), kept + times * EXACT)
    assert len(prepared) == 1 and prepared.adds_by_copies


def test_a_batch_that_does_not_fold(resident: Any, prepared: PreparedCalls) -> None:
    """Each launch adds to its own part of D."""
    x, y = (Resident.of(np.stack(m)) for m in ((A, -A), (B, 2 * B)))
    product = x.numpy().astype("f")[:, None] @ y.numpy().astype("f")
    kept = RNG.integers(-9, 10, product.shape).astype(np.float32)
    d, stack, config = Resident.of(kept), x.reshape(2, 1, 64, 64), "tma:64x96x64:1:2"
    tilewright.matmul(stack, y, epilogue=added, c=d, out=d, config=config)
    assert np.array_equal(d.numpy(), kept + product)
    assert {call.accumulated for call in prepared} == {"c"} and prepared.adds_by_copies


def test_a_new_result_and_a_partial_overlap(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept = whole()
    c = Resident.of(kept)
    new = tilewright.matmul(x, y, epilogue=added, c=c, out_dtype="f32")
    assert np.array_equal(new.numpy(), kept + EXACT) and not prepared.adds_by_copies
    longer = Resident.empty((65, 96), "f32")
    one, other = (longer.cut((64, 96), (96, 1), offset) for offset in (0, 96))
    with pytest.raises(EpilogueError, match="partial overlap"):
        tilewright.matmul(x, y, epilogue=added, c=one, out=other)


def test_groups_with_another_c(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    ends = Resident.of(np.array((0, 64), np.int32))
    kept = np.stack([whole(), whole()])
    d, c = Resident.of(kept), Resident.of(kept)
    given: Any = {"offsets": ends, "along": "k", "epilogue": added}
    product = np.stack([np.zeros_like(EXACT), EXACT])
    for times in (1, 2):
        tilewright.grouped_matmul(x, y, c=d, out=d, **given)
        assert np.array_equal(d.numpy(), kept + times * product)
    assert prepared.adds_by_copies and len(prepared) == 1
    tilewright.grouped_matmul(x, y, c=c, out=d, **given)
    assert np.array_equal(d.numpy(), kept + product) and not prepared.adds_by_copies


def test_a_d_that_is_copied_is_not_added_to(resident: Any, prepared: Any) -> None:
    x, y = resident
    kept = whole()
    memory = Resident.empty((64, 192), "f32")
    d = memory.cut((64, 96), (192, 2))  # every other column
    new = tilewright.matmul(x, y, epilogue=added, c=Resident.of(kept), out=d)
    assert new is d and np.array_equal(d.numpy(), kept + EXACT)
    tilewright.matmul(x, y, epilogue=added, c=d, out=d)
    assert np.array_equal(d.numpy(), kept + 2 * EXACT) and not prepared.adds_by_copies


def test_other_factors_after_calls_in_place(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept, other = whole(), whole()
    d, c = Resident.of(kept), Resident.of(other)
    steps = (
        (d, 1.0, 1.0, True), (d, 1.0, 1.0, True), (d, 2.0, 1.0, False), (d, 1.0, 1.0, True),
        (d, 1.0, -1.0, False), (d, 0.0, 1.0, False), (c, 1.0, 1.0, False), (d, 1, 1, True),
        (d, 3.0, 0.0, False), (d, 1.0, 1.0, True), (c, 1.0, 1.0, False),
    )  # fmt: skip
    wanted = kept
    for array, alpha, beta, adds in steps:
        count = len(prepared)
        tilewright.matmul(x, y, c=array, alpha=alpha, beta=beta, out=d)
        wanted = alpha * EXACT + beta * (wanted if array is d else other)
        assert np.array_equal(d.numpy(), wanted)
        assert len(prepared) == count or prepared.adds_by_copies is adds
    assert len(prepared) == 4  # adding, reading D or C, and not


def test_a_factor_in_device_memory_reads_c(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept = whole()
    d, one = Resident.of(kept), Resident.of(np.ones(1, np.float32))
    for times in (1, 2):
        tilewright.matmul(x, y, c=d, beta=one, out=d)
        assert np.array_equal(d.numpy(), kept + times * EXACT)
    assert len(prepared) == 1 and not prepared.adds_by_copies


def test_plans_without_a_function_read_c(resident: Any, prepared: PreparedCalls) -> None:
    x, y = resident
    kept = whole()
    d = Resident.of(kept)
    plan = tilewright.plan(x, y, c=d, out=d)
    wanted = kept
    for beta in (1.0, 1.0, 2.0, 1.0):
        plan.run(x, y, c=d, beta=beta, out=d)
        wanted = EXACT + beta * wanted
        assert np.array_equal(d.numpy(), wanted)
        assert len(prepared) == 1  # the others take the fast path
    assert "cp.reduce" not in plan.ptx


def test_plans(resident: Any) -> None:
    x, y = resident
    kept, other = whole(), whole()
    d, c = Resident.of(kept), Resident.of(other)
    plan = tilewright.plan(x, y, epilogue=added, c=d, out=d)
    assert "cp.reduce" in plan.ptx
    for times in (1, 2):
        plan.run(x, y, c=d, out=d)
        assert np.array_equal(d.numpy(), kept + times * EXACT)
    with pytest.raises(ProblemError, match="c must be the array out, got another") as raised:
        plan.run(x, y, c=c, out=d)
    assert "another c reads it" in str(raised.value) and len(str(raised.value)) < 150
    reads = tilewright.plan(x, y, epilogue=added, c=c, out=d)
    for array, wanted in ((c, other + EXACT), (d, other + 2 * EXACT), (c, other + EXACT)):
        reads.run(x, y, c=array, out=d)
        assert np.array_equal(d.numpy(), wanted)
    with pytest.raises(ProblemError, match="planned and got: align of c 16 and 4"):
        reads.run(x, y, c=Resident.empty((65, 96), "f32").cut((64, 96), (96, 1), 1), out=d)


@pytest.mark.parametrize("config", ["64x64x32:2x2:3", "tma:64x96x64:1:2*2"])
def test_a_plan_whose_kernel_reads_c_takes_any(resident: Any, config: str) -> None:
    x, y = resident
    kept, other = whole(), whole()
    d, c = Resident.of(kept), Resident.of(other)
    plan = tilewright.plan(x, y, epilogue=added, c=d, out=d, config=config)
    assert not plan.problem.accumulates and "c is D" not in plan.explain()
    for array, wanted in ((c, other + EXACT), (d, other + 2 * EXACT), (c, other + EXACT)):
        plan.run(x, y, c=array, out=d)
        assert np.array_equal(d.numpy(), wanted)


def test_an_upload_reads_c_at_each_start() -> None:
    kept = whole()
    d = kept.copy()
    plan = tilewright.plan(A.T.copy().T, B, c=d, out=d, device="vm")
    with plan.upload(A.T.copy().T, B, c=d, beta=1.0, out=d) as call:
        for _ in range(2):
            call.start()
            call.download()
            assert np.array_equal(d, kept + EXACT)
    assert "cp.reduce" not in plan.ptx


def test_calls_whose_kernel_reads_c_are_prepared_once(
    resident: Any, prepared: PreparedCalls
) -> None:
    x, y = resident
    wanted = whole()
    d = Resident.of(wanted)
    for alpha, beta in ((1.0, 1.0), (1.0, 1.0), (2.0, 1.0), (1.0, -1.0), (1.0, 1.0)):
        tilewright.matmul(x, y, c=d, alpha=alpha, beta=beta, out=d, config="64x64x32:2x2:3")
        wanted = alpha * EXACT + beta * wanted
        assert np.array_equal(d.numpy(), wanted)
        assert len(prepared) == 1  # one kernel reads D for all factors
