"""The tuner: which configuration is fastest, measured.

Kernels are assembled in parallel while those that are ready have their first heat, each beside the
heuristic's choice. Then the best run in turn, all in every round; who is surely slower than the
leader drops out, and half of the field after each bout, until one is left or the time is over.
Neighbours in time share the chip's clock, so ratios of one round are compared, never times.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ... import gemm, target
from ...errors import ConfigError, CudaError, TilewrightError
from .median_interval import MIN_SAMPLES, MedianInterval
from .tuning_result import TuningKey, TuningResult, digest

BOUT = 8  # rounds
MOST_BOUTS = 24
FIELD = 16  # that go on after the first heats
ASSEMBLERS = 2  # threads: tracing holds the interpreter, which measuring needs, too
HEATS = 0.6  # of the time, at most, for assembling and first heats

Times = list[list[float]]
Watch = Callable[[int, int, str], object]  # how much is done, of how much, and of what


class Benchmark(Protocol):
    """Where configurations are measured: ``run.bench.Benchmark``."""

    def assemble(self, config: gemm.AnyConfig) -> Any:
        """The configuration, to be asked about; called in several threads."""

    def check(self, entry: Any) -> bytes | None:
        """The same for all that compute the same; None for what is known to be wrong."""

    def times(self, entries: Sequence[Any], rounds: int) -> Times:
        """Microseconds a call, ``[entry][round]``, one right after the other."""


class ConfigTiming(NamedTuple):
    """A configuration's time in microseconds, and how many times as long it takes as the chosen."""

    config: gemm.AnyConfig
    us: MedianInterval
    ratio: MedianInterval


@dataclass(frozen=True)
class TuningOutcome:
    """What was found: the ``chosen`` and the ``heuristic``'s, all that were measured (the best
    first), what ``failed`` and why, how long it took in ``seconds``, and why it ended.
    """

    chosen: ConfigTiming
    heuristic: ConfigTiming
    standings: tuple[ConfigTiming, ...]
    failed: tuple[tuple[gemm.AnyConfig, str], ...]
    seconds: float
    ended: str

    @property
    def gain(self) -> MedianInterval:
        """How many times as long the heuristic's choice takes."""
        return self.heuristic.ratio

    def result(self, problem: gemm.Problem, device: target.DeviceSpec, driver: str) -> TuningResult:
        """The record to be kept."""
        config, us, _ = self.chosen
        usual = str(self.heuristic.config), self.heuristic.us.median
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        kernel, key = digest(problem, config), TuningKey.of(problem, device)
        return TuningResult(*key, kernel, str(config), us.median, us.margin, *usual, now, driver)


