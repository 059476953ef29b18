"""Progress of calls that take long: shown in a terminal session or a notebook, not in scripts.

    with long_call("compiling gemm") as update: …

After a second the display that a higher layer provides as ``progress_display`` opens, and closes
at the end. TILEWRIGHT_PROGRESS=on shows it in scripts too, ``off`` nowhere.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from .lazy_imports import provided

Watch = Callable[..., object]
"""Takes the numbers of completed and of all units, and a description where it changes."""

DELAY = 1.0  # seconds until the display opens


def interactive() -> bool:
    """Whether a person waits for the call: Python's prompt in a terminal, IPython, a notebook."""
    choice = os.environ.get("TILEWRIGHT_PROGRESS", "")
    if choice in ("on", "off"):
        return choice == "on"
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and hasattr(shell, "kernel"):
        return True
    prompt = shell is not None or hasattr(sys, "ps1")
    return prompt and sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def long_call(what: str) -> Iterator[Watch | None]:
    """A call that may take long; ``what`` says what it does. Yields a function that shows how much
    is done, or None in scripts. A call within another one shows nothing of its own.
    """
    display = provided("progress_display") if interactive() else None
    if display is None or not _ACTIVE.acquire(blocking=False):
        yield None
        return
    shown = _Delayed(lambda: display(what))
    try:
        yield shown.update
    finally:
        shown.close()
        _ACTIVE.release()


_ACTIVE = threading.Lock()  # of the one call that is displayed


class _Delayed:
    """A display that opens after ``DELAY`` seconds."""

    def __init__(self, open_display: Callable[[], Any]) -> None:
        self._open, self._stack, self._lock = open_display, ExitStack(), threading.Lock()
        self._update: Watch | None = None
        self._last: tuple[Any, ...] = ()
        self._timer = threading.Timer(DELAY, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self._timer.finished.is_set():
                return
            self._update = self._stack.enter_context(self._open())
            if self._last:
                self._update(*self._last)

    def update(self, *state: Any) -> None:
        """Show ``state``, now or when the display opens."""
        self._last = state
        if self._update is not None:
            self._update(*state)

    def close(self) -> None:
        """Close the display, or do not open it."""
        self._timer.cancel()
        with self._lock:
            self._stack.close()
