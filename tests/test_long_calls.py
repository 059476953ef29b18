"""Progress of long calls: silent in scripts, shown by the registered display otherwise."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import lazy_imports, long_calls

Log = list[Any]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """What is displayed, in a session that is interactive."""
    shown: Log = []

    @contextmanager
    def display(what: str) -> Iterator[Callable[..., None]]:
        shown.append(what)
        yield lambda *state: shown.append(state)
        shown.append("closed")

    before = lazy_imports._PROVIDED["progress_display"]
    monkeypatch.setenv("TILEWRIGHT_PROGRESS", "on")
    monkeypatch.setattr(long_calls, "DELAY", 0.05)
    lazy_imports.provide("progress_display", lambda: display)
    yield shown
    lazy_imports.provide("progress_display", before)


def wait_for(log: Log) -> None:
    for _ in range(100):
        if log:
            return
        time.sleep(0.02)


def test_a_short_call_shows_nothing(log: Log) -> None:
    with long_calls.long_call("short") as update:
        assert update is not None
        update(1, 2)
    assert log == []


def test_a_long_call_shows_what_it_does(log: Log) -> None:
    with long_calls.long_call("compiling") as update, long_calls.long_call("inner") as inner:
        assert update is not None and inner is None
        update(1, 4)
        wait_for(log)
        update(2, 4)
    assert log == ["compiling", (1, 4), (2, 4), "closed"]


def test_scripts_are_silent(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEWRIGHT_PROGRESS")
    assert not hasattr(sys, "ps1")
    with long_calls.long_call("script") as update:
        assert update is None
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # no terminal
    assert not long_calls.interactive()


@pytest.mark.vm
def test_a_product_on_the_cpu_shows_its_ctas(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_calls, "DELAY", 0.0)
    a = np.ones((512, 256), np.float16)
    for _ in range(3):
        tilewright.matmul(a, a.T, device="vm")
    assert any("on the CPU" in str(x) for x in log) and log[-1] == "closed"
