"""Kernels whose stores, reductions and copies an mbarrier hears of; for the machine and a GPU.

``storing`` and ``reducing``: each CTA of a cluster sends %a1's lines to the next one's shared
memory, which held %a0's. ``copied``: cp.async from %a1, read by the threads that did not copy it.
"""

from __future__ import annotations

import numpy as np

from ptx_kernels import simt

TX = "mbarrier::complete_tx::bytes"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r11], 0; @!%p2 bra W;"
SPACES = ["shared::cluster", ""]
ALONE = ".shared .align 128 .b8 buf[{bytes}]; .shared .align 8 .b64 bar;"


def spoken(space: str, *words: str) -> str:
    return ".".join(w for w in (words[0], space, *words[1:]) if w)


def ring(send: str, bytes_: int, wait: str = WAIT, after: str = "") -> str:
    """Each thread of 32 sends to rank + 1 of a cluster, at %rd2 with the mbarrier at %rd3; a line
    of 512 bytes comes from %a1 and goes to %a0. They wait before they read, or ``after``.
    """
    return simt.kernel(
        f"""mov.u32 %r8, buf; mov.u32 %r11, bar; setp.eq.u32 %p0, %t, 0;
        mov.u32 %r12, %cluster_ctarank; mov.u32 %r13, %cluster_nctarank;
        @%p0 mbarrier.init.shared::cta.b64 [%r11], 1; fence.mbarrier_init.release.cluster;
        @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 %rd5, [%r11], {32 * bytes_};
        mad.lo.u32 %r9, %t, 16, %r8; mad.wide.u32 %rd6, %g, 16, %a0; mad.wide.u32 %rd7, %g, 16, %a1;
        ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd6];
        st.shared.v4.u32 [%r9], {{%r4, %r5, %r6, %r7}};
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
        add.u32 %r14, %r12, 1; rem.u32 %r14, %r14, %r13;
        ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%rd7];
        ld.global.v2.u64 {{%rd10, %rd11}}, [%rd7];
        {send}
        {wait} ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r9];
        st.global.v4.u32 [%rd6], {{%r4, %r5, %r6, %r7}}; {after}
        barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;""",
        ALONE.format(bytes=512),
    )


def there(space: str) -> str:
    """The neighbour's place and mbarrier, in a window or by generic addresses."""
    if space:
        there = "mapa.shared::cluster.u32"
        return f"{there} %r15, %r9, %r14; {there} %r16, %r11, %r14;"
    return """cvt.u64.u32 %rd2, %r9; cvt.u64.u32 %rd3, %r11;
    cvta.shared.u64 %rd2, %rd2; cvta.shared.u64 %rd3, %rd3;
    mapa.u64 %rd2, %rd2, %r14; mapa.u64 %rd3, %rd3, %r14;"""


def places(space: str) -> tuple[str, str]:
    return ("[%r15]", "[%r16]") if space else ("[%rd2]", "[%rd3]")


STORES = {
    "b32": ("%r4", 4), "f32": ("%r5", 4), "v2.u32": ("{%r4, %r5}", 8), "b64": ("%rd10", 8),
    "v4.b32": ("{%r4, %r5, %r6, %r7}", 16), "v2.s64": ("{%rd10, %rd11}", 16),
}  # fmt: skip


def sent(count: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 2**32, 128 * count, np.uint32) for _ in range(2)]


REDUCTIONS = [("add", "u32"), ("add", "s64"), ("min", "s32"), ("max", "u32"), ("inc", "u32"),
              ("dec", "u32"), ("and", "b32"), ("xor", "b32")]  # fmt: skip


def storing(space: str, type_: str, **waits: str) -> str:
    """st.async of a type of ``STORES``."""
    value, size = STORES[type_]
    place, barrier = places(space)
    send = f"{there(space)} {spoken(space, 'st.async', TX, type_)} {place}, {value}, {barrier};"
    return ring(send, size, **waits)


def reducing(op: str, type_: str) -> str:
    """red.async of a row of ``REDUCTIONS``."""
    value, size = ("%rd10", 8) if type_[1:] == "64" else ("%r4", 4)
    opcode = f"red.async.relaxed.cluster.shared::cluster.{TX}.{op}.{type_}"
    return ring(f"{there('shared::cluster')} {opcode} [%r15], {value}, [%r16];", size)


# --- cp.async.mbarrier.arrive ---------------------------------------------------------------------

COPIES = """mov.u32 %r8, buf; mov.u32 %r11, bar; setp.eq.u32 %p0, %t, 0;
mad.lo.u32 %r9, %t, 16, %r8; mad.wide.u32 %rd6, %t, 16, %a0; mad.wide.u32 %rd7, %t, 16, %a1;
xor.b32 %r10, %t, 63; mad.lo.u32 %r10, %r10, 16, %r8;
@%p0 mbarrier.init.shared::cta.b64 [%r11], COUNT; bar.sync 0;
cp.async.cg.shared.global [%r9], [%rd7], 16; ARRIVE
WAIT ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [%r10];
st.global.v4.u32 [%rd6], {%r4, %r5, %r6, %r7};"""
ARRIVALS = {
    "noinc": (64, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r11];"),
    "inc": (64, """cp.async.mbarrier.arrive.shared.b64 [%r11];
            mbarrier.arrive.shared::cta.b64 %rd5, [%r11];"""),
    "generic": (64, """cvt.u64.u32 %rd3, %r11; cvta.shared.u64 %rd3, %rd3;
                cp.async.mbarrier.arrive.noinc.b64 [%rd3];"""),
}  # fmt: skip


def copied(how: str, wait: str = WAIT, count: int = 0) -> str:
    body = COPIES.replace("COUNT", str(count or ARRIVALS[how][0])).replace("WAIT", wait)
    return simt.kernel(body.replace("ARRIVE", ARRIVALS[how][1]), ALONE.format(bytes=1024))
