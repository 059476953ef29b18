"""Pointers and shared memory: what folds into an offset, what costs, what is refused."""

from __future__ import annotations

import pytest

from error_messages import raises_message
from tilewright.errors import KernelError
from tilewright.layout import Layout, Tensor
from tracing import lines, traced


def test_static_offsets_fold() -> None:
    def body(k, p, n):
        q = (p + 4 - 1).cast("u8") + 2
        q[1]
        p[n]
        (p + n + 3)[-1]
        p[n.to("u64")]
        q[n.view("s32")] = n.to("u8")

    assert lines(body, "ptr f32", "u32") == [
        "ld.global.u8 %rs1, [%rd2+15]",
        "mad.wide.u32 %rd3, %r1, 4, %rd2",
        "ld.global.f32 %f1, [%rd3]",
        "mad.wide.u32 %rd4, %r1, 4, %rd2",
        "ld.global.f32 %f2, [%rd4+8]",
        "cvt.u64.u32 %rd5, %r1",
        "mad.lo.u64 %rd6, %rd5, 4, %rd2",
        "ld.global.f32 %f3, [%rd6]",
        "cvt.u8.u32 %rs2, %r1",
        "mad.wide.s32 %rd7, %r1, 1, %rd2",
        "st.global.u8 [%rd7+14], %rs2",
    ]


def test_vectors_orders_and_caches() -> None:
    def body(k, p):
        a, b = p.load(2, cache="nc.L1::no_allocate")
        p.store((a, 1.0, b, 0), index=4, order="relaxed.gpu")
        p.store(a, order="volatile")
        assert len(p.load()) == 1

    assert lines(body, "ptr f32 align 16") == [
        "ld.global.nc.L1::no_allocate.v2.f32 {%f1, %f2}, [%rd2]",
        "st.relaxed.gpu.global.v4.f32 [%rd2+16], {%f1, 0f3F800000, %f2, 0f00000000}",
        "st.volatile.global.f32 [%rd2], %f1",
        "ld.global.f32 %f3, [%rd2]",
    ]


def test_half_precision_is_loaded_and_stored_as_bits() -> None:
    def body(k, p):
        a, b = p.load(2)
        assert (a.dtype.name, a.operand.name) == ("f16", "%rs1")
        p[3] = a + b
        p.cast("f16x2")[2] = 1.5

    assert lines(body, "ptr f16") == [
        "mov.b32 %r1, 1040203264",
        "ld.global.v2.b16 {%rs1, %rs2}, [%rd2]",
        "add.rn.f16 %rs3, %rs1, %rs2",
        "st.global.b16 [%rd2+6], %rs3",
        "st.global.b32 [%rd2+8], %r1",
    ]


def test_shared_memory_by_name_and_by_address() -> None:
    def body(k, n):
        s = k.shared("f32", Layout((8, 4)), align=16, name="tile")
        s[3] = s[n]

    made = traced(body, "u32", lines=False)
    assert ".shared .align 16 .b8 tile[128];" in made.ptx
    assert made.static_shared == 128
    assert lines(body, "u32") == [
        "mov.u32 %r2, tile",
        "mad.lo.u32 %r3, %r1, 4, %r2",
        "ld.shared.f32 %f1, [%r3]",
        "st.shared.f32 [tile+12], %f1",
    ]


def test_dynamic_shared_memory_is_allocated_in_order() -> None:
    def body(k):
        first = k.dynamic_shared(100, 16)
        second = k.dynamic_shared(512, 128, dtype="f16")
        first[0] = second.cast("b8")[2]

    made = traced(body, lines=False)
    assert made.dynamic_shared == 128 + 512
    assert ".extern .shared .align 128 .b8 dynamic_shared[];" in made.ptx
    assert lines(body)[0] == "ld.shared.b8 %rs1, [dynamic_shared+130]"


def test_pointer_variables() -> None:
    def body(k, p, n):
        v = k.var(p + 2)
        kept = v + 1
        v.advance(n)
        v.advance(4)
        v[1] = kept[0]
        v.set(p)

    assert lines(body, "ptr f32", "u32") == [
        "mov.u64 %rd3, %rd2",
        "mov.u64 %rd4, %rd3",
        "mad.wide.u32 %rd3, %r1, 4, %rd3",
        "add.u64 %rd3, %rd3, 16",
        "ld.global.f32 %f1, [%rd4+12]",
        "st.global.f32 [%rd3+12], %f1",
        "sub.u64 %rd3, %rd2, 8",
    ]


def test_pointers_are_engines_of_tensors() -> None:
    def body(k, p, i):
        t = Tensor(p, Layout((4, 8), (8, 1)))
        t[i, 3] = t[2, 5]

    assert lines(body, "ptr f32", "u32") == [
        "ld.global.f32 %f1, [%rd2+84]",
        "mad.wide.u32 %rd3, %r1, 32, %rd2",
        "st.global.f32 [%rd3+12], %f1",
    ]


