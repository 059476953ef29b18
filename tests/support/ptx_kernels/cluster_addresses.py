"""A kernel that says what addresses of shared memory are in a cluster, and what is there.

In each of ``CLUSTER`` CTAs a variable holds 100 + rank. A CTA writes down the rank that its
variable's address has, by ``mov``, as a generic one, and as ``mapa`` has it of each CTA; then what
it reads there: by name, by its own address and generic one, and of each CTA's.
"""

from __future__ import annotations

import numpy as np

from ptx_kernels.simt import kernel

CLUSTER = 3
WORDS = 3 + CLUSTER + 3 + CLUSTER

_TO = "st.global.u32 [%rd9 + {}], {};"


def text() -> str:
    lines = [
        "mov.u32 %r2, %cluster_ctarank; add.u32 %r3, %r2, 100; st.shared.u32 [s + 4], %r3;",
        "barrier.cluster.arrive; barrier.cluster.wait;",
        f"mul.wide.u32 %rd8, %r0, {4 * WORDS}; add.u64 %rd9, %a0, %rd8;",
        "mov.u32 %r4, s; mov.u64 %rd4, s;",
        "cvta.shared.u64 %rd5, %rd4; cvta.to.shared.u64 %rd6, %rd5;",
    ]
    words = 0

    def say(register: str, shift: int = 0) -> None:
        nonlocal words
        lines.append(f"shr.u32 %r20, {register}, {shift};")
        lines.append(_TO.format(4 * words, "%r20"))
        words += 1

    say("%r4", 24)
    for wide in ("%rd4", "%rd6"):
        lines.append(f"cvt.u32.u64 %r5, {wide};")
        say("%r5", 24)
    for rank in range(CLUSTER):
        lines.append(f"mapa.shared::cluster.u32 %r{6 + rank}, %r4, {rank};")
        say(f"%r{6 + rank}", 24)
    for load in ("ld.shared.u32 %r10, [s + 4];", "ld.shared.u32 %r10, [%r4 + 4];",
                 "ld.u32 %r10, [%rd5 + 4];"):  # fmt: skip
        lines.append(load)
        say("%r10")
    for rank in range(CLUSTER):
        lines.append(f"ld.shared::cluster.u32 %r10, [%r{6 + rank} + 4];")
        say("%r10")
    assert words == WORDS
    lines.append("barrier.cluster.arrive; barrier.cluster.wait;")
    return kernel("\n".join(lines), top=".shared .align 16 .b32 s[4];")


def expected() -> np.ndarray:
    """Of two clusters."""
    ranks = list(range(CLUSTER))
    made = [[r] * 3 + ranks + [100 + r] * 3 + [100 + x for x in ranks] for r in ranks]
    return np.array(made * 2, np.uint32)
