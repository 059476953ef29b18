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
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from ..errors import KernelError, SourceLocation, TilewrightError

_PACKAGE = Path(__file__).parents[1]
_ROOMS = "builder", "layout", "mma", "ptx"
_OURS = (*(f"{_PACKAGE / room}/" for room in _ROOMS), contextlib.__file__)


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


def current_location() -> SourceLocation | None:
    """Where the user's code stands now, with the source text of the expression."""
    frame = user_frame()
    return None if frame is None else _place_in(frame, frame.f_lineno, frame.f_lasti)


def _place_in(frame: FrameType, line: int, instruction: int) -> SourceLocation:
    file = frame.f_code.co_filename
    text = linecache.getline(file, line, frame.f_globals).rstrip("\n")
    start, last, first, end = list(frame.f_code.co_positions())[instruction // 2]
    if start != line or first is None or end is None:
        return SourceLocation(file, line, 0, text)
    first = len(text.encode()[:first].decode(errors="ignore"))
    end = len(text.encode()[:end].decode(errors="ignore")) if last == line else len(text)
    return SourceLocation(file, line, first + 1, text, max(1, end - first))


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """What the builder's own code raises while a kernel is traced is the user's mistake: a
    KernelError at the user's line.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        calls = list(_calls(error.__traceback__))
        users = [i for i, tb in enumerate(calls) if not _INSIDE[tb.tb_frame.f_code.co_filename]]
        if isinstance(error, TilewrightError) or not users or users[-1] + 1 == len(calls):
            raise
        tb, called = calls[users[-1]], calls[users[-1] + 1].tb_frame.f_code.co_name
        what = f"{called} can't take what it was given: {type(error).__name__}: {error}"
        where = _place_in(tb.tb_frame, tb.tb_lineno, tb.tb_lasti)
        raise KernelError(what, location=where) from error


def _calls(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def kernel_error(message: str, hint: str = "") -> KernelError:
    """A KernelError at the user's line, to be raised."""
    return KernelError(message, location=current_location(), hint=hint)
