"""Which selectors, masks and signs stand where in video instructions: ptxas and we say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product

import pytest

from ptx_forms.forms import DECLARATIONS
from ptx_forms.forms_make import Judge
from ptxas import ptxas
from rows import every_row
from tilewright.errors import PtxError
from tilewright.ptx import parse, problems

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

FORMS = """vadd.s32.u32.s32 vsub.u32.u32.u32.sat vmin.s32.s32.s32.sat.add vabsdiff.u32.s32.s32.max
vshl.s32.u32.u32.clamp vshr.u32.u32.u32.sat.wrap.min vset.u32.s32.lt vset.s32.s32.ge.add
vadd2.s32.u32.s32.sat vavrg2.u32.u32.u32.add vset2.u32.s32.ne vadd4.u32.s32.s32
vmax4.s32.s32.s32.add vset4.s32.s32.eq.add vmad.s32.u32.s32 vmad.u32.u32.u32.po.sat.shr7""".split()
MARKS = """b0 b1 b2 b3 b4 b9 h0 h1 h2 h3 h9 b01 b10 b20 b21 b30 b32 b33 b40 b210 b012 b321
b3210 b0123 b4321 b0000 b7654 b7777 b8000 b000 b00000 b1024 h00 h01 h10 h22 h33 h40
h04 h000 x y""".split()

#: What ptxas takes though the manual doesn't: ``.b01`` as no selector at all, and two negated
#: factors of what has none; and, of a destination, what it refuses only when it makes code.
LAX = re.compile(r".*%r\d\.b01\b|(?!vmad).*-%r\d, -%r\d|\S+ -?5,")


def lines(opcode: str) -> Iterator[str]:
    """One operand marked or changed at a time; signs in all ways."""
    for count in (3, 4):
        plain = [f"%r{i}" for i in range(count)]
        for i, name in enumerate(plain):
            for other in [f"{name}.{mark}" for mark in MARKS] + [f"-{name}", "5", "-5", "_", "%f1"]:
                yield f"{opcode} {', '.join([*plain[:i], other, *plain[i + 1 :]])};"
        for some in product(*((name, f"-{name}") for name in plain[1:])):
            yield f"{opcode} {', '.join(['%r0', *some])};"


@every_row("opcode", FORMS, parts=23)
@every_row(("target", "version"), [("sm_75", "6.3"), ("sm_90a", "8.0"), ("sm_120a", "8.7")])
def test_ptxas_agrees(target: str, version: str, opcode: str) -> None:
    head = f".version {version}\n.target {target}\n.address_size 64\n.entry k(){{ {DECLARATIONS}\n"
    candidates = [line for line in lines(opcode) if not LAX.match(line)]
    refused = Judge(str(ptxas()), target, version).errors(candidates)
    ours: dict[int, PtxError] = {}
    for error in problems(parse(head + "\n".join([*candidates, "ret; }\n"]))):
        assert error.location is not None
        ours[error.location.line - head.count("\n") - 1] = error
    for number, (line, theirs) in enumerate(zip(candidates, refused, strict=True)):
        assert (number in ours) == bool(theirs), (line, theirs, ours.get(number))
