"""The timing model of an SM: issue slots, latencies, banks, shared memory and CTA barriers."""

from __future__ import annotations

from sass_cubins import code_of
from tilewright.sass.machine.sm_timing import simulate

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
    assert cycles("--:-:1:-:2 LDS R1, [R2]\n01:-:-:-:5 EXIT", wavefronts=8) == load + 7


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
