"""Prints and assertions on the virtual machine: C's text, one order, typed faults."""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from ptx_kernels.simt import kernel, launch, zeros
from tilewright.builder import f32, ptr, u32
from tilewright.errors import PtxCheckError, PtxError, VmFault
from tilewright.ptx.printf_format import FLOAT, argument_types, parse_format
from tilewright.vm import Machine
from tilewright.vm.launch.print_buffer import LIMIT
from tilewright.vm.launch.printf import render

pytestmark = pytest.mark.vm

STEPPED = [pytest.param(None, id="compiled"), pytest.param(lambda s: None, id="stepped")]
NVCC = (Path(__file__).parents[2] / "data" / "ptx" / "prints.ptx").read_text()

# --- a conversion is C's ---

GLIBC = sys.platform == "linux" and struct.calcsize("P") == 8
FLAGS = st.lists(st.sampled_from("-+ #0"), max_size=3, unique=True).map("".join)
NUMBER = st.sampled_from(["", "0", "1", "3", "7", "13", "20", "40"])
LENGTH = st.sampled_from(["", "hh", "h", "l", "ll", "z"])
SPECIAL = st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.5, 1e308, 5e-324, 9.9999995, 1.9999999])


@st.composite
def conversions(draw):
    letter = draw(st.sampled_from("diouxXcspeEfFgGaA"))
    width = draw(NUMBER).replace("0", "")
    precision = draw(st.none() | NUMBER)
    length = draw(LENGTH) if letter in "diouxX" else ""
    dot = "" if precision is None else f".{precision}"
    return f"<%{draw(FLAGS)}{width}{dot}{length}{letter}>".encode(), letter


@pytest.mark.skipif(not GLIBC, reason="another C library")
@given(conversions(), st.integers(0, 2**64 - 1), st.floats() | SPECIAL)
def test_conversion_equals_the_c_library(made, integer, real):
    format_, letter = made
    (type_,) = argument_types(parse_format(format_))
    if letter in FLOAT:
        given_, (bits,) = ctypes.c_double(real), struct.unpack("<Q", struct.pack("<d", real))
    elif letter == "s":
        given_, bits = ctypes.c_char_p(b"hello"), 1
    else:
        bits = integer % 2 ** int(type_[1:])
        given_ = (ctypes.c_uint32 if type_ == "b32" else ctypes.c_uint64)(bits)
    buffer = ctypes.create_string_buffer(1000)
    size = ctypes.CDLL(None).snprintf(buffer, ctypes.c_size_t(1000), format_, given_)
    mine = render(
        parse_format(format_), [bits], lambda _, most: b"hello"[: None if most < 0 else most]
    )
    assert mine == buffer.raw[:size]


def test_a_width_that_is_an_argument():
    found = parse_format(b"%*d|%-*d|%.*f|%*d|")
    values = [5, 1, 5, 2, 1, 0x3FF4000000000000, 2**32 - 4, 3]
    assert render(found, values, lambda a, m: b"") == b"    1|2    |1.2|3   |"
    assert render(parse_format(b"%s %.3s|%p"), [0, 0, 0], lambda a, m: b"") == b"(null) |(nil)"


# --- kernels ---


def prints(capsys, *args, **shape) -> list[str]:
    capsys.readouterr()
    launch(*args, **shape)
    return capsys.readouterr().out.splitlines()


def vprintf(format_: str, arguments: str = "0", *, local: str = "") -> str:
    """A call with registers; ``local`` lays the arguments out from %rd10 on."""
    return f"""
      mov.u64 %rd10, depot; cvta.local.u64 %rd11, %rd10; {local}
      mov.u64 %rd12, {format_}; cvta.global.u64 %rd12, %rd12;
      call.uni (%r20), vprintf, (%rd12, {arguments});"""


TOP = """
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.global .b8 number[4] = {37, 117, 10};
.global .b8 padded[8] = {37, 49, 48, 48, 48, 117, 10};
.global .b8 broken[4] = {37, 121, 10};
.global .b8 whose[8] = {37, 117, 32, 37, 115, 10};
.global .b8 unended[4] = {65, 65, 65, 65};
"""
DEPOT = ".local .align 8 .b8 depot[16];"


def printing(body: str) -> str:
    return kernel(DEPOT + body, TOP)


@pytest.mark.parametrize("on_step", STEPPED)
def test_printf_as_compiled_by_nvcc(capsys, on_step):
    machine = Machine()
    machine.load(NVCC)
    x, out = np.arange(8, dtype=np.float32) / 4, np.zeros(8, np.int32)
    places = machine.upload(x), machine.upload(out)
    args = [places[0], 8, np.int16(-3), np.uint8(65), places[1]]
    machine.launch("prints", 2, 4, args, on_step=on_step)
    made = capsys.readouterr().out.splitlines(keepends=True)
    lines = [f"{i:2d}: {x[i]:f} -3 A {1 << i} text {x[i] * 1e10:5.2e}%\n" for i in range(8)]
    text = "no arguments\n"
    assert made == [*lines[:4], text, *lines[4:], text, text]
    assert machine.download(places[1], out).tolist() == [7] * 8


