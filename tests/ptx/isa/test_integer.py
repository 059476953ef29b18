"""Integer and bit instructions do what the PTX manual says, spelled out with Python integers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from machine import Machine, one, run

pytestmark = pytest.mark.vm

LIGHT = settings(max_examples=15, deadline=None)
EDGES = [0, 1, 2, 31, 32, 33, 63, 64, 255, 0x7F, 0x80, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF]


def words(bits: int = 32):
    """32 lanes of random words, edges among them."""
    word = st.one_of(st.sampled_from(EDGES), st.integers(0, (1 << bits) - 1))
    return st.lists(word.map(lambda x: x & ((1 << bits) - 1)), min_size=32, max_size=32)


def s(x: int, bits: int = 32) -> int:
    return x - ((x >> (bits - 1) & 1) << bits)


def check(opcode: str, reference, *operands, bits: int = 32) -> None:
    expected = [reference(*lane) & ((1 << bits) - 1) for lane in zip(*operands, strict=True)]
    assert run(opcode, *map(list, operands)) == expected


def clamp(x: int) -> int:
    return max(-(1 << 31), min((1 << 31) - 1, x))


def cut(x: int, signed: bool) -> int:
    return s(x & 0xFFFFFF, 24) if signed else x & 0xFFFFFF


@LIGHT
@given(words(), words(), words())
def test_products_sums_and_saturation(a, b, c):
    check("add.sat.s32", lambda x, y: clamp(s(x) + s(y)), a, b)
    check("sub.sat.s32", lambda x, y: clamp(s(x) - s(y)), a, b)
    check("mul.hi.s32", lambda x, y: s(x) * s(y) >> 32, a, b)
    check("mul.wide.s32", lambda x, y: s(x) * s(y), a, b, bits=64)
    check("mad.hi.sat.s32", lambda x, y, z: clamp((s(x) * s(y) >> 32) + s(z)), a, b, c)
    check("mul24.hi.s32", lambda x, y: cut(x, True) * cut(y, True) >> 16, a, b)
    check("mad24.lo.u32", lambda x, y, z: cut(x, False) * cut(y, False) + z, a, b, c)
    check("sad.s32", lambda x, y, z: z + abs(s(x) - s(y)), a, b, c)
    check("abs.s32", lambda x: abs(s(x)), a)
    check("max.relu.s32", lambda x, y: max(0, s(x), s(y)), a, b)


@LIGHT
@given(words(), words())
def test_halves_are_worked_by_themselves(a, b):
    def halves(fn):
        return lambda x, y: (
            fn(x & 0xFFFF, y & 0xFFFF) & 0xFFFF | (fn(x >> 16, y >> 16) & 0xFFFF) << 16
        )

    check("add.u16x2", halves(lambda x, y: x + y), a, b)
    check("min.s16x2", halves(lambda x, y: min(s(x, 16), s(y, 16))), a, b)
    check("max.u16x2", halves(max), a, b)


@LIGHT
@given(words(64), words(64))
def test_a_carry_chain_adds_and_subtracts_128_bits(a, b):
    m = Machine()
    low = run("add.cc.u64", a, b, machine=m)
    high = run("addc.u64", b, a, machine=m)
    wide = [x + (y << 64) + y + (x << 64) for x, y in zip(a, b, strict=True)]
    assert [x | y << 64 for x, y in zip(low, high, strict=True)] == [w % (1 << 128) for w in wide]
    low = run("sub.cc.u64", a, b, machine=m)
    middle = run("subc.cc.u64", b, a, machine=m)
    high = run("subc.u64", a, b, machine=m)
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        left, right = x | y << 64 | x << 128, y | x << 64 | y << 128
        assert low[i] | middle[i] << 64 | high[i] << 128 == (left - right) % (1 << 192)


@LIGHT
@given(words(), words(), words(), words())
def test_mad_with_carry_multiplies_64_bits(a0, a1, b0, b1):
    """The manual's own example: [r3,r2,r1,r0] = [a1,a0] × [b1,b0]."""
    m = Machine()

    def step(opcode, *operands):
        return run(opcode, *operands, machine=m)

    r0, r1 = step("mul.lo.u32", a0, b0), step("mul.hi.u32", a0, b0)
    r1 = step("mad.lo.cc.u32", a1, b0, r1)
    r2 = step("madc.hi.u32", a1, b0, [0])
    r1 = step("mad.lo.cc.u32", a0, b1, r1)
    r2 = step("madc.hi.cc.u32", a0, b1, r2)
    r3 = step("addc.u32", [0], [0])
    r2 = step("mad.lo.cc.u32", a1, b1, r2)
    r3 = step("madc.hi.u32", a1, b1, r3)
    for i in range(32):
        product = (a1[i] << 32 | a0[i]) * (b1[i] << 32 | b0[i])
        assert product == r0[i] | r1[i] << 32 | r2[i] << 64 | r3[i] << 96


