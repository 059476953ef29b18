"""Error messages for deadlocks and step limits: which lanes wait for what, or run, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import SourceLocation, VmFault
from ...native.native_language import u32, u64
from ...native.native_record import Record, view
from ..engine.mbarrier_model import MAX_COUNT
from ..program.bound_operands import Op
from ..state.records import EXITED, RANK_SHIFT, WINDOW_BITS, Cta, WarpRecord
from .launch_state import Dim3, LaunchState

SHOWN = 8  # lines of a report

LaneState = tuple[int, str, SourceLocation | None]  # lane mask, what the lanes do, where
WarpState = tuple[int, Dim3, LaneState]  # warp, block, lanes


def deadlock(run: LaunchState, worker: Record) -> VmFault:
    """The error for a launch in which no warp can proceed."""
    states = list(_waiting(run, worker))
    return _fault(run, "deadlock", f"deadlock in {run.program.name}: no warp can proceed", states)


def step_limit(run: LaunchState, worker: Record) -> VmFault:
    """The error for a launch that exceeds the step limit: the lanes that run, and those that
    wait.
    """
    states = [*_running(run, worker), *_waiting(run, worker)]
    limit = run.setup.step_limit
    message = f"{run.program.name} exceeded {limit} steps (operations in loops, and warps started)"
    return _fault(run, "step limit", message, states)


def _fault(run: LaunchState, kind: str, message: str, states: Sequence[WarpState]) -> VmFault:
    """The message, with a line for each distinct state and the warps and blocks that are in it."""
    by_block: dict[tuple[Dim3, LaneState], list[int]] = {}
    for w, block, state in states:
        by_block.setdefault((block, state), []).append(w)
    blocks: dict[tuple[tuple[int, ...], LaneState], list[Dim3]] = {}
    for (block, state), warps in by_block.items():
        blocks.setdefault((tuple(warps), state), []).append(block)
    lines = [_line(warps, same, state) for (warps, state), same in blocks.items()]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"… and {len(lines) - SHOWN} more"]
    text = "\n  ".join((message, *lines))
    if not states:
        return VmFault(text, kind=kind)
    w, first_block, (mask, _, location) = states[0]
    thread = index(w * 32 + (mask & -mask).bit_length() - 1, run.setup.block)
    return VmFault(text, kind=kind, thread=thread, block=first_block, location=location)


def _line(warps: Sequence[int], blocks: Sequence[Dim3], state: LaneState) -> str:
    mask, activity, location = state
    others = f" and {len(blocks) - 1} more" if len(blocks) > 1 else ""
    line = f", line {location.line}" if location else ""
    names = _named_warps(warps)
    return f"{names} of block {blocks[0]}{others}: lanes {mask:#010x} {activity}{line}"


def _named_warps(warps: Sequence[int]) -> str:
    """Warps by number, such as ``warp 3`` or ``warps 0 … 3, 5``."""
    runs: list[list[int]] = []
    for w in warps:
        if runs and w == runs[-1][-1] + 1:
            runs[-1].append(w)
        else:
            runs.append([w])
    numbers = [f"{r[0]} … {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs]
    return f"warp{'s' * (len(warps) > 1)} {', '.join(numbers)}"


def _waiting(run: LaunchState, worker: Record) -> Iterator[WarpState]:
    """Each group of lanes that waits."""
    for w, block, warp in _warps(run, worker):
        for barrier, mask in enumerate(map(int, warp.waiting_at)):
            if mask:
                op = _waiting_op(run, warp, mask, last=True)
                yield w, block, (mask, f"wait at barrier {barrier}", _location(run, op))
        if warp.asleep:
            op = _waiting_op(run, warp, warp.asleep, last=False)
            yield w, block, (warp.asleep, _wait_reason(run, warp, op), _location(run, op))


def _running(run: LaunchState, worker: Record) -> Iterator[WarpState]:
    """Each group of lanes that can proceed, and the block that it executes next."""
    for w, block, warp in _warps(run, worker):
        masks = {warp.block: warp.live}
        if run.program.divergent:
            masks = dict(enumerate(map(int, view(warp.pending, u32, len(run.program.blocks)))))
        for number, mask in masks.items():
            ops, runnable = run.program.blocks[number].ops, mask & warp.live & ~warp.waiting
            if runnable:
                yield w, block, (runnable, "run", _location(run, ops[0] if ops else None))


def _warps(run: LaunchState, worker: Record) -> Iterator[tuple[int, Dim3, Record]]:
    """The warps that have not exited: number in the block, block, record."""
    for cta in ctas(worker):
        for w in range(run.setup.warps if cta.state else 0):
            warp = Record(WarpRecord, cta.frames + w * run.launch.frame_bytes)
            if warp.state != EXITED:
                yield w, index(cta.linear, run.setup.grid), warp


def _location(run: LaunchState, op: Op | None) -> SourceLocation | None:
    return run.program.location(op.pc) if op else None


def _waiting_op(run: LaunchState, warp: Record, mask: int, *, last: bool) -> Op | None:
    """The instruction at which lanes wait: the first one of the block at which they will resume, or
    the ``last`` one of the block before.
    """
    block = warp.block
    if run.program.divergent:
        pending = view(warp.pending, u32, len(run.program.blocks))
        block = next((b for b, m in enumerate(pending) if int(m) & mask), block)
    ops = run.program.blocks[block - last].ops if block >= last else []
    return ops[-last] if ops else None


def _wait_reason(run: LaunchState, warp: Record, op: Op | None) -> str:
    """What sleeping lanes wait for: the other warps of the warpgroup, the cluster barrier, or the
    pending arrivals and bytes of an mbarrier.
    """
    if op is not None and op.form.mnemonic == "wgmma":
        return "wait for the other warps of the warpgroup"
    if op is None or op.form.mnemonic != "mbarrier":
        return "wait at the cluster barrier"
    address = warp.awaited % (1 << 64)
    word = _shared_word(run, warp, address)
    if word is None:
        return f"wait for the mbarrier at {address:#x}"
    pending, count = word & MAX_COUNT, word >> 20 & MAX_COUNT
    tx = expected_bytes(word)
    bytes_ = f" and {tx} bytes" if tx > 0 else ""
    surplus = f"; {-tx} bytes arrived that were not expected" if tx < 0 else ""
    state = f"phase {word >> 63} lacks {pending} of {count} arrivals{bytes_}{surplus}"
    return f"wait for the mbarrier at {address:#x}: {state}"


def expected_bytes(word: int) -> int:
    """The transaction count of an mbarrier; negative if bytes arrived before they were expected."""
    return (word >> 40 & (1 << 22) - 1 ^ 1 << 21) - (1 << 21)


def _shared_word(run: LaunchState, warp: Record, address: int) -> int | None:
    """The 64 bits at a shared address of the warp's CTA."""
    cta, offset = Record(Cta, warp.cta), address % (1 << RANK_SHIFT)
    own = address % (1 << WINDOW_BITS) >> RANK_SHIFT == cta.rank
    if not own or offset + 8 > run.launch.shared_bytes:
        return None
    return int(view(cta.shared + offset, u64, 1)[0])


# --- numbers --------------------------------------------------------------------------------------


def index(linear: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The (x, y, z) index of a thread or CTA from its linear index."""
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])


def ctas(worker: Record) -> Iterator[Record]:
    return (Record(Cta, worker.ctas + i * Cta.size) for i in range(worker.resident))
