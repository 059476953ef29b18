"""Video instructions do what the PTX manual says, but for what ptxas makes of them otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from machine import Machine, lanes
from references.hostile import Stream
from references.video_manual import DEVIATIONS, video
from rows import every_row
from scalar.scalar_draw import Draw
from scalar.scalar_forms import families
from scalar.scalar_modifiers import with_marks
from scalar.scalar_operands import sample
from tilewright.ptx.isa import Form, OperandSpec, form
from tilewright.ptx.isa.selectors import with_selectors
from tilewright.ptx.syntax.operand_parser import OperandParser
from tilewright.vm.step.numpy_primitives import integers

pytestmark = pytest.mark.vm


@cache
def opcodes() -> list[str]:
    return [o for family in families() for o in family if re.match("v(?!ote)", o)]


def mnemonics() -> list[str]:
    return list(dict.fromkeys(o.partition(".")[0] for o in opcodes()))


def with_operands(f: Form, specs: Sequence[OperandSpec], texts: Sequence[str]) -> Form:
    return with_selectors(f, specs, [OperandParser("")[text] for text in texts])


def drawn(mnemonic: str) -> Iterator[Form]:
    """Each form and signature of a mnemonic, with marks at random, three times."""
    draw = Draw("video", mnemonic)
    for opcode in (o for o in opcodes() if o.startswith(f"{mnemonic}.")):
        f = form(opcode)
        for specs in f.signatures * 3:
            texts = with_marks(draw, f, specs, [f"%r{i}" for i in range(len(specs))])
            yield with_operands(f, specs, texts)


def ours(f: Form, *operands: np.ndarray) -> list[int]:
    values = (lanes(x.tolist(), 32) for x in operands)
    return integers(f.row.meaning(Machine(), f, *values)).tolist()


@every_row("mnemonic", mnemonics, parts=11)
def test_every_form_with_any_marks(mnemonic: str) -> None:
    stream = Stream("video", mnemonic)
    for f in drawn(mnemonic):
        a, b, c = words = sample(stream, 32, 3)
        expected = [video(f, *map(int, lane)) for lane in zip(a, b, c, strict=True)]
        assert ours(f, *words) == expected, (f.opcode, f.chosen)


#: A form and its operands; the result by the manual, and what an H200 gives.
EXAMPLES = {
    "upper half": ("vadd.u32.u32.u32 %d.h1, %a, %b, %c", (0x50006, 0, 0), 0x60000, 0x50000),
    "unsigned limit": ("vsub.s32.s32.s32.sat %d.b0, %a, %b, %c", (1, 2, 0), 0xFF, 0x7F),
    "zero alone": ("vadd.u32.u32.u32.sat %d, %a, %b", (-1, 2, 0), 0xFFFFFFFF, 1),
    "whole shift": ("vshl.u32.u32.u32.sat.clamp %d.b0, %a, %b, %c", (3, 7, 0), 0xFF, 0x80),
    "wide shift": ("vshl.s32.s32.u32.clamp.max %d, %a, %b, %c", (4, 32, 5), 5, 0),
    "handed on": ("vadd.s32.s32.s32.min %d, %a, %b, %c", (0x7FFFFFFF, 1, 3), 3, 0x80000000),
    "unsigned order": ("vmin.u32.s32.s32.min %d, %a, %b, %c", (-1, 0, 5), 0xFFFFFFFF, 5),
    "set as a": ("vset.s32.s32.lt.min %d, %a, %b, %c", (1, 2, -1), 1, 0xFFFFFFFF),
    "signed factors": ("vmad.u32.u32.u32.shr7 %d, %a, %b, %c", (-1, 1, 0), 0x1FFFFFF, 0xFFFFFFFF),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_where_ptxas_is_not_the_manual(name: str) -> None:
    text, operands, manual, hardware = EXAMPLES[name]
    opcode, *texts = re.split("[, ]+", text)
    f = form(opcode)
    f = with_operands(f, f.signature(len(texts)) or (), texts)
    words = [x % (1 << 32) for x in operands]
    assert video(f, *words, deviations=()) == manual
    assert video(f, *words, deviations=[name]) == hardware
    assert ours(f, *(np.full(32, x) for x in words))[0] == hardware
