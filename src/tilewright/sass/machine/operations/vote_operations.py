"""Instructions about the warp: special registers, votes, and moves between register files."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....errors import SassError
from ..thread_state import LANES, ThreadGroup
from .memory_operations import Action
from .operand_reader import predicate_source, word_source
from .operation_operands import Array, OperationOperands

_LANE_BITS = np.uint64(1) << np.arange(LANES, dtype=np.uint64)


def special(o: OperationOperands) -> Action:
    """S2R, S2UR and CS2R: a special register, a clock, or SRZ."""
    name = o.sources[0].marks
    target = o.outputs[0]
    file, first = ("UR" if target.kind == "UR#" else "R"), int(target.numbers[0])
    words = 2 if o.opcode == "CS2R" and o.sm >= 70 else 1

    def run(group: ThreadGroup, active: Array) -> None:
        value = group.cta.special(name, group)
        for i in range(words):
            group.write(file, first + i, value if i == 0 else np.zeros((1, 1), np.uint32), active)

    return run


def ballots(flags: Array) -> Array:
    """(rows, 1): the lanes whose flag is set, as bits."""
    return np.asarray((flags * _LANE_BITS).sum(axis=1, keepdims=True)).astype(np.uint32)


def vote(o: OperationOperands) -> Action:
    """VOTE and VOTEU: ballot, ANY, ALL and EQ of a predicate over the active lanes."""
    source = predicate_source(o.sources[-1])

    def run(group: ThreadGroup, active: Array) -> None:
        flags = np.broadcast_to(source(group), active.shape) & active
        every = (flags == active).all(axis=1, keepdims=True)
        some = flags.any(axis=1, keepdims=True)
        result = np.asarray(every if o.has("ALL") else some if o.has("ANY") else every | ~some)
        for operand in o.outputs:
            file = operand.kind[:-1]
            value = ballots(flags) if file in ("R", "UR") else result
            group.write(file, int(operand.numbers[0]), value, active)

    return run


def to_uniform(o: OperationOperands) -> Action:
    """R2UR: the value of the first active lane."""
    source = word_source(o.sources[0])
    target = int(o.outputs[-1].numbers[0])

    def run(group: ThreadGroup, active: Array) -> None:
        values = np.broadcast_to(source(group), active.shape)
        first = active.argmax(axis=1)[:, None]
        group.write("UR", target, np.take_along_axis(values, first, axis=1), active)

    return run


def pack_predicates(o: OperationOperands) -> Action:
    """P2R: predicates as the low bits of a register, under a mask."""
    base, mask = word_source(o.sources[1]), int(o.sources[2].numbers[0])
    target = int(o.outputs[0].numbers[0])

    def run(group: ThreadGroup, active: Array) -> None:
        value = np.broadcast_to(base(group) & np.uint32(~mask & 0xFFFFFFFF), active.shape)
        for i in range(7):
            if mask >> i & 1:
                value = value | group.read("P", i).astype(np.uint32) << np.uint32(i)
        group.write("R", target, value, active)

    return run


def unpack_predicates(o: OperationOperands) -> Action:
    """R2P: the low bits of a register as predicates, under a mask."""
    source, mask = word_source(o.sources[1]), int(o.sources[2].numbers[0])

    def run(group: ThreadGroup, active: Array) -> None:
        value = source(group)
        for i in range(7):
            if mask >> i & 1:
                flag = np.broadcast_to(value >> np.uint32(i) & np.uint32(1), active.shape)
                group.write("P", i, flag.astype(bool), active)

    return run


def elect(o: OperationOperands) -> Action:
    """ELECT: a predicate of the first active lane."""
    target = next(x for x in o.outputs if x.kind == "P#")

    def run(group: ThreadGroup, active: Array) -> None:
        first = np.zeros_like(active)
        np.put_along_axis(first, active.argmax(axis=1)[:, None], True, axis=1)
        group.write("P", int(target.numbers[0]), first & active, active)

    return run


def reduce_warp(o: OperationOperands) -> Action:
    """REDUX: sum, minimum, maximum or a bitwise operation, AND if none is named, over the active
    lanes.
    """
    source = word_source(o.sources[0])
    kind = np.int32 if o.has("S32") else np.uint32
    functions = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum, "OR": np.bitwise_or,
                 "XOR": np.bitwise_xor}  # fmt: skip
    function = next((f for name, f in functions.items() if o.has(name)), np.bitwise_and)
    target = int(o.outputs[0].numbers[0])

    def run(group: ThreadGroup, active: Array) -> None:
        values = np.broadcast_to(source(group), active.shape)
        found = np.zeros((len(active), 1), np.uint32)
        for row, lanes in enumerate(active):
            if lanes.any():
                found[row] = function.reduce(
                    values[row, lanes].view(kind), dtype=kind, keepdims=True
                ).view(np.uint32)
        group.write("UR" if o.outputs[0].kind == "UR#" else "R", target, found, active)

    return run


def match(o: OperationOperands) -> Action:
    """MATCH.ANY: the active lanes that have a lane's value; .ALL: all of them if all have the same
    one, which its predicate tells, else none.
    """
    reads = [word_source(o.sources[0], i) for i in range(2 if o.has("U64") else 1)]

    def run(group: ThreadGroup, active: Array) -> None:
        same = active[:, :, None] & active[:, None, :]
        for read in reads:
            values = np.broadcast_to(read(group), active.shape)
            same = same & (values[:, :, None] == values[:, None, :])
        every = (same == active[:, None, :]).all(axis=2)
        if o.has("ALL"):
            same = same & every[:, :, None]
        masks = (same * _LANE_BITS).sum(axis=2).astype(np.uint32)
        for operand in o.outputs:
            file = operand.kind[:-1]
            value = every if file == "P" else masks
            group.write(file, int(operand.numbers[0]), value, active)

    return run


def barrier_result(o: OperationOperands) -> Action:
    """B2R.RESULT: what the last BAR.RED gave: a count, or whether all or any were true."""
    if not o.has("RESULT"):
        raise SassError(f"B2R must be B2R.RESULT in the SASS machine, got {o.text}")

    def run(group: ThreadGroup, active: Array) -> None:
        results = group.cta.control.results
        found = np.array([[results.get(int(w), 0)] for w in group.indices], np.uint32)
        for operand in o.outputs:
            file = operand.kind[:-1]
            value = found != 0 if file == "P" else found
            group.write(file, int(operand.numbers[0]), value, active)

    return run


def refuse(o: OperationOperands) -> Action:
    """An instruction that the machine does not run."""
    raise SassError(f"the SASS machine must know an instruction, got {o.text}")


WARP_OPERATIONS: dict[str, Callable[[OperationOperands], Action]] = {
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), special),
    **dict.fromkeys(("VOTE", "VOTEU"), vote),
    "R2UR": to_uniform, "P2R": pack_predicates, "R2P": unpack_predicates, "ELECT": elect,
    "REDUX": reduce_warp, "MATCH": match, "B2R": barrier_result,
}  # fmt: skip
