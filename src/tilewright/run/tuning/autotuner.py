"""The autotuner: finds the fastest configuration by measurement, in two phases.

Qualification: kernels are assembled in parallel, and each assembled candidate is timed together
with the heuristic's choice. Finals: the best candidates are timed interleaved. After each stage the
candidates that are significantly slower than the leader are dropped, and the field is halved,
until one is left or the time limit is reached. The GPU's clock frequency drifts, so only ratios of
times from the same round are compared.
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
from ...long_calls import long_call
from .median_interval import MIN_SAMPLES, MedianInterval
from .tuning_result import TuningKey, TuningResult, digest

STAGE_ROUNDS = 8
MAX_STAGES = 24
FINALISTS = 16
ASSEMBLERS = 2  # threads; tracing holds the GIL, which measuring needs too
QUALIFICATION_SHARE = 0.6  # of the time limit, at most, for assembling and qualification

Times = list[list[float]]
Watch = Callable[[int, int, str], object]  # steps done, steps in total, name of the phase


class Benchmark(Protocol):
    """What measures configurations: ``config_benchmark.ConfigBenchmark``."""

    def assemble(self, config: gemm.AnyConfig) -> Any:
        """The assembled configuration, an entry for ``check`` and ``times``. Thread-safe."""

    def check(self, entry: Any) -> bytes | None:
        """A digest of the result's bits; None if the result is wrong."""

    def times(self, entries: Sequence[Any], rounds: int) -> Times:
        """Microseconds per call, ``[entry][round]``; the entries are interleaved."""


class ConfigTiming(NamedTuple):
    """A configuration's time in microseconds, and its ratio to the chosen one's time."""

    config: gemm.AnyConfig
    us: MedianInterval
    ratio: MedianInterval


@dataclass(frozen=True)
class TuningOutcome:
    """The result of a search: the ``chosen`` configuration, the ``heuristic``'s choice, the
    ``timings`` of all measured candidates (the best first), those that ``failed`` and why, the
    duration in ``seconds``, and why the search ended.
    """

    chosen: ConfigTiming
    heuristic: ConfigTiming
    timings: tuple[ConfigTiming, ...]
    failed: tuple[tuple[gemm.AnyConfig, str], ...]
    seconds: float
    ended: str

    @property
    def gain(self) -> MedianInterval:
        """The speedup over the heuristic's choice."""
        return self.heuristic.ratio

    def result(self, problem: gemm.Problem, device: target.DeviceSpec, driver: str) -> TuningResult:
        """The record for the database."""
        config, us, _ = self.chosen
        heuristic = str(self.heuristic.config), self.heuristic.us.median
        now = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        kernel, key = digest(problem, config, device), TuningKey.of(problem, device)
        return TuningResult(
            *key, kernel, str(config), us.median, us.margin, *heuristic, now, driver
        )


