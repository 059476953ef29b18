"""Atomics against NumPy: every operation and type, global, shared and generic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from ptx_kernels.simt import at, both, kernel, load, zeros
from rows import every_row

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(11)
LANES, CELLS = 32, 5
WIDE = {"shared": ".shared .align 8 .b64 cells[8];"}


def u(x, bits):
    return int(x) & ((1 << bits) - 1)


INTEGER = {
    "add": lambda old, b: old + b,
    "min": min,
    "max": max,
    "and": lambda old, b: old & b,
    "or": lambda old, b: old | b,
    "xor": lambda old, b: old ^ b,
    "exch": lambda old, b: b,
    "inc": lambda old, b: 0 if old >= b else old + 1,
    "dec": lambda old, b: b if old == 0 or old > b else old - 1,
}
FORMS = [
    *(f"{op}.{t}" for op in ("add", "min", "max") for t in ("u32", "s32", "u64")),
    "min.s64", "max.s64",
    *(f"{op}.{t}" for op in ("and", "or", "xor", "exch") for t in ("b32", "b64")),
    "inc.u32", "dec.u32",
]  # fmt: skip


def program(form: str, space: str, register: str, tail: str = "") -> str:
    """Thread g executes one atomic on cell g mod 5; old values go to %a0, the cells to %a2."""
    type_ = form.split(".")[-1]
    size = {"16": 2, "64": 8, "b128": 16}.get(type_.lstrip("busf"), 4)
    bits = f"b{8 * size}"
    word = space or "generic"
    base = {"global": "mov.u64 %rd0, %a2;", "shared": "mov.u64 %rd0, cells;",
            "generic": "mov.u64 %rd0, cells; cvta.shared.u64 %rd0, %rd0;"}[word]  # fmt: skip
    where = f".{space}" if space else ""
    fill = copy = ""
    if word != "global":
        fill = f"""setp.lt.u32 %p0, %t, {CELLS}; mad.wide.u32 %rd41, %t, {size}, %a2;
          mad.wide.u32 %rd42, %t, {size}, %rd0; @%p0 ld.global.{bits} {register}9, [%rd41];
          @%p0 st{where}.{bits} [%rd42], {register}9; bar.sync 0;"""
        copy = f"""bar.sync 0; @%p0 ld{where}.{bits} {register}9, [%rd42];
          @%p0 st.global.{bits} [%rd41], {register}9;"""
    return kernel(
        f"""{base} {fill} {load(f"{register}2", bits)} rem.u32 %r3, %t, {CELLS};
        {at("%rd0", "%r3", size, "%rd4")} {tail}
        atom{where}.{form} {register}4, [%rd4], {register}2{", %c" if "cas" in form else ""};
        {at("%a0", "%t", size, "%rd5")} st.global.{bits} [%rd5], {register}4; {copy}""",
        WIDE["shared"],
    )


def replay(act, cells, operands):
    """Apply the operation lane by lane, in ascending order."""
    cells, old = cells.copy(), operands.copy()
    for t, b in enumerate(operands):
        old[t] = cells[t % CELLS]
        cells[t % CELLS] = act(cells[t % CELLS], b)
    return cells, old


@every_row("space", ["global", "shared", ""], parts=4)
@every_row("form", FORMS)
def test_integers(form, space):
    op, type_ = form.split(".")
    bits = int(type_[1:])
    dtype = np.dtype(f"{'i' if type_[0] == 's' else 'u'}{bits // 8}")
    operands = RNG.integers(0, 2**bits, LANES, f"u{bits // 8}").view(dtype)
    cells = RNG.integers(0, 2**bits, CELLS, f"u{bits // 8}").view(dtype)
    if op in ("inc", "dec"):
        operands, cells = operands % 7, cells % 9

    def act(old, b):
        return np.array(u(INTEGER[op](int(old), int(b)), bits), f"u{bits // 8}").view(dtype)

    text = program(form, space, "%r" if bits == 32 else "%rd")
    old, _, after = both(text, [np.zeros_like(operands), operands, cells], block=LANES)
    expected = replay(act, cells, operands)
    np.testing.assert_array_equal(after, expected[0])
    np.testing.assert_array_equal(old, expected[1])


@every_row("space", ["global", "shared", ""], parts=3)
@every_row(
    ("type_", "dtype"),
    [("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)],
)
def test_floating_point_add(type_, dtype, space):
    form = f"add.{'noftz.' if '16' in type_ else ''}{type_}"
    register = {2: "%h", 4: "%f", 8: "%fd"}[np.dtype(dtype).itemsize]
    operands = RNG.standard_normal(LANES).astype(dtype)
    cells = RNG.standard_normal(CELLS).astype(dtype)
    text = program(form, space, register).replace("b32 %f", "f32 %f").replace("b64 %fd", "f64 %fd")
    old, _, after = both(text, [np.zeros_like(operands), operands, cells], block=LANES)
    expected = replay(lambda x, y: x + y, cells, operands)
    np.testing.assert_array_equal(after, expected[0])
    np.testing.assert_array_equal(old, expected[1])


@pytest.mark.parametrize(("type_", "dtype"), [("f16x2", "f2"), ("bf16x2", ml_dtypes.bfloat16)])
def test_packed_add(type_, dtype):
    operands = RNG.standard_normal(2 * LANES).astype(dtype)
    cells = RNG.standard_normal(2 * CELLS).astype(dtype)
    text = program(f"add.noftz.{type_}", "global", "%r")
    arguments = [np.zeros(LANES, "u4"), operands.view("u4"), cells.view("u4")]
    _, _, after = both(text, arguments, block=LANES)
    for half in (0, 1):
        expected, _ = replay(lambda x, y: x + y, cells[half::2], operands[half::2])
        np.testing.assert_array_equal(after.view(dtype)[half::2], expected)


VECTORS = [
    *(f"add.v{n}.f32" for n in (2, 4)),
    *(
        f"{op}.noftz.v{n}.{t}"
        for op, n, t in (("add", 2, "f16"), ("min", 8, "f16"), ("max", 4, "bf16"))
    ),
    *(f"{op}.noftz.v{n}.{t}x2" for op, n, t in (("add", 4, "bf16"), ("max", 2, "f16"))),
]


@every_row("space", [".global", ""], parts=3)
@every_row("form", VECTORS)
def test_vector_reductions_combine_elements(form, space):
    op, *_, vec, type_ = form.split(".")
    length, register = int(vec[1:]), {"f32": "%f", "f16": "%h", "bf16": "%h"}.get(type_, "%r")
    dtype = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[
        type_.removesuffix("x2")
    ]
    each = length * (2 if "x2" in type_ else 1)
    operands, cells = (RNG.standard_normal((n, each)).astype(dtype) for n in (LANES, CELLS))
    bits = {"%f": "f32", "%h": "b16", "%r": "b32"}[register]
    size = each * operands.itemsize
    first = size // length
    b, d = ([f"{register}{i + start}" for i in range(length)] for start in (1, 20))
    body = f"""{at("%a1", "%t", size, "%rd1")} {at("%a0", "%t", size, "%rd0")}
      rem.u32 %r63, %t, {CELLS}; {at("%a2", "%r63", size, "%rd2")}
      {"".join(f"ld.global.{bits} {r}, [%rd1+{first * i}];" for i, r in enumerate(b))}
      atom{space}.{form} {{{", ".join(d)}}}, [%rd2], {{{", ".join(b)}}};
      {"".join(f"st.global.{bits} [%rd0+{first * i}], {r};" for i, r in enumerate(d))}"""
    old, _, after = both(kernel(body), [np.zeros_like(operands), operands, cells], block=LANES)
    act = {"add": np.add, "min": np.minimum, "max": np.maximum}[op]
    expected = replay(act, cells, operands)
    np.testing.assert_array_equal(after, expected[0])
    np.testing.assert_array_equal(old, expected[1])
    reduced = body.replace("atom", "red").replace(f"{{{', '.join(d)}}}, [%rd2]", "[%rd2]")
    _, _, after = both(kernel(reduced), [np.zeros_like(operands), operands, cells], block=LANES)
    np.testing.assert_array_equal(after, expected[0])


def test_f32_add_flushes_subnormals_in_global_memory_only():
    """PTX manual, ``atom``: in global memory the sum of two subnormals is zero."""
    tiny = np.full(LANES, 3, np.uint32)
    for space, expected in (("global", 0), ("shared", 2), ("", 2)):
        text = program("add.f32", space, "%f").replace("b32 %f", "f32 %f")
        cells = np.array([0x80000001, *[0] * (CELLS - 1)], np.uint32)
        _, _, after = both(text, [zeros(LANES), tiny, cells], block=1)
        assert after[0] == expected
    generic = kernel("mov.u32 %r2, 3; mov.b32 %f0, %r2; atom.add.f32 %f1, [%a0], %f0;")
    (after,) = both(generic, [np.array([0x00800000], np.uint32)], block=1)
    assert after == 0x00800000


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize("space", ["global", "shared"])
def test_compare_and_swap(bits, space):
    register = {16: "%h", 32: "%r", 64: "%rd"}[bits]
    dtype = np.dtype(f"u{bits // 8}")
    operands = RNG.integers(0, 3, LANES).astype(dtype)
    tail = f".reg .b{bits} %c; cvt.u{bits}.u32 %c, %t; rem.u{bits} %c, %c, 3;"
    text = program(f"cas.b{bits}", space, register, tail)
    cells = RNG.integers(0, 3, CELLS).astype(dtype)
    old, _, after = both(text, [np.zeros_like(operands), operands, cells], block=LANES)
    expected, seen = cells.copy(), operands.copy()
    for t, b in enumerate(operands):
        seen[t] = expected[t % CELLS]
        if seen[t] == b:
            expected[t % CELLS] = t % 3
    np.testing.assert_array_equal(after, expected)
    np.testing.assert_array_equal(old, seen)


def test_128_bit_compare_and_swap():
    text = kernel("""
      .reg .b128 %q<4>; mul.wide.u32 %rd0, %t, 7; mov.b128 %q0, {%rd0, %rd0};
      mov.u64 %rd1, 0; mov.b128 %q1, {%rd1, %rd1}; setp.eq.u32 %p0, %t, 3;
      @%p0 atom.global.cas.b128 %q2, [%a0], %q1, %q0; setp.eq.u32 %p1, %t, 5;
      @%p1 atom.global.exch.b128 %q3, [%a0+16], %q0;
      @%p1 mov.b128 {%rd2, %rd3}, %q3; @%p1 st.global.v2.u64 [%a0+32], {%rd2, %rd3};""")
    arguments = np.array([0, 0, 8, 9, 0, 0], np.uint64)
    (out,) = both(text, [arguments])
    assert out.tolist() == [21, 21, 35, 35, 8, 9]


def test_red_has_no_result():
    text = kernel("""
      red.global.add.u32 [%a0], %t; red.global.max.s32 [%a0+4], %t; red.global.xor.b32 [%a0+8], 1;
      red.shared.add.u32 [s], 1; bar.sync 0;
      ld.shared.u32 %r2, [s]; st.global.u32 [%a0+12], %r2;""",
      ".shared .b32 s;")  # fmt: skip
    (out,) = both(text, [zeros(4)], block=65)
    assert out.tolist() == [sum(range(65)), 64, 1, 64]  # s began as all ones
