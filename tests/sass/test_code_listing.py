"""Machine code to text and back: the same bits, and nothing is encoded that is not known."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ptxas import ptxas
from rows import every_row
from sass_cubins import QUICK, cubin, names
from tilewright.errors import SassError
from tilewright.sass import (
    CodeMotion,
    ControlCode,
    CubinFile,
    assemble,
    decode_code,
    disassemble,
    encode_code,
    encoding_table,
    parse_instruction,
    with_code,
)
from tilewright.sass.encoding_table import ARCHITECTURES
from tilewright.sass.sass_text import parse_operand

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")
SM_90 = encoding_table(90)

LINES = """\
.L_0:
--:-:1:-:2      LDG.E R4, desc[UR4][R2.64+-0x10] ;
01:-:-:-:4      FFMA R5, -R4.reuse, R4, |R6| ;
--:-:-:-:4      FADD R5, R5, -1.5 ;
--:-:-:Y:d      ISETP.NE.AND P0, PT, R5, RZ, PT ;
--:-:-:-:5  @P0 BRA `(.L_0) ;
--:-:-:-:5      EXIT ;
"""


def test_a_listing_is_read_and_written_again() -> None:
    code = assemble(SM_90, LINES.replace("|R6|", "R6"))
    assert disassemble(SM_90, code) == LINES.replace("|R6|", "R6")
    assert len(code) == 6 * 16
    loop = int.from_bytes(code[64:72], "little")
    assert loop & 0xFFF == 0x947 and loop >> 34 == -80 // 4 // 256 % (1 << 30)


@every_row(
    "line, message",
    [
        ("--:-:-:-:1 FFMA R0, R1", "FFMA R#, R# must be an instruction of sm_90a"),
        ("--:-:-:-:1 FFMAX R0, R1, R2, R3", "must be an instruction of sm_90a"),
        ("--:-:-:-:1 IADD3 R0, R1, 0x1ffffffff, RZ", "a number must fit into 32 bits"),
        ("--:-:-:-:1 FADD R0, R1, 0.1", "a float must be exact in f32"),
        ("--:-:-:-:1 MOV R0, 5", "a number must be in hex here, got 5"),
        ("--:-:-:-:1 FADD R0, R1, 0x5", "a number must be decimal here, got 0x5"),
        ("--:-:-:-:1 MOV R0, c[0x0][0x3]", "a number must be a multiple of 4, got 3"),
        ("--:-:-:-:1 S2R R0, SR_TIDX", " SR_TID.X "),
        ("--:-:-:-:1 @P8 MOV R0, R1", "a guard must be P0 to P6 or PT, got P8"),
        ("--:-:-:-:1 @P100 MOV R0, R1", "a guard must be P0 to P6 or PT, got P100"),
        ("--:-:-:-:1 FFMA R300, R1, R2, R3", "a number must fit into 8 bits, got 300"),
        ("--:-:-:-:1 FFMA R0, R1.H1_H1, R2, R3", "an operand's marks must be one of"),
        ("--:-:-:-:1 BRA `(.L_7)", "a label must be defined, got .L_7"),
        ("--:-:-:-:1 @UP0 FFMA R0, R1, R2, R3", "the guard of FFMA must be a predicate"),
        ("--:-:-:-:1 EXIT.reuse R5.reuse", "must be an instruction of sm_90a"),
        ("99:-:-:-:1 EXIT", "a control code must be like"),
        ("EXIT", "a line must be a control code and an instruction"),
        ("--:-:-:-:1 .word 0x1ffffffffffffffffffffffffffffffff", "a word must have 128 bits"),
        ("--:-:-:-:1 FFMA R0, R1, R2, R3 &hidden=0x1", "hidden bits must be in"),
        ("--:-:-:-:1 EXIT &hidden=one", "hidden bits must be a number in hex"),
        ("--:-:-:-:1 ;", "an instruction must begin with an opcode"),
        ("--:-:-:-:1 IMAD.U32 R17, RZ, R#, R15", "an operand must be without #, got 'R#'"),
        ("--:-:-:-:1 LDG.E.64 R10, [é10.64]", "a register must have a decimal number"),
        (".L_1:\n.L_1:", "a label must be defined once"),
    ],
)
def test_what_has_no_encoding_is_refused(line: str, message: str) -> None:
    with pytest.raises(SassError) as caught:
        assemble(SM_90, line)
    assert message in caught.value.message
    assert caught.value.location is not None


