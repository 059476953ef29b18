"""What a folder of tests needs, and what to do where it is absent.

``tests/gpu`` is marked ``gpu`` and skipped without a driver; ``tests/tools`` is marked ``tools``.
What was tuned on a machine is no matter of its tests, and what they compile is kept apart from the
user's: in pytest's cache, for all workers and the next run, or where TILEWRIGHT_CACHE_DIR says.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tilewright.trusted_directory import open_directory

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


def pytest_configure(config: pytest.Config) -> None:
    """Choose the store of compiled code; workers and other processes find it in the environment."""
    if "TILEWRIGHT_CACHE_DIR" not in os.environ:
        os.environ["TILEWRIGHT_CACHE_DIR"] = str(kept_by(config) or temporary(config))


def kept_by(config: pytest.Config) -> Path | None:
    """A folder of pytest's cache; None where there is no such cache, or others may write to it."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is None:
        return None
    folder = cache.mkdir("compiled")
    try:
        open_directory(folder).close()
    except OSError:
        return None
    return folder


def temporary(config: pytest.Config) -> Path:
    """A folder that is removed when the run ends."""
    folder = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
    config.add_cleanup(folder.cleanup)
    return Path(folder.name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0] if item.path.is_relative_to(TESTS) else ""
        if folder in ("gpu", "tools"):
            item.add_marker(folder)
        if item.get_closest_marker("gpu") and not gpu_count():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))
