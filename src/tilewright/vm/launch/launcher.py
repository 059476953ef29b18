"""One launch: fills in the records, distributes CTAs over host threads, and reports faults.

CTAs that do not communicate are distributed in small shares over several threads. CTAs that do are
resident together, as many as on a GPU, and take turns in one thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...lazy_imports import deferred
from ...native.aligned_memory import aligned_zeros
from ...native.native_language import Struct
from ...native.native_record import Record
from ..codegen.block_code import BlockCode
from ..codegen.loaded_kernel import LoadedKernel
from ..program.kernel_metadata import KernelMetadata
from ..state.global_memory import GlobalMemory
from ..state.records import (  # fmt: skip
    FINISHED,
    FULL_MASK,
    MAX_ASYNC_COPIES,
    MAX_BULK_COPIES,
    STOPPED,
    WINDOW,
    AllocationRecord,
    AsyncCopy,
    BulkCopy,
    Cta,
    LaunchRecord,
    WarpRecord,
    Worker,
)
from .launch_state import LaunchSetup

if TYPE_CHECKING:
    from ..check import race_detector, vector_clocks
    from ..program import program_analysis
    from ..program.program import Program
    from . import fault_report, host_functions
else:
    program_analysis = deferred("..program.program_analysis", __package__)
    vector_clocks = deferred("..check.vector_clocks", __package__)
    host_functions = deferred(".host_functions", __package__)
    race_detector = deferred("..check.race_detector", __package__)
    fault_report = deferred(".fault_report", __package__)

SLICE = 20_000  # steps that a warp may spend in loops before it yields to others
POLL_SECONDS = 0.05  # seconds between polls of a running launch
SHARES_PER_THREAD = 8  # shares of CTAs for each host thread, if there are enough CTAs
SEED_BITS = 62
LINE = 64  # bytes of a cache line; an odd number of lines per stack avoids set conflicts
WORKSPACE = 64  # bytes of the grid barrier of a cooperative launch
SMEM_UNIT, OLD_SMEM_UNIT = 128, 256  # allocation units of shared memory; the latter before sm_80

Progress = Callable[[int, int], object]


class RunningLaunch:
    """A launch in progress."""

    def __init__(
        self,
        memory: GlobalMemory,
        kernel: LoadedKernel,
        metadata: KernelMetadata,
        setup: LaunchSetup,
    ) -> None:
        self.memory, self.kernel, self.metadata, self.setup = memory, kernel, metadata, setup
        self.workspace = memory.allocate(WORKSPACE) if setup.cooperative else 0
        self.table = memory.table()
        self.params = aligned_zeros(len(setup.params) + WINDOW)
        self.params[: len(setup.params)] = np.frombuffer(setup.params, np.uint8)
        self.launch = self._launch()
        self.lock = threading.Lock()
        self.failures: list[tuple[int, BaseException]] = []

    @property
    def program(self) -> Program:
        """The program of the kernel; built on first use, for fault reports and checked launches."""
        return self.kernel.program

    def renew(self) -> None:
        """Make the current allocations visible to the launch, which runs in one host thread."""
        self.table = self.memory.table()
        self.launch.allocations = self.table.ctypes.data
        self.launch.allocation_count = len(self.table) // AllocationRecord.size
        for worker in self.workers:
            worker.low = worker.high = worker.read_only = 0
            worker.lows[:] = worker.highs[:] = 0

    def _launch(self) -> Record:
        r, p, s = Record(LaunchRecord), self.metadata, self.setup
        r.host = self.memory.host
        r.allocations = self.table.ctypes.data
        r.allocation_count = len(self.table) // AllocationRecord.size
        r.params, r.param_bytes = self.params.ctypes.data, len(s.params)
        r.grid[:], r.block[:] = s.grid, s.block
        r.threads, r.warps, r.sms = s.threads, s.warps, s.sms
        r.shared_bytes, r.dynamic_bytes = p.shared_bytes + s.shared, s.shared
        unit = SMEM_UNIT if s.limits.shared_reserved else OLD_SMEM_UNIT
        r.total_smem = -(-r.shared_bytes // unit) * unit
        r.aggregate_smem = r.shared_bytes + s.limits.shared_reserved  # 1000 + 1024: 2024 on an H200
        if p.reads_reserved_smem:
            low, size = -(-r.shared_bytes // unit) * unit, s.limits.shared_reserved
            r.shared_bytes = low + size
            r.reserved_smem[:] = low, low + size, size, low, low + size // 2
        r.warp_slots, r.number = s.limits.threads_per_sm // 32, s.number
        r.workspace[:] = self.workspace & FULL_MASK, self.workspace >> 32
        stack = s.stack if p.uses_dynamic_stack else 0
        even = stack > 0 and (p.local_bytes + stack) // LINE % 2 == 0
        r.static_bytes = p.local_bytes + LINE * even
        r.local_bytes = r.static_bytes + stack
        r.blocks, r.divergent = p.blocks, p.divergent
        r.cluster[:], r.cluster_size, r.explicit = s.cluster, s.cluster_size, s.explicit
        r.clusters[:] = [n // c for n, c in zip(s.grid, s.cluster, strict=True)]
        r.seed, r.step_limit = s.seed % (1 << SEED_BITS), s.step_limit
        r.slice = min(SLICE, s.step_limit or SLICE)
        if s.checked:
            self._check(r)
        return r

    def _check(self, r: Record) -> None:
        """Fill in what the checks of a checked launch need (``vm/check``)."""
        ops = self.program.ops
        self.strong = np.array(program_analysis.strong_operations(ops), np.uint8)
        self.constant = np.array(program_analysis.constant_loads(ops), np.uint8)
        r.checked, r.strong = 1, self.strong.ctypes.data
        self.inits = np.array(program_analysis.mbarrier_inits(ops), np.uint8)
        r.constant, r.inits = self.constant.ctypes.data, self.inits.ctypes.data
        r.actors, r.overlaps = (
            vector_clocks.KINDS * r.warps + MAX_BULK_COPIES + 1,
            self.setup.programmatic,
        )
        granules = -(-r.shared_bytes // race_detector.GRANULE)
        r.shadow_room = granules * race_detector.GRANULE
        r.shadow_bytes = r.shadow_room * 8 + granules * race_detector.READERS * (8 + 2)

    def execute(self, code: BlockCode, threads: int, watch: Progress | None = None) -> None:
        """Run all CTAs, then write what they printed. Raises VmFault. Ctrl-C stops the launch and
        is raised.

        ``watch`` is called periodically with the number of CTAs started and the number of all CTAs;
        an exception that it raises stops the launch.
        """
        ctas = self.setup.ctas
        if not ctas:
            return
        self.code, self.watch = code, watch
        self.launch.frame_bytes = code.frame_bytes
        self.launch.regions = code.table.ctypes.data
        self.launch.compile = code.callback
        host = (
            host_functions.HostFunctions(self, code) if self.metadata.calls_host_functions else None
        )
        self.launch.outside = host.callback if host else 0
        size = self.setup.cluster_size
        resident, share = size, max(1, ctas // size // (threads * SHARES_PER_THREAD)) * size
        if self.metadata.communicates_across_ctas or self.setup.cooperative:
            threads, share = 1, ctas
            resident = min(
                ctas, self.setup.resident(self.metadata.shared_bytes + self.setup.shared)
            )
        self.shares = iter(range(0, ctas, share))
        self.share, self.done = share, 0
        workers = [self._worker(resident) for _ in range(min(threads, ctas // size))]
        self.workers = [worker for worker, _ in workers]
        try:
            for part in self._parts():
                code.library.need(part)
            self._join([threading.Thread(target=self._work, args=w, daemon=True) for w in workers])
        finally:
            if self.workspace:
                self.memory.free(self.workspace)
            first = min(self.failures, key=lambda f: f[0], default=None)
            if host:
                host.output.flush(first[0] if first else None)
        if first:
            raise first[1]

    def _parts(self) -> Iterator[str]:
        """The parts of the engine that the launch needs."""
        yield "scheduler"
        if self.setup.cluster_size > 1:
            yield "cluster"
        if self.setup.checked:
            yield "checked"

    def _join(self, threads: list[threading.Thread]) -> None:
        """Wait for the threads in short intervals, so that Ctrl-C is handled."""
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                alive = True
                while alive:
                    thread.join(POLL_SECONDS)
                    alive = thread.is_alive()
                    if self.watch:  # at least once, however short the launch is
                        self.watch(self.done, self.setup.ctas)
        except BaseException:
            self.launch.stop = 1
            while any(thread.is_alive() for thread in threads):  # they use this launch's memory
                with suppress(KeyboardInterrupt):
                    time.sleep(POLL_SECONDS / 10)
            raise

    # --- memory for CTAs ---

    def _worker(self, resident: int) -> tuple[Record, list[npt.NDArray[np.uint8]]]:
        """A worker with slots for ``resident`` CTAs: records, frames, shared and local memory, copy
        queues; and the arrays that own this memory.
        """
        launch, warps = self.launch, self.setup.warps
        copies, bulk = self.metadata.uses_cp_async, self.metadata.uses_bulk_copies
        local = launch.local_bytes * 32 * warps
        clocks = (warps + vector_clocks.CLOCKS) * launch.actors if launch.checked else 0
        areas = [
            _Area(resident, Cta.size),
            _Area(resident * warps, launch.frame_bytes),
            _Area(resident, -(-launch.shared_bytes // 64) * 64 + WINDOW),
            _Area(resident, local + 64),
            _Area(resident * warps if copies else 1, AsyncCopy.size * MAX_ASYNC_COPIES),
            _Area(resident if bulk else 1, BulkCopy.size * MAX_BULK_COPIES),
            _Area(resident, clocks * launch.cluster_size * 8),
            _Area(resident, launch.shadow_bytes),
        ]
        ctas, frames, shared, locals_, queues, bulk_copies, vectors, shadows = areas
        worker = Record(Worker)
        worker.launch, worker.resident, worker.ctas = launch.address, resident, ctas.address
        ctas.fill(Cta, "worker", worker.address)
        ctas.fill(Cta, "launch", launch.address)
        ctas.fill(Cta, "shared", shared.addresses())
        ctas.fill(Cta, "local", locals_.addresses())
        ctas.fill(Cta, "frames", frames.addresses()[::warps])
        ctas.fill(Cta, "bulk_copies", bulk_copies.addresses() if bulk else 0)
        ctas.fill(Cta, "clocks", vectors.addresses())
        ctas.fill(Cta, "shadow", shadows.addresses())
        frames.fill(WarpRecord, "queue", queues.addresses() if copies else 0)
        return worker, [a.bytes for a in areas]

    # --- a host thread ---

    def _work(self, worker: Record, memory: object) -> None:
        """Run share after share; ``memory`` keeps alive what the worker's records point to."""
        try:
            self.code.library.set_float_mode()
            for first, last in self._shares():
                worker.first, worker.next, worker.last = first, first, last
                result = self.code.library.run(worker.address)
                if result == STOPPED:
                    return
                if result != FINISHED:
                    raise self.code.error() or fault_report.fault(self, worker, result)
        except BaseException as error:
            self._fail(worker, error)

    def _fail(self, worker: Record, error: BaseException) -> None:
        """Record a failure and stop the workers with later CTAs. Earlier CTAs continue, so that the
        first fault is the same on any number of cores.
        """
        with self.lock:
            self.failures.append((worker.first, error))
            self.shares = iter(())
            for other in self.workers:
                if other.first > worker.first:
                    other.stop = 1

    def _shares(self) -> Iterator[tuple[int, int]]:
        """Ranges of CTAs, until all have been started."""
        while True:
            with self.lock:
                first = next(self.shares, None)
                if first is None:
                    return
                last = min(first + self.share, self.setup.ctas)
                self.done = last
            yield first, last


class _Area:
    """``count`` zeroed elements of ``size`` bytes."""

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.bytes = aligned_zeros(count * size)
        self.address = int(self.bytes.ctypes.data)

    def addresses(self) -> npt.NDArray[np.int64]:
        return self.address + np.arange(self.count, dtype=np.int64) * self.size

    def fill(self, record: type[Struct], name: str, value: int | npt.NDArray[np.int64]) -> None:
        """Set a 64-bit field of the record at the start of each element."""
        words = self.bytes.view(np.int64).reshape(self.count, self.size // 8)
        words[:, record.offset(name) // 8] = value