@pytest.mark.parametrize("on_step", STEPPED)
def test_assertion_message_equals_the_gpus(capsys, on_step):
    machine = Machine()
    machine.load(NVCC)
    x, out = machine.upload(np.zeros(64, np.float32)), machine.alloc(256)
    with pytest.raises(VmFault) as caught:
        machine.launch("prints", (2, 1, 1), (32, 1, 1), [x, 37, 0, 0, out], on_step=on_step)
    error = caught.value
    assert (error.kind, error.block, error.thread) == ("assertion", (1, 0, 0), (5, 0, 0))
    name = "void prints(const float *, int, short, char, int *)"
    assert str(error) == (
        f"prints.cu:10: {name}: block: [1,0,0], thread: [5,0,0] Assertion `i < n` failed."
    )
    assert capsys.readouterr().out.count("\n") == 64 + 21  # all that came before it


@pytest.mark.parametrize("on_step", STEPPED)
def test_only_the_lanes_that_call_print(capsys, on_step):
    store = "st.local.u32 [%rd10], %t;"
    guarded = vprintf("number", "%rd11", local=store).replace("call.uni", "@%p0 call")
    text = printing(f"""
      setp.lt.u32 %p1, %t, 9; @!%p1 bra END; and.b32 %r2, %t, 1; setp.eq.u32 %p0, %r2, 1;
      mov.u32 %r20, 7; {guarded} st.global.u32 [%a0], %r20; setp.gt.u32 %p0, %t, 99;
      {guarded} END:""")
    lines = prints(capsys, Machine(), text, [zeros()], on_step=on_step)
    assert lines == ["1", "3", "5", "7"]


def test_strings_come_from_any_memory(capsys):
    text = printing(f"""
      .shared .b8 word[4]; .local .b8 own[4];
      st.shared.b32 [word], 0x00696873; add.u32 %r2, %t, 65; st.local.b32 [own], %r2;
      setp.eq.u32 %p0, %t, 0; mov.u64 %rd0, word; cvta.shared.u64 %rd0, %rd0;
      mov.u64 %rd1, own; cvta.local.u64 %rd1, %rd1; selp.b64 %rd0, %rd0, %rd1, %p0;
      {vprintf("whose", "%rd11", local="st.local.u32 [%rd10], %t; st.local.u64 [%rd10+8], %rd0;")}
    """)
    assert prints(capsys, Machine(), text, block=3) == ["0 shi", "1 B", "2 C"]


CTAS = vprintf("number", "%rd11", local="st.local.u32 [%rd10], %g;")


def test_the_order_is_the_same_on_any_number_of_cores(capsys):
    """CTAs that end early come after those before them all the same."""
    text = printing(f"""
      sub.u32 %r2, 300, %r0; L: sub.u32 %r2, %r2, 1; setp.gt.s32 %p0, %r2, 0; @%p0 bra L;
      {CTAS}""")
    made = [prints(capsys, Machine(threads=n), text, grid=200, block=2) for n in (1, 2, 3)]
    assert made[0] == made[1] == made[2] == [str(i) for i in range(400)]


def test_what_was_printed_before_a_fault_is_shown(capsys):
    text = printing(f"{CTAS} setp.eq.u32 %p0, %r0, 5; @%p0 trap;")
    for threads in (1, 3):
        with pytest.raises(VmFault, match="trap"):
            launch(Machine(threads=threads), text, grid=50, block=1)
        assert capsys.readouterr().out.splitlines() == [str(i) for i in range(6)]


def test_print_buffer_keeps_the_last_mebibyte(capsys):
    say = CTAS.replace("number", "padded")
    text = printing(f"mov.u32 %r30, 0; L: {say} add.u32 %r30, %r30, 1; "
                    "setp.lt.u32 %p0, %r30, 40; @%p0 bra L;")  # fmt: skip
    made = []
    for threads in (1, 2):
        launch(Machine(threads=threads), text, grid=2, block=32)
        made.append(capsys.readouterr().out)
    note, _, rest = made[0].partition("\n")
    total = [f"{i:1000}\n" for cta in (0, 32) for _ in range(40) for i in range(cta, cta + 32)]
    assert made[0] == made[1]
    assert LIMIT - 1001 < len(rest) <= LIMIT and "".join(total).endswith(rest)
    lost = len(total) - rest.count("\n")
    assert note == f"… {lost} older prints are lost: a launch keeps the last {LIMIT} bytes"


def test_stopped_launch_shows_its_output(capsys):
    class Enough(Exception):
        pass

    def watch(done, ctas):
        raise Enough

    machine = Machine()
    machine.load(printing(f"L: {CTAS} bra L;"))
    with pytest.raises(Enough):
        machine.launch("k", 1, 1, [0] * 10, watch=watch)
    assert set(capsys.readouterr().out.splitlines()[1:]) <= {"0"}


