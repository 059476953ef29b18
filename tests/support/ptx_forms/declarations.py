"""Declarations and calls of which ptxas was asked, for the checker and for ptxas itself."""

from __future__ import annotations

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"

PLACES = {
    "register": ("", "{} x;", ""),
    "parameter": (".func f({} x) {{ ret; }}", "", ""),
    "result": (".func ({} x) f() {{ ret; }}", "", ""),
    "kernel": ("", "", "{} x"),
    "module": ("{} x;", "", ""),
    "body": ("", "{} x;", ""),
    "array": (".func f({} x[2]) {{ ret; }}", "", ""),
}

#: (where, words) that ptxas takes
TAKEN = [
    ("register", ".reg .v2 .u32"), ("register", ".reg .v4 .f16x2"), ("register", ".reg .v2 .f64"),
    ("register", ".reg .b128"), ("register", ".reg .pred"),
    ("parameter", ".reg .v2 .u32"), ("parameter", ".reg .v4 .u8"), ("parameter", ".reg .v2 .b64"),
    ("parameter", ".reg .align 8 .u32"), ("parameter", ".param .align 8 .b8"),
    ("result", ".reg .v4 .f32"), ("result", ".reg .v2 .u16"), ("result", ".param .b128"),
    ("array", ".param .v2 .u32"), ("array", ".param .b8"),
    ("module", ".global .v4 .f32"), ("body", ".local .v2 .u64"), ("body", ".shared .v4 .u8"),
]  # fmt: skip

#: (where, declaration, message) that ptxas rejects
REFUSED = [
    ("register", ".reg .v8 .u32", "a vector must have 2 or 4 elements"),
    ("register", ".reg .v2 .pred", "predicates can't form vectors"),
    ("register", ".reg .v4 .u64", "256 bits; a vector has at most 128"),
    ("register", ".reg .v2 .b128", "256 bits"),
    ("parameter", ".reg .v8 .u32", "a vector must have 2 or 4 elements"),
    ("parameter", ".reg .v4 .f64", "256 bits"),
    ("parameter", ".reg .v2 .pred", "predicates can't form vectors"),
    ("parameter", ".param .v2 .u32", "can't be in .param"),
    ("parameter", ".param .pred", "a predicate must be in .reg"),
    ("parameter", ".param .f16x2", "can't be in .param"),
    ("result", ".reg .v8 .u32", "a vector must have 2 or 4 elements"),
    ("result", ".reg .v4 .s64", "256 bits"),
    ("result", ".param .v4 .f32", "can't be in .param"),
    ("array", ".reg .u32", "a register can't be an array"),
    ("array", ".reg .v2 .u32", "a register can't be an array"),
    ("kernel", ".reg .u32", "a kernel's parameters must be in .param"),
    ("kernel", ".reg .v2 .u32", "a kernel's parameters must be in .param"),
    ("kernel", ".param .v2 .f32", "can't be in .param"),
    ("module", ".global .v4 .u64", "256 bits"),
    ("module", ".global .v8 .f32", "a vector must have 2 or 4 elements"),
    ("module", ".const .pred", "a predicate must be in .reg"),
    ("body", ".local .v4 .f64", "256 bits"),
    ("body", ".param .v2 .u32", "can't be in .param"),
    ("body", ".shared .pred", "a predicate must be in .reg"),
]  # fmt: skip

GIVEN = {
    "u32": "%r", "s32": "%s", "b32": "%b", "f32": "%f", "u64": "%rd", "f64": "%fd", "f16": "%h",
    "v2.u32": "%v2", "v2.f32": "%vf", "v4.u32": "%v4", "v2.u64": "%vd", "v4.u16": "%vh",
}  # fmt: skip

#: (parameter, argument, whether it can be passed)
PASSED = [
    (".reg .v2 .u32", "v2.u32", True), (".reg .v2 .u32", "v2.f32", True),
    (".reg .v2 .u32", "v4.u16", True), (".reg .v2 .u32", "7", True),
    (".reg .v2 .u32", "0d3FF0000000000000", True), (".reg .v2 .f32", "1.5", True),
    (".reg .v2 .u32", "v4.u32", False), (".reg .v2 .u32", "u32", False),
    (".reg .v2 .u32", "0f3F800000", False), (".reg .v4 .u32", "7", False),
    (".reg .v2 .u64", "v2.u64", True), (".reg .v2 .u64", "1.5", False),
    (".reg .v2 .u32", "%v4.x", False), (".reg .u32", "%v4.x", False),
    (".reg .u64", "v2.u32", True), (".param .u64", "v2.u32", True), (".param .u64", "f64", False),
    (".reg .u32", "s32", True), (".reg .u32", "b32", True), (".reg .u32", "f32", False),
    (".reg .f32", "b32", True), (".reg .f32", "u32", False), (".reg .f32", "1.5", True),
    (".reg .f32", "7", False), (".reg .u32", "1.5", False), (".reg .b32", "7", True),
    (".param .f32", "s32", False), (".param .b64", "f64", True), (".reg .f16", "7", False),
]  # fmt: skip


def declared(place: str, words: str) -> str:
    """A module that declares something there."""
    top, body, parameters = (part.format(words) for part in PLACES[place])
    return f"{HEAD}{top}\n.visible .entry k({parameters})\n{{\n{body}\nret;\n}}\n"


def passed(formal: str, given: str) -> str:
    """A module with a call of a function of one parameter."""
    registers = "".join(f".reg .{t.replace('.', ' .')} {name};" for t, name in GIVEN.items())
    call = f"call f, ({GIVEN.get(given, given)});"
    function = f".func f({formal} x) {{ ret; }}"
    return f"{HEAD}{function}\n.visible .entry k()\n{{\n{registers}\n{call}\nret;\n}}\n"
