"""Registers: banks, vectors, sharing by liveness, exhausted pools."""

from __future__ import annotations

import pytest

from rows import every_row
from tilewright.errors import SassError
from tilewright.sass import encoding_table, parse_instruction
from tilewright.sass.maxas import AssembledKernel, assemble_maxas
from tilewright.sass.schedule.operand_reuse import register_reads, with_reuse

SM_52, SM_90 = encoding_table(52), encoding_table(90)


def kernel(mapping: str, *lines: str, sm: int = 52, **options: bool) -> AssembledKernel:
    body = "\n".join(x if x.endswith(":") else f"--:-:-:-:6 {x};" for x in lines)
    text = f"<REGISTER_MAPPING>\n{mapping}\n</REGISTER_MAPPING>\n{body}\n"
    return assemble_maxas(encoding_table(sm), text, **options)  # type: ignore[arg-type]


@every_row("sm, banks, conflicts", [(52, 4, 0), (90, 2, 2)])  # three registers in two banks
def test_names_read_together_are_in_different_banks(sm: int, banks: int, conflicts: int) -> None:
    mapping = "0-15 ~ a, b, c, d\n16 : x"
    made = kernel(mapping, "FFMA d, a, b, c", "FFMA d, x, a, b", sm=sm)
    assert made.reads.conflicts == conflicts
    registers = made.allocation
    assert registers["a"] % banks != 16 % banks or sm == 90
    assert len({registers[n] % banks for n in "abc"}) == min(3, banks)


def test_a_requested_bank_is_given() -> None:
    made = kernel("0-15 ~ a[3], b[3], c[2], d", "FFMA d, a, b, c")
    assert [made.allocation[n] % 4 for n in "abc"] == [3, 3, 2]
    assert made.reads.conflicts == 1
    assert "1 bank conflicts" in made.report() and "conflict: FFMA" in made.report()


def test_a_vector_gets_registers_in_a_row() -> None:
    lines = "LDS.128 v, [p]", "LDS.64 w, [q]", "FADD p, v3, w1"
    made = kernel("1-14 ~ p, v<0-3>, w<0-1>, q", *lines)
    v = [made.allocation[f"v{i}"] for i in range(4)]
    assert v == list(range(v[0], v[0] + 4)) and v[0] % 4 == 0
    assert made.allocation["w0"] % 2 == 0
    assert made.allocation["w1"] == made.allocation["w0"] + 1
    with pytest.raises(SassError, match="must be the first of 4 registers in a row"):
        kernel("0-15 ~ v<0-2>, p", "LDS.128 v, [p]")
    with pytest.raises(SassError, match="a register must be free for v0"):
        kernel("1-4 ~ v<0-3>, p", "LDS.128 v, [p]")


def test_names_that_are_never_live_together_share_a_register() -> None:
    lines = ["MOV32I a, 0x1", "IADD b, a, 0x2", "IADD c, b, 0x3", "STS [c], c"]
    apart = kernel("0-9 ~ a, b, c", *lines)
    shared = kernel("0-9 ~ a, b, c", *lines, share_registers=True)
    assert (apart.registers, shared.registers) == (3, 1)
    small = kernel("0 ~ a, b, c", *lines)  # a pool that is too small is shared without being asked
    assert set(small.allocation.values()) == {0}
    with pytest.raises(SassError, match="got a pool of 1 that is full"):
        kernel("0 ~ a, b, c", *lines, "STS [a], b")


def test_a_value_that_lives_through_a_loop_keeps_its_register() -> None:
    lines = ["MOV32I n, 0x9", "MOV32I s, 0x0", "TOP:", "IADD t, n, 0x1", "IADD s, s, t"]
    lines += ["IADD n, n, -1", "ISETP.NE.AND P0, PT, n, RZ, PT", "@P0 BRA TOP", "STS [s], s"]
    made = kernel("0-1 ~ u, v\n4-6 ~ n, s, t", *lines, share_registers=True)
    assert len({made.allocation[n] for n in "nst"}) == 3
    with pytest.raises(SassError, match="a register must be free"):
        kernel("4-5 ~ n, s, t", *lines)


def test_reuse_flags_end_at_writes_and_jumps() -> None:
    lines = ["FFMA R0, R1, R2, R3", "FFMA R4, R1, R5, R3", "MOV R1, R7", "IADD R8, R1, R5",
             "BRA 0x0", "IADD R9, R1, R5", "IADD R6, R6, R6"]  # fmt: skip
    made = [str(x) for x in with_reuse(SM_52, [parse_instruction(x) for x in lines])]
    assert made[0] == "FFMA R0, R1.reuse, R2, R3.reuse"
    assert made[1] == "FFMA R4, R1, R5.reuse, R3"
    assert not any("reuse" in x for x in made[2:])
    reads = register_reads(SM_52, [parse_instruction(x) for x in made])
    assert (reads.total, reads.reused, reads.conflicts) == (13, 3, 1)
