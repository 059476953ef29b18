"""Markers, fixtures of the GPU, and the settings of a test run.

Tests marked ``gpu`` are skipped without a CUDA driver; ``@pytest.mark.sm("sm_90a")`` requires a GPU
of that architecture. Results of tuning on this machine are ignored. The compile cache is separate
from the user's: in pytest's cache, or where TILEWRIGHT_CACHE_DIR says. Hypothesis tries as many
examples as ``examples`` says, where a test sets no number.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from functools import cache

import pytest
from hypothesis import settings

from cache_folder import choose_cache_folder
from examples import examples
from tilewright import cuda

os.environ["TILEWRIGHT_TUNED"] = "off"
# JAX takes memory as it needs it, so that several processes of tests share a GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

settings.register_profile("examples", examples(100))
settings.load_profile("examples")


@cache
def gpu_count() -> int:
    """The number of GPUs that the CUDA driver sees; 0 where there is no driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


def pytest_configure(config: pytest.Config) -> None:
    choose_cache_folder(config)
    gc.disable()


def pytest_collection_finish() -> None:
    """What is collected stays: the garbage collector need not visit it during each test."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Collect garbage once, whose finalizers pytest hears of; what stays need not be visited in the
    five collections that follow.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("gpu") and not gpu_count():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(autouse=True)
def _required_architecture(request: pytest.FixtureRequest) -> None:
    marker = request.node.get_closest_marker("sm")
    if marker and cuda.gpu().arch not in marker.args:
        pytest.skip(f"needs {' or '.join(marker.args)}, not {cuda.gpu().arch}")


@pytest.fixture
def gpu() -> cuda.Gpu:
    return cuda.gpu()


@pytest.fixture
def memory(gpu: cuda.Gpu) -> Iterator[int]:
    """64 KiB of zeros."""
    address = gpu.alloc(1 << 16)
    gpu.memset(address, 0, 1 << 16)
    yield address
    gpu.free(address)
