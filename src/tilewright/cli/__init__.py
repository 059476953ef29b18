"""The command ``tilewright``: run and check GEMMs, tune, print and build kernels, check and run
PTX, explain and draw instructions and layouts, diagnose the installation.

Exit codes: 2 for a typed error, with one message on stderr; 1 for a wrong result; 130 for Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType

from .. import __version__
from ..errors import TilewrightError
from . import console
from .commands import doctor

_COMMANDS: tuple[ModuleType, ...]
try:
    from .commands import build, draw, gemm, isa, layout, plan, run, sass, tune, vm

    _COMMANDS, _IMPORT_ERROR = (gemm, tune, plan, build, run, vm, isa, sass, layout, draw), ""
except ImportError as missing:  # a dependency is broken; `tilewright doctor` still runs
    _COMMANDS, _IMPORT_ERROR = (), str(missing)

USAGE_ERROR, INTERRUPTED = 2, 130


def parser() -> argparse.ArgumentParser:
    """The argument parser with all subcommands."""
    top = argparse.ArgumentParser(
        "tilewright", description="GEMM on NVIDIA tensor cores, from Python down to the bits"
    )
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    for module in (*_COMMANDS, doctor):
        module.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    if _IMPORT_ERROR and (arguments or sys.argv[1:])[:1] not in (["doctor"], ["--version"]):
        console.error(
            f"tilewright can't start: {_IMPORT_ERROR}", "`tilewright doctor` lists what is missing"
        )
        return USAGE_ERROR
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # terminals whose encoding lacks µ and ×
            stream.reconfigure(errors="replace")
    try:
        options = parser().parse_args(arguments)
        with warnings.catch_warnings():
            warnings.showwarning = console.warning
            return int(options.run(options))
    except TilewrightError as error:
        console.error(str(error))
        return USAGE_ERROR
    except (OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):  # `tilewright ptx … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        console.error(console.error_text(error))
        return USAGE_ERROR
    except KeyboardInterrupt:
        console.error("stopped")
        return INTERRUPTED
