"""Console output: results on stdout, errors, warnings and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

_WIDTH = 10  # of the name column


def _console(stream: Any) -> Console:
    return Console(file=stream, highlight=False, soft_wrap=True)


def row(name: str, text: str, style: str = "", width: int = _WIDTH) -> None:
    """Print one line of a result: a name and a text."""
    _console(sys.stdout).print(Text(f"{name:<{width - 1}} ", "bold") + Text(text, style))


def format_seconds(duration: float) -> str:
    """A duration in s, ms or µs."""
    if duration >= 1:
        return f"{duration:.3g} s"
    return f"{duration * 1e3:.3g} ms" if duration >= 1e-3 else f"{duration * 1e6:.3g} µs"


def error(message: str, hint: str = "") -> None:
    """Print an error and its hint as one message."""
    hinted = f"{message}\n  hint: {hint}" if hint else message
    _console(sys.stderr).print(Text("error: ", "bold red") + Text(hinted))


def error_text(error: Exception) -> str:
    """The message of an exception; of an OSError the file name and the reason."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or "there is not enough memory"


def warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning; replaces ``warnings.showwarning``."""
    _console(sys.stderr).print(Text("warning: ", "bold yellow") + Text(str(message)))


class _CountColumn(ProgressColumn):
    """``3 of 70``, once the total is known."""

    def render(self, task: Task) -> Text:
        if task.total is None:
            return Text("")
        return Text(f"{task.completed:,.0f} of {task.total:,.0f}")


@contextmanager
def progress(what: str) -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr if it is a terminal, or in a notebook that has ipywidgets. The
    yielded function takes the numbers of completed and of all units, and a description where it
    changes; until it is called the bar only says that time passes.
    """
    console = _console(sys.stderr)
    columns = (
        TextColumn("{task.description}"), BarColumn(), _CountColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    shown = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    bar = Progress(*columns, console=console, transient=True, disable=not shown)
    with bar:
        task = bar.add_task(what, total=None)

        def update(done: int, total: int, description: str = what) -> None:
            bar.update(task, completed=done, total=total, description=description, visible=True)

        yield update
