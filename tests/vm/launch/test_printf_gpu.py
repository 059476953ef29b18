"""What a kernel prints on the GPU is what it prints on the virtual machine; assertions are errors.

The driver writes to the process's own stdout and stderr, so each kernel has a process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

pytestmark = pytest.mark.gpu

HEAD = """
import sys
import numpy as np
import tilewright
from tilewright.builder import f16, f32, f64, ptr, u32, u64
from tilewright.errors import CudaError, VmFault
"""

NUMBERS = """
@tilewright.kernel(block=32)
def prints(k, x: ptr(f32), h: ptr(f16), d: ptr(f64), w: ptr(u64), n: u32):
    i = k.tid.x
    k.print("%d %i %u|%5d|%-5d|%05d|%+d|% d", i, i - 5, i, i, i, i, i, i)
    k.print("%x %X %#x %o %#o %c %hd %hu", w[i].to("u32"), i, i, i, i, i % 64 + 48, i, i)
    k.print("%lld %llu %llx %#llX|%20lld|%-20llu|", w[i].view("s64"), *[w[i]] * 5)
    k.print("%f %e %g %E %G|%8.3f|%-10.2e|%+.0f", *[x[i]] * 8)
    k.print("%f %.10g %.17g %a", h[i], d[i], d[i], x[i])
    k.print("%s and %s|%10s|%-10s|%.2s", *["text"] * 5)
    k.print("100%% of %*d and %*.3f", 6, i, 12, x[i])
    with k.if_(i < n):
        k.print("%u is small", i)
        with k.when(i == 1):
            k.print("one")
    with k.else_():
        k.print("large")


rng = np.random.default_rng(0)
x = np.float32(10.0 ** rng.uniform(-9, 9, 32) * rng.choice([-1, 1], 32))
prints[1](x, rng.standard_normal(32).astype(np.float16), 1 / x.astype(np.float64),
          rng.integers(0, 2**64, 32, np.uint64), 5, device=sys.argv[1])
"""

SPECIALS = """
@tilewright.kernel(block=5)
def prints(k, x: ptr(f32)):
    v = x[k.tid.x]
    k.print("%f %e %g %F %E %G %a %A|%8f|%-8f|%08f|%+f", *[v] * 12)


prints[1](np.float32([0, -0.0, np.inf, -np.inf, np.nan]), device=sys.argv[1])
"""

# what follows a conversion tells how many bytes the driver took for it
LENGTHS = """
@tilewright.kernel(block=3)
def prints(k, w: ptr(u64)):
    i = k.tid.x
    after = [k.const("u32", n * 0x11111111) for n in (1, 2, 3)]
    for length in ("h", "", "l", "ll"):
        value = w[i] if length in ("l", "ll") else i + 0xFFFE
        k.print(f"{length} %{length}d|%x|%x|%x", value, *after)
        k.print(f"{length} %x|%{length}u|%x|%x", after[0], value, *after[1:])


prints[1](np.uint64([1, 2**32 + 1, 2**63]), device=sys.argv[1])
"""

MEMORY = """
@tilewright.kernel(block=2)
def prints(k, x: ptr("u8")):
    s = k.shared("u8", 8)
    for at, letter in enumerate(b"shared"):
        s[at] = k.const("u8", letter)
    s[6] = k.const("u8", 0)
    k.barrier()
    k.print("%s, %s, %.3s", x, s, x + 7)


prints[1](np.frombuffer(b"global memory" + bytes(3), np.uint8).copy(), device=sys.argv[1])
"""

ASSERTS = """
@tilewright.kernel(block=64)
def asserts(k, x: ptr(f32)):
    i = k.tid.x
    k.print("before %u", i)
    with k.when(i > 2):
        k.assert_(i < 40, "i is below 40")
    x[i] = 1.0


try:
    asserts[1](np.zeros(64, np.float32), device=sys.argv[1])
except (CudaError, VmFault) as error:
    print(type(error).__name__, getattr(error, "name", error.__dict__.get("kind")))
    print(error)
"""


def run(script: str, device: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(tilewright.__file__).parents[1])
    return subprocess.run(
        [sys.executable, "-c", HEAD + script, device],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        timeout=100,
        check=False,
    )


SCRIPTS = {"numbers": NUMBERS, "specials": SPECIALS, "lengths": LENGTHS, "memory": MEMORY}


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_the_gpu_prints_what_the_virtual_machine_prints(script: str) -> None:
    there, here = run(script, "cuda"), run(script, "vm")
    assert (there.returncode, here.returncode) == (0, 0), there.stderr + here.stderr
    assert here.stdout.strip()
    lines = zip(there.stdout.splitlines(), here.stdout.splitlines(), strict=True)
    wrong = [f"{made!r}, not {expected!r}" for made, expected in lines if made != expected]
    assert not wrong, "\n".join([f"{len(wrong)} lines differ", *wrong[:40]])


def test_a_failed_assertion_is_an_error_with_a_name() -> None:
    there, here = run(ASSERTS, "cuda"), run(ASSERTS, "vm")
    message = "asserts: block: [0,0,0], thread: [40,0,0] Assertion `i is below 40` failed."
    assert "CudaError CUDA_ERROR_ASSERT" in there.stdout, there.stdout + there.stderr
    assert "a kernel's assertion failed" in there.stdout
    assert message in there.stderr
    assert "before 40" in there.stdout
    assert "VmFault assertion" in here.stdout and message in here.stdout
