"""A child process that dies or hangs fails one call; the next call starts a new one."""

from __future__ import annotations

import time

from compare.worker import CallFailure, Worker


def test_a_call_that_raises_dies_or_hangs_fails_alone() -> None:
    with Worker() as worker:
        first = worker.call("os:getpid")
        assert worker.call("math:sqrt", 4.0) == 2.0
        raised = worker.call("math:sqrt", -1.0)
        assert isinstance(raised, CallFailure) and raised.kind == "ValueError"
        assert "Traceback" in raised.trace
        assert worker.call("os:getpid") == first
        assert worker.call("os:_exit", 7) == CallFailure("ProcessDied", "exit code 7")
        assert worker.call("os:getpid") != first
        start = time.perf_counter()
        assert worker.call("time:sleep", 60, seconds=0.2).kind == "TimeoutError"
        assert time.perf_counter() - start < 30
        assert worker.call("math:sqrt", 9.0) == 3.0
