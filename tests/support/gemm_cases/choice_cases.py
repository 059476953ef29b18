"""Random problems and the configuration that the heuristic chooses for each.

``tests/data/gemm_choices.txt.gz`` has a line for each problem: the configuration and its estimated
seconds, or the name of the error. Record anew, where the cost model or the search space is meant to
change:

    PYTHONPATH=src:tests/support python tests/support/gemm_cases/choice_cases.py
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from tilewright import gemm
from tilewright.errors import TilewrightError
from tilewright.gemm import Problem
from tilewright.gemm.problem import SUPPORTED_TYPES
from tilewright.target import DEVICES, DeviceSpec

CHOICES = Path(__file__).parents[2] / "data" / "gemm_choices.txt.gz"
COUNT = 2000
TYPES = [
    (a, b, d) for a, (others, results) in SUPPORTED_TYPES.items() for b in others for d in results
]
HALVES = [("bf16", "bf16", "bf16"), ("f16", "f16", "f32")]
HOPPER = [DEVICES["H200"], *(replace(DEVICES["H200"], name="other", sms=n) for n in (1, 7, 78))]
LARGEST = 2**31 - 1

T = TypeVar("T")


class Cases(Random):
    """Random problems; ``random()`` is the one method that is the same in every Python."""

    def one_of(self, *values: T) -> T:
        return values[int(self.random() * len(values))]

    def size(self) -> int:
        """Of a dimension: from 1 to 32768, evenly on a logarithmic scale, often a round number."""
        multiple, size = self.one_of(1, 8, 64), int(2 ** (15 * self.random()))
        return -(-size // multiple) * multiple

    def sizes(self) -> tuple[int, int, int]:
        m, n, k = self.size(), self.size(), self.size()
        common = self.one_of(m, n, k)
        return self.one_of(
            (m, n, k), (m, n, k), (common, common, common), (min(m, 1 + m % 64), n, k), (m, n, 0),
            (self.one_of(128, 256, 4096), self.one_of(1536, 4096, 14336), 4096),
            self.one_of((LARGEST, n, 1), (m, LARGEST, k), (1, n, LARGEST)),
        )  # fmt: skip

    def problem(self) -> Problem:
        types = self.one_of(self.one_of(*TYPES), self.one_of(*HALVES))
        more: dict[str, Any] = {"a_major": self.one_of("k", "m"), "b_major": self.one_of("k", "n")}
        if self.random() < 0.3:
            aligned = {f"align_{name}": self.one_of(16, 8) for name in "abcd"}
            more |= aligned | {"with_c": self.one_of(True, False)}
        if self.random() < 0.2:
            more |= {"batch": self.one_of(2, 5, 64, LARGEST), "fast": self.one_of(True, False)}
        return Problem(*self.sizes(), *types, **more)

    def device(self) -> DeviceSpec:
        if self.random() < 0.7:
            return DEVICES["H200"]
        return self.one_of(self.one_of(*HOPPER), self.one_of(*DEVICES.values()))


def cases(count: int = COUNT) -> Iterator[tuple[Problem, DeviceSpec]]:
    """The same problems each time, each with a device."""
    source = Cases(21)
    for _ in range(count):
        yield source.problem(), source.device()


def choice(problem: Problem, device: DeviceSpec) -> str:
    """The line of a problem."""
    try:
        seconds, config = gemm.ranked(problem, device)[0]
    except TilewrightError as error:
        return type(error).__name__
    return f"{config} {seconds:.12g}"


def recorded() -> list[str]:
    """The lines of all problems."""
    return gzip.decompress(CHOICES.read_bytes()).decode().splitlines()


def record() -> None:
    """Write the lines of all problems."""
    text = "".join(f"{choice(*case)}\n" for case in cases())
    CHOICES.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    record()
