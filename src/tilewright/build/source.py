"""Where in the user's Python a kernel is being traced: for ``.loc`` lines and for errors with a
caret.

The user's frame is the innermost one that is not the builder's, the layouts', the tilers' or
contextlib's.
Looking a line up happens once for each emitted instruction, so it costs a few frame steps and no
``inspect``.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
from pathlib import Path
from types import FrameType

from ..errors import KernelError, Place

_PACKAGE = Path(__file__).parents[1]
_OURS = (*(f"{_PACKAGE / room}/" for room in ("build", "layout", "mma")), contextlib.__file__)


class _Inside(dict[str, bool]):
    """Whether a file is the builder's own, remembered by name."""

    def __missing__(self, file: str) -> bool:
        self[file] = file.startswith(_OURS)
        return self[file]


_INSIDE = _Inside()


def user_frame() -> FrameType | None:
    """The innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _INSIDE[frame.f_code.co_filename]:
        frame = frame.f_back
    return frame


def place() -> Place | None:
    """Where the user's code stands now, with the source text of the expression."""
    frame = user_frame()
    if frame is None:
        return None
    file, line = frame.f_code.co_filename, frame.f_lineno
    text = linecache.getline(file, line, frame.f_globals).rstrip("\n")
    start, last, first, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if start != line or first is None or end is None:
        return Place(file, line, 0, text)
    first = len(text.encode()[:first].decode(errors="ignore"))
    end = len(text.encode()[:end].decode(errors="ignore")) if last == line else len(text)
    return Place(file, line, first + 1, text, max(1, end - first))


def kernel_error(message: str, hint: str = "") -> KernelError:
    """A KernelError at the user's line, to be raised."""
    return KernelError(message, place=place(), hint=hint)
