"""The library that stands in for CUDA's: compiled from ``shim/`` when first needed, by whatever C
compiler there is.
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
#: What programs ask the loader for; all are this one library.
LIBRARY_NAMES = ("libcudart.so.12", "libcudart.so.13", "libcuda.so.1")
COMPILERS = ("cc", "gcc", "clang")

CompileCached = Callable[[str, str, Callable[[], bytes]], bytes]


def library(keep: CompileCached) -> bytes:
    """The shared library. ``keep(kind, key, make)`` finds it again. DeviceError where there is no
    compiler, or it fails.
    """
    if sys.platform != "linux":
        raise DeviceError(f"CUDA programs can be run on Linux, and this is {sys.platform}")
    command = _compiler()
    files = sorted(SOURCES.iterdir())
    parts = [part for f in files for part in (f.name.encode(), f.read_bytes())]
    text = b"\0".join(
        [*parts, " ".join(command).encode(), source_key("cudart.shim_library").encode()]
    )
    return keep("cudart", hashlib.sha256(text).hexdigest(), lambda: _compiled(command))


def _compiler() -> list[str]:
    given = shlex.split(os.environ.get("CC", ""))
    if given:
        return given
    found = next(filter(None, map(shutil.which, COMPILERS)), None)
    if found is None:
        raise DeviceError(
            f"a CUDA program needs a C compiler once; not found: {', '.join(COMPILERS)}",
            hint="install gcc or clang, or name one in CC",
        )
    return [found]


def _compiled(command: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        made = Path(folder, "made.so")
        options = ["-std=gnu11", "-O1", "-w", "-fPIC", "-shared", "-fvisibility=hidden"]
        versions = f"-Wl,--version-script={SOURCES / 'versions.map'}"
        files = [str(f) for f in sorted(SOURCES.glob("*.c"))]
        whole = [*command, *options, "-o", str(made), *files, versions, "-ldl", "-lpthread"]
        try:
            done = subprocess.run(whole, capture_output=True, text=True, errors="replace")
        except OSError as error:
            raise DeviceError(f"{command[0]} can't be run: {error.strerror}") from None
        if done.returncode:
            raise DeviceError(f"{shlex.join(whole)} failed:\n{done.stderr.strip()}")
        return made.read_bytes()


def install(folder: Path, keep: CompileCached) -> None:
    """Put the library into a folder under each of its names."""
    own = folder / "libtilewright.so"
    own.write_bytes(library(keep))
    for name in LIBRARY_NAMES:
        folder.joinpath(name).symlink_to(own.name)
