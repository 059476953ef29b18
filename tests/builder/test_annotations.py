"""Annotations: mypy accepts those of kernel parameters, a trace reads them; mypy sees the types of
the public functions.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

import tilewright
from tilewright.builder import Builder, ptr

HERE = Path(__file__).parent
WRONG = """
from tilewright.builder import Builder, f32, ptr, u32

def wrong(k: Builder, n: u32, x: ptr[f32]) -> None:
    k.add(x, n)
    k.shfl("idx", n)
    k.nonsense: int = 1
"""

TYPED = """
import numpy as np
import tilewright

reveal_type(tilewright.matmul)
reveal_type(tilewright.plan(1, 2, 3))
d = tilewright.matmul(np.zeros((2, 2), np.float16), np.zeros((2, 2), np.float16))
tilewright.matmul(d)
"""


def mypy(file: Path) -> str:
    """What mypy says of a file in strict mode. The files share mypy's cache."""
    pytest.importorskip("mypy")
    root = Path(tilewright.__file__).parents[2]
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(file)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_mypy_accepts_annotated_kernels() -> None:
    assert "Success" in mypy(HERE / "typed_kernels.py")


def test_mypy_reports_wrong_arguments(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    errors = mypy(file)
    assert 'has incompatible type "ptr' in errors
    assert "Too few arguments" in errors or "Missing positional argument" in errors


def test_mypy_sees_the_types_of_the_public_functions(tmp_path: Path) -> None:
    file = tmp_path / "typed.py"
    file.write_text(TYPED)
    said = mypy(file)
    assert 'Revealed type is "def (a: Any, b: Any, *, c: Any' in said
    assert 'Plan"' in said
    assert "typed.py:8: error: Missing positional argument" in said
    assert said.count("error:") == 1, said


def test_annotations_are_parameters() -> None:
    kernels = run_path(str(HERE / "typed_kernels.py"))
    saxpy, row_sum = kernels["saxpy"], kernels["row_sum"]
    assert str(saxpy) == "kernel saxpy(n: u32, a: f32, x: ptr f32, y: ptr f32)"
    assert str(row_sum) == "kernel row_sum(n: u32, x: ptr f32 align 16, y: ptr f32, *, width)"
    assert "ld.global.f32" in row_sum.trace(width=4).ptx


def test_forwarded_methods_keep_their_documentation() -> None:
    assert "correctly rounded" in (Builder.truediv.__doc__ or "")
    assert ptr["f32"] == ptr("f32")
