"""The user's source location while a kernel is traced: for ``.loc`` directives and for errors with
a caret.

The user's frame is the innermost one that is not in the builder, the layouts, the tilers or
contextlib. The look-up runs once for each emitted instruction, so it walks a few frames and avoids
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
    """The current location in the user's code, with the source text of the expression."""
    frame = user_frame()
    return None if frame is None else _location_in(frame, frame.f_lineno, frame.f_lasti)


def _location_in(frame: FrameType, line: int, instruction: int) -> SourceLocation:
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
    """Convert built-in exceptions that the builder's code raises for wrong arguments to KernelError
    at the user's line.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        calls = list(_calls(error.__traceback__))
        users = [i for i, tb in enumerate(calls) if not _INSIDE[tb.tb_frame.f_code.co_filename]]
        if isinstance(error, TilewrightError) or not users or users[-1] + 1 == len(calls):
            raise
        tb, called = calls[users[-1]], calls[users[-1] + 1].tb_frame.f_code.co_name
        message = f"{called} got unsupported arguments: {type(error).__name__}: {error}"
        location = _location_in(tb.tb_frame, tb.tb_lineno, tb.tb_lasti)
        raise KernelError(message, location=location) from error


def _calls(tb: TracebackType | None) -> Iterator[TracebackType]:
    while tb is not None:
        yield tb
        tb = tb.tb_next


def kernel_error(message: str, hint: str = "") -> KernelError:
    """A KernelError at the user's line, for the caller to raise."""
    return KernelError(message, location=current_location(), hint=hint)
