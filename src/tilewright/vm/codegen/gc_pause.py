"""Pauses Python's cyclic garbage collector during bulk allocation."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_depth = 0  # of nested pauses, in all threads
_was_enabled = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable cyclic garbage collection, in all threads. Code generation allocates hundreds of
    thousands of long-lived objects, for which the collector would traverse the heap repeatedly.
    """
    global _depth, _was_enabled
    with _lock:
        if not _depth:
            _was_enabled = gc.isenabled()
            gc.disable()
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if not _depth and _was_enabled:
                gc.enable()
