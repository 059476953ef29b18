"""Calls in processes of their own: an error of a GPU makes its context useless, and no process but
a new one has another.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from multiprocessing import get_context
from typing import Any


class BrokenCall(Exception):
    """A call ended its process, or took too long; ``args`` of its own exception are kept."""


class IsolatedCalls:
    """A process that makes calls of ``function``; after an exception, another that has started
    already takes its place. ``begin`` is called where a process starts.
    """

    def __init__(self, function: Callable[..., Any], begin: Callable[[], None]) -> None:
        self._function, self._begin = function, begin
        self._current, self._spare = self._started(), self._started()

    def _started(self) -> Any:
        context = get_context("spawn")
        here, there = context.Pipe()
        arguments = there, self._function, self._begin
        process = context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        there.close()
        return process, here

    def __call__(self, *args: Any, timeout: float = 60) -> Any:
        """The result of a call. Raises BrokenCall."""
        process, here = self._current
        what, value = "broken", ("no answer",)
        try:
            here.send(args)
            if here.poll(timeout):
                what, value = here.recv()
        except (EOFError, OSError):
            value = ("the process ended",)
        if what == "done":
            return value
        process.kill()
        self._current, self._spare = self._spare, self._started()
        raise BrokenCall(*value)

    def close(self) -> None:
        """End the processes."""
        for process, _ in (self._current, self._spare):
            process.kill()


def _serve(there: Any, function: Callable[..., Any], begin: Callable[[], None]) -> None:
    begin()
    while True:
        args = there.recv()
        try:
            there.send(("done", function(*args)))
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            there.send(("broken", (*error.args[:1], text)))
            return
