"""The corpus on a GPU: NumPy's results there, too, and the virtual machine's bits."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import numpy as np
import pytest

from corpus_cases.on_gpu import CASES, on_gpu, on_vm, skip_reason
from tilewright.errors import CudaError

pytestmark = pytest.mark.gpu

FREE = {"layer_norm_backward"}  # sums in the order in which CTAs get a lock


@pytest.fixture(scope="module")
def process():
    """A process whose context a fault may end."""
    holder = [ProcessPoolExecutor(1, get_context("spawn"))]

    def submit(number: int):
        try:
            return holder[0].submit(on_gpu, number).result(timeout=60)
        except (BrokenProcessPool, CudaError, TimeoutError):
            holder[0].shutdown(wait=False, cancel_futures=True)
            holder[0] = ProcessPoolExecutor(1, get_context("spawn"))
            raise

    yield submit
    holder[0].shutdown(wait=False)


@pytest.mark.sm("sm_90a")
@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(c) for c in CASES])
def test_kernel_results_equal_the_virtual_machine(number, process):
    if reason := skip_reason(CASES[number]):
        pytest.skip(reason)
    theirs, ours = process(number), on_vm(number)
    for mine, other in zip(ours, theirs, strict=True):
        wrong = np.flatnonzero(mine.view(np.uint8).ravel() != other.view(np.uint8).ravel())
        assert not wrong.size or CASES[number].kernel in FREE, f"{wrong.size} bytes differ"
