"""Selectors and signs for the operands of video instructions, at random."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ptx.isa import Form, OperandSpec
from tilewright.ptx.isa.selectors import SELECTORS, marked
from tilewright.ptx.syntax.operand_parser import Operands


def with_marks(draw, f: Form, specs: Sequence[OperandSpec], given: list[str]) -> list[str]:
    """The operands with marks that go together; ``draw`` is a ``scalar_draw.Draw``."""
    if not f.marks:
        return given
    while True:
        made = [_with_mark(draw, *pair) for pair in zip(specs, given, strict=True)]
        whole = marked(f, specs, [Operands("")[text] for text in made])
        if not (f.row.where and f.row.where(whole)):
            return made


def _with_mark(draw, spec: OperandSpec, text: str) -> str:
    if not text.startswith("%"):
        return text
    if spec.part and draw.chance(70):
        text += f".{draw.choice(SELECTORS[spec.part])}"
    return f"-{text}" if spec.minus and draw.chance(30) else text
