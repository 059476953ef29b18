"""The house: who may import whom, who alone uses what, and how large things may grow.

A module imports only from lower floors or from its own folder.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rows import every_row

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tilewright"
FILES = sorted(PACKAGE.rglob("*.py"))
CHECKED = FILES + sorted(p for d in ("tests", "examples") for p in (ROOT / d).rglob("*.py"))

FLOORS = {
    "errors": 0, "lazy_imports": 0, "trusted_directory": 0, "compile_cache": 0, "source_key": 0,
    "notebook_display": 0, "version": 0,
    "number_conversion": 0, "bit_packing": 0,
    "dtypes": 0, "exact": 0, "mufu": 0, "mufu_table": 0, "target": 0,
    "layout": 1, "native": 1, "sass": 1,
    "mma": 2,
    "ptx": 3,
    "builder": 4, "vm": 4, "cuda": 4,
    "gemm": 5,
    "run": 6, "view": 6, "cudart": 6,
    "torch": 7, "jax": 7, "cli": 7,
    "__init__": 8, "__main__": 8,
}  # fmt: skip
NEVER = {"gemm": {"vm", "cuda", "run"}}  # beyond what the floors say
ONLY_USER = {
    "ml_dtypes": "dtypes", "llvmlite": "native, vm", "cuda": "cuda", "sqlite3": "run",
    "torch": "torch", "jax": "jax", "rich": "cli",
}  # fmt: skip
OPTIONAL = {"cuda", "torch", "jax"}  # these may be imported inside a function of their own folder
ANYWHERE = {"numpy", *sys.stdlib_module_names} - ONLY_USER.keys()

DYNAMIC = {"import_module", "__import__", "deferred"}  # calls that import

FILE_RULE, FILE_LIMIT = 400, 800
FUNCTION_RULE, FUNCTION_LIMIT = 25, 60
WIDTH = 100


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def room_of(path: Path) -> str:
    """The folder, or the module in the package's root, that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(path: Path) -> Iterator[tuple[int, tuple[str, ...], bool]]:
    """(line, dotted parts of the module, whether inside a function) of each import of a file."""
    waiting: list[tuple[ast.AST, bool]] = [(tree_of(path), False)]
    while waiting:
        node, inside = waiting.pop()
        inside = inside or is_function(node)
        for module in targets(path, node):
            yield node.lineno, tuple(module.split(".")), inside
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def targets(path: Path, node: ast.AST) -> list[str]:
    """The absolute names that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            package = ("tilewright", *path.relative_to(PACKAGE).parts[:-1])
            base = ".".join((*package[: len(package) - node.level + 1], *filter(None, [base])))
        return [f"{base}.{a.name}" for a in node.names] if base == "tilewright" else [base]
    if isinstance(node, ast.Call) and called(node.func) in DYNAMIC:
        first: ast.AST | None = node.args[0] if node.args else None
        if isinstance(first, ast.JoinedStr):  # f"cuda.bindings.{name}"
            first = first.values[0]
        return [absolute(path, str(first.value)) if isinstance(first, ast.Constant) else "?"]
    return []


def absolute(path: Path, name: str) -> str:
    """A module's name without leading dots."""
    level = len(name) - len(name.lstrip("."))
    package = ("tilewright", *path.relative_to(PACKAGE).parts[:-1])
    return ".".join((*package[: len(package) - level + 1], name[level:])) if level else name


