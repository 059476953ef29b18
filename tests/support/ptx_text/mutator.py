"""Mutants of a PTX module: each takes one thing away from what keeps an asynchronous kernel in
order, or changes it, so that whoever claims to find such mistakes can be asked.

An instruction's rule (``RULES``, by its opcode) yields what is changed and what stands in its
place. Which registers hold phases and descriptors is read from the code (``Flow``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from tilewright.ptx import parse, print_module
from tilewright.ptx.tree import (
    Block,
    Function,
    Imm,
    Instruction,
    MemoryOperand,
    Module,
    Operand,
    Pair,
    RegDecl,
    Register,
    Statement,
    Symbol,
)

Change = tuple[str, tuple[Statement, ...]]
BARRIER_BYTES = 8
FIELDS = {"leading": 16, "stride": 32, "swizzle": 62}  # the lowest bits of a descriptor's fields


class Mutant(NamedTuple):
    """``name`` says which instruction of its kind and what of it changed: ``wait 2: dropped``;
    ``line`` where in the original's text.
    """

    name: str
    line: int
    module: Module


def mutants(module: Module) -> Iterator[Mutant]:
    """All mutants of a module, in the order of its text; of a built one, as it is printed."""
    module = module if module.source else parse(print_module(module))
    count: Counter[str] = Counter()
    for index, item in enumerate(module.items):
        if isinstance(item, Function) and item.body:
            for name, pos, body in _bodies(item.body, Flow(item), count):
                items = list(module.items)
                items[index] = replace(item, body=body)
                line = module.source.count("\n", 0, pos) + 1
                yield Mutant(name, line, replace(module, items=tuple(items), source=""))


def _bodies(
    body: tuple[Statement, ...], flow: Flow, count: Counter[str]
) -> Iterator[tuple[str, int, tuple[Statement, ...]]]:
    """Each changed body: the change, where it is, and all statements."""
    for n, statement in enumerate(body):
        if isinstance(statement, Block):
            for name, pos, inner in _bodies(statement.body, flow, count):
                changed = replace(statement, body=inner)
                yield name, pos, (*body[:n], changed, *body[n + 1 :])
        elif isinstance(statement, Instruction):
            for kind, changes in _changes(statement, flow):
                count[kind] += 1
                for what, new in changes:
                    name = f"{kind} {count[kind]}: {what}"
                    yield name, statement.pos, (*body[:n], *new, *body[n + 1 :])


def _changes(i: Instruction, flow: Flow) -> Iterator[tuple[str, Iterable[Change]]]:
    for pattern, kind, rule in RULES:
        if re.match(pattern, i.opcode):
            yield kind, rule(i)
            break
    last = i.operands[-1] if i.operands else None
    if isinstance(last, Imm) and i.operands[0] in flow.phases:
        yield "phase", _phase(i, last.value)
    if isinstance(last, Imm) and i.operands[0] in flow.descriptors:
        yield "descriptor", _descriptor(i, last.value)


class Flow:
    """Which registers of a function hold phases, and which go into ``wgmma``'s descriptors."""

    def __init__(self, function: Function) -> None:
        found = list(function.instructions())
        waits = [i for i in found if re.match(r"mbarrier\.(try|test)_wait\.parity", i.opcode)]
        products = [i for i in found if i.opcode.startswith("wgmma.mma_async")]
        made = [i for i in found if re.search(r"\.[bus]64$", i.opcode) and i.operands]
        self.phases = {i.operands[2] for i in waits}
        self.descriptors = {x for i in products for x in i.operands[1:3] if isinstance(x, Register)}
        known = 0
        while known < len(self.descriptors):  # backwards through what computes them
            known = len(self.descriptors)
            makers = [i for i in made if i.operands[0] in self.descriptors]
            self.descriptors |= {
                x for i in makers for x in i.operands[1:] if isinstance(x, Register)
            }


