"""Selectors and signs for the operands of video instructions, at random."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ptx.isa import Form, OperandSpec
from tilewright.ptx.isa.selectors import SELECTORS, with_selectors
from tilewright.ptx.syntax.operand_parser import OperandParser


def with_marks(draw, f: Form, specs: Sequence[OperandSpec], given: list[str]) -> list[str]:
    """The operands with marks that go together; ``draw`` is a ``scalar_draw.Draw``."""
    if not f.takes_selectors:
        return given
    while True:
        made = [_with_mark(draw, *pair) for pair in zip(specs, given, strict=True)]
        whole = with_selectors(f, specs, [OperandParser("")[text] for text in made])
        if not (f.row.constraint and f.row.constraint(whole)):
            return made


def _with_mark(draw, spec: OperandSpec, text: str) -> str:
    if not text.startswith("%"):
        return text
    if spec.selector and draw.chance(70):
        text += f".{draw.choice(SELECTORS[spec.selector])}"
    return f"-{text}" if spec.negatable and draw.chance(30) else text
