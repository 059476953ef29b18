"""The result of tuning a problem on a device: the record of the database and of JSON files.

A result is valid for one problem (sizes, formats, layouts, alignments) on one device model, and
for the kernel that was measured. A digest identifies the kernel's text; if the configuration now
gives another kernel, the result is out of date.
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
_MAX_US, _MAX_SMS = 1e12, 1 << 20
_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class TuningKey(NamedTuple):
    """The key of a result: a problem, and a device by name, target and number of SMs."""

    problem: str
    device: str
    arch: str
    sms: int

    @classmethod
    def of(cls, problem: gemm.Problem, device: target.DeviceSpec) -> TuningKey:
        """The key of a problem and a device; the problem as JSON without default values."""
        values = {f.name: (getattr(problem, f.name), f.default) for f in fields(problem)}
        stored = {
            x: value for x, (value, usual) in values.items() if usual is MISSING or value != usual
        }
        return cls(json.dumps(stored), device.name, device.target.name, device.sms)


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The fastest configuration of a problem.

    ``us`` is its time in microseconds, ± ``margin`` (95 %). ``heuristic`` is the configuration that
    ``gemm.choose`` returned then, ``heuristic_us`` its time. ``kernel`` is the digest of the
    kernel's text, ``date`` is in UTC, ``2025-06-30T12:00:00``.
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
    def of(cls, record: object) -> TuningResult:
        """A record from a mapping of its fields. Raises ResultError for invalid fields."""
        names = {f.name for f in fields(cls)}
        if not isinstance(record, Mapping) or record.keys() != names:
            raise ResultError(
                f"a tuning result must have the fields {', '.join(names)}, got {record!r}"
            )
        for f in fields(cls):
            kinds = _TYPES.get(str(f.type), (str,))
            if not isinstance(record[f.name], kinds):
                raise ResultError(
                    f"{f.name} of a tuning result must be {f.type}, got {record[f.name]!r}"
                )
        result = cls(**record)
        times = [getattr(result, x) for x in _NUMBERS]
        if not all(0 <= x <= _MAX_US for x in times):  # NaN fails both comparisons
            raise ResultError(f"times of a tuning result must be from 0 to {_MAX_US}, got {times}")
        if not 0 < result.sms <= _MAX_SMS:
            raise ResultError(
                f"sms of a tuning result must be from 1 to {_MAX_SMS}, got {result.sms}"
            )
        if not _DATE.fullmatch(result.date):
            raise ResultError(
                f"date of a tuning result must be like 2025-06-30T12:00:00, got {result.date!r}"
            )
        if not all(x.isprintable() for x in astuple(result) if isinstance(x, str)):
            raise ResultError(f"text of a tuning result must be printable, got {record!r}")
        return result

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.problem, self.device, self.arch, self.sms)

    def holds(self, problem: gemm.Problem, device: target.DeviceSpec) -> bool:
        """Whether the configuration is valid and still gives the kernel that was measured."""
        try:
            config = gemm.parse(self.config)
            gemm.check(problem, config, device)
            return digest(problem, config, device) == self.kernel
        except TilewrightError:
            return False


def digest(problem: gemm.Problem, config: gemm.AnyConfig, device: target.DeviceSpec) -> str:
    """The digest of the text of the kernel that the device launches, from the compile cache if it
    was computed before.
    """
    relaid = gemm.relayout_problem(problem, config)
    key = f"{source()}\n{relaid!r}\n{config!r}\n{device!r}"

    def compute() -> bytes:
        text = gemm.build(relaid, config, device).ptx
        return hashlib.sha256(text.encode()).hexdigest()[:16].encode()

    return store().get_or_make("digest", key, compute).decode()


def to_json(results: Iterable[TuningResult]) -> str:
    """Results as JSON, one per line, sorted."""
    ordered = sorted(results, key=lambda r: (r.device, r.sms, r.problem, r.kernel))
    lines = ",\n".join(json.dumps(asdict(r)) for r in ordered)
    return f'{{"format": "{_FORMAT}", "version": {_VERSION}, "results": [\n{lines}\n]}}\n'


def from_json(text: str, name: str) -> tuple[TuningResult, ...]:
    """The inverse of ``to_json``; ``name`` is the file's name. Raises ResultError."""
    try:
        document = json.loads(text)
        head, results = (document["format"], document["version"]), list(document["results"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ResultError(f"{name} must contain tuning results: {error!r}") from None
    if head != (_FORMAT, _VERSION):
        raise ResultError(
            f"{name} must be {_FORMAT!r}, version {_VERSION}, got {head[0]!r}, version {head[1]}"
        )
    return tuple(map(TuningResult.of, results))
