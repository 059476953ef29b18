"""What an H200's approximate instructions make of all 2^32 operands, as checksums: file and making.

A kernel runs a form over 2^23 operands of one sign and exponent and adds up its results, each times
a number of its own; the sum's upper half is kept: 512 of them for each form. An f64's upper word is
the operand, a divisor goes with a dividend of random bits, the 16-bit formats come in pairs.
``benchmarks/approximations_probe.py --golden`` writes the file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ptx_kernels import simt

FILE = Path(__file__).parents[2] / "data" / "approximations_sm_90a.npz"
BLOCKS, CTAS, THREADS = 512, 32, 256
FUNCTIONS = "rcp rsqrt sqrt ex2 lg2 sin cos".split()
FORMS = [f"{f}.approx{ftz}.f32" for f in FUNCTIONS for ftz in ("", ".ftz")]
FORMS += ["tanh.approx.f32", "ex2.approx.f16x2", "ex2.approx.ftz.bf16x2"]
FORMS += ["tanh.approx.f16x2", "tanh.approx.bf16x2"]
FORMS += ["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64", "rsqrt.approx.f64"]
FORMS += [f"div.{kind}{ftz}.f32" for kind in ("approx", "full") for ftz in ("", ".ftz")]

_F64 = """mul.lo.u32 %r5, %r4, 0x9E3779B1; mov.b64 %rd2, {{%r5, %r4}}; {opcode} %rd3, %rd2;
mov.b64 {{%r6, %r7}}, %rd3; mad.lo.u32 %r6, %r6, 0x85EBCA6B, %r7;"""
_DIVIDE = "mul.lo.u32 %r5, %r4, 0x9E3779B1; {opcode} %r6, %r5, %r4;"
_ONE = "{opcode} %r6, %r4;"

KERNEL = """
mov.u32 %r1, %ctaid.y; ld.global.u32 %r10, [%a1]; add.u32 %r1, %r1, %r10; shl.b32 %r1, %r1, 23;
mov.u32 %r2, %ctaid.x; shl.b32 %r2, %r2, 18; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %t;
mov.b64 %rd1, 0; mov.u32 %r3, 0;
MORE: shl.b32 %r4, %r3, 8; or.b32 %r4, %r4, %r1;
{work}
mul.lo.u32 %r8, %r4, 0xC2B2AE35; or.b32 %r8, %r8, 1; mad.wide.u32 %rd1, %r6, %r8, %rd1;
add.u32 %r3, %r3, 1; setp.lo.u32 %p1, %r3, 1024; @%p1 bra MORE;
mov.u32 %r9, %ctaid.y; mad.wide.u32 %rd4, %r9, 8, %a0; red.global.add.u64 [%rd4], %rd1;
"""


def checksums(opcode: str, first: int, count: int, launch) -> np.ndarray:
    """Of ``count`` blocks of operands from the ``first`` on, as ``launch`` computes them."""
    work = _F64 if opcode.endswith(".f64") else _DIVIDE if opcode.startswith("div") else _ONE
    text = simt.kernel(KERNEL.format(work=work.format(opcode=opcode)))
    buffers = [np.zeros(count, np.uint64), np.array([first], np.uint32)]
    sums, _ = launch(text, buffers, grid=(CTAS, count), block=THREADS)
    return (sums >> np.uint64(32)).astype(np.uint32)


def write(path: Path, found: dict[str, np.ndarray]) -> None:
    np.savez(path, **found)  # type: ignore[arg-type]


def read(path: Path = FILE) -> dict[str, np.ndarray]:
    """Form → 512 checksums, by sign and exponent (of the upper number, of a pair)."""
    with np.load(path) as data:
        return {name: data[name] for name in data.files}
