"""Bulk and tensor reductions, asynchronous stores and arrivals on a GPU: the machine's bits.

Each element is combined once, so there is one order, and NaNs, subnormals and zeros of both signs
are among the operands.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from golden.golden_reductions import CASES, left, mismatch
from ptx_kernels import simt
from ptx_kernels.async_kernels import (
    ARRIVALS,
    REDUCTIONS,
    SPACES,
    STORES,
    copied,
    reducing,
    sent,
    storing,
)
from ptx_kernels.bulk_kernels import (
    INTO_SHARED,
    MAPS,
    PAIRS,
    REPLACED,
    STORED,
    check_tensor,
    operands,
    same,
    to_global,
    to_neighbour,
)
from ptx_kernels.simt_gpu import on_gpu
from tilewright.mma import TensorMap

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]
TILED = {type_: TensorMap.tiled(0, type_, *of, swizzle=swizzle) for type_, *of, swizzle in MAPS}
PIXELS = TensorMap.im2col(0, "f32", (16, 5, 4, 2), (64, 320, 1280), (0, 0), (0, 0), 8, 20)


def check(text, buffers, **shape) -> None:
    outputs = (run(text, buffers, **shape)[0] for run in (on_gpu, simt.run))
    same(*outputs, *buffers)


@pytest.fixture(scope="module")
def result(request):
    """A function from a case to its result. An illegal instruction, as half of the cases are, ends
    the process that runs it; so, but for workers of pytest-xdist, four processes work ahead.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:
        yield lambda case: left(case, on_gpu)
        return
    items = [item for item in request.session.items if "result" in item.fixturenames]
    with ThreadPoolExecutor(4) as threads:
        cases = [item.callspec.params["case"] for item in items]
        results = {case: threads.submit(left, case, on_gpu) for case in cases}
        yield lambda case: results[case].result()
        threads.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reductions_equal_the_virtual_machine(case, result):
    said = mismatch(case, result(case), left(case, simt.run))
    assert not said, said


@pytest.mark.parametrize(("op", "type_"), PAIRS)
def test_reduce_to_global_memory(op, type_):
    check(to_global(op, type_), operands(op, type_))


@pytest.mark.parametrize(("op", "type_"), INTO_SHARED)
def test_reduce_to_another_cta(op, type_):
    check(to_neighbour(op, type_), operands(op, type_), grid=2, cluster=2)


@pytest.mark.parametrize(("op", "type_"), [(op, t) for op, t in PAIRS if t in TILED])
@pytest.mark.parametrize("rule", [STORED, REPLACED], ids=["stored", "replaced"])
def test_reduce_to_a_tensor(op, type_, rule):
    m = TILED[type_]
    for coordinates in ([0] * m.rank, [n // 2 // 8 * 8 for n in m.shape]):
        check_tensor(type_, m, op, coordinates, on_gpu, rule)


def test_reduce_im2col():
    check_tensor("f32", PIXELS, "add", [8, 3, 2, 0], on_gpu)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("type_", STORES)
def test_st_async(space, type_):
    check(storing(space, type_), sent(6), grid=6, cluster=3)


@pytest.mark.parametrize(("op", "type_"), REDUCTIONS)
def test_red_async(op, type_):
    buffers = [x % 5 if op in ("inc", "dec") else x for x in sent(2)]
    check(reducing(op, type_), buffers, grid=2, cluster=2)


@pytest.mark.parametrize("how", ARRIVALS)
def test_cp_async_arrivals(how):
    data = np.arange(256, dtype=np.uint32)
    check(copied(how), [np.zeros_like(data), data], block=64)
