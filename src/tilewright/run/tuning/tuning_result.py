"""What tuning found for a problem on a device: one record, in a database and in JSON alike.

It holds for one problem alone (sizes, formats, layouts, alignments) on one sort of device, and for
the kernel that was measured: its text is named by a digest, and where the configuration makes
another kernel today, the result is out of date.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, astuple, dataclass, fields
from typing import NamedTuple

from ... import gemm, target
from ...compile_cache import store
from ...errors import ResultError, TilewrightError
from ..devices.serialized_kernel import source

_FORMAT = "tilewright tuning results"
_VERSION = 1
_NUMBERS = ("us", "margin", "heuristic_us")
_TYPES: dict[str, tuple[type, ...]] = {"float": (int, float), "int": (int,)}
_LONGEST, _MOST_SMS = 1e12, 1 << 20  # what a result may say
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class TuningKey(NamedTuple):
    """What a result is of: a problem, and a device by name, target and number of SMs."""

    problem: str
    device: str
    arch: str
    sms: int

    @classmethod
    def of(cls, problem: gemm.Problem, device: target.DeviceSpec) -> TuningKey:
        """The problem is what differs from a plain one, as JSON."""
        given = {f.name: (getattr(problem, f.name), f.default) for f in fields(problem)}
        told = {name: x for name, (x, usual) in given.items() if usual is MISSING or x != usual}
        return cls(json.dumps(told), device.name, device.target.name, device.sms)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The configuration that was fastest: ``us`` microseconds, give or take ``margin`` (95 %), and
    ``heuristic``, what ``gemm.choose`` took then. ``kernel``: the digest of its text; ``date`` in
    UTC, ``2025-06-30T12:00:00``.
    """

    problem: str
    device: str
    arch: str
    sms: int
    kernel: str
    config: str
    us: float
    margin: float
    heuristic: str
    heuristic_us: float
    date: str
    driver: str

    @classmethod
    def of(cls, given: object) -> TuningResult:
        """A record from names and values. Raises ResultError for what is none."""
        names = {f.name for f in fields(cls)}
        if not isinstance(given, Mapping) or given.keys() != names:
            raise ResultError(f"{given!r} is no result of tuning; it has {', '.join(names)}")
        for f in fields(cls):
            kinds = _TYPES.get(str(f.type), (str,))
            if not isinstance(given[f.name], kinds):
                raise ResultError(f"a result's {f.name} is no {f.type}: {given[f.name]!r}")
        made = cls(**given)
        if not all(0 <= getattr(made, x) <= _LONGEST for x in _NUMBERS):  # NaN is neither
            raise ResultError(f"a result's times are {[getattr(made, x) for x in _NUMBERS]}")
        if not 0 < made.sms <= _MOST_SMS:
            raise ResultError(f"a result's device has {made.sms} SMs")
        if not _DATE.fullmatch(made.date):
            raise ResultError(f"a result's date is {made.date!r}, not as 2025-06-30T12:00:00")
        if not all(x.isprintable() for x in astuple(made) if isinstance(x, str)):
            raise ResultError(f"a result's text has what can't be printed: {given!r}")
        return made

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.problem, self.device, self.arch, self.sms)

    def holds(self, problem: gemm.Problem, device: target.DeviceSpec) -> bool:
        """Whether the configuration still fits, and still makes the kernel that was measured."""
        try:
            config = gemm.parse(self.config)
            gemm.check(problem, config, device)
            return digest(problem, config) == self.kernel
        except TilewrightError:
            return False


def digest(problem: gemm.Problem, config: gemm.AnyConfig) -> str:
    """Names the kernel's text, which is not made again where this package made it before."""
    given = gemm.relayout_problem(problem, config)

    def make() -> bytes:
        return hashlib.sha256(gemm.build(given, config).ptx.encode()).hexdigest()[:16].encode()

    return store().get_or_make("digest", f"{source()}\n{given!r}\n{config!r}", make).decode()


def to_json(results: Iterable[TuningResult]) -> str:
    """Results as text: a line each, in one order."""
    ordered = sorted(results, key=lambda r: (r.device, r.sms, r.problem, r.kernel))
    lines = ",\n".join(json.dumps(asdict(r)) for r in ordered)
    return f'{{"format": "{_FORMAT}", "version": {_VERSION}, "results": [\n{lines}\n]}}\n'


def from_json(text: str, name: str) -> tuple[TuningResult, ...]:
    """The inverse; ``name`` is the file's. Raises ResultError."""
    try:
        given = json.loads(text)
        head, results = (given["format"], given["version"]), list(given["results"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultError(f"{name} holds no results of tuning: {error!r}") from None
    if head != (_FORMAT, _VERSION):
        raise ResultError(f"{name} is {head[0]!r}, version {head[1]}, not {_FORMAT!r}, {_VERSION}")
    return tuple(map(TuningResult.of, results))
