"""``k.print`` and ``k.assert_``: the PTX they make, and what does not fit a format."""

from __future__ import annotations

import pytest

from rows import every_row
from tilewright.builder import trace
from tilewright.errors import KernelError
from tilewright.ptx import tree
from tracing import lines, traced

PARAMS = {
    "i": "u32", "b": "s8", "w": "u64", "h": "f16", "f": "f32", "r": "b32", "p": "ptr f32",
    "q": "ptr u8",
}  # fmt: skip


def printed(format_, *values, **params):
    """A kernel of one print; ``values`` are parameters' names or anything else."""

    def body(k, i, b, w, h, f, r, p, q):
        named = {"i": i, "b": b, "w": w, "h": h, "f": f, "r": r, "p": p, "q": q}
        k.print(format_, *(named.get(v, v) if isinstance(v, str) else v for v in values))

    return trace(body, params=PARAMS, name="f")


def test_a_print_stores_its_values_and_calls_vprintf():
    def body(k, n, x):
        k.print("%d %f %s", n, x, "hi")

    made = traced(body, "u16", "f32", lines=False)
    assert lines(body, "u16", "f32") == [
        "cvt.u32.u16 %r1, %rs1",
        "st.local.b32 [print_depot], %r1",
        "cvt.f64.f32 %fd1, %f1",
        "st.local.f64 [print_depot+8], %fd1",
        "mov.u64 %rd1, $str",
        "st.local.b64 [print_depot+16], %rd2",
        "mov.u64 %rd3, print_depot",
        "mov.u64 %rd5, $str$1",
        "call.uni (%r2), vprintf, (%rd6, %rd4)",
    ]
    texts = [v for v in made.module.items if isinstance(v, tree.Variable)]
    assert [bytes(b.value for b in v.init) for v in texts] == [b"hi\0", b"%d %f %s\n\0"]
    assert ".local .align 8 .b8 print_depot[24];" in made.ptx


def test_prints_share_texts_declarations_and_memory():
    def body(k, n, x):
        for _ in range(3):
            k.print("%u\n", n)
            k.print("%u %u", n, n)
            k.print("end")

    made = traced(body, "u32", "f32", lines=False)
    assert made.ptx.count(".global .align") == 3 and made.ptx.count(".extern") == 1
    assert "print_depot[8];" in made.ptx
    assert lines(body, "u32", "f32")[-1] == "call.uni (%r10), vprintf, (%rd30, 0)"


def test_a_predicated_print_becomes_a_branch():
    def body(k, n):
        with k.when(n < 4):
            k.print("small")
            k.assert_(n > 1, "not too small")

    made = lines(body, "u32")
    assert made[1] == "@!%p1 bra $past_1"
    guarded = [line.split()[1] for line in made if line.startswith("@")]
    assert guarded == ["bra", "setp.gt.u32", "bra", "bra"]
    assert made.count("$past_1:") == 1


def test_an_assertion_branches_past_the_call_if_it_is_true():
    def body(k, n):
        k.assert_(n < 4, "n is small")
        k.assert_(True, "never seen")
        k.assert_(4 > 3, "nor this")

    made = lines(body, "u32")
    line = body.__code__.co_firstlineno + 1
    assert made[:2] == ["setp.lt.u32 %p1, %r1, 4", "@%p1 bra $past_1"]
    assert made[-2:] == [f"call.uni __assertfail, (%rd2, %rd4, {line}, %rd6, 1)", "$past_1:"]
    texts = [v.init for v in traced(body, "u32").module.items if isinstance(v, tree.Variable)]
    text = [bytes(b.value for b in init[:-1]).decode() for init in texts]
    assert text == ["n is small", __file__, "body"]


def test_an_assertion_that_is_false_at_trace_time_fails_unconditionally():
    made = lines(lambda k, n: k.assert_(n is None, "no"), "u32")
    assert [line for line in made if "bra" in line] == []
    assert sum("__assertfail" in line for line in made) == 1


def test_an_else_does_not_follow_a_print():
    def body(k, n):
        with k.if_(n < 4):
            k.print("small")
        k.assert_(n < 4, "small")
        with k.else_():
            k.print("large")

    with pytest.raises(KernelError, match="must directly follow its"):
        lines(body, "u32")


GOOD = [
    ("%d %i %u %x %X %o %c", "iiiiiii"), ("%d %hd %u", "bbr"), ("%lld %llx %lu %p", "wwww"),
    ("%f %e %g %a", "hfhf"), ("%p %p %s", "pqq"), ("%*d %*.3f", "iiif"), ("%% %5.1f%%", "f"),
]  # fmt: skip


@pytest.mark.parametrize(("format_", "values"), GOOD)
def test_valid_arguments(format_, values):
    assert "vprintf, (" in printed(format_, *values).ptx


@pytest.mark.parametrize(
    ("format_", "value"),
    [("%d", -(2**31)), ("%u", 2**32 - 1), ("%llx", 2**64 - 1), ("%c", 65), ("%d", True),
     ("%f", 1), ("%g", 2.5), ("%s", "text")],
)  # fmt: skip
def test_python_values(format_, value):
    assert "vprintf, (" in printed(format_, value).ptx


BAD = [
    ("%d", (), "must have 1 values, got 0"),
    ("none", "i", "must have 0 values, got 1"),
    ("%*d", "i", "must have 2 values, got 1"),
    ("%d", "w", "up to 32 bits, got %rd1:u64"),
    ("%lld", "i", "%lld must be an integer of 64 bits"),
    ("%d", "f", "%d must be an integer"),
    ("%f", "i", "%f must be a float"),
    ("%f", ("text",), "%f must be a float"),
    ("%s", "p", "a pointer to bytes"),
    ("%s", (5,), "a Python string"),
    ("%p", "i", "a 64-bit address"),
    ("%d", (1.5,), "%d must be an integer"),
    ("%d", (2**32,), "does not fit b32"),
    ("%*d", "fi", "%*d must be an integer"),
    ("%y", "i", "invalid conversion"),
    ("%.*f", "if", "a precision must be digits and a length h, l or ll, got %.*f"),
    ("%hhd", "b", "a length h, l or ll"),
    ("%jd", "w", "a length h, l or ll"),
    ("%zu", "w", "a length h, l or ll"),
    ("%td", "w", "a length h, l or ll"),
    ("%Lf", "f", "a length h, l or ll"),
    ("a\0b", (), "without zero characters"),
    (5, (), "the format must be a string"),
    ("%d" * 33, "i" * 33, "at most 32"),
]


@every_row(("format_", "values", "message"), BAD)
def test_invalid_arguments(format_, values, message):
    with pytest.raises(KernelError) as caught:
        printed(format_, *values)
    assert message in caught.value.message
    assert caught.value.location is not None and caught.value.location.file == __file__


@pytest.mark.parametrize("condition", ["text", None, 1.5])
def test_an_assertion_needs_a_predicate_and_a_text(condition):
    with pytest.raises(KernelError, match="must be a predicate"):
        trace(lambda k: k.assert_(condition, "message"), params={}, name="f")
    with pytest.raises(KernelError, match="the message must be a string"):
        trace(lambda k: k.assert_(True, condition if condition != "text" else 5), name="f")
