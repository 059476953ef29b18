"""A process that does what it is asked, one thing after another, and may be lost.

A kernel that faults takes its process' GPU context with it, and one that hangs never returns. So
the sweep asks another process; where that dies or is too late, the row has an error, the process is
ended, and the next row gets a new one.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

LINES = 12  # of a traceback that are kept


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: an exception's type and text, with the end of its traceback."""

    kind: str
    text: str
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Worker:
    """``ask("module:function", …)`` runs it there; use ``with``."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self._process: Any = None
        self._ear: Any = None

    def ask(self, name: str, *given: Any, seconds: float = 60.0) -> Any:
        """The function's result, or a Failure where it raised, died or took too long."""
        if self._process is None:
            self._start()
        try:
            self._ear.send((name, given))
            if self._ear.poll(seconds):
                return self._ear.recv()
            failure = Failure("TimeoutError", f"not done after {seconds:g} s")
        except (EOFError, OSError):
            self._process.join(5)
            failure = Failure("ProcessDied", f"exit code {self._process.exitcode}")
        self.close()
        return failure

    def _start(self) -> None:
        self._ear, there = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            self._ear.close()
            process.kill()
            process.join()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve(ear: Connection) -> None:
    """Do what is asked until nobody asks."""
    while True:
        try:
            name, given = ear.recv()
        except (EOFError, OSError):
            return
        ear.send(_done(name, given))


def _done(name: str, given: tuple[Any, ...]) -> Any:
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)(*given)
    except Exception as error:
        last = "".join(traceback.format_exc().splitlines(keepends=True)[-LINES:])
        return Failure(type(error).__name__, str(error), last)
