"""The keys of caches: they change with each source file that a cached value was computed by."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright import source_key
from tilewright.run.devices import serialized_kernel
from tilewright.vm.codegen import code_library

ROOTS = {"vm": code_library.SOURCE, "kernel": serialized_kernel.SOURCE}

RUN = """
import sys
import numpy as np
import tilewright
from tilewright.builder import f32, ptr

@tilewright.kernel(block=32)
def double(k, x: ptr(f32)):
    x[k.tid.x] = x[k.tid.x] * 2

double[1](np.ones(32, np.float32))
print(*(m.__file__ for n, m in sys.modules.items() if n.startswith("tilewright.vm")))
"""


def names(*roots: str) -> set[str]:
    return {
        str(p.relative_to(source_key.PACKAGE))
        for p in source_key.closure(source_key.PACKAGE, *roots)
    }


@pytest.mark.parametrize("name", "mufu.py mufu_table.py exact.py target.py dtypes.py".split())
def test_what_code_generation_reads_is_part_of_the_virtual_machines_key(name: str) -> None:
    assert name in names(*code_library.SOURCE)


def test_a_kernels_key_has_the_builder_and_not_the_virtual_machine() -> None:
    found = names(*serialized_kernel.SOURCE)
    assert {"target.py", "dtypes.py", "gemm/tma/tma_kernel.py", "cuda/ptxas.py"} <= found
    assert not [n for n in found if n.startswith(("vm/", "run/", "cli/"))]


def test_the_closure_holds_what_a_run_imports() -> None:
    env = {**os.environ, "TILEWRIGHT_CACHE": "off"}
    done = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ran = {str(Path(p).relative_to(source_key.PACKAGE)) for p in done.stdout.split()}
    assert len(ran) > 20
    assert ran - names("vm.machine", *code_library.SOURCE) == set()


def test_an_edit_of_any_file_of_the_closure_changes_the_digest(tmp_path: Path) -> None:
    package = tmp_path / "tilewright"
    shutil.copytree(source_key.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    before, stamp = source_key.digest(package, "vm.codegen.code_library"), source_key.stamp(package)
    table = package / "mufu_table.py"
    state = table.stat()
    text = table.read_text()
    table.write_text(text.replace("0", "1", 1))  # as many bytes …
    os.utime(table, ns=(state.st_atime_ns, state.st_mtime_ns))  # … and the old time
    assert source_key.stamp(package) != stamp
    assert source_key.digest(package, "vm.codegen.code_library") != before
    table.write_text(text)
    assert source_key.digest(package, "vm.codegen.code_library") == before
    (package / "cli" / "text_table.py").write_text("")
    assert source_key.digest(package, "vm.codegen.code_library") == before


def test_imports_of_every_form_are_followed(tmp_path: Path) -> None:
    package = tmp_path / "p"
    (package / "q").mkdir(parents=True)
    files = {
        "__init__.py": "from . import never",
        "never.py": "",
        "a.py": "import p.q.b\nimport os.path\nfrom .q import c, name\nfrom . import d",
        "q/__init__.py": "",
        "q/b.py": "def f():\n    from ..e import x",
        "q/c.py": "import_module('p.g')\ndeferred('..h', __package__)\nimport_module(f'p.{x}')",
        "d.py": "if TYPE_CHECKING:\n    from .f import *",
        "e.py": "",
        "f.py": "",
        "g.py": "",
        "h.py": "",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    found = {str(p.relative_to(package)) for p in source_key.closure(package, "a")}
    assert found == files.keys() - {"never.py"}


def statements(source: str) -> set[tuple[int, str]]:
    """What Python's own parser finds."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {(node.level, f"{node.module or ''}.{a.name}".strip(".")) for a in node.names}
        elif isinstance(node, ast.Import):
            found |= {(0, alias.name) for alias in node.names}
    return found


def test_no_import_of_the_package_is_missed() -> None:
    for file in source_key.PACKAGE.rglob("*.py"):
        source = file.read_text(encoding="utf-8")
        missed = {x for x in statements(source) - {*source_key.named(source)} if x[1][-1] != "*"}
        assert not missed, file