@pytest.mark.parametrize("on_step", STEPPED)
@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (vprintf("number"), "out of bounds", "call.uni at 0x0"),
        (vprintf("number", "%rd0", local="add.u64 %rd0, %rd11, 2;"), "misaligned", "call.uni at"),
        (vprintf("broken", "%rd11"), "printf format", "invalid conversion '%y"),
        (vprintf("unended"), "out of bounds", "0 bytes past the allocation of 4 bytes"),
        (vprintf("whose", "%rd11", local="st.local.u64 [%rd10+8], 8;"), "out of bounds", "0x8"),
    ],
)
def test_invalid_printf_arguments(capsys, body, kind, message, on_step):
    with pytest.raises(VmFault) as caught:
        launch(Machine(), printing(body), on_step=on_step, block=(4, 2))
    assert caught.value.kind == kind and message in caught.value.message
    assert caught.value.thread == (0, 0, 0)
    assert caught.value.location is not None and "vprintf" in caught.value.location.text
    assert capsys.readouterr().out == ""


def test_a_null_format_prints_nothing(capsys):
    body = vprintf("number").replace("(%rd12, 0)", "(0, 0)")
    text = printing(f"{body} st.global.u32 [%a0], %r20;")
    [out] = launch(Machine(), text, [zeros()], block=1)
    assert out[0] == 2**32 - 1 and capsys.readouterr().out == ""


def test_system_function_with_wrong_declaration():
    declared = ".func (.param .b32 r) vprintf (.param .b64 f, .param .b32 a);"
    text = kernel("call (%r2), vprintf, (%rd0, 0);", declared)
    with pytest.raises(PtxCheckError, match="the module declares vprintf differently"):
        launch(Machine(), text)


def test_module_may_define_its_own_vprintf(capsys):
    own = ".func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a) "
    own += "{ .reg .b32 %x; mov.u32 %x, 7; st.param.b32 [r], %x; ret; }"
    body = "call (%r2), vprintf, (%rd0, %rd0); st.global.u32 [%a0], %r2;"
    [out] = launch(Machine(), kernel(body, own), [zeros()], block=1)
    assert out[0] == 7 and capsys.readouterr().out == ""


# --- kernels in Python ---


@tilewright.kernel(block=4)
def says(k, x: ptr(f32), n: u32):
    i = k.ctaid.x * 4 + k.tid.x
    with k.if_(i < n):
        k.print("x[%u] = %-6.2f|", i, x[i])
        with k.when(x[i] > 1.0):
            k.print("%s at %d", "large", i)
    k.assert_(i < 6, "i is one of six")


def test_a_kernel_in_python_prints(capsys):
    says[1](np.float32([0, 1, 2, 3]), 3, device="vm")
    rows = ["x[0] = 0.00  |", "x[1] = 1.00  |", "x[2] = 2.00  |", "large at 2"]
    assert capsys.readouterr().out.splitlines() == rows


WIDE = [
    (b"%2147483647d", [1]),
    (b"%*d", [2**31 - 1, 1]),
    (b"%*d", [2**31, 1]),  # the least int: as wide, and left-justified
    (b"%-2000000s", [0]),
    (b"%.2147483647d", [1]),
    (b"%.*f", [2**31 - 1, 1]),
    (b"%.2147483647a", [1]),
]


@pytest.mark.parametrize(("format_", "values"), WIDE)
def test_conversion_longer_than_the_print_buffer_is_refused(format_, values):
    with pytest.raises(PtxError, match="characters; the print buffer holds 1048576"):
        render(parse_format(format_), values, lambda a, m: b"")


@pytest.mark.parametrize("format_", [b"%2147483648d", b"%.9" + b"9" * 5000 + b"f"])
def test_a_width_is_an_int(format_):
    with pytest.raises(PtxError, match="must be at most 2147483647"):
        parse_format(format_)


def test_a_wide_print_and_an_endless_text_are_faults(capsys):
    def wide(k):
        k.print("%*d", 2**31 - 1, 5)

    def endless(k, x):
        k.print("%s", x)

    with pytest.raises(VmFault, match=r"vprintf: %\*d makes 2147483647 characters") as caught:
        tilewright.kernel(wide, block=1)[1](device="vm")
    assert caught.value.kind == "printf format"
    text = np.full(3 * LIMIT, ord("x"), np.uint8)
    with pytest.raises(VmFault, match="is longer than 1048576 bytes"):
        tilewright.kernel(endless, block=1, params={"x": "ptr u8"})[1](text, device="vm")
    assert capsys.readouterr().out == ""


def test_an_assertion_names_the_line_of_python():
    with pytest.raises(VmFault) as caught:
        says[2](np.zeros(8, np.float32), 0, device="vm")
    line = says.function.__code__.co_firstlineno + 7
    assert caught.value.location is not None
    assert (caught.value.location.file, caught.value.location.line) == (__file__, line)
    assert (caught.value.block, caught.value.thread) == ((1, 0, 0), (2, 0, 0))
    assert "says: block: [1,0,0], thread: [2,0,0] Assertion `i is one of six` failed." in str(
        caught.value
    )
