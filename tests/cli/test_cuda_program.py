"""A CUDA program where the command reads PTX: what its files hold is run, counted and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cuda_programs import PTX, fatbinary
from tilewright.cli import main

pytestmark = pytest.mark.vm

OTHER = PTX.replace("entry scale", "entry other").replace(".visible .global", ".global")
HEAD = b"\x7fELF" + bytes(60)


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The bytes of a program with two fatbinaries: one for two architectures."""
    second = OTHER.replace("show", "tell").replace("spin", "turn")
    newer = PTX.replace("sm_80", "sm_90a").replace("fma.rn.f32 %v, %a, %v, %c", "mov.f32 %v, %a")
    file = tmp_path / "program"
    file.write_bytes(HEAD + fatbinary(PTX, newer) + bytes(16) + fatbinary(second) + b"tail")
    return str(file)


def test_its_kernels_run(program: str, capsys: Any) -> None:
    arrays = ["y=zeros:f32:32", "n=u32:32", "x=arange:f32:32", "a=f32:4"]
    given = [word for text in arrays for word in ("--arg", text)]
    for entry, most in (("scale", "4 … 4"), ("other", "0.5 … 124.5")):
        assert not main(["run", program, "--entry", entry, "--grid", "1", "--block", "32", *given])
        assert f"y         f32 32, {most}" in capsys.readouterr().out


def test_its_instructions_are_counted(program: str, capsys: Any) -> None:
    assert not main(["vm", "--coverage", program])
    out = capsys.readouterr().out.splitlines()
    (calls,) = (line.split() for line in out if line.startswith("call.uni"))
    assert calls == ["call.uni", "2", "yes"]


def test_one_without_ptx(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "program"
    file.write_bytes(HEAD)
    assert main(["vm", "--coverage", str(file)]) == 2
    assert f"{file} is an executable without PTX" in capsys.readouterr().err