def tune(
    bench: Benchmark,
    configs: Sequence[gemm.AnyConfig],
    budget: float,
    *,
    watch: Watch | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TuningOutcome:
    """Measure configurations for about ``budget`` seconds.

    The first configuration is the heuristic's choice; it is chosen unless another one is
    significantly faster. Ctrl-C ends the search, and the outcome has what was measured by then.
    Raises the errors of the heuristic's choice, and ConfigError if its result is wrong.
    """
    with long_call("autotuning") as update:
        shown = watch or update or (lambda *_: None)
        search = _Search(bench, tuple(dict.fromkeys(configs)), clock, clock() + budget, shown)
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
    # Times of the heuristic's choice and of the configuration, measured together.
    qualifying: dict[gemm.AnyConfig, tuple[list[float], list[float]]] = field(default_factory=dict)
    finals: dict[gemm.AnyConfig, list[float]] = field(default_factory=dict)

    @property
    def heuristic(self) -> gemm.AnyConfig:
        return self.configs[0]

    def run(self, budget: float) -> None:
        self.start = self.clock()
        try:
            with _assembling(self.bench, self.configs) as futures:
                self._measure_heuristic(futures[self.heuristic])
                self._qualify(futures, self.deadline - (1 - QUALIFICATION_SHARE) * budget)
            self._compare_bits()
            self._run_finals()
        except TilewrightError as error:  # for example, a kernel's fault has ended the context
            if not self.finals:
                raise
            self.ended = str(error)
        except KeyboardInterrupt:
            if self.heuristic not in self.qualifying:
                raise
            self.ended = "stopped"
            self._compare_bits()

    # --- qualification

    def _measure_heuristic(self, future: Future[Any]) -> None:
        """Measure the heuristic's choice, which all others are compared with."""
        config = self.heuristic
        self.entries[config] = entry = future.result()
        bits = self.bench.check(entry)
        if bits is None:
            raise ConfigError(f"{config}, the heuristic's choice, gives wrong results")
        self.bits[config] = bits
        (times,) = self.bench.times([entry], MIN_SAMPLES)
        self.qualifying[config] = times, times

    def _qualify(self, futures: dict[gemm.AnyConfig, Future[Any]], end: float) -> None:
        names = {future: config for config, future in futures.items()}
        try:
            for future in as_completed(names, max(0.0, end - self.clock())):
                if names[future] != self.heuristic:
                    self._qualify_one(names[future], future)
                done = len(self.qualifying) + len(self.failed)
                self.watch(done, len(self.configs), "qualification")
                if self.clock() > end:
                    break
        except TimeoutError:
            pass

    def _qualify_one(self, config: gemm.AnyConfig, future: Future[Any]) -> None:
        try:
            entry = future.result()
            bits = self.bench.check(entry)
            if bits is None:
                self.failed[config] = "its result is wrong"
                return
            reference, times = self.bench.times([self.entries[self.heuristic], entry], MIN_SAMPLES)
        except TilewrightError as error:
            if isinstance(error, CudaError) and error.fatal:
                error.message = f"{config}: {error.message}"
                raise
            self.failed[config] = str(error)
            return
        self.entries[config], self.bits[config] = entry, bits
        self.qualifying[config] = reference, times

    def _compare_bits(self) -> None:
        """Fail configurations whose bits differ from the majority's: exact sums are all equal."""
        (right, _), *_ = Counter(self.bits.values()).most_common(1)
        if self.bits[self.heuristic] != right:
            raise ConfigError(
                f"{self.heuristic}, the heuristic's choice, gives other bits than most"
            )
        for config in [x for x, bits in self.bits.items() if bits != right]:
            del self.bits[config], self.qualifying[config]
            self.failed[config] = "its result is wrong: other bits than most others"

    # --- finals

    def _run_finals(self) -> None:
        field, self.ended = self._best(FINALISTS), "one candidate left"
        for stage in range(MAX_STAGES):
            if len(field) == 1:
                return
            if self.clock() > self.deadline:
                self.ended = "time limit"
                return
            self.watch(stage, MAX_STAGES, "finals")
            self._measure(dict.fromkeys([self.heuristic, *field]))
            field = self._survivors(field, max(2, FINALISTS >> (stage + 1)))
        self.ended = "no significant difference"

    def _best(self, count: int) -> list[gemm.AnyConfig]:
        """The configurations with the best ratio to the heuristic's choice in qualification."""
        score = {
            x: MedianInterval.of(_ratios(times, reference))
            for x, (reference, times) in self.qualifying.items()
        }
        return sorted(score, key=lambda x: score[x].median)[:count]

    def _measure(self, field: dict[gemm.AnyConfig, None]) -> None:
        """One stage of the finals."""
        times = self.bench.times([self.entries[x] for x in field], STAGE_ROUNDS)
        for config, own in zip(field, times, strict=True):
            self.finals.setdefault(config, []).extend(own)

    def _survivors(self, field: list[gemm.AnyConfig], count: int) -> list[gemm.AnyConfig]:
        """The leader and the best of those that are not significantly slower."""
        order = sorted(field, key=lambda x: MedianInterval.of(self.finals[x]).median)
        lead = self.finals[order[0]]
        close = [x for x in order[1:] if MedianInterval.of(_ratios(self.finals[x], lead)).low <= 1]
        return [order[0], *close][:count]

    # --- the outcome

    def outcome(self) -> TuningOutcome:
        heuristic = self.heuristic
        last = max(map(len, self.finals.values()), default=0)
        field = [x for x, times in self.finals.items() if len(times) == last] or self._best(1)
        chosen = min(field, key=lambda x: MedianInterval.of(self._pair(x, heuristic)[0]).median)
        if MedianInterval.of(_ratios(*reversed(self._pair(chosen, heuristic)))).low <= 1:
            chosen = heuristic
        timings = {x: self._timing(x, chosen) for x in self.qualifying}
        order = sorted(timings.values(), key=lambda t: (t.config != chosen, t.ratio.median))
        failed, seconds = tuple(self.failed.items()), self.clock() - self.start
        return TuningOutcome(
            timings[chosen], timings[heuristic], tuple(order), failed, seconds, self.ended
        )

    def _timing(self, config: gemm.AnyConfig, chosen: gemm.AnyConfig) -> ConfigTiming:
        own, other = self._pair(config, chosen)
        return ConfigTiming(config, MedianInterval.of(own), MedianInterval.of(_ratios(own, other)))

    def _pair(self, one: gemm.AnyConfig, other: gemm.AnyConfig) -> tuple[list[float], list[float]]:
        """Times of two configurations in the same rounds of the finals.

        If there are none, the second's times are estimated from both ratios to the heuristic's
        choice in qualification.
        """
        if one in self.finals and other in self.finals:
            pairs = zip(self.finals[one], self.finals[other], strict=False)
            first, second = (list(x) for x in zip(*pairs, strict=True))
            return first, second
        reference, times = self.qualifying[one]
        other_reference, other_times = self.qualifying[other]
        ratio = MedianInterval.of(_ratios(other_times, other_reference)).median
        return times, [us * ratio for us in reference]


def _ratios(ones: Sequence[float], others: Sequence[float]) -> list[float]:
    return [one / other for one, other in zip(ones, others, strict=True)]


@contextmanager
def _assembling(
    bench: Benchmark, configs: Sequence[gemm.AnyConfig]
) -> Iterator[dict[gemm.AnyConfig, Future[Any]]]:
    """Assemble all configurations in order; on exit, cancel those that have not started."""
    pool = ThreadPoolExecutor(ASSEMBLERS)
    try:
        yield {config: pool.submit(bench.assemble, config) for config in configs}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
