"""``import tilewright`` is quick, needs nothing optional, and its lazy names are where it says."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from rows import every_row
from tilewright.errors import MissingPackage

FRESH = """
import sys, time
start = time.perf_counter()
import tilewright
print(time.perf_counter() - start, *sys.modules)
"""
LAZY = {"numpy", "ml_dtypes", "llvmlite", "rich", "torch", "jax", "cuda", "sqlite3"}


def fresh_import() -> tuple[float, set[str]]:
    """Seconds that the import takes in a new process, and all that is then loaded."""
    env = os.environ | {"PYTHONPATH": str(Path(tilewright.__file__).parents[1])}
    command = [sys.executable, "-c", FRESH]
    out = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    seconds, *modules = out.stdout.split()
    return float(seconds), set(modules)


def test_import_is_quick() -> None:
    assert min(fresh_import()[0] for _ in range(5)) <= 0.3


def test_import_loads_nothing_that_can_wait() -> None:
    assert not fresh_import()[1] & LAZY


def declared() -> dict[str, str]:
    """name → module as the block for type checkers has them."""
    tree = ast.parse(Path(tilewright.__file__).read_text(encoding="utf-8"))
    block = next(n for n in tree.body if isinstance(n, ast.If))
    return {
        alias.name: statement.module or ""
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }


def test_the_public_names_are_those_that_type_checkers_see() -> None:
    assert sorted(declared()) == sorted(tilewright.__all__)


@every_row("name", tilewright.__all__)
def test_public_names_are_found(name: str) -> None:
    value = getattr(tilewright, name)
    if module := declared()[name]:
        home = importlib.import_module(f"tilewright.{module}")
        assert value is getattr(home, name)
    else:
        assert value is importlib.import_module(f"tilewright.{name}")
    assert name in dir(tilewright)


def test_help_lists_the_public_functions() -> None:
    text = pydoc.plain(pydoc.render_doc(tilewright))
    assert all(f"{name}(" in text for name in ("matmul", "plan", "kernel", "tensor_map", "load"))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'matmull'"):
        tilewright.matmull  # noqa: B018


def test_every_module_is_imported_without_anything_optional() -> None:
    walked = pkgutil.walk_packages(tilewright.__path__, "tilewright.")
    names = [m.name for m in walked if not m.name.endswith("__main__")]
    assert len(names) > 300
    for name in names:
        try:
            importlib.import_module(name)
        except MissingPackage as error:
            assert str(error).startswith(f"tilewright.{name.split('.')[1]} needs")