def bfe(a: int, pos: int, length: int, signed: bool, width: int = 32) -> int:
    if width == 32:
        pos, length = pos & 255, length & 255
    top = width - 1
    sign = a >> min(pos + length - 1, top) & 1 if signed and length else 0
    bits = [(a >> (pos + i) & 1) if i < length and pos + i <= top else sign for i in range(width)]
    return sum(bit << i for i, bit in enumerate(bits))


def bfi(a: int, b: int, pos: int, length: int, width: int = 32) -> int:
    if width == 32:
        pos, length = pos & 255, length & 255
    for i in range(min(length, width)):
        if pos + i < width:
            b = b & ~(1 << pos + i) | (a >> i & 1) << pos + i
    return b


small = st.lists(st.integers(0, 40), min_size=32, max_size=32)


@LIGHT
@given(words(), words(), small, small)
def test_fields(a, b, pos, length):
    check("bfe.u32", lambda x, p, n: bfe(x, p, n, False), a, pos, length)
    check("bfe.s32", lambda x, p, n: bfe(x, p, n, True), a, pos, length)
    check("bfe.s32", lambda x, p, n: bfe(x, p, n, True), a, b, length)
    check("bfi.b32", bfi, a, b, pos, length)
    check("bfi.b32", bfi, a, b, b, length)
    check("bfi.b32", bfi, a, b, pos, b)
    for mode in ("clamp", "wrap"):
        check(f"szext.{mode}.s32", lambda x, n, m=mode: szext(x, n, m, True), a, length)
        check(f"szext.{mode}.u32", lambda x, n, m=mode: szext(x, n, m, False), a, length)
        check(f"bmsk.{mode}.b32", lambda p, n, m=mode: bmsk(p, n, m), pos, length)


@LIGHT
@given(words(64), words(64), small, small, words())
def test_fields_of_64_bits_have_counts_of_32(a, b, pos, length, count):
    for p, n in ((pos, length), (count, length), (pos, count)):
        check("bfe.u64", lambda x, p, n: bfe(x, p, n, False, 64), a, p, n, bits=64)
        check("bfe.s64", lambda x, p, n: bfe(x, p, n, True, 64), a, p, n, bits=64)
        check("bfi.b64", lambda x, y, p, n: bfi(x, y, p, n, 64), a, b, p, n, bits=64)


@LIGHT
@given(words(64), words(64))
def test_a_remainder_by_zero_is_all_ones(a, b):
    b[::2] = [0] * 16
    for bits in (16, 32, 64):
        x, y = ([n % (1 << bits) for n in lanes] for lanes in (a, b))
        check(f"rem.u{bits}", lambda p, q: p % q if q else -1, x, y, bits=bits)
        check(f"rem.s{bits}", lambda p, q, w=bits: remainder(s(p, w), s(q, w)), x, y, bits=bits)


def remainder(a: int, b: int) -> int:
    """With the sign of ``a``."""
    return (abs(a) % abs(b)) * (-1 if a < 0 else 1) if b else -1


def szext(a: int, n: int, mode: str, signed: bool) -> int:
    n = n & 31 if mode == "wrap" else n
    if n >= 32:
        return a
    low = a & ((1 << n) - 1)
    return s(low, n) if signed and n else low


def bmsk(pos: int, n: int, mode: str) -> int:
    if mode == "wrap":
        pos, n = pos & 31, n & 31
    return ((1 << n) - 1) << pos


