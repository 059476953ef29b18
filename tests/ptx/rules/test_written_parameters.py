"""Which parameters a kernel may write through: too many are allowed, too few are not."""

from __future__ import annotations

import pytest

from tilewright import ptx
from tilewright.ptx.rules.written_parameters import written_parameters

PARAMS = ".param .u64 x, .param .u64 y, .param .u32 n, .param .align 64 .b8 map[128]"
HEAD = f"""
.version 8.0
.target sm_90a
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.func touch (.param .b64 a) {{ ret; }}
.entry k ({PARAMS}) {{
  .reg .pred p; .reg .u32 %i<4>; .reg .u64 %x<4>, %y<4>, %m<4>; .reg .v2 .u64 %v; .reg .f32 %f<4>;
  .shared .align 128 .b8 s[256]; .shared .align 8 .b64 bar; .local .align 8 .b8 frame[64];
  ld.param.u64 %x0, [x]; ld.param.u64 %y0, [y]; ld.param.u32 %i0, [n];
  cvta.to.global.u64 %x1, %x0; mov.u64 %m0, map; cvta.param.u64 %m1, %m0;
"""
WRITES = {
    "a store": ("st.global.f32 [%x1+4], 0f00000000;", "x"),
    "a load": ("ld.global.f32 %f0, [%x1]; st.global.f32 [%y0], %f0;", "y"),
    "an atomic": ("atom.global.add.u32 %i1, [%x0], %i0;", "x"),
    "a reduction": ("red.global.add.u32 [%x0], 1;", "x"),
    "a sum of two": ("add.u64 %x2, %x1, %y0; st.u32 [%x2], 0;", "x y"),
    "a choice": ("setp.eq.u32 p, %i0, 0; selp.b64 %x2, %x0, %y0, p; st.u32 [%x2], 0;", "x y"),
    "an index that was loaded": (
        "ld.global.u32 %i1, [%x1]; mad.wide.u32 %y1, %i1, 4, %y0; st.global.u32 [%y1], 0;", "y",
    ),
    "later in a loop": (
        "L: st.global.u32 [%x3], 0; mov.u64 %x3, %x2; mov.u64 %x2, %x0; bra L;", "x",
    ),
    "kept in memory": (
        "st.local.u64 [frame], %x0; ld.local.u64 %x2, [frame]; st.u8 [%x2], 0;", "x",
    ),
    "kept, and left alone": ("st.local.u64 [frame], %x0; st.global.u8 [%y0], 0;", "y"),
    "read at its own address": (
        "mov.u64 %m2, x; cvta.param.u64 %m3, %m2; ld.u64 %x2, [%m3]; st.u8 [%x2], 0;", "x",
    ),
    "part of a vector": ("mov.u64 %v.x, %x0; mov.u64 %v.y, %y0; st.u8 [%v.y], 0;", "x y"),
    "halves": ("mov.b64 {%i1, %i2}, %x0; mov.b64 %x2, {%i1, %i2}; st.u8 [%x2], 0;", "x"),
    "another lane's": (
        "mov.b64 {%i1, %i2}, %x0; shfl.sync.idx.b32 %i3, %i1, 0, 31, -1;"
        "mov.b64 %x2, {%i3, %i2}; st.u8 [%x2], 0;", "x",
    ),
    "a copy in": ("cp.async.ca.shared.global [s], [%x1], 16;", ""),
    "a bulk copy in": (
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [s], [%x1], 16, [bar];",
        "",
    ),
    "a bulk copy out": ("cp.async.bulk.global.shared::cta.bulk_group [%x1], [s], 16;", "x"),
    "a tensor in": (
        "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        " [s], [%m1, {0}], [bar];", "",
    ),
    "a tensor out": (
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%m1, {0}], [s];", "map",
    ),
    "prefetches": ("prefetch.global.L2 [%x1]; prefetch.tensormap [%m1];", ""),
    "what may be discarded": ("discard.global.L2 [%x1], 128;", "x"),
    "what is printed": (
        "{ .param .b64 a; .param .b64 b; .param .b32 r; st.param.b64 [a], %x0;"
        "st.param.b64 [b], %y0; call (r), vprintf, (a, b); }", "",
    ),
    "what a function has": ("{ .param .b64 a; st.param.b64 [a], %x0; call touch, (a); }", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITES)
def test_what_may_be_written(name: str) -> None:
    body, expected = WRITES[name]
    module = ptx.parse(f"{HEAD}{body} ret; }}")
    ptx.check(module)
    kernel = module.functions["k"]
    assert [kernel.params[i].name for i in sorted(written_parameters(kernel))] == expected.split()