def tune(
    bench: Benchmark,
    configs: Sequence[gemm.AnyConfig],
    budget: float,
    *,
    watch: Watch = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> TuningOutcome:
    """Measure configurations for about ``budget`` seconds; the first is the heuristic's choice,
    which stays where none is surely faster.

    Ctrl-C ends it, and what was found by then is the outcome. Raises what the heuristic's choice
    raises, and ConfigError where its result is wrong.
    """
    search = _Search(bench, tuple(dict.fromkeys(configs)), clock, clock() + budget, watch)
    search.run(budget)
    return search.outcome()


@dataclass
class _Search:
    bench: Benchmark
    configs: tuple[gemm.AnyConfig, ...]
    clock: Callable[[], float]
    deadline: float
    watch: Watch
    ended: str = ""
    entries: dict[gemm.AnyConfig, Any] = field(default_factory=dict)
    bits: dict[gemm.AnyConfig, bytes] = field(default_factory=dict)
    failed: dict[gemm.AnyConfig, str] = field(default_factory=dict)
    heats: dict[gemm.AnyConfig, tuple[list[float], list[float]]] = field(default_factory=dict)
    bouts: dict[gemm.AnyConfig, list[float]] = field(default_factory=dict)

    @property
    def heuristic(self) -> gemm.AnyConfig:
        return self.configs[0]

    def run(self, budget: float) -> None:
        self.start = self.clock()
        try:
            with _assembling(self.bench, self.configs) as futures:
                self._first(futures[self.heuristic])
                self._heats(futures, self.deadline - (1 - HEATS) * budget)
            self._judge()
            self._finals()
        except TilewrightError as error:  # as of a GPU that a kernel has left in no good state
            if not self.bouts:
                raise
            self.ended = str(error)
        except KeyboardInterrupt:
            if self.heuristic not in self.heats:
                raise
            self.ended = "stopped"
            self._judge()

    # --- first heats

    def _first(self, future: Future[Any]) -> None:
        """The heuristic's choice, which all others are compared with."""
        config = self.heuristic
        self.entries[config] = entry = future.result()
        bits = self.bench.check(entry)
        if bits is None:
            raise ConfigError(f"{config}, the heuristic's choice, gives wrong results")
        self.bits[config] = bits
        (own,) = self.bench.times([entry], MIN_SAMPLES)
        self.heats[config] = own, own

    def _heats(self, futures: dict[gemm.AnyConfig, Future[Any]], end: float) -> None:
        names = {future: config for config, future in futures.items()}
        try:
            for future in as_completed(names, max(0.0, end - self.clock())):
                if names[future] != self.heuristic:
                    self._heat(names[future], future)
                done = len(self.heats) + len(self.failed)
                self.watch(done, len(self.configs), "first heats")
                if self.clock() > end:
                    break
        except TimeoutError:
            pass

    def _heat(self, config: gemm.AnyConfig, future: Future[Any]) -> None:
        try:
            entry = future.result()
            bits = self.bench.check(entry)
            if bits is None:
                self.failed[config] = "its result is wrong"
                return
            usual, own = self.bench.times([self.entries[self.heuristic], entry], MIN_SAMPLES)
        except TilewrightError as error:
            if isinstance(error, CudaError) and error.fatal:
                error.message = f"{config}: {error.message}"
                raise
            self.failed[config] = str(error)
            return
        self.entries[config], self.bits[config] = entry, bits
        self.heats[config] = usual, own

    def _judge(self) -> None:
        """All exact sums are the same: whose bits are not most others' is wrong."""
        (right, _), *_ = Counter(self.bits.values()).most_common(1)
        if self.bits[self.heuristic] != right:
            raise ConfigError(f"{self.heuristic}, the heuristic's choice, gives other bits")
        for config in [x for x, bits in self.bits.items() if bits != right]:
            del self.bits[config], self.heats[config]
            self.failed[config] = "its result is wrong: other bits than the others'"

    # --- in turn

    def _finals(self) -> None:
        field, self.ended = self._best(FIELD), "sure"
        for bout in range(MOST_BOUTS):
            if len(field) == 1:
                return
            if self.clock() > self.deadline:
                self.ended = "time over"
                return
            self.watch(bout, MOST_BOUTS, "in turn")
            self._bout(dict.fromkeys([self.heuristic, *field]))
            field = self._left(field, max(2, FIELD >> (bout + 1)))
        self.ended = "a tie"

    def _best(self, most: int) -> list[gemm.AnyConfig]:
        score = {
            x: MedianInterval.of(_ratios(own, usual)) for x, (usual, own) in self.heats.items()
        }
        return sorted(score, key=lambda x: score[x].median)[:most]

    def _bout(self, field: dict[gemm.AnyConfig, None]) -> None:
        taken = self.bench.times([self.entries[x] for x in field], BOUT)
        for config, own in zip(field, taken, strict=True):
            self.bouts.setdefault(config, []).extend(own)

    def _left(self, field: list[gemm.AnyConfig], most: int) -> list[gemm.AnyConfig]:
        """The leader, and who may yet be as fast, the best of them."""
        order = sorted(field, key=lambda x: MedianInterval.of(self.bouts[x]).median)
        lead = self.bouts[order[0]]
        close = [x for x in order[1:] if MedianInterval.of(_ratios(self.bouts[x], lead)).low <= 1]
        return [order[0], *close][:most]

    # --- the outcome

    def outcome(self) -> TuningOutcome:
        usual = self.heuristic
        last = max(map(len, self.bouts.values()), default=0)
        field = [x for x, own in self.bouts.items() if len(own) == last] or self._best(1)
        chosen = min(field, key=lambda x: MedianInterval.of(self._pair(x, usual)[0]).median)
        if MedianInterval.of(_ratios(*reversed(self._pair(chosen, usual)))).low <= 1:
            chosen = usual
        standings = {x: self._standing(x, chosen) for x in self.heats}
        order = sorted(standings.values(), key=lambda s: (s.config != chosen, s.ratio.median))
        failed, seconds = tuple(self.failed.items()), self.clock() - self.start
        given = standings[chosen], standings[usual], tuple(order), failed, seconds
        return TuningOutcome(*given, self.ended)

    def _standing(self, config: gemm.AnyConfig, chosen: gemm.AnyConfig) -> ConfigTiming:
        own, other = self._pair(config, chosen)
        return ConfigTiming(config, MedianInterval.of(own), MedianInterval.of(_ratios(own, other)))

    def _pair(self, one: gemm.AnyConfig, other: gemm.AnyConfig) -> tuple[list[float], list[float]]:
        """Times of two in the same rounds, as many as there are; where there are none, the second's
        are made from what both were beside the heuristic's choice.
        """
        if one in self.bouts and other in self.bouts:
            pairs = zip(self.bouts[one], self.bouts[other], strict=False)
            first, second = (list(x) for x in zip(*pairs, strict=True))
            return first, second
        usual, own = self.heats[one]
        share = MedianInterval.of(_ratios(self.heats[other][1], self.heats[other][0])).median
        return own, [us * share for us in usual]


def _ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


@contextmanager
def _assembling(
    bench: Benchmark, configs: Sequence[gemm.AnyConfig]
) -> Iterator[dict[gemm.AnyConfig, Future[Any]]]:
    """All are being assembled, in their order; what is not at the end is left."""
    pool = ThreadPoolExecutor(ASSEMBLERS)
    try:
        yield {config: pool.submit(bench.assemble, config) for config in configs}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
