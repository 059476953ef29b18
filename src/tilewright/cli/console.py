"""How the command speaks: results on stdout, everything else on stderr, colours where they help."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

_WIDTH = 10  # of the names


def _console(stream: Any) -> Console:
    return Console(file=stream, highlight=False, soft_wrap=True)


def row(name: str, text: str, style: str = "", width: int = _WIDTH) -> None:
    """A line of a result: a name and what there is to say."""
    _console(sys.stdout).print(Text(f"{name:<{width - 1}} ", "bold") + Text(text, style))


def seconds(given: float) -> str:
    """A time in the unit that suits it."""
    if given >= 1:
        return f"{given:.3g} s"
    return f"{given * 1e3:.3g} ms" if given >= 1e-3 else f"{given * 1e6:.3g} µs"


def error(message: str, hint: str = "") -> None:
    """An error, with its hint, as one message."""
    hinted = f"{message}\n  hint: {hint}" if hint else message
    _console(sys.stderr).print(Text("error: ", "bold red") + Text(hinted))


def reason(error: Exception) -> str:
    """What an error says, in the words of the command."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or "there is not enough memory"


def warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """A warning; in place of ``warnings.showwarning``."""
    _console(sys.stderr).print(Text("warning: ", "bold yellow") + Text(str(message)))


@contextmanager
def progress(what: str) -> Iterator[Callable[..., None]]:
    """A bar on a terminal's stderr: call what comes with how much of how much is done, and of what,
    where that changes.
    """
    console = _console(sys.stderr)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task(what, total=None, visible=False)

        def update(done: int, total: int, of: str = what) -> None:
            bar.update(task, completed=done, total=total, description=of, visible=True)

        yield update
