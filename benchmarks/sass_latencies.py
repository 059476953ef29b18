"""Latencies and throughputs of sm_90a instructions, measured on this GPU by our own machine code.

Every kernel is SASS text that tilewright assembles into a cubin of its own PTX. ``fixed``: the
least stall after which each consumer sees a result; ``chain``: cycles of an instruction that waits
for the barrier of the one before it; ``rate``: cycles of an SM for an instruction of a warp, 16
warps of independent ones. ``--table`` writes what ``sass/tables`` ships.

    python benchmarks/sass_latencies.py [--table FILE] [--parts fixed,chain,rate,stream,mixed,power]
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from sass_probes import ffma_power, ffma_stream, fixed_latency, mixed_kernels, throughput
from sass_probes.probe_kernel import NAME, PTX, SELF, image

from tilewright import cuda

OUT_BYTES, DATA_BYTES, BASE = 1 << 16, 1 << 20, 0x100
POWER_TURNS = 20_000
LIMIT = 8  # seconds of one kernel
FAILURES = 3  # of a part, then the rest is left out
COUNTS = 8, 40  # turns of the two launches that are compared
Row = tuple[str, str, str]  # kind, instruction, cycles: a number, or consumer=number; …


class Probe:
    """The GPU, the shell's cubin and the two buffers."""

    def __init__(self) -> None:
        self.gpu = cuda.gpu()
        self.shell = self._shell(512)
        self.out, self.data = self.gpu.alloc(OUT_BYTES), self.gpu.alloc(DATA_BYTES)

    def _shell(self, threads: int) -> bytes:
        text = PTX.replace(".maxntid 512", f".maxntid {threads}")
        return bytes(cuda.compile(text, "sm_90a").code)

    def of_many_registers(self) -> Probe:
        """This probe, for kernels of up to 256 threads and 255 registers."""
        self.shell = self._shell(256)
        return self

    def fill(self, offset: int) -> None:
        """Write each word's address, less ``offset``, to data."""
        words = self.data + np.arange(DATA_BYTES // 8, dtype=np.uint64) * 8 - offset
        self.gpu.upload(self.data, words)

    def run(self, code: bytes, block: int, counts: tuple[int, ...], registers: int = 128,
            grid: int = 1) -> list[np.ndarray]:  # fmt: skip
        """out as words after a launch with each count."""
        found = []
        with self.gpu.load(image(self.shell, code, registers)) as module:
            for count in counts:
                self.gpu.memset(self.out, 0xFF, OUT_BYTES)
                launch = np.array([self.out, self.data + BASE], np.uint64).tobytes()
                launch += np.array([count, SELF], np.uint64).tobytes()
                self.gpu.launch(module[NAME], grid, block, launch)
                self.gpu.wait()
                words = np.zeros(OUT_BYTES // 4, np.uint32)
                self.gpu.download(words, self.out)
                found.append(words)
        return found

    def cycles(self, code: bytes, warps: int, size: int, registers: int = 128) -> float:
        """Cycles of an instruction: the difference of two launches, over all warps' instructions;
        ``size`` are those of a turn.
        """
        self.run(code, 32 * warps, (2,), registers)
        spans = []
        for words in self.run(code, 32 * warps, COUNTS * 3, registers):
            clock = words[: 2 * warps].reshape(-1, 2).astype(np.int64)
            spans.append(int((clock[:, 1].max() - clock[:, 0].min()) & 0xFFFFFFFF))
        low, high = statistics.median(spans[0::2]), statistics.median(spans[1::2])
        return (high - low) / ((COUNTS[1] - COUNTS[0]) * size)


def fixed(probe: Probe, start: int) -> Iterator[list[Row]]:
    """The least stall of each producer and consumer."""
    for file, producer in list(fixed_latency.pairs())[start:]:
        words = probe.run(fixed_latency.kernel(file, producer), 32, (1, 1), 64)[1].tolist()
        stalls = fixed_latency.stalls_of(producer)
        n = len(stalls) + 1
        found = []
        for i, name in enumerate(fixed_latency.consumers_of(file, producer)):
            cycles = fixed_latency.least_stall(words[i * n : (i + 1) * n], stalls)
            if cycles is not None:
                found.append(f"{name}={cycles}")
        yield [(f"fixed {file}", producer, "; ".join(found))]


def chain(probe: Probe, start: int) -> Iterator[list[Row]]:
    """The latency of each variable instruction, by itself."""
    empty = probe.cycles(throughput.chain_kernel("NOP"), 1, throughput.UNROLL)
    for text in throughput.lines_of(throughput.CHAINS)[start:]:
        probe.fill(0x10 if "+0x10]" in text else 0)
        cycles = probe.cycles(throughput.chain_kernel(text), 1, throughput.UNROLL) - (empty - 1)
        yield [("chain", text, f"{cycles:.2f}")]


def rate(probe: Probe, start: int) -> Iterator[list[Row]]:
    """Cycles of an SM for a warp's instruction."""
    probe.fill(0)
    groups = [("rate", x) for x in throughput.lines_of(throughput.RATES)]
    groups += [("mix", x) for x in throughput.lines_of(throughput.MIXES)]
    groups += [("bank", x) for x in throughput.bank_groups()]
    for kind, text in groups[start:]:
        parts = len(text.split("; "))
        size = -(-throughput.BODY // parts) * parts * throughput.WARPS
        cycles = probe.cycles(throughput.rate_kernel(text), throughput.WARPS, size)
        yield [(kind, text, f"{cycles:.3f}")]


def stream(probe: Probe, start: int) -> Iterator[list[Row]]:
    """Cycles of a scheduler for a turn of an SGEMM's loop, in variants."""
    probe.of_many_registers().fill(0)
    for name, variant in list(ffma_stream.STREAMS.items())[start:]:
        code, size = ffma_stream.kernel(variant)
        cycles = probe.cycles(code, variant.warps, 1, 252)
        share = 128 * variant.depth * variant.warps / 4 / cycles
        yield [("stream", f"{name}: {size} instructions, FFMA {share:.4f}", f"{cycles:.1f}")]


def mixed(probe: Probe, start: int) -> Iterator[list[Row]]:
    """Cycles of a turn of each generated kernel; their model is tested with them."""
    probe.fill(0)
    for kernel in mixed_kernels.mixed_kernels()[start:]:
        yield [("mixed", kernel.name, f"{probe.cycles(kernel.code(), kernel.warps, 1):.2f}")]


def power(probe: Probe, start: int) -> Iterator[list[Row]]:
    """TFLOP/s of FFMA alone on all SMs after a second, with the board's power and clock."""
    numbers = np.random.default_rng(0).standard_normal(DATA_BYTES // 4).astype(np.float32)
    probe.gpu.upload(probe.data, numbers)
    buffers = np.array([probe.out, probe.data + BASE], np.uint64).tobytes()
    block = buffers + np.array([POWER_TURNS, SELF], np.uint64).tobytes()
    sms = probe.gpu.properties.sms
    flops = 2 * 32 * 64 * ffma_power.TURNS * POWER_TURNS * throughput.WARPS * sms
    for reuse in (True, False)[start:]:
        code = image(probe.shell, ffma_power.kernel(reuse), 128)
        with probe.gpu.load(code) as module:
            launch = probe.gpu.prepare(module[NAME], sms, 32 * throughput.WARPS)
            for _ in range(100):
                launch(block)
            state = _board()
            probe.gpu.wait()
            begin = time.perf_counter()
            for _ in range(5):
                launch(block)
            probe.gpu.wait()
            seconds = (time.perf_counter() - begin) / 5
        yield [("power", f"FFMA reuse={reuse}, {state}", f"{flops / seconds / 1e12:.2f}")]


def _board() -> str:
    """What nvidia-smi says of the first GPU while it is busy."""
    time.sleep(0.6)
    query = "--query-gpu=power.draw.instant,clocks.sm,clocks_event_reasons.active"
    done = subprocess.run(["nvidia-smi", query, "--format=csv,noheader", "-i", "0"],
                          capture_output=True, text=True, check=False)  # fmt: skip
    return done.stdout.strip()


PARTS = {f.__name__: f for f in (fixed, chain, rate, stream, mixed, power)}


def measured(part: str) -> Iterator[Row]:
    """All rows of a part. A kernel that faults or hangs ends its process; the next goes on."""
    start = failures = 0
    while True:
        command = [sys.executable, __file__, "--part", part, "--start", str(start)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            for line in child.stdout:
                start += 1
                yield from (tuple(row) for row in json.loads(line))
        if not child.returncode:
            return
        yield ("fails", f"number {start} of {part}", str(child.returncode))
        start, failures = start + 1, failures + 1
        if failures == FAILURES:
            return


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, help="write all rows to this file")
    parser.add_argument(
        "--parts",
        default="fixed,chain,rate",
        help="and stream: an SGEMM's loop, mixed: generated kernels, power: FFMA alone",
    )
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        signal.alarm(LIMIT)
        for rows in PARTS[options.part](Probe(), options.start):
            print(json.dumps(rows), flush=True)
            signal.alarm(LIMIT)
        return 0
    lines = [f"# {cuda.gpu().name}, {time.strftime('%Y-%m-%d')}, benchmarks/sass_latencies.py"]
    for part in options.parts.split(","):
        start = time.perf_counter()
        for row in measured(part):
            lines.append("\t".join(row))
            print(lines[-1], flush=True)
        print(f"# {part}: {time.perf_counter() - start:.1f} s", flush=True)
        if options.table:
            options.table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
