"""What went wrong in a launch, said for a person: kind, instruction, address, thread, who waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ...errors import VmFault
from ...native.native_language import u64
from ...native.native_record import Record, view
from ...ptx.types import bits
from ..check import race_detector
from ..check.vector_clocks import ACTOR, OPERATION
from ..engine import tensor_copies, wgmma_groups
from ..engine.mbarrier_model import MAX_COUNT
from ..engine.wgmma_operands import RESERVED
from ..program.activation_records import FRAME_HEADER
from ..program.bound_operands import Op
from ..state.records import (  # fmt: skip
    BAD_BARRIER,
    BAD_BULK,
    BAD_DESCRIPTOR,
    BAD_FENCE,
    BAD_INDEX,
    BAD_MAP,
    BAD_MBARRIER,
    BAD_MEMBER_MASK,
    BAD_METADATA,
    BAD_WARPGROUP,
    DEADLOCK,
    DISCARDED,
    DIVERGED,
    DOUBLE_INIT,
    EXITED_CTA,
    FAULT,
    FAULTS,
    FULL_MASK,
    GLOBAL_BASE,
    GRID_DEPENDENCY,
    IN_FLIGHT,
    LOCAL_BASE,
    MISALIGNED,
    MISSING_LANES,
    OUT_OF_BOUNDS,
    PARAM_BASE,
    RACE,
    RANK_SHIFT,
    READ_ONLY,
    SHARED_BASE,
    STACK_OVERFLOW,
    STEP_LIMIT,
    TX_COUNT_OVERFLOW,
    UNREAD_COPY,
    USE_AFTER_FREE,
    WARPGROUP_MISMATCH,
    WINDOW_BITS,
    WarpRecord,
)
from .deadlock_report import ctas, deadlock, expected_bytes, index, step_limit
from .launch_state import LaunchState

ACCESSES = OUT_OF_BOUNDS, MISALIGNED, USE_AFTER_FREE, READ_ONLY  # faults at an address
SHOWN = 8  # functions that a full stack lists
MAP_FAULTS = {
    tensor_copies.NO_MAP: "there is no tensor map of sm_90",
    tensor_copies.WRONG_RANK: "its tensor has another number of dimensions",
    tensor_copies.WRONG_MODE: "it is for im2col and the instruction is not, or the other way round",
    tensor_copies.TOO_LONG: "its tensor has a size beyond 2^31",
    tensor_copies.MISALIGNED_START: "coordinate 0 is no multiple of 16 bytes",
    tensor_copies.NEGATIVE: "a coordinate is negative on the way to global memory",
    tensor_copies.OUTSIDE: "im2col begins outside of its bounding box, or that leaves the tensor",
    tensor_copies.NO_REDUCTION: "its elements have no such reduction",
}
WINDOW_NAMES = {SHARED_BASE: "shared", LOCAL_BASE: "local", PARAM_BASE: "param"}


def fault(run: LaunchState, worker: Record, result: int) -> VmFault:
    """The error for what ``scheduler.run`` returned."""
    if result == DEADLOCK:
        return deadlock(run, worker)
    if result == STEP_LIMIT:
        return step_limit(run, worker)
    assert result == FAULT and worker.fault, result
    code, address = worker.fault, worker.fault_address
    if code in ACCESSES:
        address %= 1 << 64
    op = run.program.ops[worker.fault_pc]
    thread = index(worker.fault_warp * 32 + worker.fault_lane, run.setup.block)
    block = index(worker.fault_cta, run.setup.grid)
    what = _description(run, worker, op, address)
    return VmFault(
        f"{FAULTS[code]}: {what} (thread {thread} of block {block})",
        kind=FAULTS[code],
        address=address if code in ACCESSES else None,
        thread=thread,
        block=block,
        location=run.program.location(op.pc),
    )


def _description(run: LaunchState, worker: Record, op: Op, address: int) -> str:
    code, value, opcode = worker.fault, worker.fault_value, op.form.opcode
    if code == BAD_BARRIER:
        threads = 32 * run.setup.warps
        rule = f"0 to 15, for a multiple of 32 threads up to {threads}, all asking for as many"
        return f"{opcode} of barrier {address}; barriers are {rule}"
    if code == BAD_INDEX:
        body = run.program.function_at(op.pc)
        if body and op.pc == body.last - 1:
            return f"{body.name} has lost the way back: its activation has been written over"
        return f"{opcode} with an index beyond its targets"
    if code == BAD_DESCRIPTOR:
        address %= 1 << 64
        stray = address & RESERVED
        why = "bits that mean nothing are set" if stray else "lanes have different ones"
        return f"{opcode} with descriptor {address:#x}: {why}"
    if code == BAD_WARPGROUP:
        return f"{opcode} by less than four warps: the CTA has {address} threads"
    if code == BAD_METADATA:
        return f"{opcode} with metadata {address:#06b}, which selects nothing"
    if code == IN_FLIGHT:
        return f"{opcode} {_conflict(address)} the {_instruction(run, value)} still in flight"
    if code == BAD_MBARRIER:
        return f"{opcode} at {address % (1 << 64):#x}: {_mbarrier(op, value % (1 << 64))}"
    if code == TX_COUNT_OVERFLOW:
        most = f"a phase counts bytes, expected or come early, up to {MAX_COUNT}"
        return f"{opcode} at {address % (1 << 64):#x}: {most}; it has {expected_bytes(value)}"
    if code == DOUBLE_INIT:
        why = f"the {_instruction(run, value)} initialized it before, with no mbarrier.inval since"
        return f"{opcode} at {address % (1 << 64):#x}: {why}"
    if code == BAD_BULK:
        return f"{opcode} at {address:#x}: {_bulk(op, value)}"
    if code == BAD_MAP:
        why = MAP_FAULTS.get(value, "its tensor begins at no multiple of 16 of global memory")
        return f"{opcode} with the tensor map at {address % (1 << 64):#x}: {why}"
    if code == EXITED_CTA:
        return f"{opcode} at {address:#x}: its CTA has exited, or the cluster has none of that rank"
    if code == UNREAD_COPY:
        return f"{opcode} brings to {address:#x} what no product reads, though one reads the rest"
    if code == DISCARDED:
        lost = f"the sums of the {_instruction(run, value)}"
        return f"{opcode} adds nothing and takes the place of {lost}, which nobody has waited for"
    if code in (RACE, BAD_FENCE):
        return _race(run, opcode, address, value)
    if code == GRID_DEPENDENCY:
        why = "the grid before may still run: no griddepcontrol.wait stands in between"
        return f"{opcode} at {address % (1 << 64):#x}: {why}"
    if code == STACK_OVERFLOW:
        return _overflow(run, worker, op)
    if code in (DIVERGED, MISSING_LANES, BAD_MEMBER_MASK, WARPGROUP_MISMATCH):
        return f"{opcode}{_divergence(run, worker, op)}"
    if code in (OUT_OF_BOUNDS, USE_AFTER_FREE):
        return f"{opcode}{_bytes(op)} at {address:#x}: {_location(run, op, address)}"
    if code == READ_ONLY:
        return f"{opcode}{_bytes(op)} at {address:#x} writes to {_read_only(run, address)}"
    return f"{opcode}{_bytes(op)} at {address:#x}" if code == MISALIGNED else opcode


def _divergence(run: LaunchState, worker: Record, op: Op) -> str:
    """What threads or warps lack that should execute an operation together."""
    lanes, value = worker.fault_address, worker.fault_value
    if worker.fault == DIVERGED:
        return f" waits for lanes {lanes:#010x}, which can't come"
    if worker.fault == MISSING_LANES:
        return f" is executed by lanes {lanes:#010x} alone: {_missing_lanes(run, worker, op)}"
    if worker.fault == WARPGROUP_MISMATCH:
        return f", but warp {lanes} of its warpgroup {UNEQUALS[value]}"
    mask, own = lanes % (1 << 32), value % (1 << 32)
    if mask == own:
        return f" by a lane with the member mask {own:#010x}, in which it is not"
    others = f"while others that name it have {mask:#010x}"
    return f" by a lane with the member mask {own:#010x}, {others}"


def _missing_lanes(run: LaunchState, worker: Record, op: Op) -> str:
    """Which lanes of the warp should execute the operation too, and why they don't."""
    threads = run.setup.threads - 32 * worker.fault_warp
    there, live = (1 << min(threads, 32)) - 1, worker.fault_value
    reasons = {
        "the block has no threads for": FULL_MASK & ~there,
        "exited:": there & ~live,
        "the guard is false in": live & ~worker.fault_address,
    }
    who = "all 32 threads of a warp" if "whole" in op.form.effects else "all threads of the warp"
    found = ", ".join(f"{why} {lanes:#010x}" for why, lanes in reasons.items() if lanes)
    return f"{who} must execute it together ({found})"


