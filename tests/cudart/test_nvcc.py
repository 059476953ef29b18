"""A program that nvcc made runs, however it was made: with the runtime linked in or as a library,
of one file or linked on the device, with streams of each thread, however its PTX is compressed.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cuda_programs import DATA, run_program
from rows import slow_but

NVCC = shutil.which("nvcc")
pytestmark = [pytest.mark.tools, pytest.mark.skipif(NVCC is None, reason="no nvcc")]

LINES = ["too much: cudaErrorInvalidValue", "of 256", "of 256", "254.5 256.5 512 1",
         "3 of 233472, sm_90, 132 SMs", "780"]  # fmt: skip
WAYS = {
    "linked in": [],
    "library": ["-cudart", "shared", "--compress-mode=speed"],
    "linked on the device": ["-rdc=true", "-DSPLIT", "part.cu"],
    "streams of threads": ["--default-stream", "per-thread"],
}


def made(folder: Path, *options: str) -> Path:
    program = folder / "example"
    sources = [str(DATA / o) if o.endswith(".cu") else o for o in ("example.cu", *options)]
    arch = [] if "-gencode" in options else ["-arch=sm_90a"]
    subprocess.run([str(NVCC), *arch, "-o", str(program), *sources], check=True)
    return program


@pytest.mark.parametrize("way", slow_but(("linked on the device",), WAYS))
def test_it_runs(way: str, tmp_path: Path, capfd: Any) -> None:
    ended = run_program(capfd, made(tmp_path, *WAYS[way]))
    assert ended.lines == LINES
    assert ended.code == 4 and "bytes of dynamic shared memory, got 60000" in ended.errors


def test_a_stripped_program_is_an_error(tmp_path: Path, capfd: Any) -> None:
    program = made(tmp_path, "-Xlinker", "-s")
    assert "its symbols are stripped" in run_program(capfd, program).errors


def test_a_program_without_ptx_is_an_error(tmp_path: Path, capfd: Any) -> None:
    program = made(tmp_path, "-gencode", "arch=compute_80,code=sm_80")
    assert "got machine code for sm_80" in run_program(capfd, program).errors
