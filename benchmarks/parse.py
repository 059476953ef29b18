"""Measure the PTX parser, in tokens per second on one megabyte of text like nvcc's.

    python benchmarks/parse.py [megabytes]

A token is a word (an opcode with its modifiers is one), a number or a punctuation mark: ``add.s32
%r1, %r2, 5;`` has 7. The best of five runs counts.
"""

from __future__ import annotations

import random
import re
import sys
import time

from tilewright.ptx import parse

HEAD = """.version 8.0
.target sm_90a
.address_size 64

.global .align 4 .b8 table[16] = {0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 96, 192, 111, 18, 131, 58};
.extern .shared .align 16 .b8 smem[];
"""
KERNEL = """
	// .globl	kernel_{n}
.visible .entry kernel_{n}(
	.param .u64 kernel_{n}_param_0,
	.param .u32 kernel_{n}_param_1
)
.maxntid 128, 1, 1
{{
	.reg .pred 	%p<{size}>;
	.reg .f32 	%f<{size}>;
	.reg .b32 	%r<{size}>;
	.reg .b64 	%rd<{size}>;

	ld.param.u64 	%rd1, [kernel_{n}_param_0];
{body}	ret;

}}
"""
LINES = """	mad.lo.s32 	%rA, %rB, %rC, %rD;
	add.s64 	%rdA, %rdB, %rdC;
	ld.global.f32 	%fA, [%rdB+C];
	fma.rn.f32 	%fA, %fB, %fC, %fD;
	fma.rn.f32 	%fA, %fB, %fC, %fD;
	mul.wide.s32 	%rdA, %rB, 4;
	mov.f32 	%fA, 0f3F800000;
	st.shared.f32 	[%rB+C], %fA;
	setp.lt.s32 	%pA, %rB, %rC;
	@%pA bra 	$L__BB{n}_A;
	shfl.sync.bfly.b32 	%rA|%pB, %rC, D, 31, -1;
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%fA,%fB,%fC,%fD}, {%rA,%rB,%rC,%rD}, {%rA,%rB}, {%fA,%fB,%fC,%fD};
	.loc	1 A B
	// begin inline asm
	cp.async.cg.shared.global [%rA], [%rdB], 16;
	// end inline asm
""".splitlines(keepends=True)  # noqa: E501
TOKEN = re.compile(r'"[^"\n]*"|\.?[\w%$][\w%$.:]*|[^\s\w]')


def text_like_nvcc(size: int) -> str:
    """About ``size`` characters of PTX: kernels of 600 statements, 500 registers of each type."""
    rng = random.Random(1)
    parts, length = [HEAD], 0
    while length < size:
        body = "".join(statement(rng, len(parts)) for _ in range(600))
        parts.append(KERNEL.format(n=len(parts), size=500, body=body))
        length += len(parts[-1])
    return "".join(parts)


def statement(rng: random.Random, n: int) -> str:
    """A statement, sometimes followed by a label."""
    line = rng.choice(LINES).replace("{n}", str(n))
    near = rng.randrange(480)
    line = re.sub(r"(?<=[a-z_+ ])[A-D](?=[\W_])", lambda _: str(near + rng.randrange(20)), line)
    return line + (f"\n$L__BB{n}_{near}_{rng.randrange(10**6)}:\n" if rng.random() < 0.04 else "")


def main() -> None:
    text = text_like_nvcc(int(float(sys.argv[1] if len(sys.argv) > 1 else 1) * 1e6))
    tokens = len(TOKEN.findall(re.sub(r"//.*", "", text)))
    best = min(seconds(text) for _ in range(5))
    rate = tokens / best / 1e6
    print(f"{len(text):,} characters, {tokens:,} tokens: {best:.3f} s, {rate:.2f} M tokens/s")


def seconds(text: str) -> float:
    start = time.perf_counter()
    parse(text)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
