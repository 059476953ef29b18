"""Compare a run with an earlier one, read from its JSON log.

Both runs have measured ratios to torch, so the quotient of the ratios, new / old, does not depend
on the GPU's clock in either run. It is above 1 where the kernel has become faster.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .report import CHOSEN, Record
from .stats import geomean

LEAST = 0.995  # quotients below are listed
MEASURED = ("us", "ratio", "low", "high", "config")

Key = tuple[Any, ...]


class Change(NamedTuple):
    """The quotient of a row's ratios, new / old, and the interval that both intervals allow."""

    record: Record
    old: Record
    quotient: float
    low: float
    high: float

    def __str__(self) -> str:
        old, new = self.old["config"], self.record["config"]
        config = new if new == old else f"{old} → {new}"
        return (
            f"{self.quotient:.3f} [{self.low:.3f}, {self.high:.3f}]  "
            f"{self.old['ratio']:.3f} → {self.record['ratio']:.3f}  {self.record['row']}  {config}"
        )


def key_of(record: Record) -> Key:
    """What identifies a row in both runs: the problem and the requested configuration."""
    problem = (record[name] for name in ("m", "n", "k", "type", "layout", "fast"))
    return (*problem, record.get("requested", CHOSEN))


def read_baseline(path: Path) -> dict[Key, Record]:
    """The measured rows of a log; of a row with several records, the last. Raises ValueError if
    a line of the file is not JSON or is not a record of this log, OSError if it cannot be read.
    """
    records: dict[Key, Record] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            record = json.loads(line)
            if record["kind"] == "row" and all(name in record for name in MEASURED):
                records[key_of(record)] = record
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}:{number} must be a record of --json, got {line:.60}"
            ) from error
    if not records:
        raise ValueError(f"{path} must have at least one measured row")
    return records


def changes(records: Sequence[Record], baseline: Mapping[Key, Record]) -> Iterator[Change]:
    """The change of each measured row that the baseline has."""
    for new in records:
        old = baseline.get(key_of(new))
        if new["state"] == "measured" and old is not None:
            quotient = new["ratio"] / old["ratio"]
            yield Change(new, old, quotient, new["low"] / old["high"], new["high"] / old["low"])


def baseline_lines(records: Sequence[Record], baseline: Mapping[Key, Record]) -> list[str]:
    """All changes, then those below ``LEAST``."""
    found = list(changes(records, baseline))
    if not found:
        return ["new / old: no row is in the baseline"]
    mean = geomean([change.quotient for change in found])
    below = [change for change in found if change.quotient < LEAST]
    surely = sum(change.high < LEAST for change in below)
    return [
        "new / old ratio to torch:",
        *(f"  {change}" for change in found),
        f"new / old: geometric mean {mean:.3f} of {len(found)} rows; {len(below)} below {LEAST}, "
        f"{surely} of them by their 95 % bounds",
        *(f"  BELOW {change}" for change in below),
    ]
