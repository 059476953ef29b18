"""Timing on the GPU's own clock: events around replays of a CUDA graph.

A graph takes the host out of the measurement: its kernels run back to back, whatever Python costs.
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

Work = Callable[[int], object]  # starts work on the stream whose handle it is given


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds a call: one sample for each replay."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def margin(self) -> float:
        """Half the distance between the quartiles: how far a repeated median may be off."""
        if len(self.samples) < 2:
            return float("inf")
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2

    def __str__(self) -> str:
        return f"{self.median:.2f} ± {self.margin:.2f} µs"


class Stream:
    """A stream of our own that does not wait for the default stream; close it, or use ``with``."""

    def __init__(self, owner: Gpu) -> None:
        self._gpu = owner
        flags = cu().CUstream_flags.CU_STREAM_NON_BLOCKING
        with owner.active():
            self.handle = int(call("cuStreamCreate", int(flags)))

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def close(self) -> None:
        """Destroy it once its work is done."""
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
    """What ``work`` started on a stream, captured once; ``replay`` starts it all again."""

    def __init__(self, owner: Gpu, work: Work, calls: int = 1) -> None:
        self._gpu = owner
        with owner.active(), Stream(owner) as stream:
            graph = _capture(stream.handle, work, calls)
            try:
                self._exec: Any = call("cuGraphInstantiate", graph, 0, doing="making a CUDA graph")
            finally:
                cu().cuGraphDestroy(graph)

    def replay(self, stream: Any = None) -> None:
        """Start the captured work on a stream."""
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
    """Time ``work(stream)``: ``calls`` of them in a row, ``replays`` times; microseconds a call.

    ``graph=False`` times the calls as they come, host cost included: for what can't be captured.
    """
    owner = owner or gpu()
    with owner.active(), ExitStack() as stack:
        stream = stack.enter_context(Stream(owner)).handle
        for _ in range(2):
            work(stream)
        owner.wait(stream)
        again = _direct(work, calls, stream)
        if graph:
            captured = Graph(owner, work, calls)
            stack.callback(captured.close)
            again = lambda: captured.replay(stream)  # noqa: E731
            again()
            owner.wait(stream)
        first, last = (_event(stack) for _ in range(2))
        return Timing(
            tuple(_once(again, first, last, stream) * 1000 / calls for _ in range(replays))
        )


def in_turn(
    graphs: Sequence[Graph], rounds: int, *, owner: Gpu | None = None, warm: int = 1
) -> list[list[float]]:
    """Microseconds that each graph's replays took, ``[graph][round]``.

    All is queued one behind the other with nothing between but events. The order is reversed from
    round to round, so that of each pair both come after the same one; ``warm`` rounds don't count.
    """
    owner = owner or gpu()
    order = list(range(len(graphs)))
    queue = [who for n in range(warm + rounds) for who in (order[::-1] if n % 2 else order)]
    with owner.active(), ExitStack() as stack:
        stream = stack.enter_context(Stream(owner)).handle
        events = [_event(stack) for _ in range(len(queue) + 1)]
        call("cuEventRecord", events[0], stream)
        for who, event in zip(queue, events[1:], strict=True):
            graphs[who].replay(stream)
            call("cuEventRecord", event, stream)
        call("cuEventSynchronize", events[-1], doing="timing")
        times: list[list[float]] = [[] for _ in graphs]
        for who, first, last in zip(queue, events, events[1:], strict=False):
            times[who].append(float(call("cuEventElapsedTime", first, last)) * 1000)
    return [own[warm:] for own in times]


def _direct(work: Work, calls: int, stream: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(calls):
            work(stream)

    return run


def _event(stack: ExitStack) -> Any:
    event = call("cuEventCreate", 0)
    stack.callback(call, "cuEventDestroy", event)
    return event


def _once(again: Callable[[], object], first: Any, last: Any, stream: int) -> float:
    """Milliseconds between two events around one run."""
    call("cuEventRecord", first, stream)
    again()
    call("cuEventRecord", last, stream)
    call("cuEventSynchronize", last, doing="timing")
    return float(call("cuEventElapsedTime", first, last))