UNEQUALS = {
    wgmma_groups.DIFFERENT_WGMMA: "has another product, or another group, in this place",
    wgmma_groups.DIFFERENT_OPERANDS: "has other descriptors: all four warps must have the same",
    wgmma_groups.MISSING_WGMMA: "has committed fewer products",
    wgmma_groups.WARP_EXITED: "has exited and has not committed as many groups",
}


def _instruction(run: LaunchState, pc: int) -> str:
    """An operation, and where it stands."""
    location = run.program.location(pc)
    line = f" of line {location.line}" if location else ""
    return run.program.ops[pc].form.opcode + line


def _conflict(address: int) -> str:
    return (
        "uses registers of" if address == wgmma_groups.REGISTERS else "overwrites what is read by"
    )


RACES = {
    race_detector.READ_EARLY: "{} reads at {:#x} what the {} writes: nothing makes it wait",
    race_detector.WRITTEN_TWICE: "{} writes at {:#x} what the {} writes: nothing orders them",
    race_detector.WRITTEN_EARLY: "{} writes at {:#x} what the {} reads: nothing makes it wait",
    race_detector.NO_FENCE: "{} reads at {:#x} what the {} wrote: no fence.proxy.async is between",
}


def _race(run: LaunchState, opcode: str, address: int, value: int) -> str:
    """What an access conflicts with, or a product or CTA lacks."""
    if not value:
        return f"{opcode} uses registers that others have used: no wgmma.fence is between them"
    what, pc = value >> ACTOR, value & OPERATION
    if what == race_detector.EXITED_EARLY:
        return f"{opcode} uses shared memory of a CTA that ends: nothing makes it wait"
    return RACES[what].format(opcode, address, _instruction(run, pc))


