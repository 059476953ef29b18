"""``tilewright doctor``: diagnose the installation: what is found, what is missing, how to fix it.

It also runs in a broken installation and reports what can't be imported.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from ... import __version__, cuda
from ...errors import TilewrightError
from .. import console

try:
    import numpy  # noqa: F401  before ml_dtypes, whose machine code prints a traceback without it

    from ... import run
    from ...dtypes import DTYPES  # noqa: F401  which needs ml_dtypes
    from ...native import jit
    from ...run import tuning_database
    from ...run.tuning.tuning_database import ABSENT

    _IMPORT_ERROR = ""
except ImportError as missing:
    _IMPORT_ERROR = str(missing)

_CORE = ("numpy", "ml_dtypes", "llvmlite", "rich")
_FOR_GPU = ("cuda-bindings", "cuda-core", "nvidia-nvjitlink")
_ARRAY_LIBRARIES = ("torch", "cupy", "jax")
_WIDTH = 18
_VECTORS = ("avx512f", "avx2", "fma", "f16c", "sse4.2", "neon")


@dataclass(frozen=True)
class Finding:
    """The result of one check; ``remedy`` is what to do if it fails."""

    name: str
    text: str
    good: bool = True
    remedy: str = ""


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "doctor", help="diagnose the installation: what is found, what is missing"
    )
    command.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    """Print all findings; 1 if a required package is missing."""
    checks = _python, _packages, _machine, _gpu, _cache, _tuned
    findings = [finding for check in checks for finding in check()]
    for finding in findings:
        console.row(finding.name, finding.text, "" if finding.good else "yellow", _WIDTH)
    remedies = list(dict.fromkeys(f.remedy for f in findings if f.remedy))
    for remedy in remedies:
        console.row("→", remedy, "bold", _WIDTH)
    if not remedies:
        console.row("→", "nothing is missing", "green", _WIDTH)
    return 1 if _IMPORT_ERROR else 0


def _python() -> Iterator[Finding]:
    yield Finding("tilewright", f"{__version__} in {Path(__file__).parents[2]}")
    good = sys.version_info >= (3, 11)
    remedy = "" if good else "tilewright needs Python 3.11 or later"
    yield Finding("python", f"{platform.python_version()} at {sys.executable}", good, remedy)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    text = f"{platform.platform()}, {cores} cores" + ("" if known else "; not tested here")
    yield Finding("platform", text, known)


def _packages() -> Iterator[Finding]:
    for name in _CORE:
        version = _version(name)
        remedy = "" if version else f"pip install {name}"
        yield Finding(name, version or "not installed", bool(version), remedy)
    for name in _ARRAY_LIBRARIES:
        if version := _version(name):
            yield Finding(name, f"{version}; its arrays are accepted")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _machine() -> Iterator[Finding]:
    if _IMPORT_ERROR:
        remedy = "pip install --force-reinstall tilewright"
        yield Finding("vm", f"can't be imported: {_IMPORT_ERROR}", False, remedy)
        return
    llvm = jit.llvm  # type: ignore[attr-defined]  # only native and vm import llvmlite
    features = llvm.get_host_cpu_features()
    vectors = ", ".join(v for v in _VECTORS if features.get(v)) or "no known vector instructions"
    version = ".".join(map(str, llvm.llvm_version_info))
    yield Finding("vm", f"LLVM {version} for {llvm.get_host_cpu_name()} ({vectors})")


def _gpu() -> Iterator[Finding]:
    versions = {name: _version(name) for name in _FOR_GPU}
    for name, version in versions.items():
        yield Finding(name, version or "not installed", bool(version))
    reason = cuda.why_not()
    if reason:
        remedy = ""
        if not versions["cuda-bindings"] and "driver" not in reason:
            remedy = "for the GPU: pip install 'tilewright[cuda]'"
        yield Finding("gpu", f"not available: {reason}; the virtual machine is used", False, remedy)
        return
    try:
        yield Finding("driver", "CUDA {}.{}".format(*cuda.version()))
        int_at_least = cuda.compiler("setmaxnreg")
        yield Finding("assembler", f"{cuda.compiler()}; for setmaxnreg: {int_at_least}")
        for p in cuda.devices():
            memory = f"{p.memory / 2**30:.0f} GiB"
            yield Finding(f"cuda:{p.ordinal}", f"{p.name}, {p.arch}, {p.sms} SMs, {memory}")
    except TilewrightError as error:
        yield Finding("gpu", error.message, False, error.hint)


def _cache() -> Iterator[Finding]:
    if _IMPORT_ERROR:
        return
    info = run.store().info()
    if info.path is None:
        remedy = "set TILEWRIGHT_CACHE_DIR to a folder of your own, to cache compiled kernels"
        off = os.environ.get("TILEWRIGHT_CACHE", "")
        yield Finding("cache", "none", False, "" if off else remedy)
        return
    writable = os.access(info.path, os.W_OK)
    size = f"{info.entries} entries, {info.bytes / 2**20:.1f} of {info.limit / 2**20:.0f} MiB"
    remedy = "" if writable else f"make {info.path} writable, or set TILEWRIGHT_CACHE_DIR"
    state = "" if writable else "; not writable"
    yield Finding("cache", f"{info.path}, {size}{state}", writable, remedy)


def _tuned() -> Iterator[Finding]:
    """The tuning results of this user, and those shipped with the package."""
    if _IMPORT_ERROR:
        return
    results = tuning_database()
    found = results.survey()
    if results.path is None and not found.shipped:
        yield Finding("tuned", "off")
        return
    state = _count(found.own, "result")
    if found.own_error:
        state = "absent, no tuning results yet"
        if found.own_error != ABSENT:
            state = f"can't be read ({found.own_error}), so its results are not used"
    shipped = f"{_count(found.shipped, 'result')} shipped"
    if found.shipped_error:
        shipped = f"the shipped results can't be read ({found.shipped_error})"
    good = found.own_error in ("", ABSENT) and not found.shipped_error
    remedy = ""
    if found.shipped_error:
        remedy = "pip install --force-reinstall tilewright"
    elif not good:
        remedy = f"move {results.path} away, or set TILEWRIGHT_TUNED to another file"
    place = results.path or "no home folder"
    yield Finding("tuned", f"{place}: {state}; {shipped}", good, remedy)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
