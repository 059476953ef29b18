"""One launch: records filled in, CTAs dealt to host threads, and what comes back turned into a result or a fault."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..errors import VmFault
from .library import Library
from .memory import Memory, aligned
from .program import Program
from .record import Record
from .state import (
    BAD_BARRIER, DEADLOCK, DIVERGED, FAULT, FAULTS, FINISHED, FREED, MISALIGNED, NEED, OUT_OF_BOUNDS, QUEUE, STEPS_OUT,
    STOPPED, WAITING, Allocation, Copy, Cta, Launch, Warp, Worker,
)  # fmt: skip

SLICE = 100_000  # operations in loops before a warp gives way
NAP = 0.05  # seconds between looks at a launch under way
SPLITMIX = 0x9E3779B97F4A7C15
THREADS_PER_SM, SMS = 2048, 132


class Code(Protocol):
    """What runs a program's blocks: compiled regions, or the stepping evaluator."""

    library: Library
    table: npt.NDArray[np.int64]
    frame_bytes: int

    def need(self, block: int) -> None: ...


class Run:
    """A launch under way."""

    def __init__(
        self,
        memory: Memory,
        program: Program,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        params: bytes,
        shared: int,
        seed: int,
        step_limit: int,
    ) -> None:
        self.memory, self.program = memory, program
        self.grid, self.block = grid, block
        self.ctas = grid[0] * grid[1] * grid[2]
        self.threads = block[0] * block[1] * block[2]
        self.warps = -(-self.threads // 32)
        self.table = memory.table()
        self.params = aligned(max(len(params), 1))
        self.params[: len(params)] = np.frombuffer(params, np.uint8)
        self.seed = seed
        self.launch = self._launch(len(params), shared, step_limit)

    def _launch(self, param_bytes: int, dynamic: int, step_limit: int) -> Record:
        r, p = Record(Launch), self.program
        r.host = self.memory.host
        r.allocations = self.table.ctypes.data
        r.allocation_count = len(self.table) // Allocation.size
        r.params, r.param_bytes = self.params.ctypes.data, param_bytes
        r.grid[:], r.block[:] = self.grid, self.block
        r.threads, r.warps = self.threads, self.warps
        r.shared_bytes, r.dynamic_bytes = p.shared_bytes + dynamic, dynamic
        r.local_bytes = -(-p.local_bytes // 16) * 16
        r.blocks, r.divergent = len(p.blocks), p.divergent
        r.seed, r.slice, r.step_limit = self.seed & (2**62 - 1), SLICE, step_limit
        return r

    def execute(self, code: Code, threads: int, watch: Callable[[int, int], object] | None = None) -> None:
        """Run all CTAs. Raises VmFault; Ctrl-C stops the launch and is raised.

        ``watch`` hears now and then how many CTAs of how many were started; what it raises stops the launch.
        """
        self.code, self.watch = code, watch
        self.launch.frame_bytes = code.frame_bytes
        self.launch.regions = code.table.ctypes.data
        count = min(threads, self.ctas)
        resident = 1
        if self.program.communicates:
            resident = min(self.ctas, SMS * max(1, THREADS_PER_SM // (32 * self.warps)))
        bounds = [self.ctas * i // count for i in range(count + 1)]
        self.workers = [self._worker(i, *bounds[i : i + 2], resident) for i in range(count)]
        self.failure: BaseException | None = None
        self._join([threading.Thread(target=self._work, args=(w,), daemon=True) for w in self.workers])
        if self.failure:
            raise self.failure

    def _join(self, threads: list[threading.Thread]) -> None:
        """Wait in short naps, so that Ctrl-C is heard."""
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    thread.join(NAP)
                    if self.watch:
                        self.watch(self.ctas - sum(w.last - w.next for w in self.workers), self.ctas)
        except BaseException:
            self.launch.stop = 1
            for thread in threads:
                thread.join()
            raise

    def _worker(self, number: int, first: int, last: int, resident: int) -> Record:
        r = Record(Worker)
        r.launch, r.resident, r.next, r.last = self.launch.address, resident, first, last
        r.random = ((self.seed + 1) * SPLITMIX + number * 0xD1B54A32D192ED03) & (2**63 - 1) | 1
        area = self._places(r, resident)
        object.__setattr__(r, "_memory", (r._memory, area))
        return r

    def _places(self, worker: Record, resident: int) -> list[npt.NDArray[np.uint8]]:
        """Memory for the resident CTAs: records, frames, shared and local memory, copy queues."""
        launch = self.launch
        ctas = aligned(Cta.size * resident)
        shared_bytes = -(-launch.shared_bytes // 1024) * 1024 + 64
        local_bytes = launch.local_bytes * 32 * self.warps
        frames = aligned(launch.frame_bytes * self.warps * resident)
        shared = aligned(shared_bytes * resident, 1024)
        local = aligned(local_bytes * resident + 64)
        queues = aligned(Copy.size * QUEUE * self.warps * resident) if self._copies() else aligned(64)
        worker.ctas = ctas.ctypes.data
        for i in range(resident):
            cta = Record(Cta, ctas.ctypes.data + i * Cta.size)
            cta.worker, cta.launch = worker.address, launch.address
            cta.shared = shared.ctypes.data + i * shared_bytes
            cta.local = local.ctypes.data + i * local_bytes
            cta.frames = frames.ctypes.data + i * launch.frame_bytes * self.warps
            for w in range(self.warps):
                warp = Record(Warp, cta.frames + w * launch.frame_bytes)
                warp.queue = queues.ctypes.data + (i * self.warps + w) * Copy.size * QUEUE if self._copies() else 0
        return [ctas, frames, shared, local, queues]

    def _copies(self) -> bool:
        return any("async" in op.form.effects for op in self.program.ops)

    # --- a host thread ---

    def _work(self, worker: Record) -> None:
        try:
            self.code.library.plain_floats()
            while True:
                result = self.code.library.run(worker.address)
                if result == NEED:
                    self.code.need(worker.need)
                    continue
                if result not in (FINISHED, STOPPED):
                    raise self._fault(worker, result)
                return
        except BaseException as error:  # noqa: BLE001 - carried to the calling thread
            self.failure = self.failure or error
            self.launch.stop = 1

    # --- faults ---

    def _fault(self, worker: Record, result: int) -> VmFault:
        if result == DEADLOCK:
            return self._deadlock(worker)
        if result == STEPS_OUT:
            return VmFault(
                f"{self.program.name} ran more than {self.launch.step_limit} operations in loops", kind="step limit"
            )
        assert result == FAULT
        kind, pc, address = FAULTS[worker.fault], worker.fault_pc, worker.fault_address
        thread = self._thread(worker.fault_warp * 32 + worker.fault_lane)
        block = self._index(worker.fault_cta, self.grid)
        what = self._what(worker.fault, pc, address)
        return VmFault(
            f"{kind}: {what} (thread {thread} of block {block})",
            kind=kind,
            address=address if worker.fault in (OUT_OF_BOUNDS, MISALIGNED, FREED) else None,
            thread=thread,
            block=block,
            place=self.program.place(pc),
        )

    def _what(self, fault: int, pc: int, address: int) -> str:
        opcode = self.program.ops[pc].form.opcode
        if fault == BAD_BARRIER:
            return f"{opcode} of barrier {address}: 0 to 15 exist, and the threads are a multiple of 32 in the block"
        if fault == DIVERGED:
            return f"{opcode} waits for lanes {address:#010x}, which can't come"
        if fault in (OUT_OF_BOUNDS, FREED):
            return f"{opcode} at {address:#x}: {self._near(address)}"
        return f"{opcode} at {address:#x}" if fault == MISALIGNED else opcode

    def _near(self, address: int) -> str:
        if address >> 32 == 1 or 0 <= address < 1 << 24:
            sizes = f"shared memory has {self.launch.shared_bytes} bytes, the parameters {self.launch.param_bytes}"
            return f"{sizes}, and global memory begins far above"
        return self.memory.describe(address)

    def _thread(self, linear: int) -> tuple[int, int, int]:
        return self._index(linear, self.block)

    def _index(self, linear: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
        return linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])

    def _deadlock(self, worker: Record) -> VmFault:
        """Who waits where."""
        lines = []
        for i in range(worker.resident):
            cta = Record(Cta, worker.ctas + i * Cta.size)
            for w in range(self.warps if cta.state else 0):
                warp = Record(Warp, cta.frames + w * self.launch.frame_bytes)
                if warp.state == WAITING or warp.live:
                    held = [n for n, mask in enumerate(warp.at) if mask]
                    block = self._index(cta.linear, self.grid)
                    lines.append(f"warp {w} of block {block} waits at barrier {held or '?'}, lanes {warp.live:#010x}")
        shown = "\n  ".join(lines[:8]) + (f"\n  … and {len(lines) - 8} more" if len(lines) > 8 else "")
        return VmFault(f"deadlock in {self.program.name}: no warp can go on\n  {shown}", kind="deadlock")
