"""Every register-to-register instruction that a target has, read from the rows.

``families(target)`` gives the opcodes, a tuple for each row. A row is left out only by one of the
rules of ``left_out``, each with its reason, so a new row is taken in as soon as it is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tilewright.ptx.isa import ROWS, Form, OperandSpec, Row
from tilewright.ptx.isa.lookup import find
from tilewright.ptx.isa.row import ListedRow
from tilewright.target import Target
from tilewright.vm.program.unsupported_features import UNSUPPORTED_FEATURES

Families = tuple[tuple[str, ...], ...]

#: Effects that leave an instruction a function of the registers of its warp.
HARMLESS = {"relaxed", "pack", "convergent"}

#: Rows whose effects say nothing, but whose results aren't a matter of registers alone.
ELSEWHERE = {
    "cvta": "a state space lies at another address on every machine",
    "isspacep": "a state space lies at another address on every machine",
    "mapa": "takes an address of shared memory",
    "getctarank": "takes an address of shared memory",
    "createpolicy": "its result is for the cache and means nothing else",
    "mbarrier": "takes the state of a barrier, which every machine encodes its own way",
}


def left_out(row: Row) -> str:
    """Why no program has the row's forms; empty where they have them."""
    if row.removed:
        return "newer targets have it no more"
    if isinstance(row, ListedRow):
        return "matrices have tests of their own"
    if row.effects - HARMLESS or row.features & UNSUPPORTED_FEATURES:
        return "touches memory, steers or waits"
    return ELSEWHERE.get(row.mnemonic, "")


@cache
def signatures(f: Form, target: str) -> tuple[tuple[OperandSpec, ...], ...]:
    """Those that the target has."""
    have = Target.parse(target)
    needed = [[s.needs[1] for s in specs if s.needs] for specs in f.signatures]
    pairs = zip(f.signatures, needed, strict=True)
    return tuple(specs for specs, targets in pairs if all(map(have.runs, targets)))


def fits(f: Form) -> bool:
    """Whether its operands are registers and immediates, and it has results."""
    return all(any(s.dest for s in specs) and all(map(_plain, specs)) for specs in f.signatures)


def _plain(spec: OperandSpec) -> bool:
    return spec.kind in ("reg", "imm") and not spec.read_write


@cache
def families(target: str = "sm_90a") -> Families:
    """The opcodes of each row that ``target`` has; an opcode is the first row's that takes it."""
    have, made = Target.parse(target), {}
    for row in (r for rows in ROWS.values() for r in rows if not left_out(r)):
        made[row] = {f.opcode: None for f in _forms(row) if fits(f) and runs(f, have)}
    return tuple(tuple(opcodes) for opcodes in made.values() if opcodes)


def _forms(row: Row) -> Iterator[Form]:
    for opcode in row.opcodes():
        f = find(opcode)
        if f is not None and f.row is row:
            yield f


def runs(f: Form, have: Target) -> bool:
    """Whether the target has the form; of alternatives any is enough."""
    return all(any(have.runs(one) for one in target.split("|")) for _, target in f.needs())
