"""Kernels: parameters, what a module says of itself, launches, errors with a caret."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from error_messages import raises_message
from rows import every_row
from tilewright import lazy_imports
from tilewright.builder import Traced, by_value, f32, kernel, ptr, set_launcher, trace, u32
from tilewright.errors import KernelError, TargetError, UnknownInstruction
from tilewright.ptx import check, tree
from tracing import traced


@kernel(block=(64, 2), min_ctas=3, max_registers=40)
def scale(k, n: u32, a: "f32", x: ptr(f32, align=16), m: by_value(128, 64), *, by=2):
    with k.when(k.tid.x < n):
        x[k.tid.x] = a * by + m.cast("f32")[1]


def test_annotations_make_parameters() -> None:
    assert (
        repr(scale)
        == "kernel scale(n: u32, a: f32, x: ptr f32 align 16, m: bytes 128 align 64, *, by=2)"
    )
    text = scale.trace().ptx
    for line in (
        ".param .u32 param_n",
        ".param .f32 param_a",
        ".param .u64 .ptr .global .align 16 param_x",
        ".param .align 64 .b8 param_m[128]",
        ".maxntid 64, 2, 1",
        ".minnctapersm 3",
        ".maxnreg 40",
        ", [param_m+4];",
    ):
        assert line in text, line
    check(scale.trace().module)


def test_parameters_declared_separately() -> None:
    def body(k, a, b, c, d):
        assert (a.dtype.name, b.dtype.name, c.space) == ("f16", "s64", "")

    params = {"a": "f16", "b": "s64", "c": ptr("u8", space=""), "d": "bytes 128 align 64"}
    made = trace(body, params=params, name="other")
    assert [str(p) for p in made.params] == [
        "a: f16",
        "b: s64",
        "c: ptr u8",
        "d: bytes 128 align 64",
    ]
    assert made.name == "other"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("f33", "unknown number format"),
        (None, "has the unsupported type None"),
        (3, "has the unsupported type 3"),
        ("pred", "pred"),
    ],
)
def test_invalid_parameter_types(spec: Any, says: str) -> None:
    with raises_message(KernelError, says):
        trace(lambda k, a: None, params={"a": spec}, name="f")


def test_one_trace_for_each_set_of_static_arguments() -> None:
    assert scale.trace() is scale.trace(by=2)
    assert scale.trace(by=3) is not scale.trace()
    assert scale.trace(by=1) is not scale.trace(by=True)
    for wrong, says in (({"of": 1}, "unknown static argument 'of'"), ({"by": []}, "hashable")):
        with raises_message(KernelError, says):
            scale.trace(**wrong)


def test_the_module_requires_the_lowest_version_and_target() -> None:
    plain = traced(lambda k, x: x + 1, "u32")
    assert (plain.module.version, plain.target) == ((4, 0), "sm_50")
    half = traced(lambda k, x: x * x, "bf16")
    assert (half.module.version, half.target) == ((7, 8), "sm_90")
    required = traced(lambda k, x: k.require("sm_90a"), "u32")
    assert (required.module.version, required.target) == ((8, 0), "sm_90a")
    assert traced(lambda k, x: None, "u32", target="sm_86").target == "sm_86"
    with pytest.raises(TargetError, match="unknown target"):
        trace(lambda k: None, target="sm_1", name="f")


def test_registers_are_declared_once_as_nvcc_names_them() -> None:
    def body(k, a, b, c, h):
        (a < 1) & (b < 2.0)
        c + 1.0
        h + h
        a.to("u64")

    declared = [
        s for s in traced(body, "u32", "f32", "f64", "f16").entry.body if type(s) is tree.RegDecl
    ]
    assert [(d.type, d.names[0], d.count) for d in declared] == [
        ("pred", "%p", 4), ("b16", "%rs", 3), ("b32", "%r", 2), ("b64", "%rd", 2),
        ("f32", "%f", 2), ("f64", "%fd", 3),
    ]  # fmt: skip


def test_loc_directives_name_the_python_source() -> None:
    def helper(x):
        return x * 3 + 1

    def body(k, x):
        helper(x)
        with k.when(x == 0):
            k.barrier()

    made = traced(body, "u32")
    assert made.module.files == {1: __file__}
    marks = [s.line for s in made.entry.body if isinstance(s, tree.Loc)]
    text = [linecache.getline(__file__, line).strip() for line in marks]
    assert text == ["return x * 3 + 1", "with k.when(x == 0):", "k.barrier()"]
    assert not traced(body, "u32", lines=False).module.files


def test_launches_use_the_registered_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy_imports, "_PROVIDED", {})  # of this test alone
    with pytest.raises(KernelError, match="no launcher is registered"):
        scale[4](1, 2.0, 3, 4)
    calls = []

    def launcher(made: Traced, *where: Any, **options: Any) -> str:
        calls.append((made, *where, options))
        return "done"

    set_launcher(launcher)
    assert scale[4](1, 2.0, 3, 4, by=5, device="vm") == "done"
    assert scale[(4, 2), 32](1, 2.0, 3, 4) == "done"
    assert scale[(4, 2), None](1, 2.0, 3, 4) == scale[4, (32,)](1, 2.0, 3, 4) == "done"
    four, two, many = np.int64(4), np.uint8(2), np.int32(32)
    assert scale[four, (many,)](1, 2.0, 3, 4) == scale[(four, two), many](1, 2.0, 3, 4) == "done"
    set_launcher(None)
    with pytest.raises(KernelError, match="no launcher is registered"):
        scale[4](1, 2.0, 3, 4)
    assert calls[0][:4] == (scale.trace(by=5), (4, 1, 1), (64, 2, 1), (1, 2.0, 3, 4))
    assert calls[0][4] == {"device": "vm", "stream": None, "programmatic": False}
    wheres = [((4, 2, 1), (32, 1, 1)), ((4, 2, 1), (64, 2, 1)), ((4, 1, 1), (32, 1, 1))]
    wheres += wheres[2], wheres[0]
    assert [call[1:3] for call in calls[1:]] == wheres


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (lambda: scale(1), "needs a grid"),
        (lambda: scale[4](1), "got 1 arguments"),
        (lambda: scale[0], "positive integers"),
        (
            lambda: scale[(4, 2)](1, 2.0, 3, 4),
            r"declares a block of \(64, 2, 1\)\n.*\(4, 2\), None\]",
        ),
        (lambda: scale[1, 2.5], "positive integers"),
        (lambda: scale[np.float64(4)], "positive integers"),
        (
            lambda: scale[np.int64(1), np.int64(32)](1, 2.0, 3, 4),
            r"scale\[1, 32\]: the kernel declares",
        ),
        (lambda: kernel(lambda k: None, name="f")[4](), "block size of f is not known"),
    ],
)
def test_invalid_launches(launch: Any, says: str) -> None:
    with raises_message(KernelError, says):
        launch()


def _if(k: Any, x: Any) -> None:
    if x < 3:
        k.barrier()


BAD = {
    "types": (
        lambda k, x: x + k.const("f32", 1),
        "operands of \\+ must have the same type, got u32 and f32",
    ),
    "signs": (lambda k, x: x + x.view("s32"), "must have the same type, got u32 and s32"),
    "number": (lambda k, x: x + 1.5, "1.5 is not valid for a u32"),
    "if": (_if, "no truth value"),
    "range": (lambda k, x: range(x), "no value while"),
    "int": (lambda k, x: int(x), "no value while"),
    "unroll": (lambda k, x: k.range(0, x, unroll=True), "bounds must be static"),
    "bound": (lambda k, x: k.range(x, x.view("s32")), "bounds of a loop must be u32, got s32"),
    "down": (lambda k, x: k.range(x, 0, -1), "count down with a signed"),
    "dtype": (lambda k, x: k.var("f33"), "unknown number format"),
    "count": (lambda k, x: k.ptx.mad.lo.u32(x, x), "takes a:u32, b:u32, c:u32, got 2 operands"),
    "operand": (
        lambda k, x: k.emit("add.rn.f32", x.view("f32"), x),
        "operand b must be f32, got u32",
    ),
    "too big": (lambda k, x: x + 2**32, "4294967296 does not fit u32"),
    "overflow": (lambda k, x: k.const("f16", 1e6), "does not fit f16"),
    "negative": (lambda k, x: x < -1, "a number of at least 0, got -1"),
    "signed //": (lambda k, x: x.view("s32") // 4, "operands of // must be unsigned"),
    "signed %": (lambda k, x: x.view("s32") % 4, "operands of % must be unsigned"),
    "/": (lambda k, x: x / 4, "operands of / must be floats"),
    "by zero": (lambda k, x: x // 0, "divisor of // must be positive, got 0"),
    "shift": (lambda k, x: x << 32, "a shift of u32 must be by 0 to 31, got 32"),
    "bits": (lambda k, x: x.view("b32") + 1, "no \\+ for b32"),
    "order": (lambda k, x: x.view("b32") < 1, "no order"),
    "small": (lambda k, x: x.to("u8") + 1, "no \\+ for u8"),
    "condition": (lambda k, x: k.if_(x).__enter__(), "expected a predicate"),
    "else": (lambda k, x: k.else_().__enter__(), "must directly follow its k.if_"),
    "loop guard": (lambda k, x: _loop_in_when(k, x), "a loop must not be inside k.when"),
    "break": (lambda k, x: k.break_(), "must be inside a loop on the device"),
    "into": (lambda k, x: k.add(x, 1, into=k.tid.x), "into= must be variables, got"),
    "into type": (lambda k, x: k.add(x, 1, into=k.var("f32")), "operand d must be u32, got f32"),
    "view": (lambda k, x: x.view("u64"), "a view must have the same size, got u32 as u64"),
    "to": (lambda k, x: x.view("b32").to("f32"), "can't be converted"),
    "rnd": (lambda k, x: x.to("f32", "up"), "rnd must be rn, rz, rm or rp, got 'up'"),
    "vector": (lambda k, x: k.emit("st.global.v2.u32", (k.const("u64", 0), 0), [x]), "vector of 2"),
    "imm": (lambda k, x: k.emit("cp.async.wait_group", x), "operand n must be an immediate"),
    "shfl": (lambda k, x: k.shfl("down", x.to("u16"), 1), "32 or 64 bits"),
}


def _loop_in_when(k: Any, x: Any) -> None:
    with k.when(x == 0):
        for _ in k.range(x):
            pass


@every_row("name", BAD)
def test_errors_in_kernels_name_the_line(name: str) -> None:
    body, says = BAD[name]
    with raises_message(KernelError, says) as caught:
        trace(body, params={"x": "u32"}, name="f")
    location = caught.value.location
    assert location is not None
    assert location.file == __file__
    assert linecache.getline(__file__, location.line).rstrip("\n") == location.text


def test_the_caret_marks_the_expression() -> None:
    def body(k, x):
        return x + 1 if x is None else x * 2.5

    with pytest.raises(KernelError) as caught:
        trace(body, params={"x": "u32"}, name="f")
    location = caught.value.location
    assert location is not None
    assert location.text[location.column - 1 :][: location.width] == "x * 2.5"


def test_an_unknown_instruction_has_suggestions() -> None:
    with pytest.raises(UnknownInstruction, match=r"no instruction 'mad.low.u32'") as caught:
        trace(lambda k: k.ptx.mad.low.u32(1, 2, 3), name="f")
    assert caught.value.location is not None
    assert "mad.lo.u32" in str(caught.value)


@pytest.mark.parametrize("bound", ["min_ctas", "max_registers"])
@pytest.mark.parametrize("number", [1.5, -1, "2", None])
def test_launch_bounds_are_positive_integers(bound: str, number: Any) -> None:
    with pytest.raises(
        KernelError, match=f"{bound} must be a positive integer, or 0 for no bound, got"
    ):
        trace(lambda k: None, name="f", **{bound: number})


def test_numpy_integers_are_sizes() -> None:
    def made(number: Any) -> Traced:
        def body(k: Any) -> None:
            k.launch_bounds(number(64), min_ctas=number(2))
            k.shared("f32", number(8), align=number(16))
            k.dynamic_shared(number(64), number(32))
            k.array("u32", number(2))[number(1)] = 7
            k.make_rmem_tensor(4, "f16").engine[number(1)] = 1.0

        return trace(body, lines=False)

    assert made(int) == made(np.int64)