def test_the_hint_of_a_float_is_what_can_be_encoded() -> None:
    with pytest.raises(SassError) as caught:
        assemble(SM_90, "--:-:-:-:1 FADD R0, R1, 0.1")
    assert caught.value.hint == "0.10000000149011612 is exact"
    with pytest.raises(SassError, match="the low 12 bits of a float must be 0") as caught:
        assemble(encoding_table(52), "--:-:-:-:1 FADD R0, R1, 0.10000000149011612")
    assert caught.value.hint == "0.0999755859375 is exact"


def test_the_control_code_of_a_raw_word_can_be_edited() -> None:
    text = disassemble(SM_90, assemble(SM_90, "--:-:-:-:1 .word 0x1"))
    assert text.startswith("--:-:-:-:1 ")
    edited = disassemble(SM_90, assemble(SM_90, text.replace("--:-:-:-:1 ", "01:-:2:Y:5 ")))
    assert edited.startswith("01:-:2:Y:5 ")


def test_an_unknown_form_names_its_nearest_neighbours() -> None:
    with pytest.raises(SassError, match="FFMA"):
        assemble(SM_90, "--:-:-:-:1 FFMA.XY R0, R1, R2, R3")
    with pytest.raises(SassError) as caught:
        assemble(SM_90, "--:-:-:-:1 LDG.E.256 R0, desc[UR4][R2.64]")
    assert "nearest known: LDG.E" in caught.value.hint


def test_control_codes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SassError, match="stall of a control code must be 0 to 15, got 16"):
        _ = ControlCode(stall=16).bits
    with pytest.raises(SassError, match="read of a control code must be 0 to 6, got 7"):
        _ = ControlCode(read=7).bits


def test_control_codes_are_read_and_written() -> None:
    for bits in range(0, 1 << 21, 97):
        code = ControlCode.from_bits(bits)
        if code is None:
            assert 6 in (bits >> 5 & 7, bits >> 8 & 7)
            continue
        assert code.bits == bits
        assert ControlCode.parse(str(code)).bits == bits & 0x1FFFF
    assert ControlCode.parse("03:2:1:Y:f") == ControlCode(15, True, 1, 2, 3)


@every_row(
    "text",
    [
        "@!P3 LDG.E.64 R4, desc[UR4][R2.64+0x10]",
        "FSEL R0, -|R4|, 1.5, !P0",
        "HADD2.F32 R0, -RZ, R5.H1_H1",
        "HGMMA.64x64x16.F32 R24, gdesc[UR4].tnspB, R24, !UPT, gsb0",
        "S2R R0, SR_TID.X",
        "BRX R2 -0x110",
        "@!UP0 UMOV UR4, URZ",
        "LDSM.16.M88.4 R4, [R5+UR4+0x200]",
        "FMUL R0, R1.reuse, c[0x0][0x210]",
        "DEPBAR {0,1}",
        "FSEL R0, R1, 0f7fffffff, P0",
        "LDG.E R6, [R18.64+0x8] &hidden=0x200000000",
    ],
)
def test_instruction_text_is_read_and_written(text: str) -> None:
    assert str(parse_instruction(f"{text} ;")) == text


def coverage(name: str, arch: str) -> Counter[str]:
    """Instructions of a cubin: all, those decoded, and those whose text gives other bits."""
    data = cubin(name, arch)
    counts: Counter[str] = Counter()
    if data is None:
        return counts
    read = CubinFile.parse(data)
    table = encoding_table(read.sm)
    for function in read.functions:
        code = read.code(function)
        counts["all"] += len(decode_code(table, code))
        text = disassemble(table, code)
        counts["raw"] += text.count(".word")
        counts["wrong"] += assemble(table, text) != code
    return counts


@needs_ptxas
@pytest.mark.tools
@every_row("name", QUICK)
def test_instructions_re_encode_from_their_text(name: str) -> None:
    counts = coverage(name, "sm_90a")
    assert counts["all"] > 500
    assert counts["wrong"] == 0
    assert counts["raw"] <= counts["all"] // 1000


@needs_ptxas
@pytest.mark.tools
@pytest.mark.slow
@pytest.mark.parametrize("arch", [a for a in ARCHITECTURES.values() if a != "sm_52"])
def test_every_program_of_the_corpus_re_encodes_from_its_text(arch: str) -> None:
    counts: Counter[str] = Counter()
    for name in names():
        counts.update(coverage(name, arch))
    assert counts["wrong"] == 0
    assert counts["raw"] <= 0.0005 * counts["all"]