def called(function: ast.expr) -> str:
    """A function's name, without what it is an attribute of."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def verdict(path: Path, module: tuple[str, ...], inside: bool) -> str:
    """Why a file may not import a module, or ""."""
    room, top = room_of(path), module[0]
    if top == "tilewright":
        return floor_verdict(room, module[1] if len(module) > 1 else "__init__", inside)
    owner = ONLY_USER.get(top)
    if owner is not None and room not in owner.split(", "):
        return f"only {owner} may import {top}"
    if owner is None and top not in ANYWHERE:
        return f"{top} is no dependency of tilewright"
    if inside and top not in OPTIONAL:
        return "import inside a function"
    return ""


def floor_verdict(room: str, other: str, inside: bool) -> str:
    if inside:
        return "import inside a function"
    if other == "__version__" or room == other:
        return ""
    if other not in FLOORS or room not in FLOORS:
        return f"{other if other not in FLOORS else room} is in no floor of the house"
    if other in NEVER.get(room, ()):
        return f"{room} never imports {other}"
    if FLOORS[other] < FLOORS[room] or FLOORS[room] == 0 == FLOORS[other]:
        return ""
    return f"{room} (floor {FLOORS[room]}) imports {other} (floor {FLOORS[other]})"


@every_row("path", FILES, ids=name_of)
def test_imports_go_down(path: Path) -> None:
    if path in (PACKAGE / "__init__.py", PACKAGE / "lazy_imports.py"):
        return  # the table of lazy names, which tests/test_import.py checks; and what imports them
    found = [(line, verdict(path, module, inside)) for line, module, inside in imports(path)]
    assert not [f"{name_of(path)}:{line}: {why}" for line, why in found if why]


@pytest.mark.parametrize(
    ("room", "source", "why"),
    [
        ("gemm", "from ..vm import run", "gemm never imports vm"),
        ("vm", "from ..cuda import launch", "vm (floor 4) imports cuda (floor 4)"),
        ("mma", "from ..ptx.tree import Reg", "mma (floor 2) imports ptx (floor 3)"),
        ("builder", "import tilewright.gemm", "builder (floor 4) imports gemm (floor 5)"),
        ("ptx", "import llvmlite.ir", "only native, vm may import llvmlite"),
        ("run", "def f():\n import json", "import inside a function"),
        ("run", "def f():\n import_module('tilewright.vm')", "import inside a function"),
        ("cuda", "def f():\n import cuda.bindings", ""),
        ("cuda", "def f():\n import_module(f'cuda.bindings.{name}')", ""),
        ("vm", "x = deferred('..cuda', __package__)", "vm (floor 4) imports cuda (floor 4)"),
        ("vm", "x = deferred('.step', __package__)", ""),
        ("vm", "def f():\n import_module(name)", "? is no dependency of tilewright"),
        ("vm", "from ..ptx.isa import form", ""),
        ("layout", "import scipy", "scipy is no dependency of tilewright"),
        ("layout", "from .. import matmul", "matmul is in no floor of the house"),
    ],
)
def test_the_judge_can_say_no(room: str, source: str, why: str) -> None:
    path = PACKAGE / room / "example.py"
    tree = ast.parse(source)
    function = isinstance(tree.body[0], ast.FunctionDef)
    modules = [m for node in ast.walk(tree) for m in targets(path, node)]
    assert [verdict(path, tuple(m.split(".")), function) for m in modules] == [why]


@every_row("path", CHECKED, ids=name_of)
def test_files_stay_small_and_narrow(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert not [f"{name_of(path)}:{n}" for n, s in enumerate(lines, 1) if len(s) > WIDTH]
    assert len(lines) <= FILE_LIMIT, f"{name_of(path)} has {len(lines)} lines"
    if len(lines) > FILE_RULE:
        warnings.warn(f"long file: {name_of(path)} has {len(lines)} lines", stacklevel=1)


def functions() -> Iterator[tuple[str, int]]:
    """Each function's place and its lines, the docstring not counted."""
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                yield f"{name_of(path)}:{node.lineno} {node.name}", lines


def test_functions_stay_short() -> None:
    found = list(functions())
    assert not [f"{place}: {lines} lines" for place, lines in found if lines > FUNCTION_LIMIT]
    long = sorted((n, place) for place, n in found if n > FUNCTION_RULE)
    assert len(long) <= len(found) / 10, f"too many long functions: {long}"


def test_a_module_says_what_it_is() -> None:
    silent = [name_of(p) for p in FILES if tree_of(p).body and not ast.get_docstring(tree_of(p))]
    assert not silent, "no module docstring"
