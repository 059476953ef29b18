"""The measured latencies of sm_90a, and that the machine and the scheduler use them."""

from __future__ import annotations

from rows import every_row
from sass_cubins import code_of
from tilewright.sass.machine.hazards import hazards
from tilewright.sass.machine.instruction_properties import ROWS, instruction_properties
from tilewright.sass.machine.latencies import GUARD, result_latency
from tilewright.sass.machine.measured_timing import measured_timing, mnemonic_of
from tilewright.sass.sass_text import parse_instruction
from tilewright.sass.schedule.timing_table import timing_table


def test_sixty_instructions_are_measured() -> None:
    table = measured_timing()
    fixed = {mnemonic_of(text) for _, text in table.fixed}
    assert len(fixed) >= 60
    assert len(fixed | {mnemonic_of(t) for t in table.chains}) >= 80
    assert "H200" in table.source
    assert fixed - {"HFMA2.MMA"} <= ROWS[90].keys()


def test_a_mnemonic_s_instructions_agree() -> None:
    """A mnemonic has one latency: its forms differ only where a result has two registers, or by
    the shape of a matrix.
    """
    table = measured_timing()
    different = set()
    for (file, text), cycles in table.fixed.items():
        name = mnemonic_of(text)
        alike = [c for (f, t), c in table.fixed.items() if f == file and mnemonic_of(t) == name]
        if any(c.get(k, v) != v for c in alike for k, v in cycles.items()):
            different.add(name)
    assert different == {"IMAD", "HMMA", "IMMA"}


@every_row(
    "file, made, used, cycles",
    [
        ("R", "FFMA", "FFMA", 4), ("R", "FFMA", "IADD3", 5), ("R", "IADD3", "FFMA", 5),
        ("R", "IADD3", "IADD3", 4), ("R", "HFMA2", "FFMA", 5), ("R", "HFMA2", "HFMA2", 4),
        ("R", "HFMA2.MMA", "FFMA", 8), ("R", "CS2R", "FFMA", 6), ("R", "DADD", "DADD", 8),
        ("UR", "UIADD3", "FFMA", 6), ("P", "ISETP", "SEL", 4),
    ],
)  # fmt: skip
def test_the_latency_is_the_measured_one(file: str, made: str, used: str, cycles: int) -> None:
    rows = [instruction_properties(90, x) for x in (made, used)]
    assert result_latency(90, file, *rows) == cycles


def test_a_guard_takes_thirteen_cycles() -> None:
    rows = [instruction_properties(90, x) for x in ("ISETP", "FFMA")]
    assert result_latency(90, "P", *rows, GUARD) == 13


def test_the_hazard_check_and_the_scheduler_use_it() -> None:
    text = "--:-:-:-:{} HFMA2 R1, R2, R3, R4\n--:-:-:-:1 FADD R5, R1, R3"
    assert [f.rule for f in hazards(code_of(text.format(4)))] == ["raw-latency"]
    assert hazards(code_of(text.format(5))) == []
    made, used = (parse_instruction(x) for x in ("HFMA2 R1, R2, R3, R4", "FADD R5, R1, R3"))
    assert timing_table(90).latency(made, used, ("R", 1)) == 5