def test_register_arrays_are_engines_too() -> None:
    def body(k, x):
        t = Tensor(k.array("f32", 8), Layout((2, 4), (4, 1)))
        t[1, 2] = x
        t.engine[6] += x
        (t.engine + 4)[0] = t[1, None][2]

    assert lines(body, "f32") == [
        "mov.f32 %f8, %f1",
        "add.rn.f32 %f8, %f8, %f1",
        "mov.f32 %f6, %f8",
    ]


def test_asynchronous_copies() -> None:
    def body(k, p, n):
        s = k.shared("b8", 64, align=16)
        k.cp_async(s, p, 16)
        k.cp_async(s + 16, p + 4, 16, valid=n)
        k.cp_async(s + 32, p, 4, valid=n < 3)
        k.cp_async(s, p, 8, valid=False)
        k.cp_async(s, p, 16, valid=True, cache="ca", prefetch="L2::128B")
        k.cp_async_commit()
        k.cp_async_wait(1)

    assert lines(body, "ptr f32", "u32") == [
        "cp.async.cg.shared.global [shared_0], [%rd2], 16",
        "cp.async.cg.shared.global [shared_0+16], [%rd2+16], 16, %r1",
        "setp.lt.u32 %p1, %r1, 3",
        "selp.u32 %r2, 4, 0, %p1",
        "cp.async.ca.shared.global [shared_0+32], [%rd2], 4, %r2",
        "cp.async.ca.shared.global [shared_0], [%rd2], 8, 0",
        "cp.async.ca.shared.global.L2::128B [shared_0], [%rd2], 16",
        "cp.async.commit_group",
        "cp.async.wait_group 1",
    ]


def test_atomics() -> None:
    def body(k, p, x):
        x = k.max(x, p.atomic("add", x, order="relaxed.gpu"))
        p.reduce("add", x, index=1)
        b = p.cast("u32")
        b.atomic("cas", 0, 1)
        b.reduce("or", 4)

    assert lines(body, "ptr f32", "f32") == [
        "atom.relaxed.gpu.global.add.f32 %f2, [%rd2], %f1",
        "max.f32 %f3, %f1, %f2",
        "red.global.add.f32 [%rd2+4], %f3",
        "atom.global.cas.b32 %r1, [%rd2], 0, 1",
        "red.global.or.b32 [%rd2], 4",
    ]


def test_address_operands_of_any_row() -> None:
    def body(k, p, a):
        k.ptx.ld.global_.u32((a, 8))
        k.ptx.st.global_.u32(a, 7)
        k.ptx.prefetch.global_.L2(p + 1)

    assert lines(body, "ptr f32", "u64") == [
        "ld.global.u32 %r1, [%rd3+8]",
        "st.global.u32 [%rd3], 7",
        "prefetch.global.L2 [%rd2+4]",
    ]


BAD = {
    "too wide": (lambda k, p: p.load(4), "a vector must have 2 or 4 elements"),
    "odd count": (lambda k, p: p.load(3), "a vector must have 2 or 4 elements"),
    "misaligned": (
        lambda k, p: (p + 1).load(2),
        "must be aligned to 16 bytes, got .*, aligned to 8",
    ),
    "declared less": (
        lambda k, p: k.shared("f32", 8).load(2),
        "must be aligned to 8 bytes, got .*, aligned to 4",
    ),
    "value": (lambda k, p: p.__setitem__(0, k.const("f32", 1)), "can't be stored as f64"),
    "number": (lambda k, p: k.shared("u8").__setitem__(0, 256), "256 does not fit u8"),
    "index": (lambda k, p: p[k.const("f32", 1)], "an index must be u32"),
    "wide index": (lambda k, p: k.shared("f32", 4)[k.const("u64", 1)], "32-bit addresses"),
    "space": (lambda k, p: k.emit("ld.shared.f64", p), "must be a shared address"),
    "count": (lambda k, p: k.shared("f32", k.tid.x), "a static number or a layout"),
    "align": (lambda k, p: k.shared("f32", 4, align=24), "power of two"),
    "limit": (lambda k, p: k.shared("f32", 20000), "limit is 49152"),
    "twice": (lambda k, p: [k.shared("f32", name="s") for _ in "ab"], "declared twice"),
    "not a variable": (lambda k, p: p.advance(1), "the pointer must be a variable"),
    "register index": (lambda k, p: k.array("f32", 4)[k.tid.x], "must be static"),
    "register end": (lambda k, p: k.array("f32", 4)[4], "must be from 0 to 3, got 4"),
    "cp.async": (lambda k, p: k.cp_async(k.shared("b8"), p, 12), "4, 8 or 16"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_memory_operations(name: str) -> None:
    body, says = BAD[name]
    with raises_message(KernelError, says) as caught:
        lines(body, "ptr f64 align 16")
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
