"""The program ``ptxas``, NVIDIA's assembler: it assembles whole programs without a GPU.

``find`` uses ``$TILEWRIGHT_PTXAS`` if it is set. Otherwise it searches the wheels
``nvidia-cuda-nvcc`` of CUDA 13 and 12, ``$CUDA_HOME`` and ``$CUDA_PATH``, ``$PATH``,
/usr/local/cuda, and Triton's copy. It returns the first one that runs and whose major version is
not newer than the driver's, which could not load its code.
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
BROKEN = "PTXAS_BROKEN"  # the name of errors that are not caused by the PTX
_DIAGNOSTIC = re.compile(r"^ptxas\b.*\b(?:error|fatal)\s*:", re.MULTILINE)
_RELEASE = re.compile(r"release \d+\.\d+, V(\d+)([\d.]*)")
_VERSION_TIMEOUT = 60  # seconds


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

    def __call__(self, ptx: str, options: list[str]) -> tuple[int, bytes, str]:
        """Run it with options: its exit status (0 with a cubin), the cubin, its report.

        Raises CudaError PTXAS_BROKEN if it neither writes a complete cubin nor reports an error in
        the PTX: it can't be started, it crashed, or the temporary folder's disk is full, which
        ptxas 13.0 does not notice.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
                source, cubin = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
                source.write_bytes(ptx.encode())
                result = _run([self.path, *options, str(source), "-o", str(cubin)])
                code = cubin.read_bytes() if cubin.exists() else b""
        except OSError as error:
            raise self._broken(str(error)) from error
        status = result.returncode
        if not (_DIAGNOSTIC.search(result.stdout) if status > 0 else is_whole(code)):
            raise self._broken(f"exit status {status}, {len(code)} bytes", result.stdout)
        return status, code, result.stdout

    def _broken(self, reason: str, report: str = "") -> CudaError:
        hint = f"{VARIABLE} selects another ptxas, TMPDIR another folder for temporary files"
        error = CudaError(f"{self.path} can't be used: {reason}", name=BROKEN, hint=hint)
        if report:
            error.add_note(report.strip())
        return error


def find(newest: int | None = None) -> Ptxas:
    """The ptxas for a driver of CUDA ``newest`` (a major version; None: no driver).

    Raises MissingPackage if there is none, DeviceError if $TILEWRIGHT_PTXAS can't be used.
    """
    if override := os.environ.get(VARIABLE):
        if reason := _rejection(override, newest):
            raise DeviceError(f"{VARIABLE}={override} can't be used: {reason}")
        return Ptxas(override, _version(override))
    rejected = []
    for path in _paths():
        reason = _rejection(path, newest)
        if not reason:
            return Ptxas(path, _version(path))
        rejected.append(f"; {path}: {reason}")
    raise MissingPackage("no ptxas was found" + "".join(dict.fromkeys(rejected)), hint=HINT)


def _rejection(path: str, newest: int | None) -> str:
    """Why the program can't be used, or ""."""
    version = _version(path)
    if not version:
        return "it does not report its version"
    if newest is not None and int(version.split(".")[0]) > newest:
        return f"the CUDA {newest} driver can't load code of ptxas {version}"
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
    """The folders of an installed package, found without importing it."""
    spec = find_spec(name)
    return [Path(p) for p in spec.submodule_search_locations or ()] if spec else []


@cache
def _version(path: str) -> str:
    """``13.0.88``; "" if the program is not a working ptxas."""
    try:
        release = _RELEASE.search(_run([path, "--version"], _VERSION_TIMEOUT).stdout)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "".join(release.groups()) if release else ""


def _run(command: list[str], timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command with stdout and stderr merged, and without input."""
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
