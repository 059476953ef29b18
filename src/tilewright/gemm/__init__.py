"""GEMM: a problem and a configuration become a kernel.

``choose`` picks a configuration, ``build`` traces the kernel, ``grid`` says how many CTAs. Nothing
here runs anything.
"""

from ..target import DEFAULT_DEVICE, Device
from .config import TABLE, Config, check, choose
from .multistage import PARAMETERS, build
from .problem import Problem
from .roofline import Roofline, roofline

__all__ = [
    "PARAMETERS", "TABLE", "Config", "Problem", "Roofline",
    "build", "check", "choose", "grid", "roofline",
]  # fmt: skip


def grid(
    problem: Problem, config: Config, device: Device = DEFAULT_DEVICE
) -> tuple[int, int, int]:
    """The CTAs of a launch: one for each tile of D, or for each place that the device has."""
    bm, bn, _ = config.tile
    tiles = -(-problem.m // bm) * -(-problem.n // bn)
    if config.persists(problem):
        places = device.sms * config.resident(problem.input.bits, device.limits)
        return (min(tiles, places), 1, 1)
    return (tiles, 1, 1)
