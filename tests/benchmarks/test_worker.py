"""A process that dies or hangs costs one answer, and the next question gets a new one."""

from __future__ import annotations

import time

from compare.worker import Failure, Worker


def test_what_raises_dies_or_hangs_is_a_failure_and_the_next_is_answered() -> None:
    with Worker() as worker:
        first = worker.ask("os:getpid")
        assert worker.ask("math:sqrt", 4.0) == 2.0
        raised = worker.ask("math:sqrt", -1.0)
        assert isinstance(raised, Failure) and raised.kind == "ValueError"
        assert "Traceback" in raised.trace
        assert worker.ask("os:getpid") == first
        assert worker.ask("os:_exit", 7) == Failure("ProcessDied", "exit code 7")
        assert worker.ask("os:getpid") != first
        start = time.perf_counter()
        assert worker.ask("time:sleep", 60, seconds=0.2).kind == "TimeoutError"
        assert time.perf_counter() - start < 30
        assert worker.ask("math:sqrt", 9.0) == 3.0