def _mbarrier(op: Op, word: int) -> str:
    """What is wrong with a barrier whose 64 bits were these."""
    if op.form.mnemonic == "barrier":
        return "a thread arrives at the cluster's barrier once before each wait"
    if "init" in op.form.opcode:
        return f"a barrier expects 1 to {MAX_COUNT} arrivals, not {word}"
    if word >> 62 & 1 or not word % (1 << 40):
        return "no barrier has been initialised there"
    missing, size = word & MAX_COUNT, word >> 20 & MAX_COUNT
    return f"more arrives than the phase misses: {missing} of {size} arrivals"


def _bulk(op: Op, value: int) -> str:
    if op.form.opcode.startswith("st.bulk"):
        return f"{value} bytes; it stores a multiple of 8"
    if value:
        return f"{value} bytes; bulk copies move a multiple of 16"
    return "the mbarrier is in another CTA than the target"


def _bytes(op: Op) -> str:
    """How many bytes a lane accesses; of a matrix instruction, at once or in one thread. A bulk
    copy, which has it from a register, does not say.
    """
    if op.form.entry is not None:
        size = int(getattr(op.form.entry, "alignment", 16))
    elif op.form.mnemonic == "cp":
        size = next((arg.bits for s, arg in op.sources if s.kind == "imm" and arg), 0)
    elif op.form.mnemonic in ("mbarrier", "tensormap"):
        size = {"mbarrier": 8, "tensormap": tensor_copies.MAP_BYTES}[op.form.mnemonic]
    elif not op.form.T:
        size = 0
    else:
        size = bits(op.form.T) // 8 * int(op.form.vec[1:] or 1)
    return f" of {size} bytes" if size else ""


