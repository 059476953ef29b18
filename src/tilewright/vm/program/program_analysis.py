"""Static analyses of a kernel: divergence, communication between CTAs, liveness, frame slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from ..state.special_fields import UNIFORM
from .bound_operands import (
    AddressOperand,
    BoundOperand,
    CodeBlock,
    Op,
    SpecialOperand,
    VectorOperand,
    VirtualRegister,
    registers,
)

# Results that differ between lanes, or may, though the operands are the same.
LANE_VARIANT = frozenset(
    "atom shfl ldmatrix mma wmma wgmma movmatrix match elect addc subc madc call"
    " alloca stacksave".split()
)
ATOMICS = ("atom", "red")
STRONG = frozenset("acquire release acq_rel relaxed volatile mmio cv".split())
GRID_BARRIER_REGISTERS = ("%envreg1", "%envreg2")
HEAP_FUNCTIONS = ("malloc", "free")
CONTROL_EFFECTS = frozenset({"branch", "barrier", "waits"})
# What an operation costs, about as it takes time; a loop that looks at a flag gives way soon.
WEIGHTS = {
    "mma": 16,
    "wmma": 16,
    "wgmma": 64,
    "ldmatrix": 4,
    "stmatrix": 8,
    "atom": 50,
    "call": 1000,
    "nanosleep": 2000,
}
POLLING = frozenset({"ld", "atom"})
POLL_WEIGHT = 500
SETS_PER_KIND = 30  # bits for sets of registers: of sums, and as many of factors


def is_divergent(ops: Sequence[Op], exits: frozenset[str], varying: set[int]) -> bool:
    """Whether a warp's lanes may part: a value that may differ between them decides a branch or
    guards a barrier. A branch to one of ``exits`` (labels of mere exits) only ends lanes.
    """
    for op in ops:
        if op.form.mnemonic == "brx":
            return True
        if not op.form.effects & CONTROL_EFFECTS or any(arg in exits for _, arg in op.sources):
            continue
        if op.guard and op.guard.index in varying:
            return True
    return False


def varying(ops: Sequence[Op]) -> set[int]:
    """Registers that may not be warp-uniform, in a warp that does not diverge."""
    local = any(op.form.mnemonic == "cvta" and op.form.space == "local" for op in ops)
    spaces = ("local", "") if local else ("local",)  # an address is a place in each lane
    found = {i for op in ops if _loads(op) and op.form.space in spaces for i in op.writes()}
    grown = True
    while grown:
        grown = False
        for op in ops:
            if _varies(op, found):
                before = len(found)
                found.update(op.writes())
                grown |= len(found) > before
    return found


def _loads(op: Op) -> bool:
    return op.form.mnemonic in ("ld", "ldu")


def _varies(op: Op, varying: set[int]) -> bool:
    if op.form.mnemonic in LANE_VARIANT or op.form.mnemonic in ATOMICS:
        return True
    if any(_differs(arg) for _, arg in op.sources):
        return True
    return any(i in varying for i in op.reads())


def _differs(arg: BoundOperand) -> bool:
    """Whether an operand that is not a register differs between lanes."""
    if isinstance(arg, VectorOperand):
        return any(_differs(item) for item in arg.items)
    if isinstance(arg, AddressOperand):
        return arg.space == "local"
    return isinstance(arg, SpecialOperand) and arg.name not in UNIFORM


def weight(op: Op) -> int:
    """The cost of an operation in steps of a warp's budget."""
    form = op.form
    polls = form.mnemonic in POLLING and (STRONG | {"cas", "exch"}) & form.modifiers
    if polls or (form.mnemonic == "mbarrier" and "test_wait" in form.modifiers):
        return POLL_WEIGHT
    return WEIGHTS.get(op.form.mnemonic, 1)


def strong_operations(ops: Sequence[Op]) -> list[bool]:
    """For each operation: whether it is atomic or strong, and so may order other accesses."""
    return [op.form.mnemonic in ATOMICS or bool(STRONG & op.form.modifiers) for op in ops]


def constant_loads(ops: Sequence[Op]) -> list[bool]:
    """Of each operation whether it reads constants, which no grid writes."""
    return ["const" in op.form.modifiers for op in ops]


def mbarrier_inits(ops: Sequence[Op]) -> list[bool]:
    """Of each operation whether it initialises mbarriers."""
    return [op.form.mnemonic == "mbarrier" and "init" in op.form.modifiers for op in ops]


def uses_grid_barrier(ops: Sequence[Op]) -> bool:
    """Whether the kernel reads the address of the barrier of a cooperative launch."""
    return any(name in GRID_BARRIER_REGISTERS for name in _specials(ops))


def reads_reserved_smem(ops: Sequence[Op]) -> bool:
    """Whether it asks where the system's part of shared memory is, as cooperative groups of several
    warps do.
    """
    return any(name.startswith("%reserved_smem") for name in _specials(ops))


def _specials(ops: Sequence[Op]) -> Iterator[str]:
    return (arg.name for op in ops for _, arg in op.sources if isinstance(arg, SpecialOperand))


