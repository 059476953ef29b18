"""The instruction table is consistent: rows can be read, and opcodes seen in the wild have one."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from rows import every_row
from tilewright.dtypes import dtype
from tilewright.errors import UnknownInstruction
from tilewright.ptx.isa import ROWS, Row, form, primitives
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.isa.row import ListedRow
from tilewright.ptx.rules.requirements import lowest_target
from tilewright.ptx.tree import Imm, Register, Vector
from tilewright.target import Target

WILD = Path(__file__).parents[2] / "data" / "opcodes_in_the_wild.txt"
EFFECTS = {
    "branch", "call", "exit", "barrier", "convergent", "whole", "waits", "memory", "reads", "async",
    "discard", "relaxed", "pack",
}  # fmt: skip
ALL = [r for rows in ROWS.values() for r in rows]
IDS = [r.syntax for r in ALL]


def some_form(r: Row):
    """A legal form of the row: the first that its ``where`` lets pass."""
    if isinstance(r, ListedRow):
        return form(next(r.opcodes()))
    plain = ".".join([r.mnemonic, *(s.choices[0] for s in r.slots if not s.optional)])
    full = ".".join([r.mnemonic, *(s.choices[0] for s in r.slots)])
    swapped = ".".join([r.mnemonic, *(s.choices[-1] for s in r.slots if not s.optional)])
    vector = ".".join([r.mnemonic, *(s.choices[0] for s in r.slots if s.name in "vec T")])
    for opcode in (plain, full, swapped, vector):
        if found := find(opcode):
            return found
    raise AssertionError(f"no form of {r.syntax} is legal")


@every_row("opcode", lambda: WILD.read_text().split())
def test_opcodes_in_the_wild_have_a_row(opcode):
    assert form(opcode).signatures


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@every_row("r", ALL, ids=IDS)
def test_a_row_reads_and_says_what_it_does(r):
    assert r.effects <= EFFECTS
    assert r.doc.strip().endswith((".", "?", "…")), r.doc
    for ptx, target in ((r.ptx, r.target), *r.needs.values()):
        assert all(re.fullmatch(r"\d+\.\d", one) for one in ptx.split("|"))
        assert all(re.fullmatch(r"sm_\d+[af]?", one) for one in target.split("|"))


@every_row("r", ALL, ids=IDS)
def test_signatures_name_known_types(r):
    f = some_form(r)
    for specs in f.signatures:
        for spec in specs:
            if spec.kind == "reg":
                assert dtype(spec.type).bits in (1, 8, 16, 32, 64, 128), spec
            assert not (spec.second and not spec.dest)


@every_row("r", ALL, ids=IDS)
def test_a_meaning_takes_the_operands_of_its_signatures(r):
    f = some_form(r)
    for specs in f.signatures:
        sources = [s for s in specs if not s.dest]
        inspect.signature(r.meaning).bind(None, f, *sources)
        least = [s for s in sources if not s.optional]
        inspect.signature(r.meaning).bind(None, f, *least)


def test_meanings_use_the_primitives_that_there_are():
    named = (*vars(primitives.Primitives), *primitives.Primitives.__annotations__)
    known = {name for name in named if not name.startswith("_")}
    for module in {inspect.getmodule(r.meaning) for r in ALL}:
        used = set(re.findall(r"\bm\.(\w+)", inspect.getsource(module)))
        assert used - {"signature"} <= known, (module, used - known)


def test_modifiers_may_be_in_another_order():
    for written, row in [
        ("ld.global.acquire.gpu.b32", "ld.acquire.gpu.global.b32"),
        ("cvt.f32.f64.rn", "cvt.rn.f32.f64"),
        ("min.s32.relu", "min.relu.s32"),
    ]:
        assert form(written).chosen == form(row).chosen
    with pytest.raises(UnknownInstruction, match=r"no instruction 'cvt\.f64\.bf16\.rp\.rp'"):
        form("cvt.f64.bf16.rp.rp")


def test_more_modifiers_never_need_less():
    for less, more in [
        ("ld.global.u32", "ld.global.L2::128B.u32"),
        ("fma.rn.f16", "fma.rn.relu.f16"),
        ("cp.async.cg.shared.global", "cp.async.cg.shared.global.L2::cache_hint"),
        ("min.f32", "min.NaN.f32"),
    ]:
        assert highest(less) <= highest(more)


def highest(opcode: str) -> tuple[int, ...]:
    return max(version(ptx) for ptx, _ in form(opcode).needs())


@pytest.mark.parametrize(
    ("opcode", "ptx", "target"),
    [
        ("add.f32", "1.0", "sm_10"),
        ("add.bf16", "7.8", "sm_90"),
        ("fma.rn.bf16x2", "7.0", "sm_80"),
        ("cp.async.cg.shared.global", "7.0", "sm_80"),
        ("shfl.sync.bfly.b32", "6.0", "sm_30"),
        ("redux.sync.add.s32", "7.0", "sm_80"),
        ("ld.global.L1::no_allocate.u32", "7.4", "sm_70"),
        ("ld.global.v8.f32", "8.8", "sm_100"),
        ("cvt.rn.satfinite.e4m3x2.f32", "8.1", "sm_89"),
    ],
)
def test_requirements_of_forms(opcode, ptx, target):
    assert lowest_target(form(opcode).needs()) == (version(ptx), Target.parse(target))


@pytest.mark.parametrize(
    ("opcode", "why"),
    [
        ("ld.relaxed.u32", "scope"),
        ("ld.global.v8.u64", "bits"),
        ("ld.volatile.global.ca.u32", "exclude"),
        ("cvt.sat.u32.u8", "\\.sat is not allowed"),
        ("cvt.f32.f64", "rounding"),
        ("addd.s32", "did you mean add"),
        ("add.q32", "nearest are add.u32, add.s32, add.f32"),
        ("mov.u33", "nearest are mov.u32"),
        ("ret.u32", r"its forms are ret\[.uni\]"),
    ],
)
def test_an_unknown_instruction_has_the_reason(opcode, why):
    with pytest.raises(UnknownInstruction, match=why):
        form(opcode)


def test_signatures_differ_in_vectors_and_predicates():
    lo, hi, d = Register("%r1"), Register("%r2"), Register("%rd1")
    mov = form("mov.b64")
    assert [s.count for s in mov.signature((d, Vector((lo, hi))))] == [0, 2]
    assert [s.count for s in mov.signature((Vector((lo, hi)), d))] == [2, 0]
    assert [s.count for s in mov.signature((d, d))] == [0, 0]
    copy = form("cp.async.cg.shared.global")
    operands = (d, d, Imm(16), Register("%p1"))
    is_pred = lambda o: o == Register("%p1")  # noqa: E731
    assert copy.signature(operands, is_pred)[3].type == "pred"
    assert copy.signature((*operands[:3], lo), is_pred)[3].type == "u32"
    assert copy.signature(7) is None
