"""Where a warning points."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright
from tilewright.errors import warn

PACKAGE = Path(tilewright.__file__).parent


@pytest.mark.parametrize("name", ["elsewhere.py", f"{PACKAGE}_more/own.py"])
def test_a_warning_points_at_the_first_line_that_is_not_the_package_s(name: str) -> None:
    """One whose folder only begins as the package's does is another's."""
    inside = compile("def inner(): warn('x', UserWarning)", str(PACKAGE / "some.py"), "exec")
    outside = compile("inner()", name, "exec")
    names = {"warn": warn}
    exec(inside, names)
    with pytest.warns(UserWarning, match="x") as message:
        exec(outside, names)
    assert (message[0].filename, message[0].lineno) == (name, 1)
