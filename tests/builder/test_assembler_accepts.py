"""What the builder makes, the assembler takes."""

from __future__ import annotations

import pytest

from tilewright import cuda
from tilewright.builder import Kernel, f16, f32, f64, kernel, ptr, u32

pytest.importorskip("cuda.bindings.nvjitlink", reason="no cuda-bindings")

pytestmark = pytest.mark.tools
if not cuda.compiler().startswith("nvJitLink"):
    pytest.skip("no nvJitLink", allow_module_level=True)

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


@kernel(block=128)
def copy_and_multiply(k, a: ptr(f16, align=16), c: ptr(f32), n: u32):
    ring = k.dynamic_shared(3 * 4096, dtype="f16")
    acc = k.array("f32", 16, 0.0)
    source = k.var(a + k.tid.x * 8)
    for i in k.range(n):
        stage = ring + i % 2 * 2048
        k.cp_async(stage + k.tid.x * 8, source, 16, valid=i < n - 1)
        k.cp_async_commit()
        k.cp_async_wait(0)
        k.barrier()
        x = k.ldmatrix(stage + k.laneid * 8, 4)
        y = k.ldmatrix(stage + k.laneid * 8 + 512, 4, trans=True)
        for j in range(4):
            fragment = acc[4 * j : 4 * j + 4]
            k.mma(MMA, x, y[:2] if j % 2 else y[2:], fragment, into=fragment)
        source.advance(1024)
    for j in range(4):
        (c + k.tid.x * 4).store(acc[4 * j : 4 * j + 4], index=j * 512)


@kernel
def everything_else(k, p: ptr(f32), n: u32, h: f16, d: f64, *, block=96):
    k.launch_bounds(block, exact=True, min_ctas=2)
    s = k.shared("f64", block)
    v = k.var("f64", d)
    with k.if_(k.tid.x < n):
        with k.while_(lambda: v < 100.0):
            v *= 1.5
            k.break_(v == 7.0)
        v.set(k.shfl("bfly", v, 16))
    with k.else_():
        p.atomic("add", h.to("f32"))
    s[k.tid.x] = v / 3
    k.barrier()
    total = k.select(k.vote("all", k.ballot(h < 1.0) != 0), s[0], s[block - 1])
    low, high = k.unpack(k.pack("f16x2", total.to("f32"), -p[1]))
    p[k.warpid] = (low * high + 0.5).to("bf16").to("f32")
    k.ret(n == 0)
    for i in k.range(10, 0, -2, unroll=False):
        p.cast("u32").reduce("max", i.view("u32"), index=i)


@kernel(block=32)
def speaks(k, p: ptr(f32), n: u32, h: f16):
    i = k.tid.x
    k.assert_(n <= 32, "there is one warp")
    with k.when(i < n):
        k.print("p[%u] at %p is %f, h is %g: %s", i, p, p[i], h, "all of it")


MADE = [copy_and_multiply, everything_else, speaks]


@pytest.mark.parametrize("made", MADE, ids=lambda k: k.__name__)
@pytest.mark.parametrize("arch", ["", "sm_90a", "sm_120"])
def test_it_assembles_without_spills(made: Kernel, arch: str) -> None:
    cubin = cuda.compile(made.trace().ptx, arch or made.trace().target)
    assert cubin.spills == 0
