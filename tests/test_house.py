"""The rules of the source tree: layers, cycles, external packages, sizes, names, words.

A module imports only from lower layers or from its own package; the subpackages of ``vm`` are
layers too. docs/architecture.md describes the layers, docs/glossary.md the words that are ours.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from rows import every_row

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tilewright"
FILES = sorted(PACKAGE.rglob("*.py"))
CHECKED = FILES + sorted(p for d in ("tests", "examples") for p in (ROOT / d).rglob("*.py"))

LAYERS = {
    "errors": 0, "lazy_imports": 0, "trusted_directory": 0, "compile_cache": 0, "source_key": 0,
    "pickled_names": 0, "long_calls": 0,
    "notebook_display": 0, "version": 0, "number_conversion": 0, "bit_packing": 0,
    "dtypes": 0, "exact": 0, "mufu": 0, "mufu_table": 0, "target": 0,
    "layout": 1, "native": 1, "sass": 1,
    "mma": 2,
    "ptx": 3,
    "builder": 4, "vm": 4, "cuda": 4,
    "quantization": 5,
    "gemm": 6, "sparsity": 6,
    "run": 7, "view": 7, "cudart": 7,
    "kernels": 8, "torch": 8, "jax": 8, "cli": 8,
    "__init__": 9, "__main__": 9,
}  # fmt: skip
VM_LAYERS = {
    "state": 0, "program": 1, "llvm": 1, "matrix": 2, "check": 2, "engine": 3,
    "codegen": 4, "step": 5, "launch": 6, "machine": 7, "__init__": 8,
}  # fmt: skip
NEVER = {"gemm": {"vm", "cuda", "run"}}  # beyond what the layers say
ONLY_USER = {
    "ml_dtypes": "dtypes", "llvmlite": "native, vm", "cuda": "cuda", "sqlite3": "run",
    "torch": "torch", "jax": "jax", "rich": "cli", "cairosvg": "view",
}  # fmt: skip
OPTIONAL = {
    "cuda",
    "torch",
    "jax",
    "cairosvg",
}  # these may be imported inside a function of their own folder
ANYWHERE = {"numpy", *sys.stdlib_module_names} - ONLY_USER.keys()

DYNAMIC = {"import_module", "__import__", "deferred"}  # calls that import

FILE_LIMIT, FOLDER_LIMIT = 400, 20
FUNCTION_P90, FUNCTION_LIMIT = 16, 60
WIDTH = 100


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def package_of(path: Path) -> str:
    """The top-level package or module that a file belongs to."""
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
    package, top = package_of(path), module[0]
    if top == "tilewright":
        return layer_verdict(package, module[1] if len(module) > 1 else "__init__", inside)
    owner = ONLY_USER.get(top)
    if owner is not None and package not in owner.split(", "):
        return f"only {owner} may import {top}"
    if owner is None and top not in ANYWHERE:
        return f"{top} is no dependency of tilewright"
    if inside and top not in OPTIONAL:
        return "import inside a function"
    return ""


def layer_verdict(package: str, other: str, inside: bool) -> str:
    if inside:
        return "import inside a function"
    if other == "__version__" or package == other:
        return ""
    if other not in LAYERS or package not in LAYERS:
        return f"{other if other not in LAYERS else package} has no layer"
    if other in NEVER.get(package, ()):
        return f"{package} never imports {other}"
    if LAYERS[other] < LAYERS[package] or LAYERS[package] == 0 == LAYERS[other]:
        return ""
    return f"{package} (layer {LAYERS[package]}) imports {other} (layer {LAYERS[other]})"


@every_row("path", FILES, ids=name_of)
def test_imports_go_down(path: Path) -> None:
    if path in (PACKAGE / "__init__.py", PACKAGE / "lazy_imports.py"):
        return  # the table of lazy names, which tests/test_import.py checks; and what imports them
    found = [(line, verdict(path, module, inside)) for line, module, inside in imports(path)]
    assert not [f"{name_of(path)}:{line}: {why}" for line, why in found if why]


@pytest.mark.parametrize(
    ("package", "source", "why"),
    [
        ("gemm", "from ..vm import run", "gemm never imports vm"),
        ("vm", "from ..cuda import launch", "vm (layer 4) imports cuda (layer 4)"),
        ("mma", "from ..ptx.tree import Reg", "mma (layer 2) imports ptx (layer 3)"),
        ("builder", "import tilewright.gemm", "builder (layer 4) imports gemm (layer 6)"),
        ("ptx", "import llvmlite.ir", "only native, vm may import llvmlite"),
        ("run", "def f():\n import json", "import inside a function"),
        ("run", "def f():\n import_module('tilewright.vm')", "import inside a function"),
        ("cuda", "def f():\n import cuda.bindings", ""),
        ("cuda", "def f():\n import_module(f'cuda.bindings.{name}')", ""),
        ("vm", "x = deferred('..cuda', __package__)", "vm (layer 4) imports cuda (layer 4)"),
        ("vm", "x = deferred('.step', __package__)", ""),
        ("vm", "def f():\n import_module(name)", "? is no dependency of tilewright"),
        ("vm", "from ..ptx.isa import form", ""),
        ("layout", "import scipy", "scipy is no dependency of tilewright"),
        ("layout", "from .. import matmul", "matmul has no layer"),
    ],
)
def test_the_judge_can_say_no(package: str, source: str, why: str) -> None:
    path = PACKAGE / package / "example.py"
    tree = ast.parse(source)
    function = isinstance(tree.body[0], ast.FunctionDef)
    modules = [m for node in ast.walk(tree) for m in targets(path, node)]
    assert [verdict(path, tuple(m.split(".")), function) for m in modules] == [why]


@every_row("path", CHECKED, ids=name_of)
def test_files_stay_small_and_narrow(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert not [f"{name_of(path)}:{n}" for n, s in enumerate(lines, 1) if len(s) > WIDTH]
    assert len(lines) <= FILE_LIMIT, f"{name_of(path)} has {len(lines)} lines"


def test_folders_stay_small() -> None:
    counts = Counter(path.parent for path in FILES if path.parent.name != "isa")
    assert not {name_of(folder): n for folder, n in counts.items() if n > FOLDER_LIMIT}


def functions() -> Iterator[tuple[str, int]]:
    """Each function's place and its lines, the docstring not counted."""
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if ast.get_docstring(node) is not None:
                    lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
                yield f"{name_of(path)}:{node.lineno} {node.name}", lines


