"""CUDA programs for tests: compiled here by the C compiler, with a fatbinary made by hand, and run
by ``tilewright vm --cudart``.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilewright.cli import main

DATA = Path(__file__).parents[1] / "data" / "cudart"
PTX = (DATA / "kernels.ptx").read_text()
CC = shutil.which("cc") if sys.platform == "linux" else None
RUNTIME = DATA / "runtime.c"


def fatbinary(*texts: str) -> bytes:
    """An uncompressed fatbinary of PTX texts."""
    made = b""
    for text in texts:
        number = int(text.split(".target sm_")[1][:2])
        raw = text.encode() + bytes(8 - len(text.encode()) % 8)
        made += struct.pack("<HHIQQQIIQQQ", 1, 0x101, 64, len(raw), 0, 0, number, 0, 0, 0, 0) + raw
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(made)) + made


def compiled(folder: Path, name: str, *more: str, fatbin: bytes = b"") -> Path:
    """The program of ``data/cudart/NAME.c``."""
    words = struct.unpack(f"<{len(fatbin) // 8}Q", fatbin)
    listed = ",".join(f"{w}ull" for w in words) or "0"
    (folder / "fatbin.h").write_text(f"unsigned long long fatbin[] = {{{listed}}};\n")
    program = folder / name
    options = [f"-I{folder}", "-O2", "-falign-functions=16", "-o", str(program)]
    subprocess.run([str(CC), *options, str(DATA / f"{name}.c"), *more], check=True)
    return program


def shared(folder: Path, name: str, content: Path | bytes) -> list[str]:
    """A shared library of a C file (with versions, as NVIDIA's) or of bytes; how to link it."""
    path = folder / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        versions = folder / "versions"
        versions.write_text(f"{name} {{ *; }};")
        named = f"-Wl,-soname,{name},--version-script={versions}"
        subprocess.run([str(CC), "-shared", "-fPIC", named, "-o", path, content], check=True)
    return [f"-L{folder}", f"-l:{name}", f"-Wl,-rpath,{folder}"]


@dataclass(frozen=True)
class Ended:
    code: int
    lines: list[str]
    errors: str


def run_program(
    capfd: pytest.CaptureFixture[str], *words: object, options: tuple[str, ...] = ()
) -> Ended:
    """What a program printed, and its exit code."""
    capfd.readouterr()
    code = main(["vm", *options, "--cudart", *map(str, words)])
    out, errors = capfd.readouterr()
    return Ended(code, out.splitlines(), errors)


HEARS = """import signal, sys
from tilewright.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
sys.exit(main())
"""


@contextmanager
def running_program(*words: object) -> Iterator[subprocess.Popen[str]]:
    """A program running in a process of its own, the leader of a group as in a terminal; all of
    the group ends with the ``with``.
    """
    with subprocess.Popen(
        [sys.executable, "-c", HEARS, "vm", "--cudart", *map(str, words)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
