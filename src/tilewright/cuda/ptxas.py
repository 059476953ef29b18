"""NVIDIA's assembler as a program: the one that makes whole programs of PTX without a GPU.

``find`` looks where it may be: ``$TILEWRIGHT_PTXAS``, which alone counts where it is set; the
wheels ``nvidia-cuda-nvcc`` of CUDA 13 and 12; ``$CUDA_HOME`` and ``$CUDA_PATH``; ``$PATH``;
/usr/local/cuda; and Triton's own. The first one serves that runs and whose major version is not
newer than the driver's, which could not load what it makes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ..errors import CudaError, DeviceError, MissingPackage
from .cubin import is_whole

VARIABLE = "TILEWRIGHT_PTXAS"
HINT = f"pip install nvidia-cuda-nvcc (CUDA 12: nvidia-cuda-nvcc-cu12), or set {VARIABLE}"
BROKEN = "PTXAS_BROKEN"  # the name of its error where the PTX is not to blame
_COMPLAINT = re.compile(r"^ptxas\b.*\b(?:error|fatal)\s*:", re.MULTILINE)
_RELEASE = re.compile(r"release \d+\.\d+, V(\d+)([\d.]*)")
_PATIENCE = 60  # seconds until a program that was asked for its version counts as broken


@dataclass(frozen=True, slots=True)
class Ptxas:
    """The program at ``path``; ``version`` is like ``13.0.88``."""

    path: str
    version: str

    def __str__(self) -> str:
        return f"ptxas {self.version}"

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def __call__(self, ptx: str, words: list[str]) -> tuple[int, bytes, str]:
        """Run it with options: its exit status (0: it made a cubin), the cubin, its report.

        Raises CudaError PTXAS_BROKEN where it neither makes a whole cubin nor says what is wrong
        with the PTX: it can't be started or crashed, or the temporary folder's disk is full, which
        it does not notice (13.0).
        """
        try:
            with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
                source, made = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
                source.write_bytes(ptx.encode())
                done = _run([self.path, *words, str(source), "-o", str(made)])
                code = made.read_bytes() if made.exists() else b""
        except OSError as error:
            raise self._broken(str(error)) from error
        status = done.returncode
        if not (_COMPLAINT.search(done.stdout) if status > 0 else is_whole(code)):
            raise self._broken(f"exit status {status}, {len(code)} bytes", done.stdout)
        return status, code, done.stdout

    def _broken(self, why: str, said: str = "") -> CudaError:
        hint = f"{VARIABLE} names another ptxas, TMPDIR another folder for temporary files"
        error = CudaError(f"{self.path} can't be used: {why}", name=BROKEN, hint=hint)
        if said:
            error.add_note(said.strip())
        return error


def find(newest: int | None = None) -> Ptxas:
    """The program to use beside a driver of CUDA ``newest`` (a major version; None: no driver).

    Raises MissingPackage where there is none, DeviceError where $TILEWRIGHT_PTXAS is none.
    """
    if given := os.environ.get(VARIABLE):
        if why := _unfit(given, newest):
            raise DeviceError(f"{VARIABLE}={given}: {why}")
        return Ptxas(given, _version(given))
    seen = []
    for path in _paths():
        why = _unfit(path, newest)
        if not why:
            return Ptxas(path, _version(path))
        seen.append(f"; {path}: {why}")
    raise MissingPackage("there is no ptxas" + "".join(dict.fromkeys(seen)), hint=HINT)


def _unfit(path: str, newest: int | None) -> str:
    """Why the program can't serve, or ""."""
    version = _version(path)
    if not version:
        return "it does not tell its version"
    if newest is not None and int(version.split(".")[0]) > newest:
        return f"the CUDA {newest} driver can't load what ptxas {version} makes"
    return ""


def _paths() -> Iterator[str]:
    for folder in _folders():
        if path := shutil.which("ptxas", path=str(folder)):
            yield path


def _folders() -> Iterator[Path]:
    for part in ("cu13/bin", "cuda_nvcc/bin"):
        yield from (home / part for home in _package("nvidia"))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(name):
            yield Path(home, "bin")
    yield from map(Path, os.get_exec_path())
    yield Path("/usr/local/cuda/bin")
    yield from (home / "backends/nvidia/bin" for home in _package("triton"))


def _package(name: str) -> list[Path]:
    """The folders of an installed package, which is not imported."""
    spec = find_spec(name)
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


@cache
def _version(path: str) -> str:
    """``13.0.88``, or "" of what is no ptxas that runs."""
    try:
        said = _RELEASE.search(_run([path, "--version"], _PATIENCE).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "".join(said.groups()) if said else ""


def _run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Its two streams are one; no terminal is its input."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=timeout,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
