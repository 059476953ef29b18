"""What a folder of tests needs, and what to do where it is absent.

``tests/gpu`` is marked ``gpu`` and skipped without a driver; ``tests/tools`` is marked ``tools``.
What was tuned on a machine is no matter of its tests.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

os.environ["TILEWRIGHT_TUNED"] = "off"


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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in ("gpu", "tools"):
            item.add_marker(folder)
        if item.get_closest_marker("gpu") and not gpu_count():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))
