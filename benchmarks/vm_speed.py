"""Measure the virtual machine on one core, and check its results.

``loops``: millions of PTX warp-instructions per second, of one warp. ``copies``: gigabytes per
second, read and written. ``products``: seconds for a matrix product by our own kernels, summed over
all cores. ``text``: seconds for a kernel of one megabyte of PTX, with an empty and with a filled
cache. All figures are CPU times of the process, the minimum of a few runs, because other processes
may use the machine.

    python benchmarks/vm_speed.py [--rows loops,copies,products,text] [--large]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
import tilewright
from ptx_kernels.simt import kernel, store
from tilewright.vm import Machine
from tilewright.vm.codegen.code_library import Library

ROUNDS = 10_000
TIMES = 4  # that a loop's body stands there
RUNS = 5
LANES = np.arange(32, dtype=np.uint32)
SHARED = """.shared .align 16 .b32 sm[1024]; mov.u32 %r9, sm; mad.lo.u32 %r10, %t, 4, %r9;
  add.u32 %r12, %t, 1; and.b32 %r12, %r12, 31; mad.lo.u32 %r11, %r12, 4, %r9;
  mad.lo.u32 %r13, %t, 16, %r9; mad.lo.u32 %r14, %t, 132, %r9; st.shared.u32 [%r10], 0;
  bar.warp.sync -1;"""
ONE = "mov.u32 %r20, %ntid.y; cvt.rn.f32.u32 %f2, %r20; cvt.rn.f64.u32 %fd2, %r20;"
FLOATS = ONE + "cvt.rn.f32.u32 %f1, %t; cvt.rn.f64.u32 %fd1, %t;"


class Loop(NamedTuple):
    """``body`` changes %r5 (which begins as the lane) by the round, %r4; ``step`` does the same. A
    body is ``count`` instructions that run, where that is not what stands there; {k} tells the
    copies of its labels apart.
    """

    body: str
    step: Callable[[np.ndarray, int], np.ndarray]
    top: str = ""
    last: str = ""
    count: int = 0
    rounds: int = ROUNDS


def _integers(x: np.ndarray, i: int) -> np.ndarray:
    x = x * np.uint32(7) + np.uint32(i) ^ np.uint32(i)
    return x + (x << np.uint32(3))


def _shared(x: np.ndarray, i: int) -> np.ndarray:
    return x + np.roll(x, -1) + np.uint32(i)


def _one(x: np.ndarray, i: int) -> np.ndarray:
    return x + np.uint32(1)


def _sides(x: np.ndarray, i: int) -> np.ndarray:
    return np.where(x & 1, x * np.uint32(3) + np.uint32(1), (x >> np.uint32(1)) + np.uint32(i))


def _trips(x: np.ndarray, i: int) -> np.ndarray:
    for left in range(1, 9):
        x = np.where(left <= (LANES & 7) + 1, x * np.uint32(5) + np.uint32(1), x)
    return x


def _branches(x: np.ndarray, i: int) -> np.ndarray:
    return x * np.uint32(3) if i & 1 else x + np.uint32(i)


def _sum(x: np.ndarray, i: int) -> np.ndarray:
    return np.full(32, x.sum(dtype=np.uint32)) + LANES


def _counted(x: np.ndarray, i: int) -> np.ndarray:
    place = x * np.uint32(1664525) + np.uint32(i)
    bins = np.bincount(place >> np.uint32(27), minlength=32).astype(np.uint32)
    return place ^ bins


LOOPS = {
    "integers": Loop(
        "mad.lo.u32 %r5, %r5, 7, %r4; xor.b32 %r5, %r5, %r4; shl.b32 %r7, %r5, 3;"
        " add.u32 %r5, %r5, %r7;",
        _integers,
    ),
    "f32 fma": Loop("fma.rn.f32 %f1, %f1, %f2, %f2;", _one, FLOATS, "cvt.rzi.u32.f32 %r5, %f1;"),
    "f64 fma": Loop(
        "fma.rn.f64 %fd1, %fd1, %fd2, %fd2;", _one, FLOATS, "cvt.rzi.u32.f64 %r5, %fd1;"
    ),
    "shared memory": Loop(
        "st.shared.u32 [%r10], %r5; bar.warp.sync -1; ld.shared.u32 %r7, [%r11];"
        " bar.warp.sync -1; add.u32 %r5, %r5, %r7; add.u32 %r5, %r5, %r4;",
        _shared,
        SHARED,
    ),
    "shared, vectors": Loop(
        "st.shared.v4.u32 [%r13], {%r5, %r5, %r5, %r4};"
        " ld.shared.v4.u32 {%r6, %r7, %r8, %r15}, [%r13]; add.u32 %r5, %r8, 1;",
        _one,
        SHARED,
    ),
    "shared, a column": Loop(
        "st.shared.u32 [%r14], %r5; ld.shared.u32 %r6, [%r14]; add.u32 %r5, %r6, 1;", _one, SHARED
    ),
    "two sides": Loop(
        "and.b32 %r6, %r5, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra EVEN{k}; mad.lo.u32 %r5, %r5, 3, 1;"
        " bra.uni END{k}; EVEN{k}: shr.u32 %r5, %r5, 1; add.u32 %r5, %r5, %r4; END{k}:",
        _sides,
    ),
    "other counts": Loop(
        "and.b32 %r6, %t, 7; AGAIN{k}: mad.lo.u32 %r5, %r5, 5, 1; sub.u32 %r6, %r6, 1;"
        " setp.ge.s32 %p1, %r6, 0; @%p1 bra AGAIN{k};",
        _trips,
        count=1 + 8 * 4,
    ),
    "uniform branches": Loop(
        "and.b32 %r6, %r4, 1; setp.eq.u32 %p1, %r6, 0; @%p1 bra EVEN{k}; mul.lo.u32 %r5, %r5, 3;"
        " bra.uni END{k}; EVEN{k}: add.u32 %r5, %r5, %r4; END{k}:",
        _branches,
        count=5,
    ),
    "shuffled sum": Loop(
        "".join(f"shfl.sync.bfly.b32 %r6, %r5, {d}, 31, -1; add.u32 %r5, %r5, %r6;"
                for d in (16, 8, 4, 2, 1)) + "add.u32 %r5, %r5, %t;",
        _sum,
    ),
    "redux": Loop("redux.sync.add.u32 %r6, %r5, -1; add.u32 %r5, %r6, %t;", _sum),
    "shared histogram": Loop(
        "mad.lo.u32 %r5, %r5, 1664525, %r4; shr.u32 %r6, %r5, 27; shl.b32 %r6, %r6, 2;"
        " add.u32 %r6, %r6, %r9; red.shared.add.u32 [%r6], 1; bar.warp.sync -1;"
        " ld.shared.u32 %r7, [%r10]; xor.b32 %r5, %r5, %r7; bar.warp.sync -1;"
        " st.shared.u32 [%r10], 0; bar.warp.sync -1;",
        _counted,
        SHARED,
        rounds=2_000,
    ),
    "lock of 32 lanes": Loop(  # an acquisition counts as one
        "TAKE{k}: atom.shared.cas.b32 %r6, [%r9+512], 0, 1; setp.ne.u32 %p1, %r6, 0;"
        " @%p1 bra TAKE{k}; ld.volatile.shared.u32 %r7, [%r9+516]; add.u32 %r7, %r7, 1;"
        " st.volatile.shared.u32 [%r9+516], %r7; add.u32 %r5, %r5, 1;"
        " atom.shared.exch.b32 %r6, [%r9+512], 0; bar.warp.sync -1;",
        _one,
        SHARED + "st.shared.u32 [%r9+512], 0; st.shared.u32 [%r9+516], 0; bar.warp.sync -1;",
        f"ld.volatile.shared.u32 %r7, [%r9+516]; setp.ne.u32 %p1, %r7, {200 * TIMES * 32};"
        " @%p1 mov.u32 %r5, 0;",
        count=32,
        rounds=200,
    ),
}  # fmt: skip


def least(run: Callable[[], object], runs: int = RUNS) -> float:
    """CPU time in seconds."""
    found = []
    for _ in range(runs):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


# --- loops ----------------------------------------------------------------------------------------


def loops() -> None:
    for name, loop in LOOPS.items():
        print(f"{name:<18} {rate(loop):7.1f} million warp-instructions a second", flush=True)


def rate(loop: Loop) -> float:
    """Millions of instructions per second. Raises AssertionError for a wrong result."""
    body = "".join(loop.body.replace("{k}", str(k)) for k in range(TIMES))
    text = kernel(
        f"""{loop.top} mov.u32 %r5, %t; mov.u32 %r4, 0;
        LOOP: {body}
        add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, {loop.rounds}; @%p0 bra LOOP;
        {loop.last} {store("%r5")}"""
    )
    machine, out = Machine(threads=1), np.zeros(32, np.uint32)
    machine.load(text)
    launch = partial(machine.launch, "k", 1, 32, [out, *[0] * 9])
    launch()
    took = least(launch)
    want = LANES
    for i in range(loop.rounds):
        for _ in range(TIMES):
            want = loop.step(want, i)
    assert np.array_equal(out, want), "the result is wrong"
    return loop.rounds * (TIMES * (loop.count or loop.body.count(";")) + 3) / took / 1e6


# --- copies ---------------------------------------------------------------------------------------

EDGE = 2048  # 2¹¹


def copies() -> None:
    """Copies of a matrix: rows by vectors, and transposed by words."""
    given = np.random.default_rng(0).integers(0, 2**32, (EDGE, EDGE), np.uint32)
    cases = {
        "copy": ("mad.wide.u32 %rd1, %g, 16, %a1; mad.wide.u32 %rd2, %g, 16, %a0;"
                 " ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1];"
                 " st.global.v4.u32 [%rd2], {%r2, %r3, %r4, %r5};", 4, given),
        "transposed copy": (f"mad.wide.u32 %rd1, %g, 4, %a1; ld.global.u32 %r2, [%rd1];"
                            f" and.b32 %r3, %g, {EDGE - 1}; shr.u32 %r4, %g, 11;"
                            f" mad.lo.u32 %r3, %r3, {EDGE}, %r4; mad.wide.u32 %rd2, %r3, 4, %a0;"
                            " st.global.u32 [%rd2], %r2;", 1, given.T),
    }  # fmt: skip
    for name, (body, words, expected) in cases.items():
        machine = Machine(threads=1)
        machine.load(kernel(body))
        source, target = machine.upload(given), machine.upload(np.zeros_like(given))
        grid = given.size // words // 256
        launch = partial(machine.launch, "k", grid, 256, [target, source, *[0] * 8])
        launch()
        took = least(launch)
        assert np.array_equal(machine.download(target, given), expected), "the result is wrong"
        print(f"{name:<18} {2 * given.nbytes / took / 1e9:7.2f} GB a second", flush=True)


# --- products -------------------------------------------------------------------------------------


def products(large: bool) -> None:
    for n in (1024, 4096) if large else (1024,):
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal((n, n)).astype(np.float16) for _ in range(2))
        tilewright.matmul(a[:256, :256], b[:256, :256])
        made = []
        took = least(lambda a=a, b=b, made=made: made.append(tilewright.matmul(a, b)), 2)
        near = a.astype(np.float32) @ b.astype(np.float32)
        assert np.abs(made[-1] - near).max() < 1e-3 * np.abs(near).max(), "the result is wrong"
        print(f"{f'{n}³ f16':<18} {took:7.2f} s of all cores", flush=True)


# --- a megabyte of text ---------------------------------------------------------------------------

SIZE = 1 << 20


class MemoryStore(dict[tuple[str, str], bytes]):
    """A compile cache in memory."""

    def put(self, kind: str, key: str, value: bytes) -> None:
        self[kind, key] = value

    def get(self, kind: str, key: str) -> bytes | None:  # type: ignore[override]
        return super().get((kind, key))

    def __hash__(self) -> int:
        return id(self)


def unrolled() -> tuple[str, int]:
    """A kernel like an unrolled SIMT product, with shared loads for eight FMAs each, integer
    operations and rarely taken branches; and the number of FMAs per accumulator.
    """
    parts, turns, length = [SHARED + ONE], 0, 0
    parts += [f"mov.f32 %f{i}, 0f00000000;" for i in range(10, 18)]
    parts.append("st.shared.f32 [%r10], %f2; bar.sync 0;")
    while length < SIZE:
        lines = [f"\tld.shared.f32 \t%f20, [%r9+{turns % 32 * 4}];"]
        lines += [f"\tfma.rn.f32 \t%f{i}, %f20, %f2, %f{i};" for i in range(10, 18)]
        lines += ["\tadd.s32 \t%r15, %r15, 1;", "\txor.b32 \t%r16, %r15, %r16;"]
        if turns % 16 == 0:
            lines += [f"\tsetp.ne.s32 \t%p1, %r20, 1;\n\t@%p1 bra \tRARE{turns};"]
            lines += ["\tmul.lo.s32 \t%r15, %r15, 3;", f"RARE{turns}:"]
        parts += lines
        length += sum(map(len, lines)) + len(lines)
        turns += 1
    total = "".join(f"add.f32 %f10, %f10, %f{i};" for i in range(11, 18))
    parts.append(f"{total} cvt.rzi.u32.f32 %r5, %f10; {store('%r5')}")
    return kernel("\n".join(parts)), turns


def text() -> None:
    """A large kernel: with a cache that has only the library, then with one that has the kernel."""
    ptx, turns = unrolled()
    full = MemoryStore()
    own = least(lambda: _whole(Machine(store=full).library), 1)
    first = least(lambda: _launched(ptx, turns, full), 1)
    again = least(lambda: _launched(ptx, turns, MemoryStore(full)), 3)
    parsed = least(lambda: Machine().load(ptx), 3)
    count = sum(1 for line in ptx.splitlines() if line.strip().endswith(";"))
    print(f"{len(ptx) / 1e6:.2f} MB of PTX, {count:,} instructions, parsed in {parsed:.2f} s")
    print(f"{'library':<18} {own:7.2f} s, compiled once per CPU model")
    print(f"{'new kernel':<18} {first:7.2f} s, including its launch")
    print(f"{'cached kernel':<18} {again:7.2f} s, including its launch", flush=True)


def _whole(library: Library) -> None:
    """Compile all functions of the virtual machine's library."""
    for part in library.parts:
        library.need(part)


def _launched(ptx: str, turns: int, kernel_store: MemoryStore) -> None:
    machine, out = Machine(threads=1, store=kernel_store), np.zeros(32, np.uint32)
    machine.load(ptx)
    machine.launch("k", 1, 32, [out, *[0] * 9])
    assert (out == 8 * turns).all(), "the result is wrong"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", default="loops,copies,products,text", help="kinds to run")
    parser.add_argument("--large", action="store_true", help="also a product of 4096³")
    given = parser.parse_args()
    rows = {"loops": loops, "copies": copies, "text": text}
    for name in given.rows.split(","):
        products(given.large) if name == "products" else rows[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
