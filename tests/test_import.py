"""``import tilewright`` is quick, needs nothing optional, and its lazy names are where it says."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright
from rows import every_row

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


def test_type_checkers_see_the_lazy_names() -> None:
    assert declared() == tilewright._HOMES | dict.fromkeys(tilewright._MODULES, "")


@every_row("name", [*tilewright._HOMES, *sorted(tilewright._MODULES)])
def test_lazy_names_are_found(name: str) -> None:
    home = f"tilewright.{tilewright._HOMES.get(name, name)}"
    spec = importlib.util.find_spec(home)
    if spec is None or spec.origin is None:
        pytest.skip(f"{home} is not built yet")
    assert getattr(tilewright, name) is not None
    assert name in dir(tilewright)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'matmull'"):
        tilewright.matmull  # noqa: B018


def test_every_module_is_imported_without_anything_optional() -> None:
    walked = pkgutil.walk_packages(tilewright.__path__, "tilewright.")
    names = [m.name for m in walked if not m.name.endswith("__main__")]
    assert len(names) > 300
    for name in names:
        importlib.import_module(name)
