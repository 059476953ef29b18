"""Random programs: whatever way lanes take, each ends as if it had run alone."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from examples import examples
from ptx_kernels.simt import both, kernel, load, store, zeros

pytestmark = pytest.mark.vm

REGISTERS = 4
SIGNS = {"add": "+", "sub": "-", "xor": "^", "and": "&"}
NAMES = {"add": "add.u32", "sub": "sub.u32", "xor": "xor.b32", "and": "and.b32"}
FULL = 0xFFFFFFFF

register = st.integers(0, REGISTERS - 1)
number = st.one_of(st.integers(0, 7), st.just(FULL))
assign = st.tuples(st.just("assign"), register, st.sampled_from(list(SIGNS)), register, number)
guarded = st.tuples(st.just("guarded"), register, st.integers(1, 3), assign)
leave = st.tuples(st.just("leave"), register)
ballot = st.tuples(st.just("meet"))
simple = st.one_of(assign, assign, guarded)


def nested(body):
    bodies = st.lists(body, min_size=1, max_size=4)
    choice = st.tuples(st.just("if"), register, st.integers(1, 3), bodies, bodies)
    loop = st.tuples(st.just("loop"), register, st.integers(0, 3), bodies)
    return st.one_of(simple, choice, loop)


statements = st.recursive(simple, nested, max_leaves=12)
programs = st.lists(st.one_of(statements, statements, leave, ballot), min_size=2, max_size=6)


def text_of(body, fresh) -> str:
    return "\n".join(statement(s, fresh) for s in body)


def statement(s, fresh) -> str:
    n, kind = next(fresh), s[0]
    test = f"and.b32 %r20, %x{s[1]}, {s[2]}; setp.eq.u32 %p0, %r20, 0;" if len(s) > 2 else ""
    if kind == "assign":
        return f"{NAMES[s[2]]} %x{s[1]}, %x{s[3]}, {s[4]};"
    if kind == "guarded":
        return f"{test} @%p0 {statement(s[3], fresh)}"
    if kind == "if":
        then, other = text_of(s[3], fresh), text_of(s[4], fresh)
        return f"{test} @%p0 bra T{n};\n{other}\nbra E{n};\nT{n}:\n{then}\nE{n}:"
    if kind == "loop":
        head = f"and.b32 %c{n}, %x{s[1]}, {s[2]}; L{n}: setp.eq.u32 %p0, %c{n}, 0; @%p0 bra E{n};"
        body = text_of(s[3], fresh)
        return f".reg .b32 %c{n}; {head}\n{body}\nsub.u32 %c{n}, %c{n}, 1; bra L{n};\nE{n}:"
    if kind == "leave":
        return f"and.b32 %r20, %x{s[1]}, 7; setp.eq.u32 %p0, %r20, 5; @%p0 bra END;"
    return "setp.eq.u32 %p0, %t, %t; vote.sync.any.pred %p1, %p0, 0xFFFFFFFF; @!%p1 trap;"


class Left(Exception):
    pass


def interpret(body, x) -> None:
    for s in body:
        kind = s[0]
        holds = len(s) > 2 and x[s[1]] & s[2] == 0 if kind in ("if", "guarded") else False
        if kind == "assign":
            x[s[1]] = eval(f"{x[s[3]]} {SIGNS[s[2]]} {s[4]}") & FULL
        elif kind == "guarded":
            interpret([s[3]] if holds else [], x)
        elif kind == "if":
            interpret(s[3] if holds else s[4], x)
        elif kind == "loop":
            for _ in range(x[s[1]] & s[2]):
                interpret(s[3], x)
        elif kind == "leave" and x[s[1]] & 7 == 5:
            raise Left


@examples(40, suppress_health_check=list(HealthCheck))
@given(programs, st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_each_lane_computes_what_it_computes_alone(program, seed, order):
    given_ = np.random.default_rng(seed).integers(0, 2**32, (REGISTERS, 40), np.uint32)
    body = ".reg .b32 %x<4>;" + "".join(load(f"%x{i}", base=f"%a{1 + i}") for i in range(4))
    body += text_of(program, count()) + "\nEND:\n"
    body += "xor.b32 %r21, %x0, %x1; mad.lo.u32 %r21, %r21, 31, %x2; xor.b32 %r21, %r21, %x3;"
    (out, *_) = both(kernel(body + store("%r21")), [zeros(40), *given_], block=40, seed=order)
    for lane in range(40):
        x = [int(v) for v in given_[:, lane]]
        try:
            interpret(program, x)
        except Left:
            pass
        assert out[lane] == ((((x[0] ^ x[1]) * 31 + x[2]) & FULL) ^ x[3])
