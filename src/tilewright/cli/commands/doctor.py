"""``tilewright doctor``: what is found on this machine, what is missing, and how to get it.

It runs where everything else is broken: what can't be imported is what it reports.
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
    from ... import run
    from ...native import jit
    from ...run import VmDevice, tuning_database
    from ...run.tuning.tuning_database import ABSENT
    from ...vm import Machine
except ImportError as missing:
    run = jit = VmDevice = Machine = tuning_database = ABSENT = None  # type: ignore[assignment]
    _BROKEN = str(missing)

_CORE = ("numpy", "ml_dtypes", "llvmlite", "rich")
_FOR_GPU = ("cuda-bindings", "cuda-core", "nvidia-nvjitlink")
_BESIDE = ("torch", "cupy", "jax")
_WIDTH = 18
_VECTORS = ("avx512f", "avx2", "fma", "f16c", "sse4.2", "neon")


@dataclass(frozen=True)
class Finding:
    """Something that was looked for; ``cure`` is what to do where it is missing."""

    name: str
    text: str
    good: bool = True
    cure: str = ""


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser("doctor", help="what is found on this machine, what is missing")
    command.set_defaults(run=_run)


def _run(_: argparse.Namespace) -> int:
    """1 where something is missing that everything needs."""
    parts = _python, _packages, _machine, _gpu, _cache, _tuned
    findings = [f for part in parts for f in part()]
    for finding in findings:
        console.row(finding.name, finding.text, "" if finding.good else "yellow", _WIDTH)
    cures = list(dict.fromkeys(f.cure for f in findings if f.cure))
    for cure in cures:
        console.row("→", cure, "bold", _WIDTH)
    if not cures:
        console.row("→", "nothing is missing", "green", _WIDTH)
    return 0 if run is not None else 1


def _python() -> Iterator[Finding]:
    yield Finding("tilewright", f"{__version__} in {Path(__file__).parents[2]}")
    good = sys.version_info >= (3, 11)
    cure = "" if good else "tilewright needs Python 3.11 or later"
    yield Finding("python", f"{platform.python_version()} at {sys.executable}", good, cure)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    known = (platform.system(), platform.machine()) == ("Linux", "x86_64")
    text = f"{platform.platform()}, {cores} cores" + ("" if known else "; not tested here")
    yield Finding("platform", text, known)


def _packages() -> Iterator[Finding]:
    for name in _CORE:
        version = _version(name)
        cure = "" if version else f"pip install {name}"
        yield Finding(name, version or "not installed", bool(version), cure)
    for name in _BESIDE:
        if version := _version(name):
            yield Finding(name, f"{version}; its arrays are taken")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _machine() -> Iterator[Finding]:
    if jit is None:
        cure = "pip install --force-reinstall tilewright"
        yield Finding("vm", f"can't be imported: {_BROKEN}", False, cure)
        return
    llvm = jit.llvm
    features = llvm.get_host_cpu_features()
    vectors = ", ".join(v for v in _VECTORS if features.get(v)) or "no vector instructions known"
    version = ".".join(map(str, llvm.llvm_version_info))
    yield Finding("vm", f"LLVM {version} for {llvm.get_host_cpu_name()} ({vectors})")


def _gpu() -> Iterator[Finding]:
    versions = {name: _version(name) for name in _FOR_GPU}
    for name, version in versions.items():
        yield Finding(name, version or "not installed", bool(version))
    reason = cuda.why_not()
    if reason:
        cure = ""
        if not versions["cuda-bindings"] and "driver" not in reason:
            cure = "for the GPU: pip install 'tilewright[cuda]'"
        yield Finding("gpu", f"none can be used: {reason}; the virtual machine can", False, cure)
        return
    try:
        yield Finding("driver", "CUDA {}.{}".format(*cuda.version()))
        whole = cuda.compiler("setmaxnreg")
        yield Finding("assembler", f"{cuda.compiler()}; for setmaxnreg: {whole}")
        for p in cuda.devices():
            memory = f"{p.memory / 2**30:.0f} GiB"
            yield Finding(f"cuda:{p.ordinal}", f"{p.name}, {p.arch}, {p.sms} SMs, {memory}")
    except TilewrightError as error:
        yield Finding("gpu", error.message, False, error.hint)


def _cache() -> Iterator[Finding]:
    if run is None:
        return
    info = run.store().info()
    if info.path is None:
        cure = "set TILEWRIGHT_CACHE_DIR to a folder of your own, so that kernels are kept"
        off = os.environ.get("TILEWRIGHT_CACHE", "")
        yield Finding("cache", "none", False, "" if off else cure)
        return
    writable = os.access(info.path, os.W_OK)
    size = f"{info.entries} entries, {info.bytes / 2**20:.1f} of {info.limit / 2**20:.0f} MiB"
    cure = "" if writable else f"make {info.path} writable, or set TILEWRIGHT_CACHE_DIR"
    state = "" if writable else "; not writable"
    yield Finding("cache", f"{info.path}, {size}{state}", writable, cure)


def _tuned() -> Iterator[Finding]:
    """What this user has tuned, and what came with the package."""
    if run is None:
        return
    results = tuning_database()
    found = results.survey()
    if results.path is None and not found.shipped:
        yield Finding("tuned", "off")
        return
    state = _count(found.own, "result")
    if found.lacks:
        state = "absent, nothing was tuned here"
        if found.lacks != ABSENT:
            state = f"can't be read ({found.lacks}), so its results are not used"
    shipped = f"{_count(found.shipped, 'result')} shipped"
    if found.broken:
        shipped = f"the shipped results can't be read ({found.broken})"
    good = found.lacks in ("", ABSENT) and not found.broken
    cure = ""
    if found.broken:
        cure = "pip install --force-reinstall tilewright"
    elif not good:
        cure = f"move {results.path} away, or name another file: TILEWRIGHT_TUNED"
    place = results.path or "no home folder for results"
    yield Finding("tuned", f"{place}: {state}; {shipped}", good, cure)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"