def fns(mask: int, base: int, offset: int) -> int:
    if offset == -(1 << 31):
        return 0
    if offset == 0:
        return base if mask >> base & 1 else -1
    inside = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [p for p in inside if mask >> p & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else -1


def bfind(a: int, signed: bool, shift: bool) -> int:
    a = ~a & 0xFFFFFFFF if signed and a >> 31 else a
    if not a:
        return -1
    return 31 - (a.bit_length() - 1) if shift else a.bit_length() - 1


@LIGHT
@given(words(), st.integers(0, 31), st.integers(-6, 6))
def test_finding_bits(a, base, offset):
    check("fns.b32", fns, a, [base] * 32, [offset] * 32)
    check("fns.b32", fns, a, [base] * 32, [-(1 << 31)] * 32)
    check("bfind.u32", lambda x: bfind(x, False, False), a)
    check("bfind.shiftamt.s32", lambda x: bfind(x, True, True), a)
    check("popc.b32", int.bit_count, a)
    check("clz.b32", lambda x: 32 - x.bit_length(), a)
    check("brev.b32", lambda x: int(f"{x:032b}"[::-1], 2), a)


@LIGHT
@given(words(), words(), words(), st.integers(0, 255))
def test_lop3_is_its_truth_table(a, b, c, table):
    def bit(x, y, z):
        return sum(
            (table >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i
            for i in range(32)
        )

    expected = [bit(*lane) for lane in zip(a, b, c, strict=True)]
    assert run("lop3.b32", a, b, c, table) == expected


def prmt(a: int, b: int, c: int) -> int:
    eight, made = (a | b << 32).to_bytes(8, "little"), 0
    for i in range(4):
        nibble = c >> 4 * i & 15
        byte = eight[nibble & 7]
        made |= (byte if nibble < 8 else 0xFF * (byte >> 7)) << 8 * i
    return made


@LIGHT
@given(words(), words(), words())
def test_prmt_and_funnel_shifts(a, b, c):
    check("prmt.b32", prmt, a, b, c)
    check("shf.l.wrap.b32", lambda x, y, n: (y << 32 | x) << (n & 31) >> 32, a, b, c)
    check("shf.r.clamp.b32", lambda x, y, n: (y << 32 | x) >> min(n, 32), a, b, c)
    check("shl.b32", lambda x, n: x << n if n < 32 else 0, a, c)
    check("shr.s32", lambda x, n: s(x) >> min(n, 31), a, c)
    check("shr.u32", lambda x, n: x >> min(n, 32), a, c)


def test_prmt_modes_pick_the_manuals_bytes():
    a, b = 0x03020100, 0x87868584  # byte i is i; those of b have their sign set
    for mode, picks in {
        "f4e": (0x03020100, 0x84030201, 0x85840302, 0x86858403),
        "b4e": (0x85868700, 0x86870001, 0x87000102, 0x00010203),
        "rc8": (0x00000000, 0x01010101, 0x02020202, 0x03030303),
        "ecl": (0x03020100, 0x03020101, 0x03020202, 0x03030303),
        "ecr": (0x00000000, 0x01010100, 0x02020100, 0x03020100),
        "rc16": (0x01000100, 0x03020302, 0x01000100, 0x03020302),
    }.items():
        assert [one(f"prmt.b32.{mode}", a, b, c) for c in range(4)] == list(picks), mode


def split(x: int, bits: int, signed: bool) -> list[int]:
    parts = [x >> i & ((1 << bits) - 1) for i in range(0, 32, bits)]
    return [s(p, bits) for p in parts] if signed else parts


@LIGHT
@given(words(), words(), words())
def test_dot_products(a, b, c):
    def dot4(x, y, z):
        return z + sum(p * q for p, q in zip(split(x, 8, True), split(y, 8, False), strict=True))

    def dot2(x, y, z):
        return z + sum(
            p * q for p, q in zip(split(x, 16, False), split(y, 8, True)[2:], strict=True)
        )

    def distances(x, y, z):
        pairs = zip(split(x, 8, False), split(y, 8, False), strict=True)
        return sum(abs(p - q) << 8 * i for i, (p, q) in enumerate(pairs))

    check("dp4a.s32.u32", dot4, a, b, c)
    check("dp2a.hi.u32.s32", dot2, a, b, c)
    check("vabsdiff4.u32.u32.u32", distances, a, b, c)