# --- rules ----------------------------------------------------------------------------------------


def _with(i: Instruction, index: int, operand: Operand) -> tuple[Statement, ...]:
    """The instruction with another operand."""
    operands = list(i.operands)
    operands[index] = operand
    return (replace(i, operands=tuple(operands)),)


def _set(i: Instruction, target: Operand, value: int) -> tuple[Statement, ...]:
    """``mov.pred`` in its place."""
    return (Instruction("mov.pred", (target, Imm(value)), i.guard),)


def _through(
    i: Instruction, index: int, opcode: str, type_: str, *more: Operand
) -> tuple[Statement, ...]:
    """An operand goes through another operation first."""
    made = Register("%mutant")
    first = Instruction(opcode, (made, i.operands[index], *more))
    return (Block((RegDecl(type_, (made.name,)), first, *_with(i, index, made))),)


def _dropped(i: Instruction) -> Iterator[Change]:
    yield "dropped", ()


def _barrier(i: Instruction) -> Iterator[Change]:
    yield "dropped", ()
    index, *count = i.operands
    if isinstance(index, Imm):
        yield "another barrier", _with(i, 0, Imm((index.value + 1) % 16))
    if count and isinstance(count[0], Imm):
        for threads in (count[0].value - 32, count[0].value + 32):
            yield f"{threads} threads", _with(i, 1, Imm(threads))
        if "arrive" not in i.opcode:
            yield "all threads", (replace(i, operands=(index,)),)


def _init(i: Instruction) -> Iterator[Change]:
    yield "dropped", ()
    if isinstance(i.operands[1], Imm):
        for count in (i.operands[1].value - 1, i.operands[1].value + 1):
            yield f"{count} arrivals", _with(i, 1, Imm(count))


def _arrive(i: Instruction) -> Iterator[Change]:
    yield "dropped", ()
    yield "twice", (i, i)
    yield from _elsewhere(
        i, next(n for n, x in enumerate(i.operands) if isinstance(x, MemoryOperand))
    )
    if "expect_tx" in i.opcode:
        plain = i.opcode.replace(".expect_tx", "")
        yield "no bytes", (replace(i, opcode=plain, operands=i.operands[:-1]),)
        if isinstance(i.operands[-1], Imm):
            for size in (i.operands[-1].value - 16, i.operands[-1].value + 16):
                yield f"{size} bytes", _with(i, -1, Imm(size))


def _elsewhere(i: Instruction, index: int) -> Iterator[Change]:
    """At the mbarrier beside it."""
    there = i.operands[index]
    assert isinstance(there, MemoryOperand)
    for step in (BARRIER_BYTES, -BARRIER_BYTES):
        if isinstance(there.base, Symbol):
            moved = replace(there, base=replace(there.base, offset=there.base.offset + step))
        else:
            moved = replace(there, offset=there.offset + step)
        yield f"the mbarrier {step:+} bytes", _with(i, index, moved)


def _wait(i: Instruction) -> Iterator[Change]:
    yield "dropped", _set(i, i.operands[0], 1)  # a loop round it has succeeded
    yield from _elsewhere(i, 1)
    if ".parity" in i.opcode:
        phase = i.operands[2]
        flipped = _through(i, 2, "xor.b32", "b32", Imm(1))
        constant = isinstance(phase, Imm)
        yield "the other phase", _with(i, 2, Imm(1 - phase.value)) if constant else flipped


def _wait_group(i: Instruction) -> Iterator[Change]:
    yield "dropped", ()
    pending = i.operands[0]
    assert isinstance(pending, Imm)
    for n in (pending.value - 1, pending.value + 1):
        if n >= 0:
            yield f"{n} pending", _with(i, 0, Imm(n))


