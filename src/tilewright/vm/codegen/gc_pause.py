"""Python's cyclic collector, held off while much is made that stays."""

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
    """No cyclic collections in here, nor in other threads meanwhile: hundreds of thousands of new
    objects make the collector walk all old ones again and again, for nothing.
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
