"""``grouped_matmul`` of two lists of matrices, on the virtual machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from references.problem_lists import random_list
from tilewright.errors import DtypeError, EpilogueError, ProblemError
from tilewright.gemm.tma.problem_list.problem_table import problem_table
from tilewright.run.call.problem_list import list_call

pytestmark = pytest.mark.vm
QUICK = (0, 6)


def _ones(*shape: int) -> Any:
    return np.ones(shape, np.float16)


@pytest.mark.parametrize(
    "seed", [pytest.param(i, marks=() if i in QUICK else pytest.mark.slow) for i in range(14)]
)
def test_problems_have_sizes_layouts_and_operands_of_their_own(seed: int) -> None:
    call = random_list(seed)
    found = call.run("vm")
    call.check(found)
    with registered():
        a, b = call.scaled or (call.a, call.b)
        arrays = {
            name: [_resident(x) for x in value]
            for name, value in {"a": a, "b": b, **call.operands}.items()
            if isinstance(value, list) and not isinstance(value[0], float)
        }
        for _ in range(2):  # the second call finds its table in the device's memory
            in_place = call.run(None, **arrays)
            for x, y in zip(found, in_place, strict=True):
                assert np.array_equal(x.view(np.uint8), y.numpy().view(np.uint8))


def _resident(array: Any) -> Any:
    """The array with its strides, on the device; of a Scaled matrix, both arrays."""
    if isinstance(array, tilewright.Scaled):
        return tilewright.Scaled(_resident(array.data), _resident(array.scales), array.block)
    base = array.base if array.base is not None and array.base.ndim == 2 else array
    whole = Resident.of(base)
    strides = tuple(s // array.itemsize for s in array.strides)
    return whole.cut(array.shape, strides)


def test_one_launch_for_one_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_call, "_plans", {})
    shapes = ((64, 64, 64), (1, 8, 16), (33, 72, 200), (0, 8, 16))
    a = [_ones(m, k) for m, _, k in shapes]
    b = [_ones(k, n) for _, n, k in shapes]
    found = tilewright.grouped_matmul(a, b, device="vm")
    assert all((d == x.shape[1]).all() for d, x in zip(found, a, strict=True))
    b[2] = np.asfortranarray(b[2])
    tilewright.grouped_matmul(a, b, device="vm")
    assert [len(x.launches) for x in list_call._plans.values()] == [1, 2]


def test_records_are_those_of_encoded_maps() -> None:
    from tilewright import gemm
    from tilewright.gemm.epilogue.bound_epilogue import BoundEpilogue
    from tilewright.gemm.epilogue.tracing import epilogue
    from tilewright.gemm.grouping import Grouping
    from tilewright.gemm.tma.tma_operand import GlobalMatrix, matrix_operands

    graph = epilogue(lambda acc: acc).trace("f32", (), (), "bf16", 1)
    problem = gemm.Problem(
        64, 64, 64, "bf16", "bf16", "bf16", batch=2, groups=Grouping("s32", "problems"),
        epilogue=BoundEpilogue(graph, in_table=True),
    )  # fmt: skip
    config = gemm.TmaConfig.parse("tma:128x64x64:2:4/1x1")
    sizes = np.array([(300, 72, 40), (5, 64, 1000)])
    leading = [np.array(x) for x in ((48, 1024), (40, 1 << 30), (72, 64))]
    table = problem_table(problem, config, sizes, leading, [])
    addresses = [np.array(x) for x in ((4096, 1 << 40), (1 << 20, 64), (256, 512))]
    whole = table.bytes(0, addresses, [])
    a = matrix_operands(problem, config)[0]
    for record, i in enumerate((1, 0)):  # long K first
        start = record * table.records.shape[1]
        matrix = GlobalMatrix(
            int(addresses[0][i]), int(sizes[i, 0]), int(sizes[i, 2]), int(leading[0][i])
        )
        assert whole[start : start + 128].tobytes() == a.map(matrix).encode()
    assert table.problems.tolist() == [0, 1, 1, 1, 1, 1, 1]


def test_results_go_to_a_list_of_matrices_with_strides() -> None:
    rng = np.random.default_rng(0)
    a = [rng.standard_normal((m, 64)).astype(np.float16) for m in (5, 130)]
    b = [rng.standard_normal((64, n)).astype(np.float16) for n in (40, 72)]
    with registered():
        wide = [Resident.of(np.full((len(x), 128), 7, np.float16)) for x in a]
        out = [w.cut((len(x), y.shape[1]), (128, 1)) for w, x, y in zip(wide, a, b, strict=True)]
        given = [[Resident.of(x) for x in m] for m in (a, b)]
        found = tilewright.grouped_matmul(*given, out=out)
        assert found == out
        for d, x, y in zip(wide, a, b, strict=True):
            columns = y.shape[1]
            np.testing.assert_allclose(d.numpy()[:, :columns], x @ y, atol=0.1)
            assert (d.numpy()[:, columns:] == 7).all()


def test_repeated_calls_take_the_fast_path() -> None:
    rng = np.random.default_rng(0)
    sizes = ((5, 40, 64), (130, 72, 24), (0, 8, 8))

    def lists() -> tuple[list[Any], list[Any], list[Any]]:
        made = [(rng.standard_normal(s).astype(np.float16) for s in ((m, k), (k, n), (1, n)))
                for m, n, k in sizes]  # fmt: skip
        a, b, bias = zip(*made, strict=True)
        return a, b, bias

    def call(scale: float, *arrays: Any, out: Any = None) -> Any:
        a, b, bias = ([Resident.of(x) for x in each] for each in arrays)
        return tilewright.grouped_matmul(
            a, b, epilogue=lambda acc, bias, scale: acc * scale + bias, bias=bias, scale=scale,
            out=out,
        )  # fmt: skip

    with registered(FAST_KIND):
        for first in (True, False):
            for scale in (1.0, 2.0):
                seen.clear()
                arrays = lists()
                found = call(scale, *arrays)
                assert (len(seen) > 1) == first  # one: the memory of a table
                for d, a, b, bias in zip(found, *arrays, strict=True):
                    np.testing.assert_allclose(d.numpy(), scale * (a @ b) + bias, atol=0.2)
        given = [[Resident.of(x) for x in each] for each in lists()[:2]]
        out = tilewright.grouped_matmul(*given)
        for known in (False, True):
            seen.clear()
            tilewright.grouped_matmul(*given, out=out)
            assert bool(seen) != known
        out[0] = given[0][0].cut((5, 40), (64, 1))
        with pytest.raises(ProblemError, match=r"out\[0\] must not share memory with a\[0\]"):
            tilewright.grouped_matmul(*given, out=out)


def test_errors_name_the_matrix() -> None:
    a, b = [_ones(4, 64), _ones(8, 64)], [_ones(64, 16), _ones(64, 16)]
    for error, match, left, right, more in (
        (ProblemError, "equal length, of 1 or more matrices, got 2 and 1", a, b[:1], {}),
        (ProblemError, r"a\[1\] must have as many columns as b\[1\]", a, [b[0], _ones(32, 16)], {}),
        (ProblemError, r"b\[1\] must be a matrix", a, [b[0], _ones(1, 64, 16)], {}),
        (DtypeError, r"b\[1\] must be f16", a, [b[0], b[1].astype(np.float32)], {}),
        (DtypeError, "b must be f16", a, [x.astype(np.float32) for x in b], {}),
        (ProblemError, "offsets must not be given", a, b, {"offsets": [1, 2]}),
        (ProblemError, r"out\[1\] must have the shape", a, b, {"out": [_ones(4, 16)] * 2}),
        (ProblemError, r"out\[0\] must not share memory with a\[1\]", [a[0][:, :16], a[1]],
         [_ones(16, 16), b[1]], {"out": [a[1][:4, :16], _ones(8, 16)]}),
        (ProblemError, "list of 2 matrices, got 1", a, b, {"out": [_ones(4, 16)]}),
        (TypeError, "operands need an epilogue", a, b, {"bias": 1}),
    ):  # fmt: skip
        with pytest.raises(error, match=match):
            tilewright.grouped_matmul(left, right, device="vm", **more)


def test_errors_of_operands() -> None:
    a, b = [_ones(4, 64), _ones(8, 64)], [_ones(64, 16), _ones(64, 24)]

    def bias(acc: Any, x: Any) -> Any:
        return acc + x

    for match, x in (
        (r"x\[1\] must broadcast to D, 8×24", [_ones(16), _ones(16)]),
        (r"x\[1\] must broadcast to D", _ones(16)),
        ("x must have an element for each of 2, got 1", [1.0]),
        (r"x\[1\] must be f16, as x\[0\] is, got f32", [_ones(16), np.ones(24, np.float32)]),
    ):
        with pytest.raises(EpilogueError, match=match):
            tilewright.grouped_matmul(a, b, epilogue=bias, x=x, device="vm")

    def sums(acc: Any) -> Any:
        return {"d": acc, "sums": tilewright.sum(acc, axis=-1)}

    with pytest.raises(EpilogueError, match="D alone, got sums"):
        tilewright.grouped_matmul(a, b, epilogue=sums, device="vm")
