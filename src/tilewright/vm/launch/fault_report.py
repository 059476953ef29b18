"""Error messages for faults: kind, instruction, address, thread and source location."""

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
from ..program.bound_operands import ConstOperand, Op
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
SHOWN = 8  # functions that the report of a stack overflow lists
MAP_FAULTS = {
    tensor_copies.NO_MAP: "there is no tensor map for sm_90 at this address",
    tensor_copies.WRONG_RANK: "its tensor has another rank than the instruction",
    tensor_copies.WRONG_MODE: "it is for im2col and the instruction is not, or vice versa",
    tensor_copies.TOO_LONG: "a size of its tensor exceeds 2^31",
    tensor_copies.MISALIGNED_START: "coordinate 0 must be at a multiple of 16 bytes",
    tensor_copies.NEGATIVE: "a coordinate of a copy to global memory is negative",
    tensor_copies.OUTSIDE: "im2col starts outside of its bounding box, or that leaves the tensor",
    tensor_copies.NO_REDUCTION: "its element type has no such reduction",
}
MISALIGNED_TENSOR = "the global address of its tensor must be a multiple of 16"
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
        rule = f"all threads must give the same count, a multiple of 32 up to {threads}"
        return f"{opcode} of barrier {address}: the barrier must be 0 to 15, and {rule}"
    if code == BAD_INDEX:
        body = run.program.function_at(op.pc)
        if body and op.pc == body.last - 1:
            return f"{body.name} can't return: its activation record has been overwritten"
        return f"{opcode} with an index outside of its list of targets"
    if code == BAD_DESCRIPTOR:
        address %= 1 << 64
        reserved = address & RESERVED
        why = "reserved bits are set" if reserved else "all lanes must have the same descriptor"
        return f"{opcode} with descriptor {address:#x}: {why}"
    if code == BAD_WARPGROUP:
        return f"{opcode} needs four warps, and the CTA has {address} threads"
    if code == BAD_METADATA:
        return f"{opcode} with metadata {address:#06b}, which is not a valid selection"
    if code == IN_FLIGHT:
        return f"{opcode} {_conflict(address)} the {_instruction(run, value)} still in flight"
    if code == BAD_MBARRIER:
        return f"{opcode} at {address % (1 << 64):#x}: {_mbarrier(op, value % (1 << 64))}"
    if code == TX_COUNT_OVERFLOW:
        rule = f"the transaction count must be at most {MAX_COUNT} in absolute value"
        return f"{opcode} at {address % (1 << 64):#x}: {rule}, got {expected_bytes(value)}"
    if code == DOUBLE_INIT:
        why = f"the {_instruction(run, value)} initialized it before, with no mbarrier.inval since"
        return f"{opcode} at {address % (1 << 64):#x}: {why}"
    if code == BAD_BULK:
        return f"{opcode} at {address:#x}: {_bulk(op, value)}"
    if code == BAD_MAP:
        why = MAP_FAULTS.get(value, MISALIGNED_TENSOR)
        return f"{opcode} with the tensor map at {address % (1 << 64):#x}: {why}"
    if code == EXITED_CTA:
        why = "its CTA has exited, or the cluster has no CTA of that rank"
        return f"{opcode} at {address:#x}: {why}"
    if code == UNREAD_COPY:
        unread = f"bytes at {address:#x} that no wgmma reads"
        return f"{opcode} writes {unread}, although one reads other bytes of the copy"
    if code == DISCARDED:
        lost = f"the accumulators of the {_instruction(run, value)}"
        return f"{opcode} does not accumulate and overwrites {lost}, which was not waited for"
    if code in (RACE, BAD_FENCE):
        return _race(run, opcode, address, value)
    if code == GRID_DEPENDENCY:
        why = "the preceding grid may still run: no griddepcontrol.wait comes before the access"
        return f"{opcode} at {address % (1 << 64):#x}: {why}"
    if code == STACK_OVERFLOW:
        return _stack_overflow(run, worker, op)
    if code in (DIVERGED, MISSING_LANES, BAD_MEMBER_MASK, WARPGROUP_MISMATCH):
        return f"{opcode}{_divergence(run, worker, op)}"
    if code in (OUT_OF_BOUNDS, USE_AFTER_FREE):
        return f"{opcode}{_bytes(op)} at {address:#x}: {_location(run, op, address)}"
    if code == READ_ONLY:
        return f"{opcode}{_bytes(op)} at {address:#x} writes to {_read_only(run, address)}"
    return f"{opcode}{_bytes(op)} at {address:#x}" if code == MISALIGNED else opcode


def _divergence(run: LaunchState, worker: Record, op: Op) -> str:
    """Why threads or warps can't execute an operation together."""
    lanes, value = worker.fault_address, worker.fault_value
    if worker.fault == DIVERGED:
        return f" waits for lanes {lanes:#010x}, which can't arrive"
    if worker.fault == MISSING_LANES:
        return f" is executed only by lanes {lanes:#010x}: {_missing_lanes(run, worker, op)}"
    if worker.fault == WARPGROUP_MISMATCH:
        return f", but warp {lanes} of its warpgroup {WARPGROUP_MISMATCHES[value]}"
    mask, own = lanes % (1 << 32), value % (1 << 32)
    if mask == own:
        return f" by a lane with the member mask {own:#010x}, which does not contain the lane"
    return f" by a lane with the member mask {own:#010x}; a lane in it has {mask:#010x}"


