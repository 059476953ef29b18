"""The PTX rows of matrix instructions say what ``mma`` says."""

import pytest

from rows import every_row
from tilewright import mma
from tilewright.errors import UnknownInstruction
from tilewright.ptx.isa import form
from tilewright.ptx.isa.convergence import WHOLE, convergence_rule


class Recorder:
    """An evaluator that notes what a meaning asks for."""

    arch = "sm_90a"

    def __init__(self):
        self.calls = []

    def const(self, width, value):
        return value

    def __getattr__(self, name):
        return lambda *args: self.calls.append((name, *args))


WARP = [row for row in mma.ROWS if not row.asynchronous]


@every_row("row", WARP, ids=str)
def test_every_matrix_instruction_has_its_form(row):
    found = form(row.opcode)
    versions, targets = zip(*row.needs, strict=True)
    assert list(found.needs()) == [("|".join(versions), "|".join(targets))]
    assert convergence_rule(found) == WHOLE and found.until == row.until
    (specs,) = found.signatures
    assert [s.count for s in specs[:4]] == [row.fragment(x).count for x in "dabc"]
    assert [s.dest for s in specs] == [True] + [False] * (len(specs) - 1)
    assert len(specs) == 4 + 2 * row.sparse + 4 * bool(row.stype)


def test_a_meaning_asks_for_the_instruction():
    row = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
    m = Recorder()
    found = form(row.opcode)
    found.row.meaning(m, found, "a", "b", "c")
    assert m.calls == [("mma", row, "a", "b", "c")]


def test_signatures():
    def text(opcode):
        (specs,) = form(opcode).signatures
        return ", ".join(map(str, specs))

    start = "mma.sync.aligned.m16n8k16.row.col"
    assert text(f"{start}.f32.bf16.bf16.f32") == "d:f32*4, a:b32*4, b:b32*2, c:f32*4"
    assert text(f"{start}.f16.f16.f16.f16") == "d:b32*2, a:b32*4, b:b32*2, c:b32*2"
    assert text("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == "d:b32*4, [a]"
    assert text("ldmatrix.sync.aligned.m8n8.x1.b16") == "d:b32*1, [a]"


def test_ldmatrix():
    m = Recorder()
    found = form("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16")
    found.row.meaning(m, found, "address")
    assert m.calls[0] == ("ldmatrix", "shared", "address", 2, True)
    assert list(found.needs()) == [("7.8", "sm_75")]
    assert found.signatures[0][1].space == "shared::cta"
    assert form("ldmatrix.sync.aligned.m8n8.x4.b16").signatures[0][1].space == ""


def test_other_combinations_name_the_nearest():
    with pytest.raises(UnknownInstruction, match=r"nearest are .*f32\.f16\.f16\.f32"):
        form("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16")
    with pytest.raises(UnknownInstruction, match=r"expected \.f16, \.f16, got \.bf16, \.bf16"):
        form("mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16")
    with pytest.raises(UnknownInstruction, match=r"ldmatrix has no \.x3"):
        form("ldmatrix.sync.aligned.m8n8.x3.shared.b16")
