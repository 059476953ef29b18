"""``every_row`` checks every row, and says which fail; ``slow_but`` marks rows."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from rows import LINES, SHOWN, check_rows, every_row, slow_but


def failure(test: Any, **fixtures: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        test(**fixtures)
    return str(caught.value)


def test_each_row_that_fails_is_named_with_its_message() -> None:
    seen = []

    @every_row("x", range(5))
    @every_row(("name", "y"), lambda: [("a", 1), ("b", 2)], ids=["one", "two"])
    def check(x: int, name: str, y: int) -> None:
        seen.append((x, name, y))
        assert x % 2 == 0, f"{x} is odd"
        if y == 2 and x == 4:
            raise ValueError("no\n" * 50)

    first, *message = failure(check).splitlines()
    assert len(seen) == 10 and first == "5 of 10 rows fail:"
    rows = [line for line in message if not line.startswith(" ")]
    assert [row.split(":")[0] for row in rows] == ["1-one", "1-two", "3-one", "3-two", "4-two"]
    assert re.fullmatch(r"1-one: test_rows.py:\d+: 1 is odd", rows[0])
    assert re.fullmatch(r"4-two: test_rows.py:\d+: ValueError: no", rows[4])
    assert message[-1].strip() == "…" and len(message) - message.index(rows[4]) == LINES + 1


def test_of_many_that_fail_the_last_are_told_by_name() -> None:
    message = failure(every_row("x", range(SHOWN + 3))(lambda x: pytest.fail("none is right")))
    assert message.count("none is right") == SHOWN
    assert message.endswith(f"and {SHOWN} {SHOWN + 1} {SHOWN + 2}")


def test_a_table_of_no_rows_fails() -> None:
    assert "no rows" in failure(every_row("x", [])(lambda x: None))


def test_a_time_limit_ends_the_loop() -> None:
    seen = []

    def check(x: int) -> None:
        seen.append(x)
        pytest.fail("Timeout (>1.0s) from pytest-timeout.")

    with pytest.raises(AssertionError, match="time is up in row 1"):
        check_rows([("a", {"x": 1}), ("b", {"x": 2})], check)
    assert seen == [1]


def test_what_is_no_row_remains_a_fixture(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    @every_row("x", ["a", "b"], ids=str.upper)
    def check(tmp_path: Any, x: str, monkeypatch: Any, capsys: Any) -> None:
        assert not any(tmp_path.iterdir()) and not hasattr(check, "found")
        (tmp_path / "file").touch()
        monkeypatch.setattr(check, "found", True, raising=False)
        assert not capsys.readouterr().out
        print(x)  # noqa: T201

    assert list(inspect.signature(check).parameters) == ["tmp_path", "monkeypatch", "capsys"]
    check(tmp_path=tmp_path, monkeypatch=monkeypatch, capsys=capsys)


def test_rows_that_are_not_quick_are_slow() -> None:
    made = slow_but(("a", (1, "x")), ["a", "b", (1, "x"), (1, "y")])
    assert made[::2] == ["a", (1, "x")]
    assert [row.values for row in made[1::2]] == [("b",), (1, "y")]
    assert all([mark.name for mark in row.marks] == ["slow"] for row in made[1::2])
