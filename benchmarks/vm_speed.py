"""How fast the virtual machine runs instructions: one warp's loops on one core, results checked.

Prints millions of warp-instructions a second, as the PTX has them, the best of nine launches.

    python benchmarks/vm_speed.py
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from simt import kernel, store
from tilewright.vm import Machine

ROUNDS = 20_000
TIMES = 4  # that a loop's body stands there
LAUNCHES = 9


class Loop(NamedTuple):
    """``body`` changes %r5 (which begins as the lane) by the round, %r4; ``step`` does the same."""

    body: str
    step: Callable[[np.ndarray, int], np.ndarray]
    top: str = ""


def _integers(x: np.ndarray, i: int) -> np.ndarray:
    x = x * np.uint32(7) + np.uint32(i) ^ np.uint32(i)
    return x + (x << np.uint32(3))


def _shared(x: np.ndarray, i: int) -> np.ndarray:
    return x + np.roll(x, -1) + np.uint32(i)


LOOPS = {
    "integers": Loop(
        "mad.lo.u32 %r5, %r5, 7, %r4; xor.b32 %r5, %r5, %r4; shl.b32 %r7, %r5, 3;"
        " add.u32 %r5, %r5, %r7;",
        _integers,
    ),
    "shared memory": Loop(
        "st.shared.u32 [%r10], %r5; bar.warp.sync -1; ld.shared.u32 %r7, [%r11];"
        " bar.warp.sync -1; add.u32 %r5, %r5, %r7; add.u32 %r5, %r5, %r4;",
        _shared,
        ".shared .align 16 .b32 sm[32]; mov.u32 %r9, sm; mad.lo.u32 %r10, %t, 4, %r9;"
        " add.u32 %r12, %t, 1; and.b32 %r12, %r12, 31; mad.lo.u32 %r11, %r12, 4, %r9;",
    ),
}


def main() -> int:
    for name, loop in LOOPS.items():
        print(f"{name:<14} {rate(loop):7.0f} million warp-instructions a second", flush=True)
    return 0


def rate(loop: Loop) -> float:
    """Millions a second; AssertionError where the result is wrong."""
    text = kernel(
        f"""{loop.top} mov.u32 %r5, %t; mov.u32 %r4, 0;
        LOOP: {loop.body * TIMES}
        add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, {ROUNDS}; @%p0 bra LOOP;
        {store("%r5")}"""
    )
    machine, out = Machine(threads=1), np.zeros(32, np.uint32)
    machine.load(text)
    took = []
    for _ in range(LAUNCHES + 1):
        start = time.perf_counter()
        machine.launch("k", 1, 32, [out, *[0] * 9])
        took.append(time.perf_counter() - start)
    want = np.arange(32, dtype=np.uint32)
    for i in range(ROUNDS):
        for _ in range(TIMES):
            want = loop.step(want, i)
    assert np.array_equal(out, want), "the result is wrong"
    count = ROUNDS * (TIMES * loop.body.count(";") + 3)
    return count / min(took[1:]) / 1e6


if __name__ == "__main__":
    sys.exit(main())
