"""Functions that stand apart: they call themselves, each other, through registers, too deep."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples import examples
from ptx_kernels.simt import both, kernel, launch, store, zeros
from rows import slow_but
from tilewright.errors import LaunchError, VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

FULL = 0xFFFFFFFF
LANES = np.arange(40, dtype=np.uint32)

FIB = """
.func (.param .b32 out) fib(.param .b32 n) {
  .reg .b32 %r<6>; .reg .pred %p;
  ld.param.u32 %r1, [n]; setp.lt.u32 %p, %r1, 2; st.param.b32 [out], %r1; @%p ret;
  sub.u32 %r2, %r1, 1; call (%r3), fib, (%r2);
  sub.u32 %r2, %r1, 2; call (%r4), fib, (%r2);
  add.u32 %r5, %r3, %r4; st.param.b32 [out], %r5;
}"""


def fib(n: int) -> int:
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_recursion_depth_per_lane():
    text = kernel("rem.u32 %r1, %t, 13; call (%r3), fib, (%r1);" + store("%r3"), FIB)
    (out,) = both(text, [zeros(40)], block=40)
    assert out.tolist() == [fib(t % 13) for t in range(40)]


def test_registers_of_all_types_are_saved_across_calls():
    top = """.func (.param .b32 out) f(.param .b32 n) {
      .reg .b32 %r<6>; .reg .pred %p<3>; .reg .b16 %h; .reg .b64 %rd; .reg .f64 %fd; .reg .b128 %q;
      ld.param.u32 %r1, [n]; setp.eq.u32 %p0, %r1, 0; st.param.b32 [out], 0; @%p0 ret;
      and.b32 %r2, %r1, 1; setp.ne.u32 %p1, %r2, 0; not.pred %p2, %p1;
      cvt.u16.u32 %h, %r1; mul.wide.u32 %rd, %r1, 0x10000001; cvt.rn.f64.u32 %fd, %r1;
      mov.b128 %q, {%rd, %rd}; sub.u32 %r2, %r1, 1; call (%r3), f, (%r2);
      @%p1 add.u32 %r3, %r3, 1000; @%p2 add.u32 %r3, %r3, 1;
      cvt.u32.u16 %r4, %h; add.u32 %r3, %r3, %r4; cvt.rzi.u32.f64 %r4, %fd; add.u32 %r3, %r3, %r4;
      mov.b128 {%rd, _}, %q; cvt.u32.u64 %r4, %rd; add.u32 %r3, %r3, %r4;
      st.param.b32 [out], %r3; }"""

    def f(n: int) -> int:
        each = (1000 if n % 2 else 1) + 2 * n + n * 0x10000001
        return (f(n - 1) + each) & FULL if n else 0

    text = kernel("call (%r3), f, (%t);" + store("%r3"), top)
    (out,) = both(text, [zeros(20)], block=20)
    assert out.tolist() == [f(t) for t in range(20)]


def test_functions_call_each_other_under_guards_and_through_registers():
    top = """
    .func (.param .b32 out) odd(.param .b32 n);
    .func (.param .b32 out) even(.param .b32 n) {
      .reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r1, [n]; setp.eq.u32 %p, %r1, 0;
      mov.u32 %r3, 1; sub.u32 %r2, %r1, 1; @!%p call (%r3), odd, (%r2);
      st.param.b32 [out], %r3; }
    .func (.param .b32 out) odd(.param .b32 n) {
      .reg .b32 %r<4>; .reg .b64 %rd; .reg .pred %p; ld.param.u32 %r1, [n];
      setp.eq.u32 %p, %r1, 0; mov.u32 %r3, 0; sub.u32 %r2, %r1, 1; mov.u64 %rd, even;
      prototype: .callprototype (.param .b32 _) _ (.param .b32 _);
      @!%p call (%r3), %rd, (%r2), prototype;
      st.param.b32 [out], %r3; }"""
    body = f"""and.b32 %r1, %t, 3; setp.eq.u32 %p0, %r1, 1; mov.u64 %rd1, even;
      @%p0 mov.u64 %rd1, odd; list: .calltargets even, odd;
      call (%r3), %rd1, (%t), list; {store("%r3")}"""
    (out,) = both(kernel(body, top), [zeros(40)], block=40)
    np.testing.assert_array_equal(out, (LANES % 4 == 1) == LANES % 2)


def test_each_activation_has_local_memory_and_structures_are_passed():
    top = """.func (.param .align 8 .b8 out[24]) f(.param .align 8 .b8 s[24], .reg .u32 %n) {
      .local .align 8 .b8 own[24]; .param .align 8 .b8 next[24]; .param .align 8 .b8 back[24];
      .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p;
      mov.u64 %rd1, own; cvta.local.u64 %rd2, %rd1;
      ld.param.v2.u64 {%rd3, %rd4}, [s]; ld.param.u32 %r1, [s+16]; ld.param.u32 %r2, [s+20];
      st.u64 [%rd2], %rd3; st.local.u64 [own+8], %rd4; st.u32 [%rd2+16], %r1;
      add.u32 %r2, %r2, %n; setp.eq.u32 %p, %n, 0; @%p bra LAST;
      add.u64 %rd3, %rd3, 1; add.u64 %rd4, %rd4, %rd3; add.u32 %r1, %r1, 2; sub.u32 %r3, %n, 1;
      st.param.u64 [next], %rd3; st.param.u64 [next+8], %rd4; st.param.v2.u32 [next+16], {%r1, %r2};
      call (back), f, (next, %r3); ld.param.u32 %r2, [back+20]; ld.param.u64 %rd5, [back];
      ld.u64 %rd3, [%rd2]; add.u64 %rd3, %rd3, %rd5; ld.local.u64 %rd4, [%rd1+8];
      LAST: st.param.u64 [out], %rd3; st.param.u64 [out+8], %rd4; ld.local.u32 %r1, [own+16];
      st.param.u32 [out+16], %r1; st.param.u32 [out+20], %r2; ret; }"""
    body = f""".param .align 8 .b8 s[24]; .param .align 8 .b8 d[24]; cvt.u64.u32 %rd1, %t;
      st.param.u64 [s], %rd1; st.param.u64 [s+8], 7; st.param.u32 [s+16], %t;
      st.param.u32 [s+20], 5;
      rem.u32 %r1, %t, 6; call (d), f, (s, %r1); ld.param.u64 %rd1, [d]; ld.param.u64 %rd2, [d+8];
      ld.param.u32 %r2, [d+16]; ld.param.u32 %r3, [d+20]; cvt.u32.u64 %r4, %rd1;
      cvt.u32.u64 %r5, %rd2; {"".join(store(f"%r{2 + i}", base=f"%a{i}") for i in range(4))}"""
    got = both(kernel(body, top), [zeros(40)] * 4, block=40)
    n = LANES % 6
    sums = [sum(t + i for i in range(k + 1)) for t, k in zip(LANES, n, strict=True)]
    for found, expected in zip(got, (LANES, 5 + n * (n + 1) // 2, sums, 7), strict=True):
        np.testing.assert_array_equal(found, np.broadcast_to(expected, 40))


def test_alloca_and_stackrestore():
    top = """.func (.param .b32 out) sum(.param .b32 n) {
      .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p; ld.param.u32 %r1, [n];
      mul.wide.u32 %rd1, %r1, 4; alloca.u64 %rd2, %rd1, 32; cvta.local.u64 %rd5, %rd2;
      mov.u32 %r2, 0; FILL: mad.wide.u32 %rd3, %r2, 4, %rd5; st.u32 [%rd3], %r2;
      add.u32 %r2, %r2, 1; setp.lt.u32 %p, %r2, %r1; @%p bra FILL;
      alloca.u64 %rd6, 4; st.local.u32 [%rd6], 77; and.b64 %rd7, %rd2, 31;
      cvt.u32.u64 %r3, %rd7; SUM: sub.u32 %r2, %r2, 1; mad.wide.u32 %rd3, %r2, 4, %rd2;
      ld.local.u32 %r4, [%rd3]; add.u32 %r3, %r3, %r4; setp.ne.u32 %p, %r2, 0; @%p bra SUM;
      st.param.b32 [out], %r3; }"""
    body = f"""mov.u32 %r5, 0; mov.u32 %r6, 0; stacksave.u64 %rd10;
      AGAIN: add.u32 %r1, %t, 1; call (%r3), sum, (%r1); add.u32 %r6, %r6, %r3;
      alloca.u32 %r8, 1000; stackrestore.u64 %rd10; add.u32 %r5, %r5, 1;
      setp.lt.u32 %p0, %r5, 20; @%p0 bra AGAIN; stacksave.u32 %r7; {store("%r6")}
      cvt.u32.u64 %r9, %rd10; sub.u32 %r7, %r7, %r9; sub.u32 %r8, %r8, %r9;
      {store("%r7", base="%a1")} {store("%r8", base="%a2")}"""
    total, left, taken = both(kernel(body, top), [zeros(40)] * 3, block=40)
    np.testing.assert_array_equal(total, 20 * (LANES * (LANES + 1) // 2))
    assert not left.any() and not taken.any()


def test_recursive_function_with_printf_and_barriers(capsys):
    top = """.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
    .global .b8 form[4] = {37, 117, 10, 0};
    .func (.param .b32 out) f(.param .b32 n) {
      .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .pred %p; .local .align 8 .b32 args[2];
      .param .b64 p0; .param .b64 p1; .param .b32 r; ld.param.u32 %r1, [n];
      mov.u64 %rd1, form; cvta.global.u64 %rd1, %rd1; mov.u64 %rd2, args; cvta.local.u64 %rd3, %rd2;
      bar.sync 0; shfl.sync.idx.b32 %r2, %r1, 3, 31, -1; st.local.u32 [%rd2], %r2;
      mov.u32 %r5, %laneid; setp.ne.u32 %p, %r5, 5; @%p bra NEXT;
      st.param.b64 [p0], %rd1; st.param.b64 [p1], %rd3; call (r), vprintf, (p0, p1);
      NEXT: mov.u32 %r4, 0; setp.eq.u32 %p, %r1, 0; sub.u32 %r3, %r1, 1;
      @!%p call (%r4), f, (%r3); ld.local.u32 %r3, [args]; add.u32 %r3, %r3, %r4;
      st.param.b32 [out], %r3; }"""
    text = kernel(f"mov.u32 %r1, 4; call (%r3), f, (%r1); {store('%r3')}", top)
    (out,) = both(text, [zeros(64)], block=64)
    assert set(out) == {4 + 3 + 2 + 1}
    assert sorted(capsys.readouterr().out.split()) == sorted("43210" * 4)


# --- too deep, too long ---

DEEP = """.func (.param .b32 out) other(.param .b32 n);
.func (.param .b32 out) deep(.param .b32 n) {
  .reg .b32 %r<4>; .reg .pred %p; ld.param.u32 %r1, [n]; setp.eq.u32 %p, %r1, 0; mov.u32 %r3, 0;
  sub.u32 %r2, %r1, 1; @!%p call (%r3), other, (%r2); add.u32 %r3, %r3, %r1;
  st.param.b32 [out], %r3; }
