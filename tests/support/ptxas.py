"""NVIDIA's assembler, from its wheel (``nvidia-cuda-nvcc``) or the machine; no GPU is needed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tilewright.cuda.cubin import Cubin


def ptxas() -> str | None:
    """Where it is: the wheel's before any other."""
    wheel = find_spec("nvidia")
    places = [Path(p) / "cu13" / "bin" for p in wheel.submodule_search_locations] if wheel else []
    found = (shutil.which("ptxas", path=str(p)) for p in places)
    return next(filter(None, found), None) or shutil.which("ptxas")


def assemble(ptx: str, arch: str, *options: str) -> Cubin:
    """The cubin with ptxas's report as its log. AssertionError, with the report, where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        command = [str(ptxas()), "-v", *options, "-arch", arch, str(source), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return Cubin(made.read_bytes(), arch, done.stdout + done.stderr, "ptxas")


@cache
def ptxas_version() -> str:
    """Its version, like ``13.0.88``."""
    output = subprocess.run([str(ptxas()), "--version"], capture_output=True, text=True).stdout
    found = re.search(r"V(\d+\.\d+\.\d+)", output)
    return found[1] if found else ""
