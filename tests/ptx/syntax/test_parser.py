"""The parser: what it makes of PTX in the wild, and that bad text is an error with a place."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from ptx_text.ptx_wild import FILES, HEAD, WILD
from rows import every_row
from tilewright.errors import PtxError, PtxSyntaxError
from tilewright.ptx import parse, print_module
from tilewright.ptx.tree import (
    Block,
    Directive,
    FloatImm,
    Guard,
    Imm,
    Instruction,
    Label,
    Masked,
    MemoryOperand,
    Negated,
    Pair,
    RegDecl,
    Register,
    Selected,
    Sink,
    Symbol,
    Variable,
    Vector,
)  # fmt: skip

SAMPLES = {"wild": WILD, **FILES}


def body(text: str) -> tuple[object, ...]:
    found = parse(f"{HEAD}.entry k() {{\n{text}\n}}").functions["k"].body
    assert found is not None
    return found


def operands(text: str) -> tuple[object, ...]:
    (statement,) = body(f"op {text};")
    assert isinstance(statement, Instruction)
    return statement.operands


@every_row(
    ("text", "operand"),
    [
        ("[%rd+-952]", MemoryOperand(Register("%rd"), -952)),
        ("[ %rd4 + 0 ]", MemoryOperand(Register("%rd4"))),
        ("[smem+4*4]", MemoryOperand(Symbol("smem"), 16)),
        (
            "[%rd, {%r1, 3}]",
            MemoryOperand(Register("%rd"), 0, (Register("%r1"), Imm(3))),
        ),
        ("%p1|_", Pair(Register("%p1"), Sink())),
        ("%r1.b3", Selected(Register("%r1"), "b3")),
        ("%r1 .h10", Selected(Register("%r1"), "h10")),
        ("-%r1", Negated(Register("%r1"))),
        ("- %r1.b7654", Negated(Selected(Register("%r1"), "b7654"))),
        ("%v.b", Register("%v.b")),
        ("{%r1, _}", Vector((Register("%r1"), Sink()))),
        ("0f3F800000", FloatImm(0x3F800000, 32)),
        ("0dBFF0000000000000", FloatImm(0xBFF << 52, 64)),
        ("-1.", FloatImm(0xBFF << 52, 64)),
        ("1e3", FloatImm(0x408F400000000000, 64)),
        ("0x1FU", Imm(31, True)),
        ("-0x10", Imm(-16)),
        ("017", Imm(15)),
        ("0b101", Imm(5)),
        ("0xFFFFFFFFFFFFFFFF", Imm(2**64 - 1)),
        ("(1 << 4) | 3", Imm(19)),
        ("-7 / 2", Imm(-3)),
        ("~0", Imm(-1)),
        ("!5", Imm(0)),
        ("3 > 2 ? 4 : 5", Imm(4)),
        ("1.5 * 2", FloatImm(0x4008 << 48, 64)),
        ("(.u64)-1 >> 60", Imm(15, True)),
    ],
)
def test_operands(text: str, operand: object) -> None:
    assert operands(text) == (operand,)


@pytest.mark.parametrize("name", SAMPLES)
def test_the_fast_path_agrees_with_the_token_parser(name: str) -> None:
    """A comment inside a statement keeps the fast lane off it."""
    text = SAMPLES[name]
    assert parse(text.replace(";", "/**/;")) == parse(text)


def test_positions_point_at_the_statements() -> None:
    module = parse(WILD)
    for i in module.functions["wild"].instructions():
        first = f"@{'!' if i.guard.negated else ''}" if i.guard else i.opcode.split(".")[0]
        assert module.source.startswith(first, i.pos)


def test_a_name_is_a_register_where_one_is_declared() -> None:
    inner = "{ .reg .pred p; .reg .b32 t<2>; op p, t1, t2, p.x; { op p; } } op p;"
    block, after = body(inner)
    assert isinstance(block, Block) and isinstance(after, Instruction)
    first = Instruction("op", (Register("p"), Register("t1"), Symbol("t2"), Register("p.x")))
    assert block.body[2:] == (first, Block((Instruction("op", (Register("p"),)),)))
    assert after.operands == (Symbol("p"),)


def test_calls_have_results_callee_arguments_prototype() -> None:
    text = "call (a), f, (b, 5), proto; call f; call.uni %rd1, proto; call f, (x);"
    none = Vector(())
    found = [i.operands for i in body(text) if isinstance(i, Instruction)]
    assert found == [
        (Vector((Symbol("a"),)), Symbol("f"), Vector((Symbol("b"), Imm(5))), Symbol("proto")),
        (none, Symbol("f"), none),
        (none, Register("%rd1"), none, Symbol("proto")),
        (none, Symbol("f"), Vector((Symbol("x"),))),
    ]


def test_statements_without_semicolons_and_labels() -> None:
    found = body('L:.pragma "nounroll"; .loc 1 2 3 ret; t: .branchtargets L, t; @!%p bra L; {}')
    assert found[:2] == (Label("L"), Directive("pragma", ('"nounroll"',)))
    assert found[3:] == (
        Instruction("ret"),
        Directive("branchtargets", ("L", "t"), "t"),
        Instruction("bra", (Symbol("L"),), Guard(Register("%p"), True)),
        Block(()),
    )


def test_declarations_group_by_count() -> None:
    assert body(".reg .v2 .f32 a, b, c<4>;") == (
        RegDecl("f32", ("a", "b"), None, 2),
        RegDecl("f32", ("c",), 4, 2),
    )


def test_a_function_has_its_attribute_before_its_results() -> None:
    head = ".func .attribute(.unified(1,2)) (.reg .b32 r) f(.reg .b32 a) .noreturn"
    module = parse(f"{HEAD}{head} {{ trap; }}")
    found = module.functions["f"]
    assert [d.name for d in found.directives] == ["attribute", "noreturn"]
    assert len(found.results) == len(found.params) == 1
    assert parse(print_module(module)) == module


def test_initialisers() -> None:
    items = {item.name: item for item in parse(WILD).items if hasattr(item, "init")}
    assert items["bytes"].init == (Masked(255, Symbol("smem")), Masked(0xFF00, Symbol("smem")))
    assert items["nested"].init == ((Imm(1), Imm(-2)), (Imm(3),))
    assert items["scalar"].init == (Imm(33),)
    assert items["pointers"].init is not None
    assert items["pointers"].init[0] == Symbol("$str$17", 2, generic=True)


def test_an_initialiser_of_a_hundred_thousand_entries() -> None:
    many = ", ".join(str(i % 256) for i in range(100_000))
    (item,) = parse(f"{HEAD}.global .b8 a[100000] = {{{many}}};").items
    assert isinstance(item, Variable) and item.init is not None
    assert len(item.init) == 100_000 and item.init[511] == Imm(255)


# --- bad text ---------------------------------------------------------------------------------


@every_row(
    ("text", "where", "message"),
    [
        ("add.s32 %r1, %r2 5;", "5:18", "expected ';'"),
        ("add.s32 %r1,, %r2;", "5:13", "expected an operand"),
        ("ld.u32 %r1, [%r2;", "5:17", "after the address"),
        ("ld.u32 %r1, [%r2-4];", "5:17", "expected '+'"),
        ("st.v2.u32 [%r1], {%r2, };", "5:24", "expected an operand"),
        ("op {{%r1}};", "5:5", "nested in another"),
        ("mov.u32 %r1, 0x1ffffffffffffffff;", "5:14", "at most 64 bits"),
        ("mov.u32 %r1, 08;", "5:14", "at most 64 bits"),
        ("mov.f32 %f1, 0f3F8;", "5:14", "malformed number"),
        ("mov.u32 %r1, 1/0;", "5:15", "division by zero"),
        (".reg .b33 %r<4>;", "5:6", "expected a type"),
        (".rge .b32 %r<4>;", "5:1", "expected a directive of a function body"),
        (".reg .b32 %r<0>;", "5:14", "must be positive"),
        ("@5 bra L;", "5:2", "expected a predicate register"),
        ("ADD.s32 %r1, %r2, %r3;", "5:1", "expected an instruction"),
        ('mov.u32 %r1, "x";', "5:14", "expected an operand"),
        ("mov.u32 %r1, \x00;", "5:14", "unexpected character"),
        ("call (a, f, b;", "5:14", "to close '('"),
        ("ret; }", "6:1", "expected a function"),
        ("/* ret;", "5:1", "unterminated comment"),
    ],
)
def test_syntax_errors_have_a_location(text: str, where: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(f"{HEAD}.entry k() {{\n{text}\n}}", "k.ptx")
    first = str(caught.value).splitlines()[0]
    assert first.startswith(f"k.ptx:{where}: ") and message in first


def test_an_error_shows_the_line_and_a_caret() -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse(HEAD + ".entry k() {\n\tadd.s32 %r1, %r2 %r33;\n}")
    assert str(caught.value).splitlines()[1:3] == [
        "    \tadd.s32 %r1, %r2 %r33;",
        "    \t                 ^^^^",
    ]


def test_a_misspelt_directive_gets_a_hint() -> None:
    with pytest.raises(PtxSyntaxError, match=r"did you mean \.maxntid"):
        parse(HEAD + ".entry k() .maxntidd 5 { ret; }")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a module must begin with .version, got the end"),
        ("ret;", "a module must begin with .version, got 'ret'"),
        (".version 8", "expected a version such as 8.5, got '8'"),
        (".version 8.5\n.entry k() {}", "expected '.target' after .version, got '.entry'"),
        ("\x00", "unexpected character"),
    ],
)
def test_a_wrong_header_is_a_syntax_error(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=re.escape(message)):
        parse(text)


@pytest.mark.parametrize(
    "deep",
    [
        ".entry k() {" + "{" * 100_000,
        ".entry k() { mov.u32 %r1, " + "(" * 100_000,
        ".entry k() { mov.u32 %r1, " + "-" * 100_000,
        ".entry k() { mov.u32 %r1, " + "1?" * 100_000,
        ".entry k() { mov.u32 %r1, " + "9" * 100_000,
        ".global .b8 a[] = " + "{" * 100_000,
        ".entry k() .pragma " + "(" * 100_000,
    ],
)
def test_deep_or_endless_text_is_an_error(deep: str) -> None:
    with pytest.raises(PtxSyntaxError, match=r"at most \d+ (deep|bits)|got the end of the text"):
        parse(HEAD + deep)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_text_cut_anywhere_parses_or_is_a_syntax_error(name: str) -> None:
    text, rng = SAMPLES[name], random.Random(name)
    for _ in range(150):
        try:
            parse(text[: rng.randrange(len(text))])
        except PtxSyntaxError as error:
            assert error.location is not None


@examples(300)
@given(st.data())
def test_a_damaged_text_parses_or_is_an_error_of_ours(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(WILD)))
    gone = data.draw(st.integers(0, 12))
    new = data.draw(st.text("{}()[];,.:+-|!@%_$\"'/* \nazr019UfxE<>=?&^~\\", max_size=6))
    text = WILD[:at] + new + WILD[at + gone :]
    try:
        module = parse(text)
    except PtxError as error:
        assert error.location is not None
    else:
        assert parse(print_module(module)) == module


def test_control_characters_are_not_printed() -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse("\x1b[2J\x9bx\t\u202e;")
    lines = str(caught.value).splitlines()
    assert "    \ufffd[2J\ufffdx\t\ufffd;" in lines
    assert all(c.isprintable() or c == "\t" for line in lines for c in line)
