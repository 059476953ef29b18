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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from .. import __version__
from ..errors import TilewrightError
from ..lazy_imports import deferred

try:
    from . import console
except ImportError as missing:  # rich is broken, without which nothing is printed
    sys.stderr.write(f"error: tilewright can't start: {missing}\n")
    sys.stderr.write("  hint: pip install --force-reinstall tilewright\n")
    raise SystemExit(2) from None

# In the order of the help. A command imports what it needs, which takes longer than most of them.
_NAMES = "gemm", "tune", "plan", "build", "run", "vm", "isa", "sass", "layout", "draw", "doctor"
_COMMANDS = {name: deferred(f".commands.{name}", __package__) for name in _NAMES}
_COMMANDS["ptx"] = _COMMANDS["plan"]

USAGE_ERROR, INTERRUPTED = 2, 130


def parser(arguments: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser of these arguments: with all subcommands, unless the first one is a subcommand.

    Raises ImportError where a dependency of theirs is broken.
    """
    top = argparse.ArgumentParser(
        "tilewright", description="GEMM on NVIDIA tensor cores, from Python down to the bits"
    )
    top.add_argument("--version", action="version", version=f"tilewright {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")
    for module in _modules(arguments):
        module.add(commands)
    return top


def _modules(arguments: Sequence[str]) -> Iterable[Any]:
    """The modules of the subcommands that these arguments may name."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return []
    return [_COMMANDS[first]] if first in _COMMANDS else dict.fromkeys(_COMMANDS.values())


def import_commands(arguments: Sequence[str]) -> None:
    """Import what ``main(arguments)`` will import first, if it can be."""
    with suppress(ImportError):
        for module in _modules(arguments):
            module.add  # noqa: B018  a deferred module is imported when an attribute is read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # terminals whose encoding lacks µ and ×
            stream.reconfigure(errors="replace")
    try:
        options = parser(given).parse_args(given)
        with warnings.catch_warnings():
            warnings.showwarning = console.warning
            return int(options.run(options))
    except TilewrightError as error:
        console.error(str(error))
        return USAGE_ERROR
    except ImportError as missing:  # a dependency is broken; `tilewright doctor` still runs
        hint = "`tilewright doctor` lists what is missing"
        console.error(f"tilewright can't start: {missing}", hint)
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
