"""Dependencies between the instructions of a block: what must stay in order, and how far apart.

An edge is a pair of instructions with the cycles between their issues. Results read (RAW), operands
overwritten (WAR) and results overwritten (WAW) make edges, and so do two accesses of one memory
space of which one is a store. A wait for a barrier stays before all that the barrier covers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..machine.register_effects import Register, register_effects
from ..sass_text import SassText
from .kernel_instruction import KernelInstruction
from .timing_table import TimingTable

RAW, WAR, WAW, MEMORY, ORDERED = (
    "read",
    "overwritten operand",
    "overwritten result",
    "memory",
    "order",
)
_WRITERS = {"ST", "STG", "STL", "STS", "STSM", "STAS", "RED", "REDG", "REDS", "ATOM", "ATOMG",
            "ATOMS", "LDGSTS", "UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP", "UBLKRED", "SUST",
            "SURED", "SUATOM"}  # fmt: skip
_ALL_SPACES = {"global", "shared", "local", "generic"}
_BOTH = {"LDGSTS": {"global", "shared", "generic"}, "UTMALDG": _ALL_SPACES, "UTMASTG": _ALL_SPACES,
         "UTMAREDG": _ALL_SPACES, "UBLKCP": _ALL_SPACES, "UBLKRED": _ALL_SPACES}  # fmt: skip
_WIDTHS = {".U8": 1, ".S8": 1, ".U16": 2, ".S16": 2, ".64": 8, ".128": 16}


@dataclass(frozen=True, slots=True)
class DependencyEdge:
    """Instruction ``later`` is issued at least ``cycles`` after ``earlier``; ``reason`` is one of
    the kinds above, ``register`` what it is about.
    """

    earlier: int
    later: int
    cycles: int
    reason: str
    register: Register | None = None


@dataclass(frozen=True, slots=True)
class SpaceAccess:
    """``spaces`` that an instruction accesses. Of local memory, which is a thread's own, also the
    address register with the number of its last write, and bytes ``start`` to ``end``: two lanes'
    addresses in other spaces may meet at any offset.
    """

    spaces: frozenset[str]
    writes: bool
    base: tuple[int, int] | None
    start: int
    end: int

    def conflicts(self, other: SpaceAccess) -> bool:
        """Whether the order of the two matters, as far as can be known."""
        if not (self.writes or other.writes) or not self.spaces & other.spaces:
            return False
        if self.base is None or self.base != other.base:
            return True
        return self.start < other.end and other.start < self.end


def memory_access(timing: TimingTable, text: SassText, version: int) -> SpaceAccess | None:
    """The access of an instruction; None for none, or of memory that is never written.

    ``version`` tells the values of its address register apart.
    """
    name = text.opcode.split(".")[0]
    space = timing.row(text).space
    if name in _BOTH:
        return SpaceAccess(frozenset(_BOTH[name]), True, None, 0, 0)
    if space not in _ALL_SPACES or ".CI" in text.opcode or ".CONSTANT" in text.opcode:
        return None
    spaces = frozenset(_ALL_SPACES if space == "generic" else {space, "generic"})
    address = next((x for x in text.operands if re.fullmatch(r"\[R#(\+#)?\]", x.kind)), None)
    if space != "local" or address is None:
        return SpaceAccess(spaces, name in _WRITERS, None, 0, 0)
    start = int(address.numbers[1]) if len(address.numbers) > 1 else 0
    width = next((w for m, w in _WIDTHS.items() if re.search(rf"{re.escape(m)}\b", text.opcode)), 4)
    base = int(address.numbers[0]), version
    return SpaceAccess(spaces, name in _WRITERS, base, start, start + width)


Cover = Mapping[int, frozenset[Register]]  # the registers that each barrier is waited for


def barrier_cover(timing: TimingTable, instructions: Iterable[KernelInstruction]) -> Cover:
    """What each of the six barriers covers anywhere in a kernel: registers of the instructions
    that set it, and of those without a barrier in the same in-order queue.
    """
    found: dict[int, set[Register]] = defaultdict(set)
    queues: dict[str, set[int]] = defaultdict(set)
    bare: list[tuple[str, frozenset[Register]]] = []
    for x in instructions:
        row = timing.row(x.text)
        effects = register_effects(timing.sm, x.text)
        used = effects.reads | effects.writes
        barriers = {x.control.read, x.control.write} - {0}
        for barrier in barriers:
            found[barrier] |= used
            queues[row.queue].add(barrier)
        if not barriers and row.queue:
            bare.append((row.queue, used))
    for queue, used in bare:
        for barrier in queues[queue]:
            found[barrier] |= used
    return {barrier: frozenset(registers) for barrier, registers in found.items()}


def dependencies(
    timing: TimingTable,
    instructions: Sequence[KernelInstruction],
    order: Sequence[int] = (),
    cover: Cover | None = None,
) -> list[DependencyEdge]:
    """All edges of a block in its original order. ``order`` numbers the ORDERED sections;
    ``cover`` is that of the kernel (default: of the block alone).

    Raises SassError for an instruction whose properties are not known.
    """
    texts = [x.text for x in instructions]
    edges = [*_register_edges(timing, texts), *_memory_edges(timing, texts)]
    edges += _fence_edges(timing, texts)
    cover = barrier_cover(timing, instructions) if cover is None else cover
    edges += _barrier_edges(timing, instructions, cover)
    edges += _queue_edges(timing, instructions)
    last: dict[int, int] = {}
    for i, section in enumerate(order):
        if section:
            if section in last:
                edges.append(DependencyEdge(last[section], i, 0, ORDERED))
            last[section] = i
    return edges


def _register_edges(timing: TimingTable, texts: Sequence[SassText]) -> Iterator[DependencyEdge]:
    """RAW, WAR and WAW edges; a write under a guard does not hide the writes before it."""
    writers: dict[Register, list[int]] = defaultdict(list)
    readers: dict[Register, list[int]] = defaultdict(list)
    for i, text in enumerate(texts):
        effects = register_effects(timing.sm, text)
        for register in sorted(effects.reads | effects.guards):
            for w in writers[register]:
                variable = timing.is_variable(texts[w])
                cycles = 1 if variable else timing.latency(texts[w], text, register)
                yield DependencyEdge(w, i, cycles, RAW, register)
        for register in sorted(effects.writes):
            for r in readers[register]:
                if r != i:
                    yield DependencyEdge(r, i, 0, WAR, register)
            for w in writers[register]:
                variable = timing.is_variable(texts[w])
                cycles = 1 if variable else timing.write_order(texts[w], text, register)
                yield DependencyEdge(w, i, cycles, WAW, register)
            if text.guard == 7 and not text.negated:
                writers[register], readers[register] = [], []
            writers[register].append(i)
        for register in effects.reads | effects.guards:
            readers[register].append(i)


def _memory_edges(timing: TimingTable, texts: Sequence[SassText]) -> Iterator[DependencyEdge]:
    versions: dict[Register, int] = defaultdict(int)
    accesses: list[tuple[int, SpaceAccess]] = []
    for i, text in enumerate(texts):
        effects = register_effects(timing.sm, text)
        version = sum(versions[a] for a in effects.addresses)
        access = memory_access(timing, text, version)
        if access is not None:
            for j, other in accesses:
                if access.conflicts(other):
                    yield DependencyEdge(j, i, 1, MEMORY)
            accesses.append((i, access))
        for register in effects.writes:
            versions[register] += 1


def _fence_edges(timing: TimingTable, texts: Sequence[SassText]) -> Iterator[DependencyEdge]:
    """Barriers, fences and control flow stay where they are."""
    fence, since = -1, 0
    for i, text in enumerate(texts):
        if fence >= 0:
            yield DependencyEdge(fence, i, 1, ORDERED)
        if timing.ends_group(text):
            for j in range(since, i):
                yield DependencyEdge(j, i, 0, ORDERED)
            fence, since = i, i + 1


def _barrier_edges(
    timing: TimingTable, instructions: Sequence[KernelInstruction], cover: Cover
) -> Iterator[DependencyEdge]:
    """A wait stays after what sets its barrier, before what sets it again, and before all that
    uses registers which the barrier covers. What sets one barrier stays in order.
    """
    setters: dict[int, list[int]] = defaultdict(list)
    waiters: dict[int, list[int]] = defaultdict(list)
    for i, x in enumerate(instructions):
        effects = register_effects(timing.sm, x.text)
        used = effects.reads | effects.writes | effects.guards
        for barrier in range(1, 7):
            waits = x.control.wait >> barrier - 1 & 1
            for j in waiters[barrier]:
                if waits or used & cover.get(barrier, frozenset()):
                    yield DependencyEdge(j, i, 0, ORDERED)
            if waits:
                for j in setters[barrier]:
                    yield DependencyEdge(j, i, timing.barrier_delay, ORDERED)
                waiters[barrier].append(i)
        for barrier in {x.control.read, x.control.write} - {0}:
            for j in (*waiters[barrier], *setters[barrier]):
                if j != i:
                    yield DependencyEdge(j, i, 0, ORDERED)
            setters[barrier].append(i)


def _queue_edges(
    timing: TimingTable, instructions: Sequence[KernelInstruction]
) -> Iterator[DependencyEdge]:
    """An instruction without a barrier stays before the one of its in-order queue whose barrier
    covers it.
    """
    bare: dict[str, list[int]] = defaultdict(list)
    for i, x in enumerate(instructions):
        queue = timing.row(x.text).queue
        if not queue:
            continue
        if x.control.read or x.control.write:
            for j in bare[queue]:
                yield DependencyEdge(j, i, 0, ORDERED)
            bare[queue] = []
        else:
            bare[queue].append(i)


def check_order(
    timing: TimingTable,
    instructions: Sequence[KernelInstruction],
    scheduled: Sequence[KernelInstruction],
    order: Sequence[int] = (),
    cover: Cover | None = None,
) -> None:
    """Raise SassError if a schedule lets two instructions of a block change places that depend on
    each other. Instructions are told apart by ``place`` and text; stalls and reuse may differ.
    """
    left: dict[object, list[int]] = defaultdict(list)
    for i, x in enumerate(scheduled):
        left[x.place, replace(x.text, reuse=0)].append(i)
    found = []
    for x in instructions:
        places = left[x.place, replace(x.text, reuse=0)]
        if not places or len(scheduled) != len(instructions):
            raise x.error("a schedule must have the instructions of its block, got others")
        found.append(places.pop(0))
    for edge in dependencies(timing, instructions, order, cover):
        if found[edge.earlier] > found[edge.later]:
            first, second = instructions[edge.earlier], instructions[edge.later]
            about = f" of {edge.register[0]}{edge.register[1]}" if edge.register else ""
            raise second.error(
                f"{second} must stay after {first}, got it before ({edge.reason}{about})"
            )
