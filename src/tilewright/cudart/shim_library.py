"""The shim library, which replaces CUDA's libraries: compiled from ``shim/`` on first use, with any
C compiler.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..errors import DeviceError
from ..source_key import source_key

SOURCES = Path(__file__).parent / "shim"
#: The names under which programs load CUDA; all are this library.
LIBRARY_NAMES = ("libcudart.so.12", "libcudart.so.13", "libcuda.so.1")
COMPILERS = ("cc", "gcc", "clang")

CompileCached = Callable[[str, str, Callable[[], bytes]], bytes]


def library(keep: CompileCached) -> bytes:
    """The shared library, cached by ``keep(kind, key, make)``. Raises DeviceError if there is no
    compiler or it fails.
    """
    if sys.platform != "linux":
        raise DeviceError(f"CUDA programs must be run on Linux, got {sys.platform}")
    command = _compiler()
    files = sorted(SOURCES.iterdir())
    parts = [part for f in files for part in (f.name.encode(), f.read_bytes())]
    text = b"\0".join(
        [*parts, " ".join(command).encode(), source_key("cudart.shim_library").encode()]
    )
    return keep("cudart", hashlib.sha256(text).hexdigest(), lambda: _compiled(command))


def _compiler() -> list[str]:
    configured = shlex.split(os.environ.get("CC", ""))
    if configured:
        return configured
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise DeviceError(
            f"running CUDA programs needs a C compiler, none was found: {', '.join(COMPILERS)}",
            hint="install gcc or clang, or set CC",
        )
    return [found]


def _compiled(command: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        target = Path(folder, "shim.so")
        options = ["-std=gnu11", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden"]
        versions = f"-Wl,--version-script={SOURCES / 'versions.map'}"
        files = [str(f) for f in sorted(SOURCES.glob("*.c"))]
        whole = [*command, *options, "-o", str(target), *files, versions, "-ldl", "-lpthread"]
        try:
            result = subprocess.run(whole, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise DeviceError(f"{command[0]} can't be started: {error.strerror}") from None
        if result.returncode:
            raise DeviceError(f"{shlex.join(whole)} failed:\n{result.stderr.strip()}")
        return target.read_bytes()


def install(folder: Path, keep: CompileCached) -> None:
    """Install the library in a folder under each of its names."""
    own = folder / "libtilewright.so"
    own.write_bytes(library(keep))
    for name in LIBRARY_NAMES:
        folder.joinpath(name).symlink_to(own.name)