def _read_only(run: LaunchState, address: int) -> str:
    """What lies at an address that kernels only read."""
    if address < GLOBAL_BASE:
        return "the parameters of the kernel"
    piece = run.memory.find(address)
    known = run.kernel.addresses.items()
    name = next((name for name, start in known if piece and start == piece.start), "")
    what = f"the constant {name}" if name else "an array that is read-only or overlaps itself"
    return f"{what}: {run.memory.describe(address)}"


def _location(run: LaunchState, op: Op, address: int) -> str:
    """What lies at, or near, an address of the operation's state space."""
    space = op.space or WINDOW_NAMES.get(address >> WINDOW_BITS << WINDOW_BITS, "global")
    if op.form.mnemonic == "wgmma":
        space = "shared"
    if op.form.mnemonic == "cp":
        space = "shared" if address >> WINDOW_BITS == 0 else "global"
    sizes = {
        "shared": ("shared memory has", run.launch.shared_bytes),
        "local": ("a thread's local memory has", run.launch.local_bytes),
        "param": ("the parameters have", run.launch.param_bytes),
    }
    if space in sizes:
        what, size = sizes[space]
        rank, most = address % (1 << WINDOW_BITS) >> RANK_SHIFT, run.launch.cluster_size
        if space == "shared" and 1 < most <= rank:
            return f"the cluster has {most} CTAs, and none of rank {rank}"
        return f"{what} {size} bytes"
    return run.memory.describe(address)


def _overflow(run: LaunchState, worker: Record, op: Op) -> str:
    """What a thread has on its stack, where no more can be had."""
    size = worker.fault_address % (1 << 64)
    if op.form.mnemonic == "stackrestore":
        return f"{op.form.opcode} to where the stack never ended"
    limit = run.launch.local_bytes - run.launch.static_bytes
    callee = next(
        (b.name for b in run.program.out_of_line_functions if op.pc in b.call_sites.values()),
        "alloca",
    )
    callers = Counter(_callers(run, worker, op))
    often = ", ".join(f"{name} {n} times" for name, n in callers.most_common(SHOWN))
    deep = f", {callers.total()} calls deep: {often}" if callers else ""
    return f"{callee} takes {size} bytes more of a stack of {limit}{deep}"


def _callers(run: LaunchState, worker: Record, op: Op) -> Iterator[str]:
    """The functions that stand apart and have not ended in the faulting lane, the last first, as
    far as the kernel has left its stack alone.
    """
    program, lane = run.program, worker.fault_lane
    cta = next(c for c in ctas(worker) if c.state and c.linear == worker.fault_cta)
    warp = Record(WarpRecord, cta.frames + worker.fault_warp * run.launch.frame_bytes)
    local = cta.local + (warp.index * 32 + lane) * run.launch.local_bytes
    body, last = program.function_at(op.pc), run.launch.local_bytes - FRAME_HEADER
    at = int(view(warp.address + program.slots[program.activation], u64, 32)[lane]) if body else 0
    while body and body.name and at <= last:
        yield body.name
        caller, number = (int(n) for n in view(local + at, u64, 2))
        site, last = body.call_sites.get(number % (1 << 32)), at - FRAME_HEADER
        body, at = program.function_at(site) if site is not None else None, caller
