"""Sizes of a launch, validated, and what there is of a target and of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ...errors import LaunchError
from ...target import DEFAULT_DEVICE, DEVICES, Target

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)

Dim = int | Sequence[int]
Dim3 = tuple[int, int, int]


def check_count(what: str, given: object, least: int) -> int:
    """A whole number from ``least`` on."""
    if not isinstance(given, int | np.integer) or given < least:
        raise LaunchError(f"{what} is a whole number from {least} on, not {given!r}")
    return int(given)


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sm_count(target: Target) -> int:
    """The number of SMs of a GPU of that architecture."""
    alike = (d.sms for d in DEVICES.values() if d.target.number == target.number)
    return next(alike, DEFAULT_DEVICE.sms)


def parse_dims(given: Dim, what: str, least: int, most: Dim3) -> Dim3:
    whole = isinstance(given, int | np.integer)
    several = isinstance(given, Sequence) and not isinstance(given, bytes | bytearray)
    values = (given,) if whole else tuple(given) if several else ()
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int | np.integer) for v in values):
        raise LaunchError(f"{what} {given!r} is not one to three integers")
    x, y, z = (int(v) for v in (*values, 1, 1)[:3])
    if any(not least <= v <= top for v, top in zip((x, y, z), most, strict=True)):
        raise LaunchError(f"{what} {(x, y, z)} is not within {most}")
    return x, y, z
