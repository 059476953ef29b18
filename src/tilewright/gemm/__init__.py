"""GEMM: a problem and a configuration become a kernel.

``choose`` picks a configuration, ``build`` traces the kernel, ``grid`` says how many CTAs. Nothing
here runs anything.
"""

from .config import TABLE, Config, check, choose
from .multistage import PARAMETERS, build
from .problem import Problem
from .roofline import Roofline, roofline

__all__ = [
    "PARAMETERS", "TABLE", "Config", "Problem", "Roofline",
    "build", "check", "choose", "grid", "roofline",
]  # fmt: skip


def grid(problem: Problem, config: Config) -> tuple[int, int, int]:
    """The CTAs of a launch: one for each tile of D."""
    bm, bn, _ = config.tile
    return (-(-problem.m // bm) * -(-problem.n // bn), 1, 1)
