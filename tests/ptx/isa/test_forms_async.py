"""The checker says of every asynchronous instruction, fence and barrier what ptxas says of it.

Cases are whole lines, made in ``ptx_forms.forms_async``: all legal forms, all that are one modifier
away, some with a word moved, and random ones; for six targets and every PTX version up to 9.0. Our
verdict is the rows' and the checker's, operand by operand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from itertools import chain, combinations

import pytest

from ptx_forms.forms import DECLARATIONS
from ptx_forms.forms_async import ASYNC, FIELDS, RESTRICTIONS, SPACES
from ptx_forms.forms_make import asynchronous
from ptx_forms.verdicts import TOP, Difference, Spans, Verdicts, within
from tilewright import ptx
from tilewright.ptx.isa import Form
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.rules.checker import candidates
from tilewright.ptx.rules.operand_rules import operand_error
from tilewright.ptx.rules.requirements import statement_requirements
from tilewright.ptx.rules.symbol_table import SymbolTable
from tilewright.ptx.tree import Instruction, Pair, RegDecl
from tilewright.target import parse_version

CHUNK = 5000
HEAD = f".version 9.0\n.target sm_100a\n.address_size 64\n.entry k() {{ {DECLARATIONS}\n"

load_verdicts = cache(partial(Verdicts.load, ASYNC))


def parsed(lines: list[str]) -> tuple[list[Instruction], SymbolTable]:
    """The instructions of these lines, and the registers they name."""
    body = ptx.parse(HEAD + "\n".join(lines) + "\n}\n").functions["k"].body or ()
    names = SymbolTable()
    for s in body:
        if isinstance(s, RegDecl):
            assert not [*names.declare_registers(s)]
    return [s for s in body if isinstance(s, Instruction)], names


def fits(found: Form, i: Instruction, names: SymbolTable) -> bool:
    """Whether some signature takes the operands."""
    operands = [o for o in i.operands if not isinstance(o, Pair)]
    for specs in candidates(found, len(i.operands)):
        paired = {n - 1 for n, s in enumerate(specs) if s.second}
        single = [s for n, s in enumerate(specs) if not s.second and n not in paired]
        if len(single) == len(operands):
            pairs = zip(single, operands, strict=True)
            if not any(operand_error(found, spec, operand, names) for spec, operand in pairs):
                return True
    return False


def ours(i: Instruction, names: SymbolTable) -> Spans:
    found = find(i.opcode)
    if found is None or not fits(found, i, names):
        return ASYNC.never
    return ASYNC.spans(statement_requirements(i, names), found.until)


def differences(numbers: Iterable[int]) -> Iterator[Difference]:
    """Where we and ptxas differ among the cases of these numbers."""
    recorded, cases, rows = load_verdicts(), load_verdicts().cases(), load_verdicts().spans()
    chosen = list(numbers)
    for start in range(0, len(chosen), CHUNK):
        some = chosen[start : start + CHUNK]
        instructions, names = parsed([cases[n] for n in some])
        for n, i in zip(some, instructions, strict=True):
            mine, theirs = ours(i, names), rows[recorded.index[n]]
            if mine != theirs:
                yield Difference(ASYNC, cases[n], theirs, mine)


# --- where we differ on purpose ---------------------------------------------------------------

IGNORED = {
    "sync", "async", "acq_rel", "acc::f16", "acc::f32", "cluster", "b128", *RESTRICTIONS, *FIELDS,
    *SPACES,
}  # fmt: skip


def verdict(text: str) -> Spans:
    """Ours, of one line."""
    (instruction,), names = parsed([text])
    return ours(instruction, names)


def _ignores_words(d: Difference) -> bool:
    """It is legal without one or two of them, and for as long, a word's own needs aside."""
    if d.ours != ASYNC.never:
        return False
    opcode, _, operands = d.text.partition(" ")
    words = opcode.rstrip(";").split(".")
    places = [n for n, word in enumerate(words) if word in IGNORED]
    for left_out in chain(combinations(places, 1), combinations(places, 2)):
        shorter = ".".join(w for n, w in enumerate(words) if n not in left_out)
        if within(d.ptxas, verdict(f"{shorter} {operands or ';'}")):
            return True
    return False


def _signed(d: Difference) -> bool:
    found = re.match(r"(mapa|getctarank|setmaxnreg)\b", d.text)
    return bool(found) and verdict(re.sub(r"\.s(32|64)\b", r".u\1", d.text)) == d.ptxas


#: Why we differ, and where: the manual is followed, or common sense.
KNOWN: dict[str, Callable[[Difference], bool]] = {
    "ptxas ignores some words that mean nothing there": _ignores_words,
    "ptxas takes signed types where the manual has unsigned ones": _signed,
    "ptxas takes st.async and red.async that name no mbarrier": lambda d: (
        d.only_ptxas(r"(st|red)\.async\.") and "complete_tx" not in d.text
    ),
    "CUDA 12.9 takes fence.acquire and .release before sm_90": lambda d: (
        bool(re.match(r"fence\..*\b(acquire|release)\b", d.text)) and d.ptxas[1:] == d.ours[1:]
    ),
    "CUDA 13.5 takes .acq_rel between proxies, which no manual has": lambda d: d.only_ptxas(
        r"fence\.proxy\..*::generic\..*\bacq_rel\b"
    ),
    "a module with 64-bit addresses has no 32-bit generic ones, says code generation": lambda d: (
        bool(re.match(r"cvta\..*\bu32\b", d.text)) and d.ptxas == ASYNC.never
    ),
    "ptxas crashes on loads of eight 16-bit values": lambda d: bool(
        re.match(r"ld\..*\bv8\b.*\b[bsu]16\b", d.text)
    ),
    "what parameter a store goes to is not known here, and code generation wants to know": (
        lambda d: bool(re.match(r"st\..*\bparam\b", d.text))
    ),
}


def why(d: Difference) -> str:
    return next((reason for reason, holds in KNOWN.items() if holds(d)), "")


# --- the tests --------------------------------------------------------------------------------


def test_every_row_was_judged():
    assert not asynchronous() - {*load_verdicts().legal}, (
        "judge them: tests/support/ptx_forms/forms_make.py"
    )


def test_legal_forms_and_a_tenth_of_the_others_are_as_ptxas_has_them():
    recorded = load_verdicts()
    numbers = range(0, len(recorded.index), 10)
    legal = [n for n, row in enumerate(recorded.index) if row][::3]
    assert not [str(d) for d in differences(dict.fromkeys([*legal, *numbers])) if not why(d)]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_cases_are_as_ptxas_has_them():
    """And each reason to differ is one still."""
    found = {why(d) or str(d) for d in differences(range(len(load_verdicts().index)))}
    assert found == set(KNOWN)


@pytest.mark.parametrize("target", ASYNC.targets)
def test_the_checker_accepts_what_ptxas_accepts(target):
    """Whole modules: printed, parsed again, and without a problem in the last version."""
    recorded, at, rows = load_verdicts(), ASYNC.targets.index(target), load_verdicts().spans()
    last = parse_version(TOP.get(target, ASYNC.last))
    expected = [n for n, i in enumerate(recorded.index) if rows[i][at][1]][::7]
    cases = recorded.cases()
    good = [cases[n] for n in expected if verdict(cases[n])[at][1]]
    assert good
    head = f".version {last[0]}.{last[1]}\n.target {target}\n.address_size 64\n"
    module = ptx.parse(f"{head}.entry k() {{\n{DECLARATIONS}\n" + "\n".join(good) + "\nret;\n}\n")
    assert ptx.problems(module) == []
    assert ptx.parse(ptx.print_module(module)) == module
