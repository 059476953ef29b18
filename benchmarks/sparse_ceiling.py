"""What limits products of a 2:4 sparse matrix: the rate, clock and power of each of these, alone.

    python benchmarks/sparse_ceiling.py
    python benchmarks/sparse_ceiling.py --rows f16:4096x4096x4096 --configs tma:128x256x64:2:4@16,…

For each row of ``sparse_products.py``: a loop of wgmma.sp alone, whose operands stay in shared
memory (two warpgroups of an SM, m64n256, the shipped tile); for each configuration bulk copies
alone, of the bytes that its tiles load, from the L2, and our product; and cuSPARSELt's with the
algorithm of its search; all with the same kind of data. Each runs for ``--seconds`` without a
pause. A line has its time, TFLOP/s of the dense product, the SM clock and the power that the driver
reports in the second half, pJ of a dense operation above those of an SM that waits, the share of
the cycles that wgmma.sp needs at this clock, bytes that an SM receives in a cycle, and what the
driver says limits the clock. ``--zeros``: all elements are zeros.
Needs an NVIDIA GPU of sm_90a and PyTorch with cuSPARSELt.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from compare.peers import graph, machine
from sparse_products import SparseCase, random_elements

import tilewright
from tilewright.builder.tensors.wgmma_fragments import descriptor_start
from tilewright.gemm.tma.tma_operand import WGMMA_K, TmaOperand
from tilewright.mma.metadata_blocks import pack_metadata

ROWS = (
    "f16:4096x4096x4096", "f16:8192x8192x8192", "bf16:4096x4096x4096", "bf16:8192x8192x8192",
    "e4m3:4096x4096x4096", "e4m3:8192x8192x8192", "s8:8192x8192x8192",
)  # fmt: skip
TILE_M, TILE_N, STAGES = 128, 256, 4
STAGE_K = 128  # bytes of B along K
SM_CLOCK, INSTANT_POWER = 1, 186  # NVML_CLOCK_SM, NVML_FI_DEV_POWER_INSTANT
PORT_CYCLES = 144  # of an instruction: 2 KB of A and 16 KB of B, 128 bytes a cycle
LOOP_STAGES = 1 << 14  # of a launch of the loop of products


LIMITS = {0x4: "power cap", 0x8: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power brake"}
COPY, COPIES = 16 << 10, 12  # bytes, number in flight of a CTA
COPIED_BYTES = 8 << 20  # memory that the loads alone read again and again


class Reading(NamedTuple):
    """Of the driver: MHz, W, and the bits of what limits the clock."""

    clock: float
    power: float
    limits: int


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = (
        ("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("time", ctypes.c_longlong),
        ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("result", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    )  # fmt: skip


class Meter:
    """Samples clock and power by NVML while a function runs."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.library.nvmlInit_v2()
        self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def read(self) -> Reading:
        clock, field = ctypes.c_uint(), FieldValue(field=INSTANT_POWER)
        self.library.nvmlDeviceGetClockInfo(self.device, SM_CLOCK, ctypes.byref(clock))
        self.library.nvmlDeviceGetFieldValues(self.device, 1, ctypes.byref(field))
        power = field.value & 0xFFFFFFFF  # mW, an unsigned int
        limits = ctypes.c_ulonglong()
        self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.device, ctypes.byref(limits))
        return Reading(float(clock.value), power / 1e3, limits.value)

    def power_limit(self) -> float:
        """W."""
        found = ctypes.c_uint()
        self.library.nvmlDeviceGetEnforcedPowerLimit(self.device, ctypes.byref(found))
        return found.value / 1e3

    def during(self, work: Callable[[], object]) -> Reading:
        """The medians of the second half of the samples, and the limits of most of these."""
        samples: list[Reading] = []
        done = threading.Event()

        def sample() -> None:
            while not done.is_set():
                samples.append(self.read())
                time.sleep(0.01)

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            work()
        finally:
            done.set()
            thread.join()
        half = samples[len(samples) // 2 :]
        clock, power = (statistics.median(x) for x in list(zip(*half, strict=True))[:2])
        most = (bit for bit in LIMITS if sum(bool(x.limits & bit) for x in half) * 2 > len(half))
        return Reading(clock, power, sum(most))


class ProductLoop:
    """wgmma.sp alone: every warpgroup multiplies the same stages again and again."""

    def __init__(self, type_: str, zeros: bool) -> None:
        size = 2 if type_ in ("f16", "bf16") else 1
        self.type = type_
        depth = STAGE_K // size
        self.left = TmaOperand(type_, TILE_M, depth // 2, "k")
        self.right = TmaOperand(type_, TILE_N, depth, "k")
        self.sums = "s32" if type_ == "s8" else "f32"
        count = STAGES * (self.left.bytes + self.right.bytes) // size
        elements = random_elements(type_, count)
        self.data = (elements.zero_() if zeros else elements).view(torch.int32)
        valid = np.array([0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110], np.uint8)
        chunks = valid[np.random.default_rng(0).integers(0, 6, (TILE_M, 256))]
        words = pack_metadata(type_, chunks).view(np.int32).ravel()
        self.metadata = torch.from_numpy(words).cuda()
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.out = torch.zeros(self.sms, dtype=torch.int32, device="cuda")
        params = {"data": "ptr b32", "metadata": "ptr b32", "out": "ptr b32", "count": "u32"}

        def products(k: Any, data: Any, metadata: Any, out: Any, count: Any) -> None:
            self.body(k, data, metadata, out, count)

        self.kernel = tilewright.kernel(products, params=params, block=256)

    @property
    def flops(self) -> float:
        """Dense operations of a launch."""
        depth = self.right.depth
        return 2.0 * TILE_M * TILE_N * depth * LOOP_STAGES * self.sms

    def body(self, k: Any, data: Any, metadata: Any, out: Any, count: Any) -> None:
        left, right = self.left, self.right
        a_bytes, b_bytes = STAGES * left.bytes, STAGES * right.bytes
        a, b = k.dynamic_shared(a_bytes, 1024), k.dynamic_shared(b_bytes, 1024)
        for target, first, size in ((a, 0, a_bytes), (b, a_bytes // 4, b_bytes)):
            words = target.cast("b32")
            for i in k.range(k.tid.x, size // 4, 256, unroll=False):
                words[i] = data[i + first]
        k.fence_async()
        k.barrier()
        thread, group = k.tid.x & 127, k.tid.x >> 7
        per_stage = left.wgmmas_per_stage
        words = [metadata[group * 128 * 8 + i * 128 + thread] for i in range(STAGES * per_stage)]
        words = [k.var("b32", word) for word in words]
        sums = list(k.array(self.sums, TILE_N // 2))
        right_k = 2 * WGMMA_K
        own = (group * (left.byte_offset(64, 0) >> 4)).to("u64")
        of_a = (descriptor_start(a.address()) | left.descriptor_bits(64)) + own
        of_b = descriptor_start(b.address()) | right.descriptor_bits(TILE_N, right_k)
        form = f"m64n{TILE_N}k{right_k // right.size}.{self.sums}.{self.type}.{self.type}"
        opcode = f"wgmma.mma_async.sp.sync.aligned.{form}"
        count_registers = 2 if right.size == 2 else 1  # selectors
        for _ in k.range(0, count, unroll=False):
            for stage in range(STAGES):
                k.wgmma_fence()
                for i in range(per_stage):
                    number, selector = divmod(stage * per_stage + i, count_registers)
                    at_a = stage * left.bytes + left.byte_offset(0, i * WGMMA_K // left.size)
                    at_b = stage * right.bytes + right.byte_offset(0, i * right_k // right.size)
                    sparse = {"metadata": (words[number], selector), "trans": (0, 0)}
                    k.wgmma(opcode, sums, of_a + (at_a >> 4), of_b + (at_b >> 4), **sparse)
                k.wgmma_commit()
                k.wgmma_wait(1)
        k.wgmma_wait(0)
        with k.when(count == (1 << 32) - 1):
            for register in (*words, *sums):
                out.store(register.view("b32"), order="volatile")

    def __call__(self, _: int) -> None:
        self.kernel[self.sms](self.data, self.metadata, self.out, LOOP_STAGES // STAGES)


class LoadLoop:
    """Bulk copies alone, from the L2: each CTA copies ``size`` bytes of memory that all CTAs
    read, into a ring of stages.
    """

    def __init__(self, case: SparseCase, size: int) -> None:
        self.memory = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
        data = case.xs[0].t().contiguous().view(torch.uint8).ravel()
        self.memory.copy_(data.repeat(-(-COPIED_BYTES // data.numel()))[:COPIED_BYTES])
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.count = size // COPY
        params = {"source": "ptr b8 align 16", "count": "u32"}
        self.kernel = tilewright.kernel(copy_again, params=params, block=32)

    def __call__(self, _: int) -> None:
        self.kernel[self.sms](self.memory, self.count)


def copy_again(k: Any, source: Any, count: Any) -> None:
    """One thread copies ``count`` stages; CTA i begins at stage i."""
    ring = k.dynamic_shared(COPIES * COPY, 128)
    full = k.dynamic_shared(8 * COPIES, 8, dtype="b64")
    with k.if_(k.tid.x == 0):
        for i in range(COPIES):
            k.mbarrier_init(full + i, 1)
        k.fence_mbarrier_init()
        for i in k.range(0, count + COPIES, unroll=False):
            stage, round_ = i % COPIES, i // COPIES
            with k.if_(i >= COPIES):
                k.mbarrier_wait(full + stage, (round_ & 1) ^ 1)
            with k.if_(i < count):
                at = ((k.ctaid.x + i) % (COPIED_BYTES // COPY)).to("u64") * COPY
                k.mbarrier_arrive(full + stage, bytes=COPY)
                k.bulk_load(ring + stage * COPY, (source + at).aligned(16), COPY, full + stage)


def loaded_bytes(case: SparseCase, config: str | None) -> int:
    """Bytes that the tiles of a product load, of all CTAs; of the chosen configuration if None."""
    plan = case.plan(config)
    down, across = plan.config.tile_grid(plan.problem)
    tiles = down * across * plan.config.ctas
    return int(tiles * -(-plan.problem.k // plan.config.tile[2])) * int(
        plan.config.stage_bytes(plan.problem)
    )


def alone(
    call: Callable[[int], object], flops: float, seconds: float, meter: Meter
) -> tuple[float, Reading]:
    """Seconds of a call in the second half of ``seconds`` of replays, and the meter's reading."""
    call(0)
    torch.cuda.synchronize()
    count = max(2, round(flops / 1e15 * 500))  # about 10 ms
    replays = graph(call, count)
    events: list[Any] = []

    def work() -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            events.append(event)
            replays.replay()
            if len(events) > 3:
                events[-3].synchronize()
        torch.cuda.synchronize()

    reading = meter.during(work)
    half = events[len(events) // 2 :]
    between = [first.elapsed_time(last) for first, last in pairwise(half)]
    return statistics.median(between) / 1e3 / count, reading


class Table:
    """Prints the lines of the products of a type and size."""

    def __init__(self, flops: float, size: int, meter: Meter, seconds: float, idle: float) -> None:
        self.flops, self.size, self.meter, self.seconds, self.idle = (
            flops,
            size,
            meter,
            seconds,
            idle,
        )
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count

    def line(
        self, name: str, work: Callable[[int], object], flops: float = 0.0, loaded: int = 0
    ) -> None:
        """The line of ``work``, which does ``flops`` (those of the product if 0) by wgmma.sp, or,
        where it is called of the loads, ``loaded`` bytes.
        """
        flops = flops or self.flops
        seconds, (clock, power, limits) = alone(work, flops, self.seconds, self.meter)
        instructions = flops / self.sms / (2 * 64 * TILE_N * 2 * WGMMA_K // self.size)
        cycles = seconds * clock * 1e6
        why = ", ".join(dict.fromkeys(text for bit, text in LIMITS.items() if limits & bit))
        received = f"{loaded / self.sms / cycles:.0f}" if loaded else ""
        print(
            f"| {name} | {1e6 * seconds:.1f} | {flops / seconds / 1e12:.0f} | {clock:.0f} | "
            f"{power:.0f} | {1e12 * (power - self.idle) * seconds / flops:.3f} | "
            f"{instructions * PORT_CYCLES / cycles:.2f} | {received} | {why} |",
            flush=True,
        )


def lines(row: str, configs: list[str | None], options: Any, meter: Meter, idle: float) -> None:
    """Print the lines of a row."""
    type_, _, sizes = row.partition(":")
    size = 2 if type_ in ("f16", "bf16") else 1
    flops = 2.0 * float(np.prod([float(s) for s in sizes.split("x")]))
    table = Table(flops, size, meter, options.seconds, idle)
    loop = ProductLoop(type_, options.zeros)
    table.line(f"{type_} wgmma.sp alone", loop, loop.flops)
    case = SparseCase(type_, *map(int, sizes.split("x")))
    if options.zeros:
        case.set_zeros()
    case.prepare_peer()
    table.line(f"{row} cuSPARSELt", case.peer)
    for config in configs:
        try:
            loaded = loaded_bytes(case, config)
            table.line(
                f"{row} {config} loads alone", LoadLoop(case, loaded // table.sms), 0, loaded
            )
            table.line(f"{row} {config}", lambda i, c=config: case.ours(i, c), 0, loaded)
        except Exception as error:
            print(f"| {row} {config} | {type(error).__name__}: {str(error)[:120]} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="TYPE:MxNxK, separated by commas")
    parser.add_argument("--configs", default="", help="configurations, separated by commas")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each")
    parser.add_argument("--zeros", action="store_true", help="all elements are zeros")
    options = parser.parse_args()
    configs = [c for c in options.configs.split(",") if c] or [None]
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    meter = Meter()
    idle = meter.during(lambda: (torch.cuda._sleep(10**9), torch.cuda.synchronize())).power
    print(f"power limit {meter.power_limit():.0f} W; of SMs that wait {idle:.0f} W")
    titles = "product", "µs", "TFLOP/s", "MHz", "W", "pJ", "share", "bytes a cycle", "limit"
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for row in filter(None, options.rows.split(",")):
        lines(row, configs, options, meter, idle)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
