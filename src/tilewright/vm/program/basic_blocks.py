"""Divides flat code into basic blocks, which end where control can leave, arrive or wait."""

from __future__ import annotations

from dataclasses import replace

from ...ptx.isa.convergence import convergence_rule
from .bound_operands import CodeBlock, Op

MAX_BLOCK = 256  # operations; longer straight-line code is divided
BLOCK_ENDS = frozenset({"branch", "exit", "barrier"})


def divide_into_blocks(
    ops: list[Op], labels: dict[int, list[str]], divergent: bool
) -> tuple[list[CodeBlock], dict[str, int]]:
    """The blocks, and the index of the block that each label begins.

    An operation that may be executed again begins a block too: one that waits, and in divergent
    code a convergent one, at which lanes wait for each other.
    """
    blocks = [CodeBlock(0)]
    targets: dict[str, int] = {}

    def begin_block() -> None:
        if blocks[-1].ops:
            blocks.append(CodeBlock(len(blocks)))

    for index, op in enumerate(ops):
        if index in labels or len(blocks[-1].ops) >= MAX_BLOCK:
            begin_block()
        if "waits" in op.form.effects or (divergent and convergence_rule(op.form)):
            begin_block()
        targets |= dict.fromkeys(labels.get(index, ()), len(blocks) - 1)
        blocks[-1].ops.append(op)
        if op.form.effects & BLOCK_ENDS:
            begin_block()
        if op.dests and "barrier" in op.form.effects:
            blocks[-1].ops.append(replace(op, resumed=True))
    begin_block()  # the end of the code is an exit: the last block is empty
    targets |= dict.fromkeys(labels.get(len(ops), ()), len(blocks) - 1)
    return blocks, targets
