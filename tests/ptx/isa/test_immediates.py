"""Immediates whose values a row lists: what agrees, and what is said where one does not."""

from __future__ import annotations

import pytest

from tilewright.ptx.isa.lookup import form
from tilewright.ptx.isa.operand_spec import Allowed, OperandSpec, parse_signatures
from tilewright.ptx.rules.operand_rules import operand_error
from tilewright.ptx.rules.symbol_table import SymbolTable
from tilewright.ptx.tree import Imm, Operand, Vector


def spec(text: str) -> OperandSpec:
    """The one operand of a row with this text."""
    return parse_signatures(text, {})[0][0]


@pytest.mark.parametrize(
    ("text", "count", "good", "bad"),
    [
        ("n:imm", 0, [0, 7, -9], []),
        ("n:imm(0 1)", 0, [0, 1], [2, -1, 1 << 32]),
        ("n:imm(1 -1)", 0, [1, -1, (1 << 64) - 1], [0, 2, (1 << 32) - 1]),
        ("n:imm(0..31)", 0, [0, 31], [-1, 32]),
        ("n:imm(0..)", 0, [0, 1 << 40], [-1]),
        ("p:pred(0 1)", 0, [0, 1], [2, -1]),
        ("p:pred", 0, [0, 1, 2], []),
        ("c:b32()", 0, [], [0, 1]),
    ],
)
def test_values(text: str, count: int, good: list[int], bad: list[int]) -> None:
    s = spec(text)
    assert (s.count, str(s)) == (count, text)
    f = form("exit")
    assert [operand_error(f, s, Imm(v), SymbolTable()) for v in good] == [""] * len(good)
    assert all(operand_error(f, s, Imm(v), SymbolTable()) for v in bad)


@pytest.mark.parametrize(
    ("text", "operand", "message"),
    [
        ("n:imm(0 1)", Imm(2), "n must be 0 or 1, got 2"),
        ("n:imm(0..31 64..)", Imm(40), "n must be 0 to 31 or 64 or more, got 40"),
        ("c:b32()", Imm(5), "c must be a register, got 5"),
        ("ids:imm(0 2)(0..3)", Vector((Imm(2), Imm(3))), ""),
        ("ids:imm(0 2)(0..3)", Vector((Imm(1), Imm(3))), "ids must be 0 or 2, got 1"),
        ("ids:imm(0 2)(0..3)", Vector((Imm(2), Imm(4))), "ids must be 0 to 3, got 4"),
        ("ids:imm(0 2)(0..3)", Imm(2), "expected a vector of 2 integer constants, got 2"),
        ("ids:imm*2", Vector((Imm(2),)), "expected a vector of 2 integer constants, got {2}"),
    ],
)
def test_messages(text: str, operand: Operand, message: str) -> None:
    assert operand_error(form("exit"), spec(text), operand, SymbolTable()) == message


def test_values_as_written() -> None:
    assert 5 in Allowed("1 4..6") and 3 not in Allowed("1 4..6") and 0 not in Allowed("")
