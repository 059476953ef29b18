"""Lint of machine code: each rule, the command, and none of the rules broken by ptxas."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxas import ptxas
from rows import every_row
from sass_cubins import code_of, cubin
from tilewright.cli import main
from tilewright.sass import CubinFile, decode_code, encode_code, encoding_table, with_code
from tilewright.sass.code_motion import CodeMotion
from tilewright.sass.lint import LINT_RULES, lint_cubin, lint_function
from tilewright.sass.lint.register_banks import bank_conflicts
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.machine.register_effects import registers_needed
from tilewright.sass.sass_text import parse_instruction

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")
START = "--:-:-:-:5 IADD3 R1, RZ, RZ, RZ\n--:-:-:-:5 IADD3 R2, RZ, RZ, RZ\n"


@every_row(
    "rules, text",
    [
        ("long-stall", START + "--:-:-:-:c FADD R1, R1, R2"),
        ("", START + "--:-:-:Y:c FADD R1, R1, R2"),
        ("branch-stall", "--:-:-:-:4 EXIT"),
        ("store-write-barrier", START + "--:-:1:-:2 STS [R2], R1"),
        ("reuse-yield", START + "--:-:-:Y:4 FADD R1, R1.reuse, R2\n--:-:-:-:5 FADD R2, R2, R1"),
        ("stale-reuse", START + "--:-:-:-:4 FADD R1, R1.reuse, R2\n--:-:-:-:5 FADD R3, R1, R2"),
        # the second DFMA reads the slot again, so that FADD reads the register
        (
            "",
            "--:-:-:-:9 DADD R2, RZ, RZ\n--:-:-:-:2 DFMA R4, R2, R2.reuse, R2\n"
            "--:-:-:-:8 DFMA R6, R2, R2, R2\n--:-:-:-:9 DADD R2, RZ, RZ\n"
            "--:-:-:-:4 FADD R7, R3, R2",
        ),
        ("", START + "--:-:-:-:5 MOV R3, RZ\n--:-:1:-:2 LDGSTS.E [R1], [R2.64]"),
        ("", START + "--:-:-:Y:0 LDS R1, [R2]\n--:-:-:Y:0 STS [R2], R1\n--:-:-:-:5 MOV R2, R1"),
        ("raw-barrier", START + "--:-:-:Y:1 LDS R1, [R2]\n--:-:-:-:5 MOV R3, R1"),
        (
            "",
            START + "--:1:-:-:2 REDUX.OR UR5, R1\n01:-:1:-:2 REDUX.OR UR4, R2\n"
            "01:-:-:-:5 MOV R1, UR5",
        ),
        (
            "",
            START + "--:-:-:-:9 ISETP.NE.AND P0, PT, R1, RZ, PT\n--:-:-:Y:d FADD R1, R1, R2\n"
            "--:-:-:-:1 @P0 CALL.REL.NOINC `(.L_0)\n.L_0:\n--:-:-:-:5 EXIT",
        ),
        ("branch-stall", "--:-:-:-:1 CALL.REL.NOINC `(.L_0)\n.L_0:\n--:-:-:-:5 EXIT"),
        ("unset-register", "--:-:-:-:5 FADD R1, R7, RZ"),
        ("copy-barrier", "--:-:-:-:1 LDGDEPBAR\n--:-:-:-:4 DEPBAR.LE SB0, 0x0"),
        ("copy-barrier", "--:-:2:-:1 LDGDEPBAR\n--:-:-:-:4 DEPBAR.LE SB0, 0x0"),
        ("", "--:-:1:-:1 LDGDEPBAR\n--:-:-:-:4 DEPBAR.LE SB0, 0x0"),
        ("register-alignment", START + "--:-:1:-:2 LDS.128 R6, [R1]"),
        ("register-alignment", START + "--:1:-:-:2 STS.64 [R2], R1"),
        ("", START + "--:-:1:-:2 LDS.128 R8, [R1]"),
        ("branch-stall", ".L_0:\n--:-:-:-:1 CALL.REL.NOINC `(.L_0)"),
        ("", ".L_0:\n--:-:-:-:1 @!P0 CALL.REL.NOINC `(.L_0)"),
        (
            "unknown-word",
            "--:-:-:-:1 .word 0x00000000000000000000000000000fff\n--:-:-:-:5 FADD R1, R7, RZ",
        ),
        ("unknown-word", "--:-:-:-:1 .word 0x00000000000000000000000000000fff"),
    ],
)
def test_each_rule(rules: str, text: str) -> None:
    assert " ".join(sorted({f.rule for f in lint_function(code_of(text))})) == rules
    assert not rules or rules in LINT_RULES


def test_reuse_bits_of_a_texture_are_no_reuse() -> None:
    """On sm_80 they hold a number, which a text shows as hidden bits."""
    text = "--:-:6:Y:1 TXQ RZ, RZ, RZ, TEX_HEADER_DIMENSION, 0x0, 0x5a, 0x2 &hidden=0x4"
    assert not lint_function(code_of(text + 30 * "0", 80))


@every_row(
    "sm, text, cached, cycles",
    [
        (52, "FFMA R0, R4, R5, R0", (), 1),
        (52, "FFMA R0, R4, R5, R0", ((0, 4),), 0),
        (52, "FFMA R0, R4, R5, R0", ((1, 4),), 1),  # cached for the other operand
        (52, "FFMA R0, R4, R8, R0", (), 2),
        (52, "FFMA R0, R4, R4, R4", (), 0),
        (90, "FFMA R0, R4, R5, R4", (), 0),  # as measured
        (90, "FFMA R0, R8, R9, R11", (), 1),
        (90, "FFMA R0, R8, R10, R12", (), 2),
        (90, "FFMA R0, R8, R10, R12", ((0, 8),), 1),
        (90, "FFMA R0, R8, R10, R12", ((0, 8), (1, 10)), 0),
        (90, "IADD3 R0, R20, R21, R11", (), 0),
        (90, "IADD3 R0, R8, R10, R12", (), 1),
    ],
)
def test_bank_conflicts(
    sm: int, text: str, cached: tuple[tuple[int, int], ...], cycles: int
) -> None:
    assert bank_conflicts(sm, parse_instruction(text), cached) == cycles


@needs_ptxas
@pytest.mark.tools
def test_ptxas_breaks_no_rule() -> None:
    for name in ("reduce", "memory"):
        data = cubin(name, "sm_90a")
        assert data
        assert not lint_cubin(CubinFile.parse(data))


@needs_ptxas
@pytest.mark.tools
def test_the_command_prints_findings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = cubin("reduce", "sm_90a")
    assert data
    file = tmp_path / "reduce.cubin"
    file.write_bytes(data)
    assert main(["sass", "lint", str(file)]) == 0
    assert "no findings" in capsys.readouterr().out
    read = CubinFile.parse(data)
    name = read.functions[0]
    code = read.code(name)
    table = encoding_table(90)
    words = [x.raw & ~(0x3F << 116) for _, x in decode_code(table, code)]  # no instruction waits
    changed = b"".join(w.to_bytes(16, "little") for w in words)
    assert changed != encode_code(table, [x for _, x in decode_code(table, code)])
    motion = CodeMotion({i: i for i in range(0, len(code), 16)}, len(code), len(code))
    file.write_bytes(with_code(read, name, changed, motion).build())
    assert main(["sass", "lint", str(file), "--function", name]) == 1
    assert "raw-barrier" in capsys.readouterr().out


@needs_ptxas
@pytest.mark.tools
def test_ptxas_counts_the_registers_as_we_do() -> None:
    for name, arch in (("networks", "sm_90a"), ("matmul", "sm_80")):
        data = cubin(name, arch)
        assert data
        read = CubinFile.parse(data)
        for function in read.functions:
            texts = [x.text for x in function_code(read, function).instructions if x.text]
            assert registers_needed(read.sm, texts) <= read.registers(function)
            assert read.registers(function) - registers_needed(read.sm, texts) <= 1
