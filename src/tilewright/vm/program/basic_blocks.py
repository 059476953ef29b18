"""Divides flat code into basic blocks, which end where control can leave, arrive or wait."""

from __future__ import annotations

from dataclasses import replace

from ...ptx.isa.convergence import convergence_rule
from .bound_operands import CodeBlock, Op

MAX_BLOCK = 256  # operations; a longer stretch of straight code is cut
LEAVES = frozenset({"branch", "exit", "barrier"})


def cut(
    ops: list[Op], labels: dict[int, list[str]], divergent: bool
) -> tuple[list[CodeBlock], dict[str, int]]:
    """Blocks, and the block that each label begins. An operation that may be tried again begins one
    too: what waits, and in divergent code what is convergent, for lanes wait for each other there.
    """
    blocks = [CodeBlock(0)]
    targets: dict[str, int] = {}

    def fresh() -> None:
        if blocks[-1].ops:
            blocks.append(CodeBlock(len(blocks)))

    for index, op in enumerate(ops):
        if index in labels or len(blocks[-1].ops) >= MAX_BLOCK:
            fresh()
        if "waits" in op.form.effects or (divergent and convergence_rule(op.form)):
            fresh()
        targets |= dict.fromkeys(labels.get(index, ()), len(blocks) - 1)
        blocks[-1].ops.append(op)
        if op.form.effects & LEAVES:
            fresh()
        if op.dests and "barrier" in op.form.effects:
            blocks[-1].ops.append(replace(op, resumed=True))
    fresh()  # falling off the end is an exit: an empty last block says so
    targets |= dict.fromkeys(labels.get(len(ops), ()), len(blocks) - 1)
    return blocks, targets