def communicates_across_ctas(ops: Sequence[Op]) -> bool:
    """Whether CTAs may talk to each other through global memory."""
    for op in ops:
        mnemonic, modifiers = op.form.mnemonic, op.form.modifiers
        if mnemonic == "call" and op.sources[0][1] in HEAP_FUNCTIONS:
            return True
        if mnemonic == "cp" and {"reduce", "global"} <= modifiers:
            return True
        if mnemonic == "clusterlaunchcontrol":
            return True
        if modifiers & {"shared", "shared::cta"}:
            continue
        if mnemonic in ATOMICS or (mnemonic in ("ld", "st") and STRONG & modifiers):
            return True
    return False


def wgmma_register_sets(ops: Sequence[Op], text: bool) -> tuple[dict[int, int], dict[int, int]]:
    """The registers of asynchronous products, in sets that have none in common.

    (what each product uses, what each other operation meets), by the operation's number: a bit for
    each set of a product's sums, and one for each of what it multiplies. To write to either is to
    meet it, to read the sums too. In a ``text`` a ``mov`` meets nothing: it may be what a compiler
    made of a variable that changes from turn to turn, and hands on what nobody touches yet.
    """
    found = [op for op in ops if op.form.mnemonic == "wgmma" and op.dests]
    sums, factors = RegisterSets(), RegisterSets()
    wgmma_sets = {}
    for op in found:
        own = set(op.writes())
        sums.add(own)
        given = (arg for _, arg in op.sources if isinstance(arg, VectorOperand))
        factors.add({i for arg in given for i in registers(arg)} - own)
    for op in found:
        wgmma_sets[op.pc] = sums.bits(op.writes()) | factors.bits(op.reads()) << SETS_PER_KIND
    touched_sets = {}
    for op in ops if found else ():
        if op.form.mnemonic not in (("mov", "wgmma") if text else ("wgmma",)):
            both = sums.bits(op.writes()) | sums.bits(op.reads())
            touched_sets[op.pc] = both | factors.bits(op.writes()) << SETS_PER_KIND
    return wgmma_sets, touched_sets


class RegisterSets:
    """Sets of registers, those with one in common as one; each a bit, the last for all further."""

    def __init__(self) -> None:
        self.sets: list[set[int]] = []

    def add(self, new: set[int]) -> None:
        for old in [s for s in self.sets if s & new]:
            new = new | old
            self.sets.remove(old)
        if new:
            self.sets.append(new)

    def bits(self, indices: Iterable[int]) -> int:
        given = set(indices)
        return reduce(
            or_, (1 << min(i, SETS_PER_KIND - 1) for i, s in enumerate(self.sets) if s & given), 0
        )


def liveness(blocks: Sequence[CodeBlock], targets: Mapping[str, int]) -> list[int]:
    """For each block the registers (a bit for each) whose value at its end may still be read."""
    uses, writes = zip(*(_uses(block) for block in blocks), strict=True)
    after = [_successors(block, len(blocks), targets) for block in blocks]
    before, end = list(uses), [0] * len(blocks)
    grown = True
    while grown:
        grown = False
        for i in reversed(range(len(blocks))):
            end[i] = reduce(or_, (before[s] for s in after[i]), 0)
            wanted = uses[i] | end[i] & ~writes[i]
            grown |= wanted != before[i]
            before[i] = wanted
    return end


def live_in_registers(blocks: Sequence[CodeBlock]) -> int:
    """Registers that some block reads before it writes them: they need a place in the frame."""
    return reduce(or_, (_uses(block)[0] for block in blocks), 0)


def _uses(block: CodeBlock) -> tuple[int, int]:
    """Registers read before they are written, and registers written."""
    wgmma_sets = written = 0
    for op in block.ops:
        for index in op.reads():
            wgmma_sets |= ~written & 1 << index
        if "barrier" in op.form.effects and not op.resumed:
            continue  # bar.red writes when the barrier has opened
        for index in op.writes():
            written |= 1 << index
    return wgmma_sets, written


def _successors(block: CodeBlock, count: int, targets: Mapping[str, int]) -> list[int]:
    """The blocks that lanes may run next."""
    last = block.ops[-1] if block.ops else None
    found = [block.index + 1] if block.index + 1 < count else []
    if last is None or not last.form.effects & {"branch", "exit"}:
        return found
    if last.guard is None and last.form.mnemonic not in ("trap", "brkpt"):
        found = []
    for _, arg in last.sources:
        if isinstance(arg, str):
            found.append(targets[arg])
        elif isinstance(arg, tuple):
            found += [targets[label] for label in arg]
    return found


def assign_slots(
    registers: Sequence[VirtualRegister], kept: set[int], start: int
) -> tuple[list[int], int, int]:
    """Offsets in the frame: first what is ``kept``, then the rest, for stepping only.

    Also where each of the two ends.
    """
    slots = [0] * len(registers)
    ends = []
    offset = -(-start // 64) * 64
    for wanted in (True, False):
        for index, register in enumerate(registers):
            if bool(kept >> index & 1) is wanted:
                slots[index] = offset
                offset += 64 if register.width == 1 else max(64, 4 * register.width)
        ends.append(offset)
    return slots, ends[0], ends[1]
