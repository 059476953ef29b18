"""One test that checks every row of a table and names each row that fails.

    @every_row("opcode", lambda: WILD.read_text().split())
    def test_opcodes_in_the_wild_have_a_row(opcode): ...

``every_row`` takes what ``pytest.mark.parametrize`` takes, or a function that returns the rows,
which is called when the test runs, so that collection stays cheap. Several of them on a test make
a product. It is for tables of many rows that are quick to check; parametrize where a row needs a
mark or a time limit of its own. ``monkeypatch``, ``tmp_path`` and ``capsys`` are new for each row.

    @every_row("case", cases, parts=8)      # every eighth row; the others are seven slow tests

``slow_but`` marks rows of ``pytest.mark.parametrize``.
"""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

SHOWN = 20  # failing rows that are listed with their messages
LINES = 8  # of such a message
NAMES = 2000  # characters for the names of the others

Row = tuple[str, dict[str, Any]]  # its name, its arguments
Test = Callable[..., None]


def every_row(
    names: str | Sequence[str],
    rows: Iterable[Any] | Callable[[], Iterable[Any]],
    ids: Any = None,
    parts: int = 1,
) -> Callable[[Test], Test]:
    """Make the test of one row a test of all of them. ``ids``: names of the rows, or a function
    that names a value. Of ``parts`` > 1 the first, every ``parts``-th row, is a test of its own,
    and each of the others is one that is slow.
    """
    split = names.replace(",", " ").split() if isinstance(names, str) else names

    def decorate(test: Test) -> Test:
        axes = [_Axis(tuple(split), rows, ids), *getattr(test, "axes", ())]
        check: Test = getattr(test, "check", test)

        @functools.wraps(check)
        def every(part: int = 0, **fixtures: Any) -> None:
            cases = islice(product(*(axis.cases() for axis in axes)), part, None, parts)
            check_rows(map(_joined, cases), functools.partial(_with_own, check, fixtures))

        given = {name for axis in axes for name in axis.names}
        signature = inspect.signature(check)
        rest = [p for name, p in signature.parameters.items() if name not in given]
        every.__dict__.update(axes=axes, check=check)
        if parts > 1:
            rest.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))
            slow = [pytest.param(n, marks=pytest.mark.slow) for n in range(1, parts)]
            pytest.mark.parametrize("part", [0, *slow])(every)
        every.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return every

    return decorate


def slow_but(quick: Collection[Any], rows: Iterable[Any]) -> list[Any]:
    """The rows of a ``parametrize``, of which those that are not in ``quick`` are slow. A row that
    is a tuple has the values of several arguments.
    """
    split = [(row, row if isinstance(row, tuple) else (row,)) for row in rows]
    slow = pytest.mark.slow
    return [r if r in quick else pytest.param(*values, marks=slow) for r, values in split]


def check_rows(rows: Iterable[Row], check: Callable[..., object]) -> None:
    """Call ``check(**arguments)`` for each row; a single AssertionError tells of all that fail."""
    count, failed = 0, []
    for name, arguments in rows:
        count += 1
        try:
            check(**arguments)
        except (Exception, pytest.fail.Exception) as error:
            if "pytest-timeout" in str(error):
                raise AssertionError(
                    f"time is up in row {count}: {_report_lines(failed)}"
                ) from error
            failed.append((name, error))
    assert count, "the table has no rows"
    if failed:
        report = f"{len(failed)} of {count} rows fail:\n{_report_lines(failed)}"
        raise AssertionError(report) from failed[0][1]


class _Axis(NamedTuple):
    """The arguments of one ``every_row``."""

    names: tuple[str, ...]
    rows: Any
    ids: Any

    def cases(self) -> list[Row]:
        rows = list(self.rows() if callable(self.rows) else self.rows)
        named = [None] * len(rows) if callable(self.ids) or self.ids is None else list(self.ids)
        return [self._case(i, *case) for i, case in enumerate(zip(rows, named, strict=True))]

    def _case(self, index: int, row: Any, name: Any) -> Row:
        values = (row,) if len(self.names) == 1 else tuple(row)
        arguments = dict(zip(self.names, values, strict=True))
        if name is None:
            say = self.ids if callable(self.ids) else lambda value: None
            parts = [say(v) or _plain(n, v, index) for n, v in arguments.items()]
            name = "-".join(map(str, parts))
        return str(name), arguments


def _plain(name: str, value: Any, index: int) -> str:
    if isinstance(value, str | int | float | bool | None):
        return str(value)
    return getattr(value, "__name__", None) or f"{name}{index}"


def _joined(cases: Sequence[Row]) -> Row:
    """A row of the product."""
    arguments = {name: value for _, given in cases for name, value in given.items()}
    return "-".join(name for name, _ in cases), arguments


def _with_own(check: Test, fixtures: dict[str, Any], **arguments: Any) -> None:
    with _fresh(fixtures) as own:
        check(**own, **arguments)


@contextmanager
def _fresh(fixtures: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fixtures as the first row would find them."""
    own = dict(fixtures)
    if "tmp_path" in own:
        whole: Path = own["tmp_path"]
        own["tmp_path"] = whole / str(sum(1 for _ in whole.iterdir()))
        own["tmp_path"].mkdir()
    if "capsys" in own:
        own["capsys"].readouterr()
    if "monkeypatch" not in own:
        yield own
        return
    with own["monkeypatch"].context() as own["monkeypatch"]:
        yield own


def _report_lines(failed: Sequence[tuple[str, BaseException]]) -> str:
    report_lines = [f"{name}: {_message(error)}" for name, error in failed[:SHOWN]]
    if rest := " ".join(name for name, _ in failed[SHOWN:]):
        report_lines.append(f"and {rest}" if len(rest) <= NAMES else f"and {rest[:NAMES]} …")
    return "\n".join(report_lines)


def _message(error: BaseException) -> str:
    """Where in the test a row failed, and why."""
    frames = traceback.extract_tb(error.__traceback__)
    place = next((f for f in reversed(frames) if Path(f.filename).name.startswith("test_")), None)
    lines = (str(error) or (frames[-1].line if frames else "") or "").splitlines()
    kind = "" if type(error) is AssertionError else f"{type(error).__name__}: "
    where = f"{Path(place.filename).name}:{place.lineno}: " if place else ""
    return where + kind + "\n    ".join([*lines[:LINES], *["…"] * (len(lines) > LINES)])
