"""Pauses Python's cyclic garbage collector during bulk allocation."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_holding = 0
_was_on = False


@contextmanager
def uncollected() -> Iterator[None]:
    """Disable cyclic garbage collection, in all threads. Code generation allocates hundreds of
    thousands of long-lived objects, for which the collector would traverse the heap repeatedly.
    """
    global _holding, _was_on
    with _lock:
        if not _holding:
            _was_on = gc.isenabled()
            gc.disable()
        _holding += 1
    try:
        yield
    finally:
        with _lock:
            _holding -= 1
            if not _holding and _was_on:
                gc.enable()
