"""A child process that runs functions by name, and that may be lost.

A kernel that faults destroys its process's GPU context, and one that deadlocks never returns. So
measurements run in a child process: where it dies or exceeds its time limit, the call returns a
``CallFailure``, the process is killed, and the next call starts a new one.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

TRACEBACK_LINES = 12  # the last ones


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a call has no result: an exception's type and text, and the end of its traceback."""

    kind: str
    text: str
    trace: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


class Worker:
    """A child process: ``call("module:function", …)`` runs a function there. Use ``with``."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self._process: Any = None
        self._connection: Any = None

    def call(self, name: str, *arguments: Any, seconds: float = 60.0) -> Any:
        """The function's result, or a CallFailure where it raised, died or exceeded the limit."""
        if self._process is None:
            self._start()
        try:
            self._connection.send((name, arguments))
            if self._connection.poll(seconds):
                return self._connection.recv()
            failure = CallFailure("TimeoutError", f"not done after {seconds:g} s")
        except (EOFError, OSError):
            self._process.join(5)
            failure = CallFailure("ProcessDied", f"exit code {self._process.exitcode}")
        self.close()
        return failure

    def _start(self) -> None:
        self._connection, child = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(child,), daemon=True)
        self._process.start()
        child.close()

    def close(self) -> None:
        """Kill the process."""
        process, self._process = self._process, None
        if process is not None:
            self._connection.close()
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


def serve(connection: Connection) -> None:
    """Run in the child process: execute calls until the connection is closed."""
    while True:
        try:
            name, arguments = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(call_by_name(name, arguments))


def call_by_name(name: str, arguments: tuple[Any, ...]) -> Any:
    """The result of ``module:function``, or a CallFailure where it raised."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)(*arguments)
    except Exception as error:
        last = "".join(traceback.format_exc().splitlines(keepends=True)[-TRACEBACK_LINES:])
        return CallFailure(type(error).__name__, str(error), last)
