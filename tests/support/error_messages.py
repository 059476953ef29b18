"""``pytest.raises`` for errors that quote a line of source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tilewright.errors import TilewrightError


@contextmanager
def raises_message(
    error: type[Exception] | tuple[type[Exception], ...], pattern: str
) -> Iterator[pytest.ExceptionInfo[TilewrightError]]:
    """Expect an error whose message or hint matches.

    ``pytest.raises(match=…)`` searches the whole text of the error, which quotes the line of the
    kernel. In a table of (kernel, pattern) that line has the pattern, so any message would match.
    """
    with pytest.raises(error) as caught:
        yield caught
    text = f"{caught.value.message}\n{caught.value.hint}"
    assert re.search(pattern, text, re.MULTILINE), f"{pattern!r} is not in {text!r}"
