"""Targets such as ``sm_90a``: their limits and the first PTX version of each, as tables.

A target's suffix restricts the architectures that run its code: without a suffix, this and every
later architecture; ``a``, this architecture only; ``f``, the architectures of its family. So
``sm_90a`` runs code for ``sm_80``, ``sm_90`` or ``sm_90a``. Numbers: CUDA programming guide,
"Compute Capabilities"; PTX manual, "Release Notes". ptxas 13.0 accepts the versions from sm_75 on.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from functools import lru_cache

from .errors import TargetError

Version = tuple[int, int]

KB = 1024
LANES = 32  # threads of a warp


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one SM: bytes of shared memory, threads, CTAs, 32-bit registers."""

    shared_per_sm: int
    shared_per_block: int  # with opt-in; 48 KB without
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    shared_reserved: int = 0  # reserved by the system for each CTA
    cluster: int = 1  # portable cluster size


#: The first PTX version of each target.
FIRST_VERSION: dict[str, Version] = {
    "sm_10": (1, 0), "sm_11": (1, 0), "sm_12": (1, 2), "sm_13": (1, 2), "sm_20": (2, 0),
    "sm_30": (3, 0), "sm_32": (4, 0), "sm_35": (3, 1), "sm_37": (4, 1), "sm_50": (4, 0),
    "sm_52": (4, 1), "sm_53": (4, 2), "sm_60": (5, 0), "sm_61": (5, 0), "sm_62": (5, 0),
    "sm_70": (6, 0), "sm_72": (6, 1), "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1),
    "sm_87": (7, 4), "sm_88": (9, 0), "sm_89": (7, 8),
    "sm_90": (7, 8), "sm_90a": (8, 0),
    "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8), "sm_101": (8, 6), "sm_101a": (8, 6),
    "sm_101f": (8, 8), "sm_103": (8, 8), "sm_103a": (8, 8), "sm_103f": (8, 8),
    "sm_110": (9, 0), "sm_110a": (9, 0), "sm_110f": (9, 0),
    "sm_120": (8, 7), "sm_120a": (8, 7), "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8),
    "sm_121f": (8, 8),
}  # fmt: skip

#: Families: ``f`` code runs on later architectures of the same row.
FAMILIES: tuple[tuple[int, ...], ...] = ((100, 103), (101, 110), (120, 121))

_AMPERE = Limits(164 * KB, 163 * KB, 2048, 32, shared_reserved=KB)
_SMALL = Limits(100 * KB, 99 * KB, 1536, 24, shared_reserved=KB)
_HOPPER = Limits(228 * KB, 227 * KB, 2048, 32, shared_reserved=KB, cluster=8)
_THOR = Limits(228 * KB, 227 * KB, 1536, 24, shared_reserved=KB, cluster=8)
_LITTLE_BLACKWELL = Limits(100 * KB, 99 * KB, 1536, 24, shared_reserved=KB, cluster=8)

LIMITS: dict[int, Limits] = {
    70: Limits(96 * KB, 96 * KB, 2048, 32),
    72: Limits(96 * KB, 96 * KB, 2048, 32),
    75: Limits(64 * KB, 64 * KB, 1024, 16),
    80: _AMPERE,
    86: Limits(100 * KB, 99 * KB, 1536, 16, shared_reserved=KB),
    87: Limits(164 * KB, 163 * KB, 1536, 16, shared_reserved=KB),
    89: _SMALL,
    90: _HOPPER,
    100: _HOPPER,
    101: _THOR,
    103: _HOPPER,
    110: _THOR,
    120: _LITTLE_BLACKWELL,
    121: _LITTLE_BLACKWELL,
}