def test_functions_stay_short() -> None:
    found = sorted((lines, place) for place, lines in functions())
    assert not [f"{place}: {lines} lines" for lines, place in found if lines > FUNCTION_LIMIT]
    assert found[len(found) * 9 // 10][0] <= FUNCTION_P90


def test_a_module_says_what_it_is() -> None:
    silent = [name_of(p) for p in FILES if tree_of(p).body and not ast.get_docstring(tree_of(p))]
    assert not silent, "no module docstring"


def test_no_group_is_possessive() -> None:
    """Python before 3.11.5 matches ``(?:ab)*+`` wrongly where a turn fails half-way."""
    texts = {name_of(path): path.read_text(encoding="utf-8") for path in FILES}
    assert not [
        name for name, text in texts.items() if re.search(r"[)}][*+?}]\+(?!`)|\)\{[\d,]+\}\+", text)
    ]


# --- cycles and the layers of vm ------------------------------------------------------------------


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def graph() -> dict[str, set[str]]:
    """The modules that each module imports, under ``TYPE_CHECKING`` and inside functions too."""
    modules = {module_of(path): path for path in FILES}
    return {name: set(imported(path, modules)) - {name} for name, path in modules.items()}


def imported(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports; ``from .x import y`` is ``x.y`` if it exists."""
    package = path.relative_to(PACKAGE).parts[:-1]
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) - node.level + 1], *(node.module or "").split(".")]
            for alias in node.names:
                name = ".".join(filter(None, [*base, alias.name]))
                found = name if name in modules else name.rpartition(".")[0]
                if found in modules:
                    yield found


def test_no_import_cycles() -> None:
    assert not sorted(cycles({k: v - {""} for k, v in graph().items() if k}))


def cycles(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """The strongly connected components with more than one module."""
    reach = {name: reachable(graph, name) for name in graph}
    seen: set[str] = set()
    for name in graph:
        if name not in seen:
            component = {other for other in reach[name] if name in reach[other]} | {name}
            seen |= component
            if len(component) > 1:
                yield sorted(component)


def reachable(graph: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_the_cycle_finder_finds_cycles() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert list(cycles(graph)) == [["a", "b", "c"]]


def test_the_subpackages_of_vm_are_layers() -> None:
    def layer(module: str) -> int:
        return VM_LAYERS[[*module.split("."), "__init__"][1]]

    vm = {name for name in graph() if name == "vm" or name.startswith("vm.")}
    pairs = [(a, b) for a in sorted(vm) for b in sorted(graph()[a] & vm) if b != "vm"]
    own = {(a, b) for a, b in pairs if a.split(".")[:2] == b.split(".")[:2]}
    assert not [f"{a} imports {b}" for a, b in pairs if (a, b) not in own and layer(a) <= layer(b)]


# --- names and words ------------------------------------------------------------------------------


def test_public_class_names_are_unique() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name_of(path))
    assert not {name: places for name, places in homes.items() if len(places) > 1}


def test_file_stems_are_unique() -> None:
    """The modules of ``cli/commands`` are named for the subcommands."""
    homes: dict[str, list[str]] = defaultdict(list)
    for path in FILES:
        if path.stem != "__init__" and path.parent.name != "commands":
            homes[path.stem].append(name_of(path))
    assert not {stem: places for stem, places in homes.items() if len(places) > 1}


QUESTIONS = {  # what a newcomer greps for: where it must be found
    "split-K reduction": "gemm/splitk_reduction.py",
    "producer": "gemm/tma/tma_kernel.py",
    "tile scheduler": "gemm/tma/tile_scheduler.py",
    "epilogue": "gemm/tma/tma_epilogue.py",
    "cost model": "gemm/cost_model.py",
    "autotuner's database": "run/tuning/tuning_database.py",
    "tensor-map encoding": "mma/tensor_maps/tensor_map.py",
    "mbarrier model": "vm/engine/mbarrier_model.py",
    "race detector": "vm/check/race_detector.py",
    "wgmma descriptor": "mma/matrix_descriptor.py",
}


@pytest.mark.parametrize("words", QUESTIONS)
def test_a_newcomer_finds_it(words: str) -> None:
    """``grep -ril WORDS src`` names few files, and the right one says it in its first lines."""
    pattern = re.compile(re.escape(words), re.IGNORECASE)
    found = [path for path in FILES if pattern.search(path.read_text(encoding="utf-8"))]
    home = PACKAGE / QUESTIONS[words]
    assert home in found
    assert pattern.search(ast.get_docstring(tree_of(home)) or ""), f"{home} does not say {words}"


PHRASES = (  # of the dialect that this project once had
    "way out", "laid down", "that only copies", "those that multiply", "as it lies",
    "lies otherwise", "as they lie", "who comes first", "gives Python's lock",
    "what is asked", "sums stand", "places on the machine", "threefold", "is none of",
    "so many", "of any places", "what is not its own", "rivals", "has its way", "the house",
    "stands twice", "nested alike", "is expected, and", "as it stands", "is gone since",
    "would do without", "bytes are wanted", "under way", "whose turn", "as it was given",
    "is not looked at", "passed over", "what vanishes", "hands it on", "somebody", "taken apart",
    "as many as it should", "to be worked on", "who has waited for whom", "seen to", "are wanted",
)  # fmt: skip


def test_the_dialect_does_not_return() -> None:
    texts = [*FILES, *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    found = [
        f"{name_of(path)}:{number}: {phrase}"
        for path in texts
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for phrase in re.findall(rf"\b(?:{'|'.join(PHRASES)})\b", line)
    ]
    assert not found, "\n".join(found)
