"""Loops, branches and predication: exact text."""

from __future__ import annotations

import pytest

from tilewright.errors import KernelError
from tracing import lines


def test_a_loop_with_a_dynamic_bound() -> None:
    def body(k, n):
        s = k.var("u32", 0)
        for i in k.range(n):
            s += i

    assert lines(body, "u32") == [
        "mov.u32 %r2, 0",
        "mov.u32 %r3, 0",
        "setp.ge.u32 %p1, %r3, %r1",
        "@%p1 bra $done_2",
        "$loop_3:",
        "add.u32 %r2, %r2, %r3",
        "$next_1:",
        "add.u32 %r3, %r3, 1",
        "setp.lt.u32 %p2, %r3, %r1",
        "@%p2 bra $loop_3",
        "$done_2:",
    ]


def test_static_bounds_need_no_initial_test() -> None:
    def body(k):
        for i in k.range(9, 0, -3, unroll=False):
            i * i

    assert lines(body) == [
        "mov.s32 %r1, 9",
        "$loop_3:",
        '.pragma "nounroll"',
        "mul.lo.s32 %r2, %r1, %r1",
        "$next_1:",
        "sub.s32 %r1, %r1, 3",
        "setp.gt.s32 %p1, %r1, 0",
        "@%p1 bra $loop_3",
        "$done_2:",
    ]


def test_an_empty_static_loop_is_skipped() -> None:
    def body(k):
        for _ in k.range(0):
            k.barrier()

    assert lines(body)[:2] == ["mov.u32 %r1, 0", "bra $done_2"]


def test_unrolled_loops_are_python() -> None:
    def body(k, x):
        for i in k.range(0, 6, 2, unroll=True):
            assert type(i) is int
            x + i

    assert lines(body, "u32") == ["add.u32 %r2, %r1, 2", "add.u32 %r3, %r1, 4"]


def test_branches() -> None:
    def body(k, n):
        with k.if_(n < 3), k.if_(n == 0):
            k.ret()
        with k.else_():
            k.barrier()

    assert lines(body, "u32") == [
        "setp.lt.u32 %p1, %r1, 3",
        "@!%p1 bra $else_1",
        "setp.eq.u32 %p2, %r1, 0",
        "@!%p2 bra $else_2",
        "ret",
        "$else_2:",
        "bra $endif_3",
        "$else_1:",
        "bar.sync 0",
        "$endif_3:",
    ]


@pytest.mark.parametrize("decided", [True, False])
def test_a_python_bool_is_evaluated_at_trace_time(decided: bool) -> None:
    def body(k, n):
        with k.if_(decided):
            n + 1
        with k.else_():
            n + 2
        with k.when(decided):
            n + 3
        with k.when(not decided):
            n + 4
        k.ret(False)

    taken = [1, 3] if decided else [2, 4]
    assert [int(line[-1]) for line in lines(body, "u32")] == taken


def test_while_break_and_continue() -> None:
    def body(k, n):
        v = k.var("u32", 1)
        with k.while_(lambda: v < n):
            v += v
            k.continue_(v == 8)
            with k.if_(v == 64):
                k.break_()

    assert lines(body, "u32") == [
        "mov.u32 %r2, 1",
        "$while_1:",
        "setp.lt.u32 %p1, %r2, %r1",
        "@!%p1 bra $done_2",
        "add.u32 %r2, %r2, %r2",
        "setp.eq.u32 %p2, %r2, 8",
        "@%p2 bra $while_1",
        "setp.eq.u32 %p3, %r2, 64",
        "@!%p3 bra $else_3",
        "bra $done_2",
        "$else_3:",
        "bra $while_1",
        "$done_2:",
    ]


def test_guards_nest() -> None:
    def body(k, n):
        p, q = n < 3, n > 1
        with k.when(p):
            n + 1
            with k.when(q):
                k.emit("bar.sync", 0)
            k.ptx.bar.sync(1, guard=~q)
        k.ret(p)

    assert lines(body, "u32") == [
        "setp.lt.u32 %p1, %r1, 3",
        "setp.gt.u32 %p2, %r1, 1",
        "@%p1 add.u32 %r2, %r1, 1",
        "and.pred %p3, %p1, %p2",
        "@%p3 bar.sync 0",
        "@%p1 not.pred %p4, %p2",
        "and.pred %p5, %p1, %p4",
        "@%p5 bar.sync 1",
        "@%p1 ret",
    ]


def test_constants_are_computed_in_the_prologue() -> None:
    def body(k, n):
        with k.if_(n == 0):
            k.tid.x + k.laneid
        k.tid.x + 1

    assert lines(body, "u32")[:2] == ["mov.u32 %r2, %tid.x", "mov.u32 %r3, %laneid"]
    assert lines(body, "u32")[-1] == "add.u32 %r5, %r2, 1"


def test_the_warp_index_counts_in_all_dimensions_of_the_block() -> None:
    def body(k):
        k.warpid + k.warpid

    def flat(k):
        k.launch_bounds(128)
        body(k)

    assert lines(flat)[:2] == ["mov.u32 %r1, %tid.x", "shr.u32 %r2, %r1, 5"]
    assert lines(body) == [
        "mov.u32 %r1, %tid.z",
        "mov.u32 %r2, %ntid.y",
        "mov.u32 %r3, %tid.y",
        "mad.lo.u32 %r4, %r1, %r2, %r3",
        "mov.u32 %r5, %ntid.x",
        "mov.u32 %r6, %tid.x",
        "mad.lo.u32 %r7, %r4, %r5, %r6",
        "shr.u32 %r8, %r7, 5",
        "add.u32 %r9, %r8, %r8",
    ]


@pytest.mark.parametrize("where", ["first", "last"])
def test_python_s_break_is_an_error(where: str) -> None:
    def body(k, n):
        for _ in k.range(n):
            break
        if where == "first":
            k.barrier()

    with pytest.raises(KernelError, match="Python's break"):
        lines(body, "u32")
