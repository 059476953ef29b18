"""Programmatic dependent launch of kernel ``simt``: which devices have it, and which grids start
before the one ahead has ended.
"""

from __future__ import annotations

from dataclasses import replace

from ...target import DeviceSpec
from ..columns import Column
from .simt_config import SimtConfig

PROGRAMMATIC_TARGET = "sm_90"
# FMAs of an SM: at most 20,000 cycles of FMAs. With more, a grid whose CTAs are placed where the
# one ahead leaves room, and so not evenly, loses more than a launch takes.
SHORT = 128 * 20000


def launched_config(config: SimtConfig, device: DeviceSpec) -> SimtConfig:
    """The configuration of the kernel that the device launches."""
    return replace(config, programmatic=device.target.runs(PROGRAMMATIC_TARGET))


def starts_early(
    ctas: int | Column, resident: int | Column, fmas: int | Column, sms: int
) -> bool | Column:
    """Whether a grid of ``ctas``, of ``fmas`` each, is launched before the one ahead has ended: if
    it fits on the GPU at once, a CTA on an SM, or several that are soon done.
    """
    each = -(-ctas // sms)
    return (each <= resident) & ((each <= 1) | (each * fmas < SHORT))