@needs_ptxas
@pytest.mark.tools
def test_instructions_inserted_as_text_keep_branches_right() -> None:
    data = cubin("clang/plain", "sm_90a")
    assert data
    read = CubinFile.parse(data)
    code = read.code("heap_sort")
    lines = disassemble(SM_90, code).splitlines()
    nop = "--:-:-:-:1      NOP ;"
    rng = random.Random(1)
    edited, origins, at = [], [], 0
    for line in lines:
        if not line.startswith(".L_") and rng.random() < 0.3 and 0 < at < len(code) - 32:
            edited.append(nop)
            origins.append(None)
        edited.append(line)
        if not line.startswith(".L_"):
            origins.append(at)
            at += 16
    while len(origins) % 8:
        edited.append(nop)
        origins.append(None)
    new = assemble(SM_90, "\n".join(edited))
    motion = CodeMotion.from_origins(
        origins, [16 * i for i in range(len(origins))], len(code), len(new)
    )
    after = CubinFile.parse(with_code(read, "heap_sort", new, motion).build())
    assert after.code("heap_sort") == new
    assert [x for x in disassemble(SM_90, new).splitlines() if x != nop] == [
        x for x in lines if x != nop
    ]


def test_hostile_words_stay_raw_or_re_encode() -> None:
    rng = random.Random(7)
    entries = SM_90.entries
    words = [rng.getrandbits(128) for _ in range(300)]
    for _ in range(700):
        entry = rng.choice(entries)
        fields = entry.variable | 0x1F << 105 | 0x3F << 116  # stall, yield, wait mask
        words.append(entry.base | 0x3F << 110 | rng.getrandbits(128) & fields)
    code = b"".join(w.to_bytes(16, "little") for w in words)
    assert assemble(SM_90, disassemble(SM_90, code)) == code
    decoded = [x for _, x in decode_code(SM_90, code)]
    assert encode_code(SM_90, decoded) == code
    assert sum(x.text is not None for x in decoded) > 400


def test_hostile_text_raises_typed_errors() -> None:
    rng = random.Random(9)
    refused = 0
    for _ in range(300):
        text = list(LINES)
        for _ in range(rng.randrange(1, 5)):
            text[rng.randrange(len(text))] = rng.choice("R0x[].,|-#:;`({\n é9")
        try:
            assemble(SM_90, "".join(text))
        except SassError:
            refused += 1
    assert refused > 150


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(SassError, match="must be of sm_90"):
        encoding_table(35)
    for wrong in ("90", [90]):
        with pytest.raises(SassError, match="must be an integer, such as 90"):
            encoding_table(wrong)  # type: ignore[arg-type]
    assert encoding_table(50) is encoding_table(53) is encoding_table(52)


def test_arguments_in_the_wrong_order_are_a_typed_error() -> None:
    with pytest.raises(SassError, match="must get an encoding table and a text, got str and str"):
        assemble(LINES, "sm_90a")  # type: ignore[arg-type]
    with pytest.raises(SassError, match="got str and EncodingTable"):
        assemble(LINES, SM_90)  # type: ignore[arg-type]
    with pytest.raises(SassError, match="got EncodingTable and str"):
        disassemble(SM_90, LINES)  # type: ignore[arg-type]


def test_jumps_of_sm_52_have_no_guard_and_textures_have_phases() -> None:
    table = encoding_table(52)
    lines = ["SSY `(.L_0)", "TLD.B.LZ.P R96, R112, R113, 0x0, 1D, 0xf", "LOP.XOR R1, R1, 0x10"]
    code = assemble(table, ".L_0:\n" + "\n".join(f"--:-:-:-:1 {x}" for x in lines))
    control = int.from_bytes(code[:8], "little")
    assert [control >> 21 * i + 17 & 15 for i in range(3)] == [0, 2, 0]
    assert int.from_bytes(code[8:16], "little") >> 16 & 15 == 0
    assert [x for x in lines if x in disassemble(table, code)] == lines
    with pytest.raises(SassError, match="SSY must have no guard"):
        assemble(table, ".L_0:\n--:-:-:-:1 @P0 SSY `(.L_0)")


def test_reuse_bits_without_a_text_are_hidden_bits() -> None:
    table = encoding_table(80)
    word = 0x019E03FF3000641F0E0E7B60 | 1 << 124 | 0x7F1 << 105  # as ptxas writes TEX.SCR.LL
    code = word.to_bytes(16, "little")
    text = disassemble(table, code)
    assert "TEX.SCR.LL RZ, R14, R14, R31, 0x0, 0x64, 2D, 0x3" in text
    assert f"&hidden={1 << 124:#x}" in text
    assert assemble(table, text) == code


def test_an_immediate_keeps_its_fraction_before_a_mark() -> None:
    for text, number, marks in (("-1.5.NEG", -1.5, ".NEG"), ("7.25e-09.H1", 7.25e-09, ".H1")):
        operand = parse_operand(text)
        assert (operand.kind, operand.numbers, operand.marks) == ("#", (number,), marks)
        assert str(operand) == text
