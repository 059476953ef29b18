"""printf's formats: what each conversion takes, and where its argument lies."""

from __future__ import annotations

import ctypes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import PtxError
from tilewright.ptx.printf_format import Conversion, argument_types, offsets, parse_format

C = {"b32": ctypes.c_int, "b64": ctypes.c_longlong, "f64": ctypes.c_double}


def test_text_and_conversions():
    flagged = Conversion("-", "8", "3", "", "f")
    assert parse_format(b"100%% of %-8.3f|%*d%%\n") == (
        b"100", b"%", b" of ", flagged, b"|", Conversion("", "*", None, "", "d"), b"%", b"\n",
    )  # fmt: skip
    assert str(flagged) == "%-8.3f"
    assert parse_format(b"") == ()


@pytest.mark.parametrize(
    ("format_", "types"),
    [
        (b"%d%u%x%o%c%hhd%hx%i", ("b32",) * 8),
        (b"%lld%lu%zx%jd%p%s", ("b64",) * 6),
        (b"%f%e%g%a%F%LE", ("f64",) * 6),
        (b"%*d%.*f%-*.*lld%%", ("b32", "b32", "b32", "f64", "b32", "b32", "b64")),
    ],
)
def test_argument_types_of_a_format(format_, types):
    assert argument_types(parse_format(format_)) == types


@pytest.mark.parametrize("format_", [b"%", b"a %y", b"%n", b"50%", b"%5", b"%l", b"% 1\xc3"])
def test_an_invalid_conversion_is_rejected(format_):
    with pytest.raises(PtxError, match="invalid conversion"):
        parse_format(format_)


@given(st.lists(st.sampled_from(list(C)), max_size=12))
def test_arguments_have_the_layout_of_a_c_struct(types):
    class Struct(ctypes.Structure):
        _fields_ = [(f"a{i}", C[t]) for i, t in enumerate(types)]

    places, size = offsets(types)
    assert list(places) == [getattr(Struct, f"a{i}").offset for i in range(len(types))]
    assert -(-size // ctypes.alignment(Struct)) * ctypes.alignment(Struct) == ctypes.sizeof(Struct)
