"""The timing model of an SM: issue slots, latencies, banks, shared memory and CTA barriers."""

from __future__ import annotations

import json
import lzma
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sass_cubins import code_of
from tilewright.errors import LayoutError
from tilewright.sass.machine.sm_timing import simulate
from tilewright.view import draw

EXIT = "--:-:-:-:5 EXIT"


def cycles(text: str, warps: int = 1, sm: int = 90, wavefronts: int = 1) -> int:
    """Cycles of straight-line text, one CTA."""
    code = code_of(text, sm)
    length = sum(not line.endswith(":") for line in text.splitlines())
    return simulate(code, [[[(i, wavefronts) for i in range(length)]] * warps]).cycles


def test_stalls_and_barriers_are_waited_for() -> None:
    short = cycles(f"--:-:-:-:1 FADD R1, R2, R3\n{EXIT}")
    assert cycles(f"--:-:-:Y:f FADD R1, R2, R3\n{EXIT}") == short + 14
    load = cycles("--:-:1:-:2 LDS R1, [R2]\n01:-:-:-:5 EXIT")
    assert load > cycles(f"--:-:1:-:2 LDS R1, [R2]\n{EXIT}") + 20
    assert cycles("--:-:1:-:2 LDS R1, [R2]\n01:-:-:-:5 EXIT", wavefronts=8) > load + 7


def test_schedulers_issue_in_parallel_and_hide_stalls() -> None:
    text = "\n".join(["--:-:-:-:4 FFMA R0, R4, R5, R4"] * 50 + [EXIT])
    one = cycles(text)
    assert cycles(text, warps=4) == one
    assert cycles(text, warps=16) <= one + 8
    assert 2.1 * one > cycles(text, warps=32) > 1.8 * one


def test_bank_conflicts_cost_cycles_unless_reused() -> None:
    conflict = "\n".join(["--:-:-:-:1 FFMA R0, R4, R5, R8"] * 40 + [EXIT])
    reused = conflict.replace("R4,", "R4.reuse,")
    assert cycles(conflict, sm=52, warps=4) > 1.5 * cycles(reused, sm=52, warps=4)


def test_maxwell_issues_two_after_a_stall_of_0() -> None:
    pair = "--:-:-:-:{} FFMA R0, R4, R5, R2\n--:-:-:-:1 LDS.U.32 R8, [R9]\n"
    text = pair * 12 + "--:-:-:-:f EXIT"
    assert cycles(text.format(*[0] * 12), sm=52) + 12 <= cycles(text.format(*[1] * 12), sm=52) + 1


def test_a_report_says_where_slots_go() -> None:
    code = code_of(f"--:-:-:Y:f FFMA R1, R2, R3, R4\n{EXIT}")
    report = simulate(code, [[[(0, 0), (1, 0)]]])
    assert report.lost["stall"] >= 13
    assert report.utilisation() == 1 / (4 * report.cycles)


MEASURED = json.loads(
    lzma.decompress(Path(__file__).with_name("measured_kernels.json.xz").read_bytes())
)


def error(row: dict[str, Any]) -> float:
    """The model's cycles of a turn over the H200's, less 1."""
    code = code_of("\n".join([".L_top:", *row["lines"]]))
    turn = list(enumerate(row["wavefronts"]))
    few, more = (simulate(code, [[turn * n] * row["warps"]]).cycles for n in (2, 4))
    return float((more - few) / 2 / row["cycles"] - 1)


def test_cycles_of_some_kernels_are_the_measured_ones() -> None:
    """Loops of ``benchmarks/sass_latencies.py --parts mixed``."""
    assert [row["name"] for row in MEASURED[::5] if abs(error(row)) > 0.05] == []


@pytest.mark.slow
def test_cycles_of_30_kernels_are_the_measured_ones() -> None:
    errors = {row["name"]: error(row) for row in MEASURED}
    assert len(errors) == 30
    assert {name: e for name, e in errors.items() if abs(e) > 0.05} == {}


def test_slots_of_every_scheduler_are_told() -> None:
    text = "\n".join(["--:-:1:-:2 LDS R1, [R2]", "01:-:-:-:4 FFMA R1, R1, R5, R4"] * 20 + [EXIT])
    code = code_of(text)
    report = simulate(code, [[[(i, 1) for i in range(41)]] * 8])
    for spans in report.slots:
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        kinds = {kind for _, _, kind in spans}
        assert {"fma", "memory", "barrier"} <= kinds
    total = sum(end - start for spans in report.slots for start, end, _ in spans)
    assert total == sum(report.issued.values()) + sum(report.lost.values())
    svg = draw(report, "a loop", columns=40)
    assert svg.count("scheduler") >= 4 and "lost: waiting for a result" in svg and "bank 1" in svg
    with pytest.raises(LayoutError, match="with cycles"):
        draw(type(report)())