@dataclass(frozen=True, order=True, slots=True)
class Target:
    """An architecture: ``sm_90a`` is number 90, suffix ``a``. Ordered by number, then ``""`` <
    ``f`` < ``a``.
    """

    number: int
    rank: int = 0  # of the suffix: "" 0, "f" 1, "a" 2

    @classmethod
    def parse(cls, name: str | Target) -> Target:
        """``Target.parse("sm_90a")``; a Target is returned unchanged. TargetError if unknown."""
        if isinstance(name, Target):
            return name
        if not isinstance(name, str):
            raise TargetError(f"a target must be a str like sm_90a, got {type(name).__name__}")
        return _parse(name)

    @property
    def suffix(self) -> str:
        return ("", "f", "a")[self.rank]

    @property
    def name(self) -> str:
        return f"sm_{self.number}{self.suffix}"

    def __str__(self) -> str:
        return self.name

    @property
    def first_version(self) -> Version:
        """The first PTX version that has this target."""
        return FIRST_VERSION[self.name]

    @property
    def limits(self) -> Limits:
        """The limits of one SM. TargetError for a target without a row in ``LIMITS``."""
        limits = LIMITS.get(self.number)
        if limits is None:
            known = ", ".join(f"sm_{n}" for n in LIMITS)
            raise TargetError(f"the limits of {self} are not known", hint=f"known are {known}")
        return limits

    def runs(self, needed: Target | str) -> bool:
        """Whether this target runs code for ``needed``."""
        needed = Target.parse(needed)
        if needed.suffix == "a":
            return self == needed
        if needed.suffix == "f":
            family = any(self.number in f and needed.number in f for f in FAMILIES)
            return bool(self.suffix) and family and self.number >= needed.number
        return self.number >= needed.number


@lru_cache(maxsize=None)
def _parse(name: str) -> Target:
    if name not in FIRST_VERSION:
        close = difflib.get_close_matches(str(name), FIRST_VERSION, n=3)
        hint = (
            f"did you mean {' or '.join(close)}?" if close else "targets look like sm_80 or sm_90a"
        )
        raise TargetError(f"unknown target {name!r}", hint=hint)
    number, suffix = re.fullmatch(r"sm_(\d+)([af]?)", name).groups()  # type: ignore[union-attr]
    return Target(int(number), ("", "f", "a").index(suffix))


def parse_version(text: str) -> Version:
    """``"8.5"`` → (8, 5)."""
    found = re.fullmatch(r"(\d+)\.(\d+)", str(text))
    if not found:
        raise TargetError(f"a PTX version must be like 8.5, got {text!r}")
    return int(found[1]), int(found[2])


def lowest_version_for(target: Target | str) -> Version:
    """The lowest ``.version`` of a module for this target."""
    return Target.parse(target).first_version


def targets_of(version: Version) -> tuple[Target, ...]:
    """The targets that a PTX version has, in order."""
    checked: object = version
    if not isinstance(checked, tuple):
        raise TargetError(f"a PTX version must be two numbers, (8, 5), got {checked!r:.60}")
    return tuple(sorted(_parse(name) for name, first in FIRST_VERSION.items() if first <= version))


# --- devices by name --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A GPU model: its target, the number of SMs, the size of the L2 cache in bytes."""

    name: str
    target: Target
    sms: int
    l2: int

    @property
    def limits(self) -> Limits:
        return self.target.limits


DEVICES: dict[str, DeviceSpec] = {
    name: DeviceSpec(name, _parse(target), sms, l2 * KB * KB)
    for name, target, sms, l2 in (
        ("V100", "sm_70", 80, 6),
        ("T4", "sm_75", 40, 4),
        ("A100", "sm_80", 108, 40),
        ("A10", "sm_86", 72, 6),
        ("RTX 3090", "sm_86", 82, 6),
        ("L4", "sm_89", 58, 48),
        ("L40S", "sm_89", 142, 96),
        ("RTX 4090", "sm_89", 128, 72),
        ("H100", "sm_90a", 132, 50),
        ("H200", "sm_90a", 132, 60),
        ("B200", "sm_100a", 148, 126),
        ("RTX 5090", "sm_120a", 170, 96),
    )
}
DEFAULT_DEVICE = DEVICES["H200"]


def device_spec(name: str) -> DeviceSpec:
    """A GPU model by name: ``device_spec("H200")``. TargetError for an unknown name."""
    checked: object = name
    if not isinstance(checked, str) or checked not in DEVICES:
        raise TargetError(f"unknown device {name!r:.60}", hint=f"devices are {', '.join(DEVICES)}")
    return DEVICES[checked]