def _bulk(i: Instruction) -> Iterator[Change]:
    yield "dropped", ()
    yield "twice", (i, i)
    addresses = [(n, x) for n, x in enumerate(i.operands) if isinstance(x, MemoryOperand)]
    for n, address in addresses:
        for (k, x), (m, y) in pairwise(enumerate(address.coords or ())):
            if x != y:
                coords = list(address.coords or ())
                coords[k], coords[m] = y, x
                yield f"{k} and {m} swapped", _with(i, n, replace(address, coords=tuple(coords)))
    if "mbarrier" in i.opcode:
        yield from _elsewhere(i, addresses[2][0])
    if "multicast" in i.opcode:
        yield from _fewer(i, addresses[2][0] + 1)


def _fewer(i: Instruction, index: int) -> Iterator[Change]:
    """A multicast to all but its first and to all but its last CTA."""
    mask = i.operands[index]
    if isinstance(mask, Imm):
        for left in (mask.value & -mask.value, 1 << mask.value.bit_length() - 1):
            yield f"to CTAs {mask.value ^ left:#b}", _with(i, index, Imm(mask.value ^ left))


def _mapa(i: Instruction) -> Iterator[Change]:
    rank = i.operands[2]
    if isinstance(rank, Imm):
        yield f"rank {rank.value ^ 1}", _with(i, 2, Imm(rank.value ^ 1))


def _elect(i: Instruction) -> Iterator[Change]:
    chosen = i.operands[0]
    assert isinstance(chosen, Pair)
    yield "all lanes", _set(i, chosen.second, 1)
    yield "no lane", _set(i, chosen.second, 0)


def _product(i: Instruction) -> Iterator[Change]:
    index = 5 if ".sp." in i.opcode else 3  # after D, A, B, metadata and its selector
    scale = i.operands[index]
    if isinstance(scale, Imm):
        yield "adds, or not", _with(i, index, Imm(1 - scale.value))
    else:
        yield "adds, or not", _through(i, index, "not.pred", "pred")


def _phase(i: Instruction, value: int) -> Iterator[Change]:
    if i.opcode.startswith("mov"):
        yield "begins as the other", _with(i, -1, Imm(1 - value))
    if i.opcode.startswith("xor"):
        yield "never changes", ()


def _descriptor(i: Instruction, value: int) -> Iterator[Change]:
    if value >> FIELDS["leading"]:
        for name, low in FIELDS.items():
            yield f"another {name}", _with(i, -1, Imm(value ^ 1 << low))
    else:
        yield "starts 16 bytes later", _with(i, -1, Imm(value + 1))
        yield "starts 32 bytes later", _with(i, -1, Imm(value + 2))


Rule = Callable[[Instruction], Iterable[Change]]
#: The first pattern that an opcode matches, what the instruction is called, its rule.
RULES: tuple[tuple[str, str, Rule], ...] = (
    (r"barrier\.cluster", "cluster barrier", _dropped),
    (r"griddepcontrol\.wait", "grid wait", _dropped),
    (r"bar\.warp", "warp barrier", _dropped),
    (r"bar(rier)?\.", "barrier", _barrier),
    (r"mbarrier\.init", "mbarrier", _init),
    (r"mbarrier\.(arrive|expect_tx)", "arrive", _arrive),
    (r"mbarrier\.(try|test)_wait", "wait", _wait),
    (r"(cp\.async|wgmma)(\.bulk)?\.wait_group", "group wait", _wait_group),
    (r"cp\.async\.wait_all|setmaxnreg|(cp\.async|wgmma)(\.bulk)?\.commit_group", "group", _dropped),
    (r"cp\.async\.bulk\.prefetch", "prefetch", _dropped),
    (r"cp\.(reduce\.)?async\.bulk.*\.global\.shared", "store", _bulk),
    (r"cp\.(reduce\.)?async\.bulk", "load", _bulk),
    (r"wgmma\.mma_async", "product", _product),
    (r"mapa", "mapa", _mapa),
    (r"elect", "elect", _elect),
    (r"wgmma\.fence|fence", "fence", _dropped),
)
