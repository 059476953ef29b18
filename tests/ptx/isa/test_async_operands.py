"""Operands of asynchronous instructions: what the checker takes and refuses is what ptxas 13.0
says, asked when this was written.
"""

from __future__ import annotations

import pytest

from rows import every_row
from tilewright.errors import PtxCheckError
from tilewright.ptx import check, parse, print_module, problems

HEAD = """.version 9.0
.target sm_90a
.address_size 64
.entry k() {
.reg .b32 %r<9>; .reg .f32 %f<9>; .reg .f64 %d<9>; .reg .pred %p<8>; .reg .b64 %l<8>;
.reg .b16 %h<9>; .reg .f16 %x; .reg .s32 %s; .shared .align 128 .b64 sm[16];
"""
TX = "mbarrier::complete_tx::bytes"
LOAD = f"cp.async.bulk.shared::cluster.global.{TX}"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"
BOX = f"cp.async.bulk.tensor.2d.shared::cluster.global.{TX}"
LINE = f"cp.async.bulk.tensor.1d.shared::cluster.global.{TX}"
IM2COL = f"cp.async.bulk.tensor.3d.shared::cluster.global.im2col.{TX}"
REPLACE = "tensormap.replace.tile.{}.global.b1024.b32"


def module(text: str):
    return parse(f"{HEAD}{text}\nret;\n}}\n", "k.ptx")


GOOD = [
    "mbarrier.init.shared.b64 [sm], 1;",
    "mbarrier.init.shared::cta.b64 [%r2], %s;",
    "mbarrier.arrive.b64 _, [%l1];",
    "mbarrier.arrive.shared::cluster.b64 _, [%r1], %r2;",
    "mbarrier.arrive.noComplete.b64 %l2, [%l1], 1;",
    "mbarrier.arrive.expect_tx.b64 %l2, [sm], 4096;",
    "mbarrier.try_wait.parity.shared.b64 %p1, [sm], %r2, 0x989680;",
    "mbarrier.test_wait.b64 %p1, [%l1], 5;",
    f"{LOAD} [sm], [%l1], 16, [sm+32];",
    f"{LOAD} [%r1], [%l1], %s, [%r2];",
    f"{LOAD} [%l1], [%l2], 1048560, [%l3];",
    f"{LOAD}.multicast::cluster.L2::cache_hint [%l1], [%l2], 0, [%l3], %h1, %l4;",
    f"{LOAD}.multicast::cluster [%l1], [%l2], 16, [%l3], 3;",
    f"{STORE}.L2::cache_hint [%l1], [sm], %r1, %l4;",
    "cp.async.bulk.wait_group.read 0;",
    f"{BOX} [sm], [%l1, {{%r1, -1}}], [sm+64];",
    f"{BOX}.multicast::cluster.L2::cache_hint [%r1], [%l1, {{%s, 5}}], [%r2], %h1, %l2;",
    f"{LINE} [%r1], [%l2, {{%r1}}], [%r3];",
    f"{IM2COL} [%l1], [%l2, {{%r1, %r2, %r3}}], [%l3], {{%h1}};",
    f"{IM2COL}.multicast::cluster [%l1], [%l2, {{%r1, %r2, %r3}}], [%l3], {{1}}, %h1;",
    "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%l2, {%r1}], [sm];",
    f"{REPLACE.format('box_dim')} [%l1], 4, %r2;",
    f"{REPLACE.format('fill_mode')} [%l1], 1;",
    "fence.proxy.tensormap::generic.acquire.gpu [%l1], 128;",
    "setmaxnreg.inc.sync.aligned.u32 256;",
    "barrier.sync 15, 64;",
    "mapa.shared::cluster.u32 %r1, sm+8, 1;",
    "getctarank.shared::cluster.u32 %r1, sm;",
    f"st.async.shared::cluster.{TX}.v2.f32 [%r1], {{%f1, 1.5}}, [%r3];",
    "cp.async.ca.shared.global [%r1], [%l1], 4, !%p1;",
    "elect.sync _|%p1, -1;",
]