.func (.param .b32 out) other(.param .b32 n) {
  .reg .b32 %r<3>; ld.param.u32 %r1, [n]; call (%r2), deep, (%r1); st.param.b32 [out], %r2; }"""
BELOW = "mul.lo.u32 %r1, %t, 100; call (%r3), deep, (%r1);" + store("%r3")


@pytest.mark.parametrize("how", [{}, {"on_step": lambda step: None}], ids=["compiled", "stepped"])
def test_stack_overflow_names_function_depth_and_line(how):
    message = (
        "deep needs 48 more bytes of a stack of 10000, 250 calls deep: other 125 times, deep 125"
    )
    with pytest.raises(VmFault, match=message) as caught:
        launch(Machine(stack=10_000), kernel(BELOW, DEEP), [zeros()], **how)
    fault = caught.value
    assert (fault.kind, fault.thread) == ("stack overflow", (2, 0, 0))
    assert "call (%r2), deep" in fault.location.text


@pytest.mark.parametrize("how", [{}, {"on_step": lambda step: None}], ids=["compiled", "stepped"])
def test_overwritten_activation_record_is_a_fault(how):
    top = """.func f(.param .b32 n) { .local .align 8 .b64 x; .reg .b64 %rd; mov.u64 %rd, x;
      st.local.b64 [%rd+-8], -1; st.local.b64 [%rd+-16], -1; st.local.b64 [%rd+-24], -1;
      call f, (1); }
      .func g() { .local .b64 x; .reg .b64 %rd; .reg .pred %p; setp.eq.u64 %p, 0, 1; @%p call g;
      mov.u64 %rd, x; st.local.b64 [%rd+-8], -1; ret; }"""
    with pytest.raises(VmFault, match="g can't return") as caught:
        launch(Machine(), kernel("call g;", top), **how)
    assert caught.value.kind == "branch index"
    with pytest.raises(VmFault, match=r"f needs .* 1 calls deep"):
        launch(Machine(), kernel("call f, (1);", top), **how)


def test_a_machine_can_have_a_larger_stack():
    (out,) = launch(Machine(stack=400_000), kernel(BELOW, DEEP), [zeros()])
    n = 100 * LANES[:32]
    np.testing.assert_array_equal(out, n * (n + 1) // 2)
    with pytest.raises(LaunchError, match="bytes of local memory"):
        launch(Machine(stack=1 << 20), kernel(BELOW, DEEP), [zeros()])


def test_alloca_beyond_the_stack():
    text = kernel("mov.u64 %rd1, -8; alloca.u64 %rd2, %rd1;")
    with pytest.raises(VmFault, match="stack overflow: alloca needs"):
        launch(Machine(), text)
    with pytest.raises(
        VmFault, match=r"stackrestore\.u64 to an address at which the stack has not ended"
    ):
        launch(Machine(), kernel("mov.u64 %rd1, 800; stackrestore.u64 %rd1; alloca.u64 %rd2, 8;"))


def chain(length: int, calls: int) -> str:
    """Functions that each name the one before so often, and call it once; each adds 1."""
    head = ".func (.param .b32 out) f{}(.param .b32 a) {{ .reg .b32 %r; .reg .pred %p;"
    head += " ld.param.b32 %r, [a]; setp.eq.u32 %p, %r, 5000;"
    tail = " add.u32 %r, %r, 1; st.param.b32 [out], %r; }"
    last = head.format(0) + tail
    others = (
        head.format(i)
        + f" @%p call (%r), f{i - 1}, (%r);" * (calls - 1)
        + f" call (%r), f{i - 1}, (%r);"
        + tail
        for i in range(1, length)
    )
    return "\n".join([last, *others])


@pytest.mark.parametrize(("length", "calls"), slow_but([(100, 1)], [(40, 2), (9, 5), (100, 1)]))
def test_long_functions_are_not_inlined(length, calls):
    text = kernel(f"call (%r3), f{length - 1}, (%t); {store('%r3')}", chain(length, calls))
    (out,) = launch(Machine(), text, [zeros()])
    np.testing.assert_array_equal(out, LANES[:32] + length)


# --- random programs: whatever lanes call, each ends as if it had run alone ---

OPS = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "xor": lambda a, b: a ^ b}
register = st.integers(0, 2)
assign = st.tuples(st.just("assign"), register, st.sampled_from(list(OPS)), register, register)
calls = st.tuples(st.just("call"), register, st.integers(0, 2), register, register)
simple = st.one_of(assign, assign, calls)
choice = st.tuples(st.just("if"), register, st.lists(simple, max_size=3), st.lists(simple))
loop = st.tuples(st.just("loop"), register, st.lists(simple, max_size=2))
leave = st.tuples(st.just("leave"), register)
bodies = st.lists(st.one_of(simple, simple, choice, loop, leave), min_size=1, max_size=5)
NAMES = {"add": "add.u32", "sub": "sub.u32", "xor": "xor.b32"}


def text_of(body, fresh, table: bool) -> str:
    return " ".join(statement(s, fresh, table) for s in body)


def statement(s, fresh, table: bool) -> str:
    n, kind = next(fresh), s[0]
    if kind == "assign":
        return f"{NAMES[s[2]]} %x{s[1]}, %x{s[3]}, %x{s[4]};"
    if kind == "call":
        callee = f"f{s[2]}"
        there = f"mov.u64 %rd, {callee}; call (%x{s[1]}), %rd, (%less, %x{s[3]}, %x{s[4]}), proto;"
        plain = f"@!%q call (%x{s[1]}), {callee}, (%less, %x{s[3]}, %x{s[4]});"
        return f"@%q bra S{n}; {there} S{n}:" if table else plain
    test = f"and.b32 %y, %x{s[1]}, 1; setp.eq.u32 %p, %y, 0;"
    if kind == "leave":
        return f"{test} @%p bra END;"
    if kind == "loop":
        head = f".reg .b32 %c{n}; and.b32 %c{n}, %x{s[1]}, 1; L{n}:"
        body = text_of(s[2], fresh, table)
        return f"{head} {body} sub.s32 %c{n}, %c{n}, 1; setp.ge.s32 %p, %c{n}, 0; @%p bra L{n};"
    then, other = text_of(s[2], fresh, table), text_of(s[3], fresh, table)
    return f"{test} @%p bra T{n}; {other} bra E{n}; T{n}: {then} E{n}:"


def function(number: int, body, fresh, table: bool) -> str:
    return f""".func (.param .b32 out) f{number}(.param .b32 fuel, .param .b32 a, .param .b32 b) {{
      .reg .b32 %x<3>; .reg .b32 %y, %less; .reg .pred %p, %q; .reg .b64 %rd;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .b32 _, .param .b32 _);
      ld.param.u32 %less, [fuel]; setp.eq.u32 %q, %less, 0; sub.u32 %less, %less, 1;
      ld.param.u32 %x0, [a]; ld.param.u32 %x1, [b]; mov.u32 %x2, {number};
      {text_of(body, fresh, table)} END: st.param.b32 [out], %x0; }}"""


class Left(Exception):
    pass


def interpret(functions, number: int, fuel: int, a: int, b: int) -> int:
    x = [a, b, number]

    def go(body) -> None:
        for s in body:
            if s[0] == "assign":
                x[s[1]] = OPS[s[2]](x[s[3]], x[s[4]]) & FULL
            elif s[0] == "call" and fuel:
                x[s[1]] = interpret(functions, s[2], fuel - 1, x[s[3]], x[s[4]])
            elif s[0] == "leave" and not x[s[1]] & 1:
                raise Left
            elif s[0] == "if":
                go(s[3] if x[s[1]] & 1 else s[2])
            elif s[0] == "loop":
                for _ in range(1 + (x[s[1]] & 1)):
                    go(s[2])

    try:
        go(functions[number])
    except Left:
        pass
    return x[0]


@examples(30, suppress_health_check=list(HealthCheck))
@given(
    st.tuples(bodies, bodies, bodies), st.integers(0, 2**32 - 1), st.integers(0, 3), st.booleans()
)
def test_calls_of_each_lane_equal_those_alone(functions, seed, order, table):
    fresh = count()
    heads = "".join(
        f".func (.param .b32 out) f{i}(.param .b32 u, .param .b32 v, .param .b32 w);\n"
        for i in range(3)
    )
    top = heads + "\n".join(function(i, body, fresh, table) for i, body in enumerate(functions))
    a = np.random.default_rng(seed).integers(0, 2**32, 40, np.uint32)
    body = f"""mad.wide.u32 %rd1, %g, 4, %a1; ld.global.u32 %r1, [%rd1]; and.b32 %r4, %t, 1;
      call (%r3), f0, (%r4, %r1, %t); {store("%r3")}"""
    (out, _) = both(kernel(body, top), [zeros(40), a], block=40, seed=order)
    assert out.tolist() == [interpret(functions, 0, t % 2, int(a[t]), t) for t in range(40)]
