"""Random programs over all scalar instructions: what they cover, and both evaluators on them."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from rows import every_row
from scalar.scalar_draw import operands, program, program_of
from scalar.scalar_forms import families, left_out
from scalar.scalar_operands import THREADS
from scalar.scalar_programs import WIDTH, Program, Step
from scalar.scalar_runs import on_vm, parted, reduced, values
from tilewright.ptx.isa import ROWS
from tilewright.target import Target
from tilewright.vm.state.global_memory import GlobalMemory

pytestmark = pytest.mark.vm

MEMORY = GlobalMemory()
COPY = r"^(?:mov|xor)\.\w+ (%\w+), (%\w+)(?:, %zero_\w)?;$"


def stepped(p: Program, words: np.ndarray) -> np.ndarray:
    return on_vm(p, words, MEMORY)


#: Instructions that neither touch memory nor steer, but give nothing.
NO_RESULT = {"bar", "nanosleep", "pmevent", "setmaxnreg"}


def test_only_instructions_without_results_are_omitted_without_reason() -> None:
    taken = {opcode for opcodes in families() for opcode in opcodes}
    rows = [row for rows in ROWS.values() for row in rows if not left_out(row)]
    absent = [row for row in rows if not taken & set(row.opcodes())]
    here = [r for r in absent if any(Target.parse("sm_90a").runs(t) for t in r.target.split("|"))]
    assert {row.mnemonic for row in here} == NO_RESULT
    assert len(taken) > 4700


def test_programs_have_forms_of_every_row() -> None:
    made = [program(seed, families()) for seed in range(150)]
    seen = {o for p in made for step in p.steps for o in step.opcode.split()}
    assert all(seen & set(opcodes) for opcodes in families())
    assert all(20 <= len(p.steps) <= 40 for p in made)


def test_programs_are_deterministic_in_the_seed() -> None:
    one, other = program(7, families()), program(7, families())
    assert str(one) == str(other) != str(program(8, families()))
    np.testing.assert_array_equal(operands(one, 7), operands(other, 7))


def test_forms_that_ptxas_may_change_are_excluded() -> None:
    steps = [step for seed in range(150) for step in program(seed, families()).steps]
    lines = [line for step in steps for line in step.text.split("\n")]
    assert any(line.startswith("@") for line in lines)
    for line in lines:
        guard, opcode, reads = _parts(line)
        assert not (guard and opcode.startswith(("set.", "testp.")))
        if opcode.startswith(("min.", "max.")) and "f" in opcode:
            assert len(set(reads)) == len(reads)
        if "approx" in opcode.split("."):
            assert all(name.startswith("%") for name in reads)
        if re.match(r"sh[lr]\..16$", opcode) and reads[1].isdigit():
            assert int(reads[1]) < 1 << 16
    for step in steps:
        for name in (n for n in step.writes if n[1] in "hrl"):
            assert f"xor.b{WIDTH[name[1]]} {name}, {name}, %zero_{name[1]};" in step.text


def _parts(line: str) -> tuple[str, str, list[str]]:
    """A line's guard, opcode and what it reads, where it writes one register."""
    found = re.match(r"(@\S+ )?(\S+) [^,]*(.*);", line)
    assert found
    return found[1] or "", found[2], found[3].split(", ")[1:]


def test_guarded_copy_keeps_the_old_value() -> None:
    """And so has a value: of registers that a step makes, none is another's old value."""
    for seed in range(150):
        for step in (s for s in program(seed, families()).steps if "@" in s.text):
            for made, old in re.findall(COPY, step.text, re.MULTILINE):
                assert made == old or made not in step.writes or old not in step.writes


def test_a_guard_that_ptxas_drops_is_not_drawn() -> None:
    """Sums of all bytes in order have none; of others, some do."""
    steps = program_of(["vadd4.u32.u32.u32.add"] * 400, 0).steps
    lines = [line for step in steps for line in step.text.split("\n") if "vadd4" in line]
    guarded = [line for line in lines if line.startswith("@")]
    assert guarded and all(re.search(r"%r\d+\.b", line) for line in guarded)
    assert any(not re.search(r"%r\d+\.b", line) for line in lines)


@every_row("seed", range(40), parts=20)
def test_both_evaluators_agree(seed: int) -> None:
    p = program(seed, families())
    words = operands(p, seed)
    ours = stepped(p, words)
    assert not parted(p, words, on_vm(p, words, MEMORY, compiled=True), ours)
    assert len(np.unique(ours)) > THREADS


@pytest.mark.parametrize("part", range(4))
def test_every_form_runs(part: int) -> None:
    """A quarter of them, fifty in a program."""
    opcodes = [opcode for opcodes in families() for opcode in opcodes][part::4]
    for at in range(0, len(opcodes), 50):
        p = program_of(opcodes[at : at + 50], at)
        assert stepped(p, operands(p, at)).any()


def test_differing_step_is_isolated() -> None:
    """A device that takes ``mul.hi`` for ``mul.lo``: each is found, and no step that reads it."""

    def wrong(p: Program, words: np.ndarray) -> np.ndarray:
        texts = (step.text.replace("mul.hi.", "mul.lo.") for step in p.steps)
        steps = tuple(replace(s, text=t) for s, t in zip(p.steps, texts, strict=True))
        return stepped(replace(p, steps=steps), words)

    opcodes = ["mul.hi.u32", "add.u32", "mul.hi.s64", "popc.b64", "mul.hi.u32", "cvt.rn.f32.u32"]
    p = program_of(opcodes * 2, 1)
    words = operands(p, 1)
    ours = stepped(p, words)
    found = parted(p, words, wrong(p, words), ours)
    assert found
    for at in found:
        assert p.steps[at.index].opcode.startswith("mul.hi")
        q, given = reduced(p, at.index, values(p, words, ours), wrong, stepped)
        assert q.steps == (p.steps[at.index],)
        assert parted(q, given, wrong(q, given), stepped(q, given))


def test_differing_step_includes_the_producer_of_its_operand() -> None:
    """A device that changes a sum only where a negation made its operand is shown with both."""

    def wrong(p: Program, words: np.ndarray) -> np.ndarray:
        together = {"neg.s32", "add.u32"} <= {step.opcode for step in p.steps}
        texts = (s.text.replace("add.u32", "sub.u32") if together else s.text for s in p.steps)
        steps = tuple(replace(s, text=t) for s, t in zip(p.steps, texts, strict=True))
        return stepped(replace(p, steps=steps), words)

    chain = Step("neg.s32", "neg.s32 %r101, %r0;", ("%r0",), ("%r101",))
    other = Step("not.b32", "not.b32 %r102, %r1;", ("%r1",), ("%r102",))
    total = Step("add.u32", "add.u32 %r103, %r101, %r102;", ("%r101", "%r102"), ("%r103",))
    p = Program("p", ("%r0", "%r1"), (chain, other, total))
    words = np.arange(2 * THREADS, dtype=np.uint64).reshape(2, THREADS)
    q, _ = reduced(p, 2, values(p, words, stepped(p, words)), wrong, stepped)
    assert q.steps == (chain, total)
