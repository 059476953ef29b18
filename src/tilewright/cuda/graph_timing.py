"""Timing on the GPU's clock: events around replays of a CUDA graph.

A graph's kernels run back to back, so that the host overhead is not measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .driver import call, cu
from .gpu import Gpu, gpu
from .stream import stream_handle

Work = Callable[[int], object]  # starts work on the stream with this handle


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds per call, one sample for each replay."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def margin(self) -> float:
        """Half the interquartile range."""
        if len(self.samples) < 2:
            return float("inf")
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2

    def __str__(self) -> str:
        return f"{self.median:.2f} ± {self.margin:.2f} µs"


class Stream:
    """A new non-blocking stream; close it, or use ``with``."""

    def __init__(self, owner: Gpu) -> None:
        self._gpu = owner
        flags = cu().CUstream_flags.CU_STREAM_NON_BLOCKING
        with owner.active():
            self.handle = int(call("cuStreamCreate", int(flags)))

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def close(self) -> None:
        """Destroy the stream when its work has completed."""
        handle, self.handle = self.handle, 0
        if handle:
            with self._gpu.active():
                call("cuStreamDestroy", handle)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Graph:
    """A CUDA graph of what ``work`` launches, captured once; ``replay`` launches it again."""

    def __init__(self, owner: Gpu, work: Work, calls: int = 1) -> None:
        self._gpu = owner
        with owner.active(), Stream(owner) as stream:
            graph = _capture(stream.handle, work, calls)
            try:
                self._exec: Any = call(
                    "cuGraphInstantiate", graph, 0, doing="instantiating a CUDA graph"
                )
            finally:
                cu().cuGraphDestroy(graph)

    def replay(self, stream: Any = None) -> None:
        """Launch the graph on a stream."""
        with self._gpu.active():
            call("cuGraphLaunch", self._exec, stream_handle(stream), doing="replaying a CUDA graph")

    def close(self) -> None:
        """Destroy the graph; calling twice is harmless."""
        executable, self._exec = self._exec, None
        if executable is not None:
            with self._gpu.active():
                call("cuGraphExecDestroy", executable)


def _capture(stream: int, work: Work, calls: int) -> Any:
    mode = cu().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    call("cuStreamBeginCapture", stream, mode, doing="beginning a capture")
    try:
        for _ in range(calls):
            work(stream)
    except BaseException:
        cu().cuStreamEndCapture(stream)
        raise
    return call("cuStreamEndCapture", stream, doing="ending a capture")


def time_us(
    work: Work,
    *,
    owner: Gpu | None = None,
    calls: int = 10,
    replays: int = 20,
    graph: bool = True,
) -> Timing:
    """Time ``work(stream)``: each of ``replays`` samples is the mean of ``calls`` calls in a row.

    ``graph=False`` launches the calls directly and includes host overhead; use it for work that
    can't be captured.
    """
    owner = owner or gpu()
    with owner.active(), ExitStack() as stack:
        stream = stack.enter_context(Stream(owner)).handle
        for _ in range(2):
            work(stream)
        owner.wait(stream)
        replay = _direct(work, calls, stream)
        if graph:
            captured = Graph(owner, work, calls)
            stack.callback(captured.close)
            replay = lambda: captured.replay(stream)  # noqa: E731
            replay()
            owner.wait(stream)
        first, last = (_event(stack) for _ in range(2))
        times = [_elapsed(replay, first, last, stream) for _ in range(replays)]
        return Timing(tuple(milliseconds * 1000 / calls for milliseconds in times))


def time_interleaved(
    graphs: Sequence[Graph], rounds: int, *, owner: Gpu | None = None, warm: int = 1
) -> list[list[float]]:
    """Microseconds of each graph's replays, ``[graph][round]``, without the ``warm`` first rounds.

    In each round every graph is replayed once. All replays are queued back to back, with only
    events between them. The order alternates between rounds, so that no graph always follows the
    same other graph.
    """
    owner = owner or gpu()
    order = list(range(len(graphs)))
    queue = [i for n in range(warm + rounds) for i in (order[::-1] if n % 2 else order)]
    with owner.active(), ExitStack() as stack:
        stream = stack.enter_context(Stream(owner)).handle
        events = [_event(stack) for _ in range(len(queue) + 1)]
        call("cuEventRecord", events[0], stream)
        for i, event in zip(queue, events[1:], strict=True):
            graphs[i].replay(stream)
            call("cuEventRecord", event, stream)
        call("cuEventSynchronize", events[-1], doing="timing")
        times: list[list[float]] = [[] for _ in graphs]
        for i, first, last in zip(queue, events, events[1:], strict=False):
            times[i].append(float(call("cuEventElapsedTime", first, last)) * 1000)
    return [graph_times[warm:] for graph_times in times]


def _direct(work: Work, calls: int, stream: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(calls):
            work(stream)

    return run


def _event(stack: ExitStack) -> Any:
    event = call("cuEventCreate", 0)
    stack.callback(call, "cuEventDestroy", event)
    return event


def _elapsed(replay: Callable[[], object], first: Any, last: Any, stream: int) -> float:
    """Milliseconds of one replay, between two events."""
    call("cuEventRecord", first, stream)
    replay()
    call("cuEventRecord", last, stream)
    call("cuEventSynchronize", last, doing="timing")
    return float(call("cuEventElapsedTime", first, last))
