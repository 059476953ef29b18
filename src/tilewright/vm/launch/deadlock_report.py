"""Launches that don't end, said for a person: who waits for what, or runs, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import SourceLocation, VmFault
from ...native.native_language import u32, u64
from ...native.native_record import Record, view
from ..engine.mbarrier_model import MAX_COUNT
from ..program.bound_operands import Op
from ..state.records import EXITED, RANK_SHIFT, WINDOW_BITS, Cta, WarpRecord
from .launch_state import Dim3, LaunchState

SHOWN = 8  # different waits that are listed

State = tuple[int, str, SourceLocation | None]  # which lanes, what they do, where
Where = tuple[int, Dim3, State]  # of which warp and block


def deadlock(run: LaunchState, worker: Record) -> VmFault:
    """No warp can go on."""
    found = list(_waiting(run, worker))
    return _fault(run, "deadlock", f"deadlock in {run.program.name}: no warp can go on", found)


def step_limit(run: LaunchState, worker: Record) -> VmFault:
    """More operations in loops, and warps begun, than the launch may have: who runs, and who waits
    for it.
    """
    found = [*_running(run, worker), *_waiting(run, worker)]
    what = f"{run.program.name} ran more than {run.setup.step_limit} operations in loops and warps"
    return _fault(run, "step limit", what, found)


def _fault(run: LaunchState, kind: str, what: str, found: Sequence[Where]) -> VmFault:
    """A line for each different state, whatever warps and blocks it is of."""
    of_block: dict[tuple[Dim3, State], list[int]] = {}
    for w, block, state in found:
        of_block.setdefault((block, state), []).append(w)
    blocks: dict[tuple[tuple[int, ...], State], list[Dim3]] = {}
    for (block, state), warps in of_block.items():
        blocks.setdefault((tuple(warps), state), []).append(block)
    lines = [_line(warps, of, state) for (warps, state), of in blocks.items()]
    if len(lines) > SHOWN:
        lines[SHOWN:] = [f"… and {len(lines) - SHOWN} more"]
    thread, block, location = None, None, None
    if found:
        w, block, (mask, _, location) = found[0]
        thread = index(w * 32 + (mask & -mask).bit_length() - 1, run.setup.block)
    said = "\n  ".join((what, *lines))
    return VmFault(said, kind=kind, thread=thread, block=block, location=location)


def _line(warps: Sequence[int], blocks: Sequence[Dim3], state: State) -> str:
    mask, what, location = state
    others = f" and {len(blocks) - 1} more" if len(blocks) > 1 else ""
    line = f", line {location.line}" if location else ""
    return f"{_named_warps(warps)} of block {blocks[0]}{others}: lanes {mask:#010x} {what}{line}"


def _named_warps(warps: Sequence[int]) -> str:
    """Such as ``warp 3`` or ``warps 0 … 3, 5``."""
    runs: list[list[int]] = []
    for w in warps:
        if runs and w == runs[-1][-1] + 1:
            runs[-1].append(w)
        else:
            runs.append([w])
    said = [f"{r[0]} … {r[-1]}" if len(r) > 1 else str(r[0]) for r in runs]
    return f"warp{'s' * (len(warps) > 1)} {', '.join(said)}"


def _waiting(run: LaunchState, worker: Record) -> Iterator[Where]:
    """Each group of lanes that waits."""
    for w, block, warp in _warps(run, worker):
        for barrier, mask in enumerate(map(int, warp.waiting_at)):
            if mask:
                op = _at(run, warp, mask, last=True)
                yield w, block, (mask, f"wait at barrier {barrier}", _location(run, op))
        if warp.asleep:
            op = _at(run, warp, warp.asleep, last=False)
            yield w, block, (warp.asleep, _wait_reason(run, warp, op), _location(run, op))


def _running(run: LaunchState, worker: Record) -> Iterator[Where]:
    """Each group of lanes that can go on, and the loop or block that it has come to."""
    for w, block, warp in _warps(run, worker):
        masks = {warp.block: warp.live}
        if run.program.divergent:
            masks = dict(enumerate(map(int, view(warp.pending, u32, len(run.program.blocks)))))
        for number, mask in masks.items():
            ops, able = run.program.blocks[number].ops, mask & warp.live & ~warp.waiting
            if able:
                yield w, block, (able, "run", _location(run, ops[0] if ops else None))


def _warps(run: LaunchState, worker: Record) -> Iterator[tuple[int, Dim3, Record]]:
    """The warps that have not ended, and their blocks."""
    for cta in ctas(worker):
        for w in range(run.setup.warps if cta.state else 0):
            warp = Record(WarpRecord, cta.frames + w * run.launch.frame_bytes)
            if warp.state != EXITED:
                yield w, index(cta.linear, run.setup.grid), warp


def _location(run: LaunchState, op: Op | None) -> SourceLocation | None:
    return run.program.location(op.pc) if op else None


def _at(run: LaunchState, warp: Record, mask: int, *, last: bool) -> Op | None:
    """The instruction that lanes wait at: the first of the block where they go on, or the last of
    the one before.
    """
    block = warp.block
    if run.program.divergent:
        pending = view(warp.pending, u32, len(run.program.blocks))
        block = next((b for b, m in enumerate(pending) if int(m) & mask), block)
    ops = run.program.blocks[block - last].ops if block >= last else []
    return ops[-last] if ops else None


def _wait_reason(run: LaunchState, warp: Record, op: Op | None) -> str:
    """What sleeping lanes wait for: the cluster's barrier, or what an mbarrier misses."""
    if op is not None and op.form.mnemonic == "wgmma":
        return "wait for the warpgroup's other warps"
    if op is None or op.form.mnemonic != "mbarrier":
        return "wait at the cluster's barrier"
    address = warp.awaited % (1 << 64)
    found = _shared_word(run, warp, address)
    if found is None:
        return f"wait for the mbarrier at {address:#x}"
    missing, size = found & MAX_COUNT, found >> 20 & MAX_COUNT
    tx = expected_bytes(found)
    phase = found >> 63
    bytes_ = f", and {tx} bytes" if tx > 0 else ""
    if tx < 0:
        bytes_ = f"; {-tx} bytes came that nobody expected"
    misses = f"phase {phase} misses {missing} of {size} arrivals{bytes_}"
    return f"wait for the mbarrier at {address:#x}: {misses}"


def expected_bytes(word: int) -> int:
    """What a phase of an mbarrier still expects; below 0: what came before it did."""
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
    """The (x, y, z) of a thread or CTA by its number."""
    return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])


def ctas(worker: Record) -> Iterator[Record]:
    return (Record(Cta, worker.ctas + i * Cta.size) for i in range(worker.resident))
