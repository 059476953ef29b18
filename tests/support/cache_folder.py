"""The folder of the compile cache during a test run: in pytest's cache, or temporary."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tilewright.trusted_directory import open_directory

VARIABLE = "TILEWRIGHT_CACHE_DIR"


def choose_cache_folder(config: pytest.Config) -> None:
    """Set the folder where it is not set; workers and other processes read the environment."""
    if VARIABLE not in os.environ:
        os.environ[VARIABLE] = str(pytest_cache_folder(config) or temporary_folder(config))


def pytest_cache_folder(config: pytest.Config) -> Path | None:
    """A folder in pytest's cache; None without such a cache, or where others may write to it."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is None:
        return None
    folder = cache.mkdir("compiled")
    try:
        open_directory(folder).close()
    except OSError:
        return None
    return folder


def temporary_folder(config: pytest.Config) -> Path:
    """A folder that is removed when the run ends."""
    folder = tempfile.TemporaryDirectory(prefix="tilewright-tests-")
    config.add_cleanup(folder.cleanup)
    return Path(folder.name)
