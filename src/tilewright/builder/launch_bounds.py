"""Launch bounds of a kernel: its block and cluster sizes, occupancy and register limits."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Union

from ..target import Target
from .source_location import kernel_error
from .values.registers import is_integer

Size = Union[int, Sequence[int]]
"""A grid, block or cluster: 128, (16, 8) or (16, 8, 1)."""


class LaunchBounds:
    """The kernel's performance-tuning directives and required targets."""

    def __init__(self) -> None:
        self.block: tuple[int, int, int] | None = None
        self.cluster: tuple[int, int, int] | None = None
        self.directives: dict[str, tuple[int, ...]] = {}
        self.targets: list[str] = []

    def launch_bounds(
        self,
        block: Size | None = None,
        *,
        exact: bool = False,
        min_ctas: int = 0,
        max_registers: int = 0,
        cluster: Size | None = None,
    ) -> None:
        """Declare launch bounds: the block size (``.maxntid``; ``exact``: ``.reqntid``), the number
        of CTAs that should be resident on an SM (``.minnctapersm``), the registers per thread
        (``.maxnreg``), and the CTAs of a cluster (``.reqnctapercluster``)."""
        if block is not None:
            self.block = dimensions(block)
            self.directives["reqntid" if exact else "maxntid"] = self.block
        self._bound("min_ctas", "minnctapersm", min_ctas)
        self._bound("max_registers", "maxnreg", max_registers)
        if cluster is not None:
            self.cluster = self.directives["reqnctapercluster"] = dimensions(cluster)

    def _bound(self, name: str, directive: str, value: Any) -> None:
        if not is_integer(value) or value < 0:
            what = f"{name} must be a positive integer, or 0 for no bound, got {value!r}"
            raise kernel_error(what)
        if value:
            self.directives[directive] = (operator.index(value),)

    def require(self, target: str) -> None:
        """Require a target, such as ``sm_90a``, in addition to those that the instructions need."""
        self.targets.append(Target.parse(target).name)


def dimensions(size: Any) -> tuple[int, int, int]:
    """A grid, block or cluster size as three numbers, from 128, (128,), (16, 8) or (16, 8, 1)."""
    sizes = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    valid = (is_integer(n) and not isinstance(n, bool) and n > 0 for n in sizes)
    if not 1 <= len(sizes) <= 3 or not all(valid):
        what = f"a grid, block or cluster must be one to three positive integers, got {size!r}"
        raise kernel_error(what)
    x, y, z = (*map(operator.index, sizes), 1, 1)[:3]
    return x, y, z
