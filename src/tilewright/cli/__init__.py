"""The command ``tilewright``: multiply and check, tune, show and build kernels, check and run PTX,
explain instructions and layouts, draw them, look at this machine.

A typed error is one message on stderr and exit code 2; a wrong result is exit code 1; Ctrl-C stops
at once with 130.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Sequence

from .. import __version__
from ..errors import TilewrightError
from . import console
from .commands import doctor

try:
    from .commands import build, draw, gemm, isa, layout, plan, run, tune, vm
except ImportError as missing:  # a dependency is broken: `tilewright doctor` says which
    build = vm = draw = gemm = isa = plan = None  # type: ignore[assignment]
    layout = run = tune = None  # type: ignore[assignment]
    _BROKEN = str(missing)

WRONG, MISUSED, STOPPED = 1, 2, 130


def parser() -> argparse.ArgumentParser:
    """The command's grammar."""
    top = argparse.ArgumentParser(
        "tilewright", description="GEMM on NVIDIA tensor cores, from Python down to the bits"
    )
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    for module in (gemm, tune, plan, build, run, vm, isa, layout, draw):
        if module is not None:
            module.add(commands)
    doctor.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; its exit code."""
    if gemm is None and (arguments or sys.argv[1:])[:1] not in (["doctor"], ["--version"]):
        console.error(
            f"tilewright can't start: {_BROKEN}", "`tilewright doctor` says what is missing"
        )
        return MISUSED
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # µ and × where the terminal has none
            stream.reconfigure(errors="replace")
    try:
        given = parser().parse_args(arguments)
        with warnings.catch_warnings():
            warnings.showwarning = console.warning
            return int(given.run(given))
    except TilewrightError as error:
        console.error(str(error))
        return MISUSED
    except (OSError, MemoryError) as error:
        if isinstance(error, BrokenPipeError):  # `tilewright ptx … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        console.error(console.reason(error))
        return MISUSED
    except KeyboardInterrupt:
        console.error("stopped")
        return STOPPED
