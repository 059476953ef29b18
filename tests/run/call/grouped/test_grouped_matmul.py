"""``grouped_matmul`` on the virtual machine: rows of groups, any sizes, epilogues, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from references.grouped_products import (
    CASES,
    CASES_ALONG_K,
    CASES_WITH_INDICES,
    EIGHT_BITS_ALONG_K,
    SCALE_BLOCKS,
    WEIGHTS,
    GroupedCase,
    check,
    eight_bits_along_k,
    groups_of,
    indexed_product,
    operands,
    product,
    product_along_k,
    scaled_product,
    weights_product,
)
from tilewright.errors import DtypeError, EpilogueError, ProblemError
from tilewright.quantization import Packed

pytestmark = pytest.mark.vm


def _most_are_slow(cases: Any, quick: tuple[int, ...]) -> list[Any]:
    """The cases, marked slow but for the ``quick`` ones: each compiles a kernel."""
    return [
        pytest.param(case, id=str(case), marks=() if i in quick else pytest.mark.slow)
        for i, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", _most_are_slow(CASES, (1, 2, 6, 7)))
def test_rows_of_groups_alone_are_written(case: GroupedCase) -> None:
    check(case, *product(case, "vm"))


def test_operands_of_the_epilogue_vary_by_row_column_and_group() -> None:
    case = GroupedCase((3, 0, 70, 1), 64, 64, after=2)
    a, b, sizes, out = operands(case)
    rng = np.random.default_rng(1)
    rows, columns = (rng.random(s).astype(np.float32) for s in ((len(a), 1), (64,)))
    experts, scales = (rng.random(s).astype(np.float32) for s in ((4, 1, 64), (4, 1, 1)))

    def function(acc: Any, rows: Any, columns: Any, experts: Any, scales: Any) -> Any:
        return tilewright.relu(acc * scales + experts) * rows + columns

    given = {"rows": rows, "columns": columns, "experts": experts, "scales": scales}
    found = tilewright.grouped_matmul(
        a, b, **sizes, out=out, epilogue=function, device="vm", **given
    )
    for g, (x, r, y) in enumerate(
        zip(*(groups_of(case, m) for m in (a, rows, found)), strict=True)
    ):
        acc = x.astype(np.float64) @ b[g].astype(np.float64)
        expected = np.maximum(acc * scales[g] + experts[g], 0) * r + columns
        np.testing.assert_allclose(y.astype(np.float64), expected, rtol=2**-7, atol=0.05)
    assert (found[-2:] == out.dtype.type(7)).all()


def _reduced(acc: Any) -> dict[str, Any]:
    return {
        "d": acc, "sums": tilewright.sum(acc, axis=-1), "positive": tilewright.bitmask(acc > 0),
        "largest": tilewright.amax(acc, axis=(-2, -1)),
    }  # fmt: skip


@pytest.mark.parametrize("case", _most_are_slow((CASES[0], CASES[6], CASES[3]), (0, 1)), ids=str)
def test_epilogues_reduce_the_rows_of_groups_alone(case: GroupedCase) -> None:
    a, b, sizes, _ = operands(case)
    found = tilewright.grouped_matmul(
        a, b, **sizes, epilogue=_reduced, config=case.config, device="vm"
    )
    largest = np.full(len(case.sizes), -np.inf)
    parts = (groups_of(case, x) for x in (a, found["sums"], found["positive"]))
    for g, (x, sums, bits) in enumerate(zip(*parts, strict=True)):
        d = x.astype(np.float64) @ b[g].astype(np.float64)
        np.testing.assert_allclose(sums, d.sum(1), atol=1e-3)
        positive = np.unpackbits(bits, axis=1, bitorder="little")[:, : case.n]
        assert np.array_equal(positive, d > 0)
        largest[g] = np.abs(d).max(initial=-np.inf)
    largest = largest if case.capacity else largest.max()
    np.testing.assert_allclose(found["largest"], largest, atol=1e-3)


@pytest.mark.parametrize("case", _most_are_slow(CASES_ALONG_K, (1,)))
def test_groups_along_k_have_a_matrix_each(case: Any) -> None:
    left, right, found = product_along_k(*case, "vm")
    begin = 0
    for size, d in zip(case[0], found, strict=True):
        x, y = (part[begin : begin + size].astype(np.float64) for part in (left, right))
        assert (np.abs(d.astype(np.float64) - x.T @ y) <= 2**-8 * (np.abs(x.T) @ np.abs(y))).all()
        begin += size


@pytest.mark.parametrize("case", _most_are_slow(CASES_WITH_INDICES, (0, 3)))
def test_rows_are_gathered_and_scattered(case: Any) -> None:
    found, expected = indexed_product(*case, "vm")
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=2**-9, atol=2**-6)


@pytest.mark.parametrize("blocks", _most_are_slow(SCALE_BLOCKS, (0,)))
def test_scaled_matrices(blocks: Any) -> None:
    check_rows(*scaled_product(blocks, "vm"))


@pytest.mark.parametrize("blocks", _most_are_slow(SCALE_BLOCKS, (0, 2)))
def test_scales_are_gathered_with_the_rows(blocks: Any) -> None:
    check_rows(*scaled_product(blocks, "vm", gathered=True))


@pytest.mark.parametrize("case", _most_are_slow(EIGHT_BITS_ALONG_K, (0, 3)))
def test_matrices_of_8_bits_have_groups_of_k_blocks(case: Any) -> None:
    a, b, found, ends = eight_bits_along_k(*case, "vm")
    for g, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        x, y = (m[:, begin:end].astype(np.float64) for m in (a, b))
        error = np.abs(found[g].astype(np.float64) - x @ y.T)
        assert (error <= 2**-7 * (np.abs(x) @ np.abs(y.T))).all()


@pytest.mark.parametrize("form", WEIGHTS)
def test_weights_may_be_packed_or_sparse(form: str) -> None:
    check_rows(*weights_product(form, "vm"))


def check_rows(a: Any, b: Any, found: Any, ends: Any) -> None:
    for g, (begin, end) in enumerate(zip((0, *ends), ends, strict=False)):
        expected = a[begin:end].astype(np.float64) @ b[g].T.astype(np.float64)
        np.testing.assert_allclose(found[begin:end].astype(np.float64), expected, 2**-7, 0.1)


def test_repeated_calls_with_indices_take_the_fast_path() -> None:
    with registered(FAST_KIND):
        b, sizes = (
            Resident.of(x) for x in (np.ones((2, 64, 64), np.float16), np.array([3, 5], np.int32))
        )
        a = Resident.of(np.arange(1, 7)[:, None].repeat(64, 1).astype(np.float16))
        for rows in ([0, 5, 5, 2, 1], [-9, 1 << 20, 3, 4, 0]):  # the nearest rows: 0, 5
            gather, scatter = Resident.of(np.array(rows, np.int32)), Resident.of(np.arange(5)[::-1])
            seen.clear()
            d = tilewright.grouped_matmul(a, b, offsets=sizes, gather=gather, scatter=scatter)
            expected = 64 * (np.clip(rows, 0, 5)[::-1] + 1)
            assert (d.numpy() == expected[:, None]).all()
        assert not seen
        tilewright.grouped_matmul(a.cut((5, 64), (64, 1)), b, offsets=sizes)
        assert seen


def test_repeated_calls_with_packed_weights_take_the_fast_path() -> None:
    w = tilewright.quantize_weight(np.ones((2, 64, 128), np.float32), "s8", group=64)
    with registered(FAST_KIND):
        weights = Packed(Resident.of(w.data), Resident.of(w.scales), w.type, w.group).T
        a, sizes = (
            Resident.of(x) for x in (np.ones((5, 128), np.float16), np.array([3, 5], np.int32))
        )
        first = tilewright.grouped_matmul(a, weights, offsets=sizes)
        seen.clear()
        second = tilewright.grouped_matmul(a, weights, offsets=sizes)
        assert not seen
        assert (first.numpy() == second.numpy()).all() and abs(second.numpy()[4, 63] - 128) < 1


@pytest.mark.parametrize("case", _most_are_slow((CASES[0], CASES[5], CASES[1]), (0,)), ids=str)
def test_matrices_of_a_list_lie_anywhere(case: GroupedCase) -> None:
    a, b, sizes, out = operands(case)
    ((name, values),) = sizes.items()
    on_host = tilewright.grouped_matmul(
        a, list(b), **sizes, out=out.copy(), config=case.config, device="vm"
    )
    with registered():
        whole = {g: Resident.of(b[g].T) for g in np.random.default_rng(0).permutation(len(b))}
        left, d, numbers = (Resident.of(x) for x in (a, out, values))
        matrices = [whole[g].T for g in range(len(b))]
        if case.row_major_b:
            matrices = [Resident.of(np.ascontiguousarray(x)) for x in b]
        more = {name: numbers, "config": case.config}
        tilewright.grouped_matmul(left, matrices, out=d, **more)
        check(case, a, b, d.numpy())
        assert np.array_equal(on_host, d.numpy())
        with pytest.raises(ProblemError, match=r"must not share memory with (b|places)"):
            over = matrices[1].cut(d.shape, (case.n, 1))
            tilewright.grouped_matmul(left, matrices, out=over, **more)
        with pytest.raises(ProblemError, match="must have one shape, type and layout"):
            tilewright.grouped_matmul(left, [*matrices[:-1], left], **more)
        odd = [x.cut((case.k, case.n), (2, 1)) for x in matrices]
        with pytest.raises(ProblemError, match="must be readable where they are"):
            tilewright.grouped_matmul(left, odd, **more)


@pytest.mark.parametrize(
    ("sizes", "written"),
    [
        ({"offsets": [50, 20, 90, 30]}, [(0, 0, 50), (2, 50, 74)]),  # decrease, exceed, overlap
        ({"offsets": [2, -1, 2**40, 3, 74]}, [(1, 2, 74)]),
        ({"offsets": [-7, 3, 3, 200]}, [(1, 0, 3), (3, 3, 74)]),
    ],
)
def test_impossible_sizes_in_device_memory_write_no_other_row(sizes: Any, written: Any) -> None:
    """D is surrounded by rows that must keep their values."""
    rng, ((name, values),) = np.random.default_rng(0), sizes.items()
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((74, 64), (4, 64, 64)))
    with registered():
        memory = Resident.of(np.full((90, 64), 7, np.float16))
        left, right, numbers = (Resident.of(x) for x in (a, b, np.array(values, np.int64)))
        d = memory.cut((74, 64), (64, 1), 8 * 64)
        tilewright.grouped_matmul(left, right, **{name: numbers}, out=d)
        expected = np.full((90, 64), 7, np.float32)
        for g, begin, end in written:
            expected[8 + begin : 8 + end] = a[begin:end].astype("f4") @ b[g].astype("f4")
        np.testing.assert_allclose(memory.numpy().astype("f4"), expected, rtol=2e-3, atol=1e-2)


def test_a_gate_is_a_second_stack() -> None:
    case = GroupedCase((5, 0, 66), 64, 64)
    a, b, sizes, _ = operands(case)
    gate = b[::-1].copy()
    found = tilewright.grouped_matmul(
        a, (gate, b), **sizes, epilogue=lambda g, x: tilewright.relu(g) * x, device="vm"
    )
    for g, (x, y) in enumerate(zip(*(groups_of(case, m) for m in (a, found)), strict=True)):
        left, right = (x.astype(np.float64) @ w[g].astype(np.float64) for w in (gate, b))
        np.testing.assert_allclose(
            y.astype(np.float64), np.maximum(left, 0) * right, rtol=2**-7, atol=0.2
        )


def test_offsets_besides_counts_are_an_error_in_a_repeated_call_too() -> None:
    with registered(FAST_KIND):
        a, b = (Resident.of(np.ones(s, np.float16)) for s in ((2, 8, 64), (2, 64, 64)))
        sizes = Resident.of(np.array([3, 8], np.int32))
        tilewright.grouped_matmul(a, b, counts=sizes)
        with pytest.raises(ProblemError, match="must be given, got both"):
            tilewright.grouped_matmul(a, b, counts=sizes, offsets=sizes)


def test_impossible_counts_in_device_memory_write_no_other_row() -> None:
    with registered():
        memory = Resident.of(np.full((3 * 8 + 16, 64), 7, np.float16))
        a, b, counts = (
            Resident.of(x)
            for x in (
                np.ones((3, 8, 64), np.float16), np.ones((3, 64, 64), np.float16),
                np.array([9, -3, 2**31 - 1], np.int32),
            )
        )  # fmt: skip
        d = memory.cut((3, 8, 64), (512, 64, 1), 8 * 64)
        tilewright.grouped_matmul(a, b, counts=counts, out=d)
        expected = np.full((40, 64), 7)
        expected[8:16] = expected[24:32] = 64
        assert np.array_equal(memory.numpy(), expected)


def test_groups_of_k_blocks_in_device_memory_end_at_k_blocks() -> None:
    """130 and 260 are taken for 128 and 256, and 9999 for K."""
    a, b = (np.ones((n, 700), np.int8) for n in (64, 32))
    with registered():
        left, right, sizes = (Resident.of(x) for x in (a, b, np.array([130, 260, 9999], np.int32)))
        d = tilewright.grouped_matmul(
            left, right.T, offsets=sizes, along="k", epilogue=lambda acc: acc
        )
        assert [{*x.ravel().tolist()} for x in d.numpy()] == [{128}, {128}, {444}]


A, B = np.zeros((8, 16), np.float16), np.zeros((2, 16, 24), np.float16)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ProblemError, "one of offsets and counts must be given, got neither"),
        ({"offsets": [4, 3]}, ProblemError, r"offsets\[1\] must be from 4 to 8, got 3"),
        ({"offsets": [0, 4, 9]}, ProblemError, r"offsets\[2\] must be from 4 to 8, got 9"),
        ({"offsets": [-1, 8]}, ProblemError, r"offsets\[0\] must be from 0 to 8, got -1"),
        ({"offsets": [8]}, ProblemError, "offsets must have 2 or 3 elements for 2 groups"),
        ({"offsets": np.ones(2, np.float32)}, DtypeError, "offsets must be one of s32, s64"),
        ({"offsets": [4.5, 8]}, ProblemError, r"offsets must be integers of 64 bits, got \[4.5, 8"),
        ({"offsets": [4, 2**70]}, ProblemError, "offsets must be integers of 64 bits"),
        ({"offsets": [[4], [4, 8]]}, ProblemError, "offsets must be integers of 64 bits"),
        ({"counts": [1, 2]}, ProblemError, r"a must be \(groups, capacity, K\)"),
        ({"offsets": [4, 8], "along": "k"}, ProblemError, r"b \(K, N\), got offsets"),
        ({"offsets": [4, 8], "gather": [8] * 8}, ProblemError, r"gather\[0\] must be from 0 to 7"),
        ({"offsets": [4, 8], "scatter": [1] * 8}, ProblemError, "must differ, got 1 at 0 and at 1"),
        ({"offsets": [4, 8], "scatter": [8] * 8}, ProblemError, r"scatter\[0\] must be from -1"),
        ({"offsets": [4, 8], "scatter": [1]}, ProblemError, "scatter must have 8 elements"),
        ({"offsets": [4, 8], "gather": [0.5]}, ProblemError, "gather must be integers of 64 bits"),
        ({"a": A[:0], "offsets": [0, 1], "gather": [0]}, ProblemError, "a must have 1 or"),
        ({"counts": [1, 2], "gather": [0]}, ProblemError, r"a must be \(groups, capacity, K\)"),
        (
            {"a": A.astype("i1"), "b": np.zeros((16, 8), "i1"), "offsets": [4, 16], "along": "k"},
            ProblemError, r"offsets\[0\] must be a multiple of 128 for 8-bit groups along K, got 4",
        ),
        ({"offsets": [4, 8], "along": "n"}, ProblemError, "along must be one of m, k, got 'n'"),
        (
            {"offsets": [4, 8], "epilogue": lambda acc: {"d": acc, "s": tilewright.sum(acc)}},
            ProblemError, "s of groups of rows must be a sum along n, or a maximum, got sum",
        ),
        (
            {"offsets": [4, 8], "epilogue": lambda acc, x: acc + x, "x": np.ones((2, 8, 24), "f4")},
            EpilogueError, "x must not vary by group and by row",
        ),
    ],
)  # fmt: skip
def test_wrong_arguments_are_typed_errors(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tilewright.grouped_matmul(**{"a": A, "b": B} | arguments, device="vm")
