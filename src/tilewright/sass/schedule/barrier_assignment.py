"""Assigns the six barriers: which instruction sets which, and who waits.

A barrier counts: it is waited for until all instructions that set it are done, so several may share
one. In the order of the code each instruction of variable latency takes a free barrier, else one
that its in-order queue already uses, else the one that was taken first. A read barrier is set where
an operand is overwritten before the result is waited for. Waits follow from what may be pending on
any path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..control_code import ControlCode
from ..machine.register_effects import Register, RegisterEffects, register_effects
from .kernel_instruction import KernelInstruction
from .liveness import successors
from .timing_table import TimingTable

_BARRIERS = range(1, 7)
_WRITE, _READ = "write", "read"
Pending = dict[tuple[Register, str], frozenset[int]]  # what is in flight: barriers


@dataclass
class _Holder:
    """What a barrier was given to since it was last waited for."""

    since: int
    queue: str
    kind: str


def with_barriers(
    timing: TimingTable, instructions: Sequence[KernelInstruction], labels: Mapping[str, int]
) -> list[KernelInstruction]:
    """The instructions with barriers and waits, whatever they had before.

    Raises SassError for asynchronous instructions, which no barrier covers.
    """
    for x in instructions:
        if timing.row(x.text).latency == "asynchronous":
            raise x.error(f"barriers must be assigned by hand, got asynchronous {x.text.opcode}")
    effects = [register_effects(timing.sm, x.text) for x in instructions]
    setters = _setters(timing, instructions, effects)
    waits = _waits(instructions, effects, setters, successors(instructions, labels))
    return [
        replace(x, control=replace(_plain(x.control), read=read, write=write, wait=wait))
        for x, (read, write), wait in zip(instructions, setters, waits, strict=True)
    ]


def _plain(control: ControlCode) -> ControlCode:
    return ControlCode(stall=control.stall, yields=control.yields)


def _setters(
    timing: TimingTable,
    instructions: Sequence[KernelInstruction],
    effects: Sequence[RegisterEffects],
) -> list[tuple[int, int]]:
    """(read barrier, write barrier) of each instruction, 0 for none."""
    held: dict[int, _Holder] = {}
    pending: Pending = {}
    found: list[tuple[int, int]] = []
    for i, x in enumerate(instructions):
        for barrier in _needed(pending, effects[i]):
            _release(pending, held, barrier)
        read = write = 0
        if timing.is_variable(x.text):
            queue = timing.row(x.text).queue
            if effects[i].writes:
                write = _choose(held, i, queue, _WRITE)
            if _needs_read_barrier(i, effects, bool(write)):
                read = _choose(held, i, queue, _READ)
        _issue(pending, effects[i], read, write)
        found.append((read, write))
    return found


def _needs_read_barrier(i: int, effects: Sequence[RegisterEffects], has_write: bool) -> bool:
    """Whether an operand may be overwritten before the result is waited for; of a store, at all.

    Looks at the code that follows; what comes over a jump counts as an overwrite.
    """
    operands = {r for r in effects[i].reads if r[0] in ("R", "UR", "P")}
    if not operands:
        return False
    results = effects[i].writes
    for later in effects[i + 1 :]:
        if has_write and (results & (later.reads | later.guards | later.writes)):
            return False
        if operands & later.writes:
            return True
    return not has_write


def _choose(held: dict[int, _Holder], at: int, queue: str, kind: str) -> int:
    free = next((b for b in _BARRIERS if b not in held), None)
    if free is None:
        same = [b for b, h in held.items() if queue and (h.queue, h.kind) == (queue, kind)]
        kinds = [b for b, h in held.items() if h.kind == kind and h.queue]
        free = min(same or kinds or held, key=lambda b: held[b].since)
    held.setdefault(free, _Holder(at, queue, kind))
    return free


def _release(pending: Pending, held: dict[int, _Holder], barrier: int) -> None:
    held.pop(barrier, None)
    for key in [k for k, barriers in pending.items() if barrier in barriers]:
        pending[key] -= {barrier}
        if not pending[key]:
            del pending[key]


def _needed(pending: Mapping[tuple[Register, str], frozenset[int]], e: RegisterEffects) -> set[int]:
    """The barriers that an instruction must wait for."""
    found: set[int] = set()
    for register in e.reads | e.guards | e.writes:
        found |= pending.get((register, _WRITE), frozenset())
    for register in e.writes:
        found |= pending.get((register, _READ), frozenset())
    return found


def _issue(pending: Pending, e: RegisterEffects, read: int, write: int) -> None:
    """Add what an instruction leaves in flight. Its result also tells that operands were read."""
    if write:
        for register in e.writes:
            key = register, _WRITE
            pending[key] = pending.get(key, frozenset()) | {write}
    if read or write:
        for register in e.reads:
            key = register, _READ
            pending[key] = pending.get(key, frozenset()) | {read or write}


def _waits(
    instructions: Sequence[KernelInstruction],
    effects: Sequence[RegisterEffects],
    setters: Sequence[tuple[int, int]],
    follow: Sequence[set[int]],
) -> list[int]:
    """The wait mask of each instruction, by what may be pending before it on any path."""
    before: list[Pending] = [{} for _ in instructions]
    work = list(range(len(instructions)))[::-1]
    queued = set(work)
    while work:
        i = work.pop()
        queued.discard(i)
        after = dict(before[i])
        for barrier in _needed(before[i], effects[i]):
            _release(after, {}, barrier)
        _issue(after, effects[i], *setters[i])
        for j in follow[i]:
            if _merge(before[j], after) and j not in queued:
                work.append(j)
                queued.add(j)
    masks: dict[int, int] = defaultdict(int)
    for i, state in enumerate(before):
        for barrier in _needed(state, effects[i]):
            masks[i] |= 1 << barrier - 1
    return [masks[i] for i in range(len(instructions))]


def _merge(into: Pending, other: Pending) -> bool:
    changed = False
    for key, barriers in other.items():
        joined = into.get(key, frozenset()) | barriers
        if joined != into.get(key):
            into[key] = joined
            changed = True
    return changed
