"""Rules of thumb for CUTLASS configurations, and our cost model's choices for the same problems.

A rule names a tile, stages, a cluster, a schedule; ``Rule.config`` spells it as a configuration of
ours. Parts that the rule leaves open (warps, stages that fill shared memory) are written out, so
that the table changes only with the choices. Stream-K rules are spelled as split-K.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright import gemm, target

from .epilogue_rows import EpilogueRow, fused_plan
from .rows import RESULTS, Row


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule for a class of problems, one of them, and the rule's configuration. ``epilogue``: a
    kind of ``epilogue_rows``; ``fast``: 8-bit floats accumulate in the tensor core.
    """

    case: str
    shape: tuple[int, int, int]
    text: str
    config: str
    type: str = "f16"
    fast: bool = False
    epilogue: str = ""

    @property
    def row(self) -> Row:
        """The problem as a row of the benchmark, without its epilogue."""
        return Row("heuristics", *self.shape, self.type, fast=self.fast)

    @property
    def name(self) -> str:
        """The problem as the table shows it."""
        fast = " fast" * self.fast
        return f"{'×'.join(map(str, self.shape))} {self.epilogue or self.type}{fast}"

    @property
    def problem(self) -> gemm.Problem:
        """The problem, in layout TN."""
        if self.epilogue:
            plan = fused_plan(EpilogueRow(self.epilogue, *self.shape), "vm")
            return plan.original_problem or plan.problem
        types = self.type, self.type, RESULTS.get(self.type, self.type)
        return gemm.Problem(*self.shape, *types, fast=self.fast)

    def choice(self, device: str) -> str:
        """The heuristic's configuration on a device of ``target.DEVICES``."""
        return str(gemm.choose(self.problem, target.device_spec(device)))


class RuleTable(NamedTuple):
    """Rules with the devices for which a configuration is chosen, the rules' own first."""

    title: str
    devices: tuple[str, ...]
    rules: tuple[Rule, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns; those of times are the last."""
        chosen = [f"chosen for {device}" for device in self.devices]
        times = ["rule, µs", *(f"{name}, µs" for name in chosen)]
        return (self.title, "M×N×K", "rule", "spelled", *chosen, *times, "rule / chosen")

    @property
    def figures(self) -> int:
        """The number of columns with measurements."""
        return len(self.devices) + 2


A100 = RuleTable(
    "rule for A100",
    ("A100", "H200"),
    (
        Rule("large", (4096, 4096, 4096), "256·128·32, 3 stages", "256x128x32:4x2:3/1@8"),
        Rule("K of 1024", (2048, 4096, 1024), "128·128·32, 4 stages", "128x128x32:2x2:4/2@8"),
        Rule("M of 512", (512, 4096, 1024), "64·128·64, 5 stages", "64x128x64:2x4:5/1@8"),
        Rule("M ≤ 256", (256, 4096, 4096), "64·128·32, split-K, 3 stages",
             "64x128x32:1x4:3/4*2@8"),
        Rule("K ≤ 64", (4096, 4096, 64), "128·128·K, 2 stages", "128x128x64:2x2:2/2@8"),
    ),
)  # fmt: skip
H100 = RuleTable(
    "rule for H100",
    ("H200",),
    (
        Rule("8192²", (8192, 8192, 8192), "128·256·64, 2×1, cooperative",
             "tma:128x256x64:2:4/2x1@8"),
        Rule("8192², 8 bits", (8192, 8192, 8192), "128·256·128, 2×1, cooperative",
             "tma:128x256x128:2:4/2x1@8", "e4m3", fast=True),
        Rule("4096×8192", (4096, 8192, 8192), "128·128·64, 2×2, cooperative",
             "tma:128x128x64:2:6/2x2@8"),
        Rule("512×8192", (512, 8192, 8192), "64·256·64, pingpong", "tma:64x256x64:2p:4/1x1@8"),
        Rule("long epilogue", (4096, 14336, 4096), "128·128·64, pingpong",
             "tma:128x128x64:2p:5/1x1@8", "bf16", epilogue="silu_residual"),
        Rule("skinny M", (16, 8192, 8192), "64·128·64, stream-K", "tma:64x128x64:1:8/1x1*2@8"),
    ),
)  # fmt: skip
SHAPES = RuleTable(
    "rule by shape",
    ("H200",),
    (
        Rule("M = N, large", (4096, 4096, 4096), "large tile, cooperative",
             "tma:128x256x64:2:4/1x1@8"),
        Rule("M ≫ N", (16384, 256, 4096), "larger tile M", "tma:256x128x64:2:4/1x1@8"),
        Rule("M ≪ N", (256, 16384, 4096), "larger tile N, cooperative",
             "tma:128x256x64:2:4/1x1@8"),
        Rule("small M, large N", (64, 16384, 4096), "pingpong, smaller tile N",
             "tma:64x64x64:2p:12/1x1@8"),
        Rule("M and N small", (256, 256, 4096), "stream-K, persistent",
             "tma:64x64x64:1:12/1x1*8@8"),
        Rule("K very large", (512, 512, 65536), "7 stages or more", "tma:64x128x64:1:8/1x1*4@8"),
        Rule("K small", (4096, 4096, 64), "2 or 3 stages", "tma:128x128x64:2:2/1x1@8"),
    ),
)  # fmt: skip
TABLES = (A100, H100, SHAPES)


def head(table: RuleTable) -> list[str]:
    """The Markdown head of a table."""
    return [_line(table.columns), "|---" * len(table.columns) + "|"]


def choices(rule: Rule, table: RuleTable) -> list[str]:
    """The cells of a rule up to the times."""
    chosen = [rule.choice(device) for device in table.devices]
    return [rule.case, rule.name, rule.text, *(f"`{config}`" for config in (rule.config, *chosen))]


def configs(rule: Rule, table: RuleTable) -> list[str]:
    """The configurations to be measured: the rule's, then the chosen ones."""
    return [rule.config, *(rule.choice(device) for device in table.devices)]


def figures(us: list[float], ratio: float) -> list[str]:
    """The cells of the times."""
    return [*(f"{t:.1f}" for t in us), f"{ratio:.2f}"]


def update(text: str, table: RuleTable, measured: dict[str, list[str]]) -> str:
    """A Markdown text with its copy of the table brought up to date.

    ``measured``: cells of times by a rule's case. A rule that has none keeps its times where its
    configurations have not changed. Raises ValueError where the text has no such table.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(f"| {table.title} |")), None)
    if start is None:
        raise ValueError(f"the text must have a table whose first column is {table.title!r}")
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    old = {
        tuple(row[: -table.figures]): row[-table.figures :]
        for row in map(cells_of, lines[start:end])
    }
    rows = []
    for rule in table.rules:
        cells = choices(rule, table)
        empty = [""] * table.figures
        rows.append([*cells, *measured.get(rule.case, old.get(tuple(cells), empty))])
    lines[start:end] = [*head(table), *map(_line, rows)]
    return "\n".join(lines) + "\n"


def cells_of(line: str) -> list[str]:
    """The cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _line(cells: list[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"
