"""Compare predicted wavefronts of shared-memory accesses with clock cycles of this GPU.

    python benchmarks/bank_conflicts.py [PATTERN] [--device cuda] [--count 2000]

One CTA of 16 warps repeats an access whose lanes have the addresses of a pattern. If shared memory
is the bottleneck, the cycles per additional access (from two lengths of the loop) are its
wavefronts. ``strict`` is the prediction without the rule that neighbours with one address share a
phase; the patterns where it differs from ``model`` test that rule. Under Nsight Compute,

    ncu --clock-control none --metrics l1tex__data_pipe_lsu_wavefronts_mem_shared.sum \\
        python benchmarks/bank_conflicts.py

counts the same: each pattern has two launches, of 16 · 8 · count accesses and of twice that. The
clock of the virtual machine (``--device vm``) has no meaning; there the kernels are only run.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import NamedTuple

import numpy as np

import tilewright
from tilewright.builder import ptr, u32, u64
from tilewright.layout import BankConflicts, Layout
from tilewright.layout.memory.access_pattern import LANES, Access, access

WARPS, UNROLLED, LINE = 16, 8, 128
BYTES = 40 * 1024
REGISTERS = {1: "u8", 2: "u16", 4: "b32", 8: "v2.b32", 16: "v4.b32"}


class Pattern(NamedTuple):
    """An access of one warp, one instruction."""

    name: str
    access: Access


def warp_pattern(name: str, op: str, width: int, threads: Layout) -> Pattern:
    """``threads``: lane → offset in units of ``width`` bytes."""
    bits = min(8 * width, 32)
    values = Layout(8 * width // bits)
    both = Layout((threads.shape, values.shape), (_scaled(threads.stride, values.size()), 1))
    return Pattern(name, access(both, bits, width, op))


def _scaled(stride: object, factor: int) -> object:
    if isinstance(stride, tuple):
        return tuple(_scaled(d, factor) for d in stride)
    return stride * factor


def explicit_pattern(name: str, op: str, width: int, *lanes: list[int]) -> Pattern:
    """A pattern from explicit offsets of the lanes in units of ``width`` bytes."""
    addresses = np.concatenate(lanes).astype(np.int64).reshape(1, 1, LANES) * width
    return Pattern(name, Access(op, width, addresses))


def patterns() -> list[Pattern]:
    lane = list(range(LANES))
    return [
        warp_pattern("1 byte, in a row", "ld", 1, Layout(32, 1)),
        warp_pattern("2 bytes, in a row", "ld", 2, Layout(32, 1)),
        warp_pattern("2 bytes, 2 in each bank", "ld", 2, Layout((16, 2), (2, 64))),
        warp_pattern("4 bytes, in a row", "ld", 4, Layout(32, 1)),
        warp_pattern("4 bytes, one for all", "ld", 4, Layout(32, 0)),
        warp_pattern("4 bytes, stride 2", "ld", 4, Layout(32, 2)),
        warp_pattern("4 bytes, stride 8", "ld", 4, Layout(32, 8)),
        warp_pattern("4 bytes, stride 32", "ld", 4, Layout(32, 32)),
        warp_pattern("4 bytes, stride 33", "ld", 4, Layout(32, 33)),
        warp_pattern("4 bytes, pairs far apart", "ld", 4, Layout((2, 16), (0, 32))),
        warp_pattern("8 bytes, in a row", "ld", 8, Layout(32, 1)),
        warp_pattern("8 bytes, stride 2", "ld", 8, Layout(32, 2)),
        warp_pattern("8 bytes, stride 17", "ld", 8, Layout(32, 17)),
        warp_pattern("8 bytes, pairs of lane ^ 1", "ld", 8, Layout((2, 16), (0, 1))),
        warp_pattern("8 bytes, pairs of lane ^ 2", "ld", 8, Layout((2, 2, 8), (1, 0, 2))),
        warp_pattern("8 bytes, pairs of lane ^ 4", "ld", 8, Layout((4, 2, 4), (1, 0, 4))),
        warp_pattern("8 bytes, the halves alike", "ld", 8, Layout((16, 2), (1, 0))),
        warp_pattern("8 bytes, one for all", "ld", 8, Layout(32, 0)),
        warp_pattern("8 bytes, evens collide with odds", "ld", 8, Layout((2, 16), (16, 1))),
        explicit_pattern(
            "8 bytes, pairs in half a warp", "ld", 8, [n // 2 for n in lane[:16]], lane[16:]
        ),
        warp_pattern("16 bytes, in a row", "ld", 16, Layout(32, 1)),
        warp_pattern("16 bytes, stride 2", "ld", 16, Layout(32, 2)),
        warp_pattern("16 bytes, stride 8", "ld", 16, Layout(32, 8)),
        warp_pattern("16 bytes, stride 9", "ld", 16, Layout(32, 9)),
        warp_pattern("16 bytes, pairs of lane ^ 1", "ld", 16, Layout((2, 16), (0, 1))),
        warp_pattern("16 bytes, pairs of lane ^ 2", "ld", 16, Layout((2, 2, 8), (1, 0, 2))),
        warp_pattern("16 bytes, pairs of lane ^ 4", "ld", 16, Layout((4, 2, 4), (1, 0, 4))),
        warp_pattern("16 bytes, the quarters alike", "ld", 16, Layout((8, 4), (1, 0))),
        warp_pattern("16 bytes, one for all", "ld", 16, Layout(32, 0)),
        warp_pattern("16 bytes, evens collide with odds", "ld", 16, Layout((2, 16), (8, 1))),
        warp_pattern("16 bytes, a fragment of 8×4 threads", "ld", 16, Layout((2, 4, 4), (1, 0, 2))),
        explicit_pattern(
            "16 bytes, pairs in half a warp", "ld", 16, [n // 2 for n in lane[:16]], lane[16:]
        ),
        explicit_pattern(
            "16 bytes, half ^ 1, half ^ 2", "ld", 16,
            [n // 2 for n in lane[:16]], [n // 4 * 2 + n % 2 for n in lane[16:]],
        ),
        warp_pattern("4 bytes, in a row", "st", 4, Layout(32, 1)),
        warp_pattern("4 bytes, stride 32", "st", 4, Layout(32, 32)),
        warp_pattern("4 bytes, one for all", "st", 4, Layout(32, 0)),
        warp_pattern("8 bytes, in a row", "st", 8, Layout(32, 1)),
        warp_pattern("8 bytes, pairs of lane ^ 1", "st", 8, Layout((2, 16), (0, 1))),
        warp_pattern("16 bytes, in a row", "st", 16, Layout(32, 1)),
        warp_pattern("16 bytes, stride 8", "st", 16, Layout(32, 8)),
        warp_pattern("16 bytes, pairs of lane ^ 1", "st", 16, Layout((2, 16), (0, 1))),
        *(
            warp_pattern(f"lines, stride {stride}", f"{family}.x{count}", 16, Layout(32, stride))
            for family, counts in (("ldmatrix", (1, 2, 4)), ("stmatrix", (4,)))
            for count in counts
            for stride in (1, 8, 9)
        ),
        warp_pattern("lines, pairs of lane ^ 1", "ldmatrix.x4", 16, Layout((2, 16), (0, 1))),
    ]  # fmt: skip


def strict(pattern: Access) -> int:
    """Wavefronts if neighbours do not share a phase, which is the rule of stores."""
    op = pattern.op.replace("ld", "st", 1)
    return BankConflicts.of(Access(op, pattern.width, pattern.addresses)).total


@tilewright.kernel
def probe(
    k, lanes: ptr(u32), flip: u32, count: u32, clocks: ptr(u64), result: ptr(u32), *, op, width
):
    """UNROLLED accesses, ``count`` times. ``flip`` is 0 at run time only, so that the compiler
    can't remove accesses.
    """
    k.launch_bounds(WARPS * LANES)
    memory = k.shared("b8", BYTES, align=LINE)
    first = k.pointer("shared", "b8", k.symbol_address(memory.base, 0, 32)).base
    address = k.var("u32", lanes[k.laneid] + first)
    total = k.var("u32", 0)
    k.barrier()
    start = k.special("clock64")
    for _ in k.range(count, unroll=False):
        for line in range(UNROLLED):
            pointer = k.pointer("shared", "b8", address).add_bytes(line * LINE)
            for word in one(k, op, width, pointer, total):
                total ^= word
        address ^= flip
    k.barrier()
    thread = k.thread
    clocks[thread] = k.special("clock64") - start
    result[thread] = total


def one(k, op, width, pointer, value):
    """Emit one access; returns the 32-bit registers that it loads."""
    family, _, number = op.partition("matrix.x")
    if number and family == "ld":
        return k.ldmatrix(pointer, int(number))
    if number:
        k.stmatrix(pointer, [value] * int(number))
        return ()
    if family == "ld":
        loaded = k.emit(f"ld.shared.{REGISTERS[width]}", pointer)
        loaded = loaded if isinstance(loaded, tuple) else (loaded,)
        return [word.to("u32") if word.dtype.bits < 32 else word.view("u32") for word in loaded]
    values = (value,) * (width // 4)
    k.emit(f"st.shared.{REGISTERS[width]}", pointer, values if width > 4 else value)
    return ()


def cycles(pattern: Pattern, count: int, device: str) -> float:
    """The CTA's cycles per additional access."""
    warp_access = pattern.access
    lanes = np.maximum(warp_access.addresses.ravel(), 0).astype(np.uint32)
    measured = []
    for length in (count, 2 * count):
        clocks, result = np.zeros(WARPS * LANES, np.uint64), np.zeros(WARPS * LANES, np.uint32)
        probe[1](
            lanes,
            0,
            length,
            clocks,
            result,
            device=device,
            op=warp_access.op,
            width=warp_access.width,
        )
        measured.append(int(clocks.max()))
    return (measured[1] - measured[0]) / (count * UNROLLED * WARPS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="part of the names to run")
    parser.add_argument("--device", default="cuda", help="cuda or vm")
    parser.add_argument("--count", type=int, default=2000, help="iterations of the loop")
    options = parser.parse_args()
    wrong = 0
    print(f"{'op':12} {'pattern':36} {'model':>6} {'strict':>6} {'cycles':>7}")
    for pattern in patterns():
        if not re.search(options.pattern, f"{pattern.access.op} {pattern.name}"):
            continue
        model = BankConflicts.of(pattern.access).total
        measured = cycles(pattern, options.count, options.device)
        differs = round(measured) != model
        wrong += differs
        print(
            f"{pattern.access.op:12} {pattern.name:36} {model:6} {strict(pattern.access):6}"
            f" {measured:7.2f}{'  differs' if differs else ''}",
            flush=True,
        )
    print(f"{wrong} differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