def _missing_lanes(run: LaunchState, worker: Record, op: Op) -> str:
    """Which other lanes of the warp must execute the operation, and why they do not."""
    threads = run.setup.threads - 32 * worker.fault_warp
    existing, live = (1 << min(threads, 32)) - 1, worker.fault_value
    reasons = {
        "the block has no threads for": FULL_MASK & ~existing,
        "exited:": existing & ~live,
        "the guard is false in": live & ~worker.fault_address,
    }
    who = "all 32 threads of a warp" if "whole" in op.form.effects else "all threads of the warp"
    missing = ", ".join(f"{why} {lanes:#010x}" for why, lanes in reasons.items() if lanes)
    return f"{who} must execute it together ({missing})"


WARPGROUP_MISMATCHES = {
    wgmma_groups.DIFFERENT_WGMMA: "has issued another wgmma, or in another group, at this point",
    wgmma_groups.DIFFERENT_OPERANDS: "has other descriptors: all four warps must have the same",
    wgmma_groups.MISSING_WGMMA: "has committed fewer wgmma",
    wgmma_groups.WARP_EXITED: "has exited and has committed fewer groups",
}


def _instruction(run: LaunchState, pc: int) -> str:
    """The opcode of an operation and its line."""
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
    """The other side of a race, or the missing fence."""
    if not value:
        used = "uses registers that other instructions have accessed"
        return f"{opcode} {used}: no wgmma.fence is between them"
    what, pc = value >> ACTOR, value & OPERATION
    if what == race_detector.EXITED_EARLY:
        return f"{opcode} uses shared memory of a CTA that ends: nothing makes it wait"
    return RACES[what].format(opcode, address, _instruction(run, pc))


def _mbarrier(op: Op, word: int) -> str:
    """The error of an mbarrier operation; ``word`` is the 64-bit state of the mbarrier."""
    if op.form.mnemonic == "barrier":
        return "a thread must arrive at the cluster barrier once before each wait"
    if "init" in op.form.opcode:
        return f"the arrival count must be 1 to {MAX_COUNT}, got {word}"
    if word >> 62 & 1 or not word % (1 << 40):
        return "no mbarrier has been initialized there"
    pending, count = word & MAX_COUNT, word >> 20 & MAX_COUNT
    return f"more arrivals than the phase lacks: {pending} of {count}"


def _bulk(op: Op, value: int) -> str:
    if op.form.opcode.startswith("st.bulk"):
        return f"the size must be a multiple of 8 bytes, got {value}"
    if value:
        return f"the size must be a multiple of 16 bytes, got {value}"
    return "the mbarrier and the destination must be in the same CTA"


def _bytes(op: Op) -> str:
    """The bytes that a lane accesses; for a matrix instruction, in one access. Nothing for a bulk
    copy, whose size is in a register.
    """
    if op.form.entry is not None:
        size = int(getattr(op.form.entry, "alignment", 16))
    elif op.form.mnemonic == "cp":
        immediates = (arg for spec, arg in op.sources if spec.kind == "imm")
        size = next((arg.bits for arg in immediates if isinstance(arg, ConstOperand)), 0)
    elif op.form.mnemonic in ("mbarrier", "tensormap"):
        size = {"mbarrier": 8, "tensormap": tensor_copies.MAP_BYTES}[op.form.mnemonic]
    elif not op.form.T:
        size = 0
    else:
        size = bits(op.form.T) // 8 * int(op.form.vec[1:] or 1)
    return f" of {size} bytes" if size else ""


def _read_only(run: LaunchState, address: int) -> str:
    """What is at an address that kernels may only read."""
    if address < GLOBAL_BASE:
        return "the parameters of the kernel"
    allocation = run.memory.find(address)
    variables = run.kernel.addresses.items()
    starts = (name for name, start in variables if allocation and start == allocation.start)
    name = next(starts, "")
    what = f"the constant {name}" if name else "an array that is read-only or overlaps itself"
    return f"{what}: {run.memory.describe(address)}"


def _location(run: LaunchState, op: Op, address: int) -> str:
    """What is at, or near, an address of the operation's state space."""
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


def _stack_overflow(run: LaunchState, worker: Record, op: Op) -> str:
    """What is on the stack of a thread that can't allocate more."""
    size = worker.fault_address % (1 << 64)
    if op.form.mnemonic == "stackrestore":
        return f"{op.form.opcode} to an address at which the stack has not ended before"
    limit = run.launch.local_bytes - run.launch.static_bytes
    callee = next(
        (b.name for b in run.program.out_of_line_functions if op.pc in b.call_sites.values()),
        "alloca",
    )
    callers = Counter(_callers(run, worker, op))
    counts = ", ".join(f"{name} {n} times" for name, n in callers.most_common(SHOWN))
    depth = f", {callers.total()} calls deep: {counts}" if callers else ""
    return f"{callee} needs {size} more bytes of a stack of {limit}{depth}"


def _callers(run: LaunchState, worker: Record, op: Op) -> Iterator[str]:
    """The out-of-line functions that the faulting lane has not returned from, the innermost first.
    Stops at an activation record that the kernel has overwritten.
    """
    program, lane = run.program, worker.fault_lane
    cta = next(c for c in ctas(worker) if c.state and c.linear == worker.fault_cta)
    warp = Record(WarpRecord, cta.frames + worker.fault_warp * run.launch.frame_bytes)
    local = cta.local + (warp.index * 32 + lane) * run.launch.local_bytes
    body, last = program.function_at(op.pc), run.launch.local_bytes - FRAME_HEADER
    activations = view(warp.address + program.slots[program.activation], u64, 32) if body else None
    offset = int(activations[lane]) if activations is not None else 0
    while body and body.name and offset <= last:
        yield body.name
        caller, number = (int(n) for n in view(local + offset, u64, 2))
        site, last = body.call_sites.get(number % (1 << 32)), offset - FRAME_HEADER
        body, offset = program.function_at(site) if site is not None else None, caller
