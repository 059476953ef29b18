"""Partial configurations of kernels ``multistage`` and ``simt``: parts that are left out are
completed by candidates.

``128x128x32`` has every division of the tile among warps, with as many stages as fit;
``simt:128x128x16`` every division among threads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from ...errors import ConfigError
from ...target import DeviceSpec
from ..config_checks import notation
from ..problem import Problem
from . import multistage_config as multistage
from . import simt_config as simt
from .multistage_config import Config
from .simt_config import SimtConfig

CTAS = (1, 2, 4)  # resident CTAs per SM
WARPS = tuple((m, n) for m in (1, 2, 4, 8) for n in (1, 2, 4, 8) if m * n <= 16)
BLOCKS = tuple((m, n) for m in (4, 8, 16, 32, 64) for n in (8, 16, 32, 64) if m * n <= 1024)
STAGES = (6, 5, 4, 3, 2)

_MULTISTAGE = notation("#x#x#(?::(?:#x#)?(?::(?:#)?(p?))?)?(?:/#)?(?:\\*#)?(?:@#)?(?::m#n#k#)?")
_SIMT = notation(r"simt:#x#x#(?::(?:#x#(?:x#)?)?(?::(?:#)?)?)?(?:/#)?(?:\*#(c?))?(?:@#)?")

C = TypeVar("C", Config, SimtConfig)


def multistage_candidates(text: str, problem: Problem, device: DeviceSpec) -> Sequence[Config]:
    """The configurations of ``multistage`` that agree with ``text``, which may leave parts out; not
    all fit. Raises ConfigError where a part is invalid.
    """
    table = multistage.table(problem.a, device.target)
    if text == "multistage":
        return [*table, *multistage.split_candidates(problem.a, device.target)]
    found = _MULTISTAGE.fullmatch(text)
    if not found or (found[4] and found[6]):
        return [Config.parse(text)]
    written = _written(found, tile=(1, 2, 3), warps=(4, 5), stages=(6,), ctas=(8,), split=(9,))
    written |= _written(found, group=(10,), mma=(11, 12, 13))
    written |= {"persistent": True} if found[7] else {}

    def make(**fields: Any) -> Config:
        return Config(**{"mma": table[0].mma} | fields)

    def shared_bytes(config: Config) -> int:
        return config.shared_bytes(problem.input.bits)

    completed = _completed(make, written, "warps", WARPS, shared_bytes, device)
    if "split" not in written and not written.get("persistent"):
        splits = product(completed, multistage.SPLITS)
        completed += [replace(config, split=split) for config, split in splits]
    return _agreeing(table, written) + completed


def simt_candidates(text: str, device: DeviceSpec) -> Sequence[SimtConfig]:
    """The configurations of ``simt`` that agree with ``text``, which may leave parts out; not all
    fit. Raises ConfigError where a part is invalid.
    """
    if text == "simt":
        return simt.candidates()
    found = _SIMT.fullmatch(text)
    if not found or (found[4] and found[7]):
        return [SimtConfig.parse(text)]
    written = _written(found, tile=(1, 2, 3), block=(4, 5), slices=(6,), stages=(7,), ctas=(8,))
    written |= _written(found, split=(9,), group=(11,))
    written |= {"in_cluster": bool(found[10])} if found[9] else {}

    def shared_bytes(config: SimtConfig) -> int:
        return config.shared_bytes

    completed = _completed(SimtConfig, written, "block", BLOCKS, shared_bytes, device)
    if "split" not in written:
        splits = product(completed, simt.SPLITS)
        completed += [replace(config, split=split) for config, split in splits]
    return _agreeing(simt.candidates(), written) + completed


def _written(found: re.Match[str], **groups: tuple[int, ...]) -> dict[str, Any]:
    """The fields that are written, each as a number or a tuple of numbers."""
    fields = {}
    for name, numbers in groups.items():
        if found[numbers[0]]:
            values = tuple(int(found[i]) for i in numbers)
            fields[name] = values if len(values) > 1 else values[0]
    return fields


def _agreeing(table: Sequence[C], written: dict[str, Any]) -> list[C]:
    """The configurations of the table that have all written fields."""
    return [c for c in table if all(getattr(c, name) == x for name, x in written.items())]


def _completed(
    make: Callable[..., C], written: dict[str, Any], division: str,
    divisions: Iterable[tuple[int, int]], shared_bytes: Callable[[C], int], device: DeviceSpec,
) -> list[C]:  # fmt: skip
    """Valid configurations with the written fields, each with the most stages of which its CTAs
    fit into the shared memory of an SM. Raises ConfigError where there is none.
    """
    found: list[C] = []
    reason = ConfigError("")
    limits = device.limits
    if division in written:
        divisions = [written[division]]
    for shape, ctas in product(divisions, [written["ctas"]] if "ctas" in written else CTAS):
        fields = written | {division: shape, "ctas": ctas}
        per_cta = limits.shared_per_sm // max(1, ctas) - limits.shared_reserved
        try:
            made = [make(**{"stages": stages} | fields) for stages in STAGES]
        except ConfigError as error:
            reason = error
            continue
        room = min(per_cta, limits.shared_per_block)
        found.append(next((c for c in made if shared_bytes(c) <= room), made[-1]))
    if not found:
        raise reason
    return found
