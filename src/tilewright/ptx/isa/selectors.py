"""Selectors: which bytes or halves of a register a video instruction reads or writes.

A selector follows an operand (``%r1.b3``); a sign may precede the operand (``-%r1``).
``with_selectors`` passes both to the meaning as choices of the form, under the manual's names:
``f.asel``, ``f.aneg``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..tree import Negated, Operand, Selected
from .operand_spec import OperandSpec
from .row import Form

#: Selectors by the word in a row: one part of a register; two halves or four bytes of two
#: registers, the highest first (ptxas interprets ``.b1024`` differently); halves or bytes to write.
SELECTORS = {
    "part": tuple("b0 b1 b2 b3 h0 h1".split()),
    "halves": tuple(f"h{a}{b}" for a in range(4) for b in range(4)),
    "bytes": tuple(f"b{n:04o}" for n in range(8**4) if n != 0o1024),
    "mask2": tuple("h0 h1 h10".split()),
    "mask4": tuple(
        "b" + "".join(str(i) for i in (3, 2, 1, 0) if mask >> i & 1) for mask in range(1, 16)
    ),
}

#: The same in words, for errors.
SELECTOR_DESCRIPTIONS = {
    "part": ".b0 to .b3, .h0 or .h1",
    "halves": ".h and two digits of 0 to 3",
    "bytes": ".b and four digits of 0 to 7, but not .b1024",
    "mask2": ".h0, .h1 or .h10",
    "mask4": ".b and one to four of the digits 3210, in this order",
}


def with_selectors(f: Form, specs: Sequence[OperandSpec], operands: Sequence[Operand]) -> Form:
    """The form with the operands' selectors and signs as choices (``asel``: b3, ``aneg``: -)."""
    if not f.takes_selectors:
        return f
    return replace(f, chosen={**f.chosen, **dict(_marks(specs, operands))})


def _marks(specs: Sequence[OperandSpec], operands: Sequence[Operand]) -> Iterator[tuple[str, str]]:
    for spec, operand in zip(specs, operands, strict=False):
        if isinstance(operand, Negated):
            yield f"{spec.name}neg", "-"
            operand = operand.operand
        if isinstance(operand, Selected):
            yield f"{spec.name}sel", operand.selector
