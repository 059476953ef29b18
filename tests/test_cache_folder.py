"""What tests compile is kept in a place of its own, for all processes of a run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cache_folder
from tilewright import compile_cache


def config(folder: Path | None) -> Any:
    """Of a pytest whose cache is in a folder, or that has none."""
    made = SimpleNamespace(ends=[])
    made.add_cleanup = made.ends.append
    if folder is not None:
        made.cache = SimpleNamespace(mkdir=lambda name: folder / name)
        (folder / "compiled").mkdir(exist_ok=True)
    return made


def test_it_is_not_among_the_users() -> None:
    given = Path(os.environ["TILEWRIGHT_CACHE_DIR"])
    assert compile_cache.default_path() == given != compile_cache.home("XDG_CACHE_HOME", ".cache")


def test_a_run_without_a_folder_that_can_be_trusted_has_a_temporary_one(tmp_path: Path) -> None:
    assert cache_folder.pytest_cache_folder(config(tmp_path)) == tmp_path / "compiled"
    assert cache_folder.pytest_cache_folder(config(None)) is None
    if os.name == "posix":
        (tmp_path / "compiled").chmod(0o777)
        assert cache_folder.pytest_cache_folder(config(tmp_path)) is None
    run = config(None)
    folder = cache_folder.temporary_folder(run)
    assert folder.is_dir()
    run.ends[0]()
    assert not folder.exists()


def test_the_users_choice_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    cache_folder.choose_cache_folder(config(None))
    assert os.environ["TILEWRIGHT_CACHE_DIR"] == str(tmp_path)