BAD = {
    "mbarrier.init.b64 [%l1], %l1;": "expected a .u32 register",
    "mbarrier.init.b64 [%r1], 1;": "a .generic address must have 64 bits",
    "mbarrier.init.b64 [%l1, {%r1}], 1;": "without coordinates",
    "mbarrier.arrive.shared::cluster.b64 %l2, [%r1];": "expected '_', got %l2",
    "mbarrier.arrive.b64 %l2, [%l1], 0;": "count must be 1 or more",
    "mbarrier.arrive.noComplete.b64 %l2, [%l1];": "got 2 operands",
    "mbarrier.arrive.b64 %d1, [%l1];": "expected a .u64 register",
    "mbarrier.test_wait.b64 _, [%l1], %l2;": "register, got '_'",
    "mbarrier.test_wait.parity.b64 %p1, [%l1], 2;": "phase must be 0 or 1",
    "mbarrier.test_wait.b64 %p1, [%l1], %r1;": "expected a .u64 register",
    "mbarrier.pending_count.b64 _, %l1;": "register, got '_'",
    f"{LOAD} [%l1], [%l2], 8, [%l3];": "size must be 0 to 1048560 in steps of 16",
    f"{LOAD} [%l1], [%l2], 1048576, [%l3];": "size must be 0 to 1048560",
    f"{LOAD} [%l1], [%l2], -16, [%l3];": "size must be 0 to 1048560",
    f"{LOAD} [%l1], [%l2], %l1, [%l3];": "expected a .u32 register",
    f"{LOAD} [%l1], [sm], 16, [sm];": "sm is in .shared, the instruction accesses .global",
    f"{LOAD} [%l1], [%l2], 16;": "got 3 operands",
    f"{LOAD}.multicast::cluster [%l1], [%l2], 16, [%l3], %r1;": "expected a .u16 register",
    f"{LOAD}.multicast::cluster [%l1], [%l2], 16, [%l3], %x;": "got %x of type .f16",
    f"{LOAD}.L2::cache_hint [%l1], [%l2], 16, [%l3], %d1;": "expected a .u64 register",
    "cp.async.bulk.prefetch.L2.global [%l1], 8;": "in steps of 16",
    "cp.async.bulk.wait_group %r1;": "must be an integer constant",
    f"{BOX} [%l1], [%l2, {{%r1}}], [%l3];": "the number of coordinates must be 2, got 1",
    f"{BOX} [%l1], [%l2], [%l3];": "expected [tensor map, {coordinates}]",
    f"{BOX} [%l1], %l2, [%l3];": "expected [tensor map, {coordinates}]",
    f"{BOX} [%l1], [%l2+64, {{%r1, %r2}}], [%l3];": "a register without offset",
    f"{BOX} [%l1], [sm, {{%r1, %r2}}], [%l3];": "a register without offset",
    f"{LINE} [%r1], [%l2, {{%l1}}], [%r3];": "expected a .s32 register",
    f"{LINE} [%r1], [%l2, {{%f1}}], [%r3];": "expected a .s32 register",
    f"{LINE} [%r1], [%l2, {{_}}], [%r3];": "register, got '_'",
    f"{IM2COL} [%l1], [%l2, {{%r1, %r2, %r3}}], [%l3];": "got 3 operands",
    f"{IM2COL} [%l1], [%l2, {{%r1, %r2, %r3}}], [%l3], {{%h1, %h2}};": "of 1, got 2",
    f"{IM2COL} [%l1], [%l2, {{%r1, %r2, %r3}}], [%l3], %h1;": "expected a vector of 1",
    f"{REPLACE.format('box_dim')} [%l1], 5, %r2;": "ordinal must be 0 to 4",
    f"{REPLACE.format('box_dim')} [%l1], %r1, %r2;": "must be an integer constant",
    f"{REPLACE.format('elemtype')} [%l1], 16;": "value must be 0 to 15",
    "fence.proxy.tensormap::generic.acquire.gpu [%l1], 64;": "size must be 128",
    "setmaxnreg.dec.sync.aligned.u32 23;": "count must be 24 to 256 in steps of 8",
    "setmaxnreg.dec.sync.aligned.u32 %r1;": "must be an integer constant",
    "barrier.sync 16;": "index must be 0 to 15",
    "bar.sync 0, 31;": "threads must be 0 or more in steps of 32",
    "bar.red.popc.u32 _, 0, %p1;": "register, got '_'",
    "mapa.u64 %l1, %r1, 0;": "expected a .u64 register",
    "getctarank.shared::cluster.u64 %l1, %l2;": "expected a .u32 register",
    "elect.sync %r1, %r2;": "expected two destinations d|p",
    f"st.async.shared::cluster.{TX}.v2.u32 [%r1], {{%r1}}, [%r3];": "expected a vector of 2, got 1",
    "multimem.st.global.u32 [%r1], %r1;": "a .global address must have 64 bits",
    "cp.async.cg.shared.global [%r1], [%l1], 8;": "size must be 16",
    "cp.async.ca.shared.global [%r1], [%l1], 4, 17;": "n must be 0 to 16",
    "ld.global.u32 _, [%l1];": "register, got '_'",
    "discard.L2 [%l1], 64;": "size must be 128",
}


def test_good() -> None:
    whole = module("\n".join(GOOD))
    assert [str(p) for p in problems(whole)] == []
    assert parse(print_module(whole)) == whole


@every_row("text", BAD)
def test_bad(text: str) -> None:
    with pytest.raises(PtxCheckError) as caught:
        check(module(text))
    assert BAD[text] in caught.value.message


@pytest.mark.parametrize(
    ("text", "near"),
    [
        (f"{BOX.replace('.' + TX, '')} [%l1], [%l2, {{1, 1}}], [%l3];", f"nearest are {BOX}"),
        ("mbarrier.arrive.relaxed.b64 _, [%l1];", "mbarrier.arrive.relaxed.cta.b64"),
        ("bar.sync.cta 0;", "bar.cta.sync"),
        ("fence.acquire;", "fence.acquire.cta"),
        ("cp.async.bulk.shared.global [%l1], [%l2], 16, [%l3];", "shared::cta.global"),
    ],
)
def test_the_nearest_forms_are_named(text: str, near: str) -> None:
    (problem,) = problems(module(text))
    assert near in (problem.hint or "")


def test_operands_can_need_more_than_their_form() -> None:
    """A count without .noComplete, and a predicate for what cp.async is to ignore."""

    def refused(version: str, text: str) -> list[str]:
        head = HEAD.replace("9.0", version).replace("sm_90a", "sm_80")
        return [p.message for p in problems(parse(f"{head}{text}\nret;\n}}\n"))]

    assert not refused("7.0", "mbarrier.arrive.b64 %l1, [%l2];")
    (why,) = refused("9.0", "mbarrier.arrive.b64 %l1, [%l2], 2;")
    assert "needs .target sm_90" in why
    assert not refused("7.0", "cp.async.ca.shared.global [%r1], [%l1], 4, %r2;")
    (why,) = refused("7.4", "cp.async.ca.shared.global [%r1], [%l1], 4, %p2;")
    assert "needs .version 7.5" in why
