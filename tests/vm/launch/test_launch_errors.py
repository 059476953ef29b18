"""What can't be loaded or launched: typed errors before anything runs."""

from __future__ import annotations

import pytest

from ptx_kernels.simt import kernel, run, zeros
from tilewright.errors import (
    LaunchError,
    PtxCheckError,
    PtxError,
    PtxSyntaxError,
    TargetError,
    UnknownInstruction,
)
from tilewright.vm import Machine

pytestmark = pytest.mark.vm


def test_unknown_instruction_is_reported_before_the_launch():
    machine = Machine()
    fine = kernel("st.global.u32 [%a0], 2;").partition(".address_size 64")[2]
    bad = kernel("st.global.u32 [%a0], 1; foo.bar.u32 %r2, %r3;")
    machine.load(bad + fine.replace(" k(", " fine("))
    place = machine.upload(zeros())
    with pytest.raises(UnknownInstruction, match=r"foo\.bar\.u32") as caught:
        machine.launch("k", 1, 32, [place, *[0] * 9])
    assert caught.value.location is not None and "^" in str(caught.value)
    assert not machine.download(place, zeros()).any()
    machine.launch("fine", 1, 32, [place, *[0] * 9])
    assert machine.download(place, zeros())[0] == 2


def test_missing_function_is_reported_at_launch():
    machine = Machine()
    text = kernel("call f, ();", ".extern .func f();")
    machine.load(text)
    with pytest.raises(PtxCheckError, match="f has no body in this module") as caught:
        machine.launch("k", 1, 1, [0] * 10)
    assert caught.value.location is not None


HEADER = ".version 8.0\n.target sm_90a\n"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("nonsense", PtxSyntaxError, "nonsense"),
        (f"{HEADER}.visible .entry k() {{ add.u32 %r1 %r2; }}", PtxSyntaxError, "%r2"),
        (".version 8.0\n.target sm_100a\n.entry k() { ret; }", TargetError, "module for sm_100a"),
        (f"{HEADER}.extern .global .u32 x;", PtxError, "x is extern, and no module defines it"),
        (f"{HEADER}.global .u64 x = y;", PtxError, "x has the address of y"),
        (17, PtxError, "must be PTX text or a ptx.Module, got int"),
    ],
)
def test_invalid_modules_are_refused(text, error, message):
    with pytest.raises(error, match=message):
        Machine().load(text)


def test_kernel_name_can_be_loaded_once():
    machine = Machine()
    machine.load(kernel(""))
    with pytest.raises(PtxError, match="'k' is already loaded"):
        machine.load(kernel(""))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("add.u32 %r2, %r3;", "operand"),
        ("add.u32 %r2, %r3, %nothing;", "not declared"),
        ("add.u32 %r64, %r3, %r4;", "not declared"),
        ("add.u32 %r2, %f3, %r4;", "%f3"),
        ("bra NOWHERE;", "NOWHERE"),
        ("ld.global.u32 %r2, [nowhere];", "nowhere"),
    ],
)
def test_invalid_code_is_refused(body, message):
    with pytest.raises(PtxError, match=message) as caught:
        run(kernel(body))
    assert caught.value.location is not None


@pytest.mark.parametrize(
    ("shape", "args", "message"),
    [
        ({"grid": 1, "block": 0}, None, "block must be from 1"),
        ({"grid": 1, "block": 1025}, None, "block must be from 1"),
        ({"grid": 1, "block": (32, 32, 2)}, None, "at most 1024 threads, got 2048"),
        ({"grid": 1, "block": (1, 1, 65)}, None, "block must be from 1"),
        ({"grid": -1, "block": 1}, None, "grid must be from 0"),
        ({"grid": (1, 65536), "block": 1}, None, "grid must be from 0"),
        ({"grid": (1, 1, 1, 1), "block": 1}, None, "grid must be one to three integers"),
        ({"grid": 1.5, "block": 1}, None, "grid must be one to three integers"),
        ({"grid": 1, "block": "32"}, None, "block must be one to three integers"),
        ({"grid": 1, "block": 1, "shared": 228 * 1024}, None, "got 233472"),
        ({"grid": 1, "block": 1, "shared": -1}, None, "got -1"),
        ({"grid": 1, "block": 1}, [0] * 9, "10 parameters, got 9 arguments"),
        ({"grid": 1, "block": 1}, [0] * 9 + ["x"], "'x'"),
        ({"grid": 1, "block": 1}, [0] * 9 + [2**32], "4294967296"),
        ({"grid": 1, "block": 1}, [0] * 9 + [1.5], "1.5"),
        ({"grid": 1, "block": 1}, b"123", "must have .* bytes, got 3"),
    ],
)
def test_invalid_launch_arguments(shape, args, message):
    machine = Machine()
    machine.load(kernel(""))
    with pytest.raises(LaunchError, match=message):
        machine.launch("k", args=[0] * 10 if args is None else args, **shape)


def test_maxntid_and_reqntid_bound_the_block():
    machine = Machine()
    machine.load(kernel("", directives=".maxntid 64, 2, 1"))
    machine.launch("k", 1, 128, [0] * 10)
    with pytest.raises(LaunchError, match="128"):
        machine.launch("k", 1, 129, [0] * 10)
    machine.load(kernel("", directives=".reqntid 8, 4").replace(" k(", " exact("))
    machine.launch("exact", 1, (8, 4), [0] * 10)
    with pytest.raises(LaunchError, match=r"\(8, 4, 1\)"):
        machine.launch("exact", 1, 32, [0] * 10)
    with pytest.raises(LaunchError, match=r"no kernel 'other'.* k, exact"):
        machine.launch("other", 1, 1)
