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
    RegOperand,
    SpecialOperand,
    VectorOperand,
    VirtualRegister,
    registers,
)

# Instructions whose results may differ between lanes even if their operands do not.
LANE_VARIANT = frozenset(
    "atom shfl ldmatrix mma wmma wgmma movmatrix match elect addc subc madc call"
    " alloca stacksave".split()
)
ATOMICS = ("atom", "red")
STRONG = frozenset("acquire release acq_rel relaxed volatile mmio cv".split())
GRID_BARRIER_REGISTERS = ("%envreg1", "%envreg2")
HEAP_FUNCTIONS = ("malloc", "free")
CONTROL_EFFECTS = frozenset({"branch", "barrier", "waits"})
# The cost of an operation in steps, roughly in proportion to its time. Polling costs much, so that
# a loop that polls soon yields to other warps.
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
SETS_PER_KIND = 30  # bits for sets of accumulator registers, and as many for sets of A registers


def is_divergent(ops: Sequence[Op], exits: frozenset[str], varying: set[int]) -> bool:
    """Whether a warp may diverge: a value that may differ between lanes decides a branch or guards
    a barrier. A branch to a label in ``exits`` (blocks that only exit) ends lanes and does not
    count.
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
    spaces = ("local", "") if local else ("local",)  # each lane has local memory of its own
    indices = {i for op in ops if _loads(op) and op.form.space in spaces for i in op.writes()}
    changed = True
    while changed:
        changed = False
        for op in ops:
            if _varies(op, indices):
                before = len(indices)
                indices.update(op.writes())
                changed |= len(indices) > before
    return indices


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
    """For each operation, whether it is atomic or strong and may order other accesses."""
    return [op.form.mnemonic in ATOMICS or bool(STRONG & op.form.modifiers) for op in ops]


def constant_loads(ops: Sequence[Op]) -> list[bool]:
    """For each operation, whether it reads constant memory, which no grid writes."""
    return ["const" in op.form.modifiers for op in ops]


def mbarrier_inits(ops: Sequence[Op]) -> list[bool]:
    """For each operation, whether it initialises mbarriers."""
    return [op.form.mnemonic == "mbarrier" and "init" in op.form.modifiers for op in ops]


def uses_grid_barrier(ops: Sequence[Op]) -> bool:
    """Whether the kernel reads the address of the barrier of a cooperative launch."""
    return any(name in GRID_BARRIER_REGISTERS for name in _specials(ops))


def reads_reserved_smem(ops: Sequence[Op]) -> bool:
    """Whether the kernel reads the address of the reserved shared memory, as cooperative groups of
    several warps do.
    """
    return any(name.startswith("%reserved_smem") for name in _specials(ops))


def _specials(ops: Sequence[Op]) -> Iterator[str]:
    return (arg.name for op in ops for _, arg in op.sources if isinstance(arg, SpecialOperand))


def communicates_across_ctas(ops: Sequence[Op]) -> bool:
    """Whether CTAs may communicate with each other through global memory."""
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
    """The registers of ``wgmma`` instructions in disjoint sets: the sets that each ``wgmma`` uses,
    and the sets that each other operation touches, both by operation index.

    A set is one bit: those of accumulators, then (from bit ``SETS_PER_KIND``) those of A and of
    sparse A's metadata, which an H200 reads while the wgmma executes. An operation touches a set by
    writing to one of its registers, or by reading an accumulator. In a
    module with source ``text`` a ``mov`` touches nothing: a compiler writes it for a variable that
    changes from one iteration to the next, and it copies what no other instruction uses yet.
    """
    products = [op for op in ops if op.form.mnemonic == "wgmma" and op.dests]
    accumulators, factors = RegisterSets(), RegisterSets()
    wgmma_sets = {}
    for op in products:
        own = set(op.writes())
        accumulators.add(own)
        vectors = (arg for _, arg in op.sources if isinstance(arg, VectorOperand))
        factors.add({i for arg in vectors for i in registers(arg)} - own)
        factors.add(_metadata_registers(op))
    for op in products:
        factor_bits = factors.bits(op.reads()) << SETS_PER_KIND
        wgmma_sets[op.pc] = accumulators.bits(op.writes()) | factor_bits
    touched_sets = {}
    for op in ops if products else ():
        if op.form.mnemonic not in (("mov", "wgmma") if text else ("wgmma",)):
            both = accumulators.bits(op.writes()) | accumulators.bits(op.reads())
            touched_sets[op.pc] = both | factors.bits(op.writes()) << SETS_PER_KIND
    return wgmma_sets, touched_sets


def _metadata_registers(op: Op) -> set[int]:
    """The register of the metadata of a ``wgmma`` with sparse A."""
    metadata = (arg for spec, arg in op.sources if spec.name == "sp_meta")
    return {arg.index for arg in metadata if isinstance(arg, RegOperand)}


class RegisterSets:
    """Disjoint sets of registers: sets with a common register are merged. Each set is one bit; sets
    beyond the last bit have none, so that nothing is reported about them.
    """

    def __init__(self) -> None:
        self.sets: list[set[int]] = []

    def add(self, new: set[int]) -> None:
        for old in [s for s in self.sets if s & new]:
            new = new | old
            self.sets.remove(old)
        if new:
            self.sets.append(new)

    def bits(self, indices: Iterable[int]) -> int:
        """The bits of the sets that contain one of the registers."""
        touched = set(indices)
        first = enumerate(self.sets[:SETS_PER_KIND])
        return reduce(or_, (1 << i for i, s in first if s & touched), 0)


def liveness(blocks: Sequence[CodeBlock], targets: Mapping[str, int]) -> list[int]:
    """For each block, the registers (a bit each) that are live at its end."""
    reads, writes = zip(*(_upward_exposed(block) for block in blocks), strict=True)
    successors = [_successors(block, len(blocks), targets) for block in blocks]
    live_in, live_out = list(reads), [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for i in reversed(range(len(blocks))):
            live_out[i] = reduce(or_, (live_in[s] for s in successors[i]), 0)
            live = reads[i] | live_out[i] & ~writes[i]
            changed |= live != live_in[i]
            live_in[i] = live
    return live_out


def live_in_registers(blocks: Sequence[CodeBlock]) -> int:
    """Registers that some block reads before it writes them: they need a slot in the frame."""
    return reduce(or_, (_upward_exposed(block)[0] for block in blocks), 0)


def _upward_exposed(block: CodeBlock) -> tuple[int, int]:
    """Registers that the block reads before it writes them, and registers that it writes."""
    read = written = 0
    for op in block.ops:
        for index in op.reads():
            read |= ~written & 1 << index
        if "barrier" in op.form.effects and not op.resumed:
            continue  # bar.red writes when the barrier has opened
        for index in op.writes():
            written |= 1 << index
    return read, written


def _successors(block: CodeBlock, count: int, targets: Mapping[str, int]) -> list[int]:
    """The blocks that lanes may run next."""
    last = block.ops[-1] if block.ops else None
    successors = [block.index + 1] if block.index + 1 < count else []
    if last is None or not last.form.effects & {"branch", "exit"}:
        return successors
    if last.guard is None and last.form.mnemonic not in ("trap", "brkpt"):
        successors = []
    for _, arg in last.sources:
        if isinstance(arg, str):
            successors.append(targets[arg])
        elif isinstance(arg, tuple):
            successors += [targets[label] for label in arg]
    return successors


def assign_slots(
    registers: Sequence[VirtualRegister], live_in: int, start: int
) -> tuple[list[int], int, int]:
    """Offsets in the frame: first the registers in ``live_in`` (a bit each), then the others, which
    only the stepping evaluator stores. Also the end of both parts.
    """
    slots = [0] * len(registers)
    ends = []
    offset = -(-start // 64) * 64
    for in_compiled_code in (True, False):
        for index, register in enumerate(registers):
            if bool(live_in >> index & 1) is in_compiled_code:
                slots[index] = offset
                offset += 64 if register.width == 1 else max(64, 4 * register.width)
        ends.append(offset)
    return slots, ends[0], ends[1]
