"""The file format of maxas: tags, programs, registers, addresses, macros; and its errors."""

from __future__ import annotations

import random

import pytest

from rows import every_row
from tilewright.errors import SassError
from tilewright.sass import decode_code, encoding_table
from tilewright.sass.maxas import assemble_maxas, folder_loader, preprocess

SM_52 = encoding_table(52)

SAXPY = """\
# Kernel: saxpy
<COMMENT> anything, also <CODE>
</COMMENT>
<CONSTANT_MAPPING>
    param_n   : c[0x0][0x140]   // words
    param_x[0] : c[0x0][0x148]
    param_x[1] : c[0x0][0x14c]
</CONSTANT_MAPPING>
<REGISTER_MAPPING>
    0-3     : x<0-3>
    4-7     : y<00-03>
    20      = sum, total
    8-19    ~ tid, i[1], t<0-3>, n
</REGISTER_MAPPING>
[- step = 4 -]
--:-:1:-:1      S2R tid, SR_TID.X;
--:-:-:-:6      MOV n, param_n;
01:-:-:Y:d      ISETP.GE.AND P0, PT, tid, n, PT; # compare
--:-:-:-:5  @P0 EXIT;
--:-:-:-:6      SHL i, tid, 4;
LOOP:
--:-:2:-:2      LDS.U.128 x, [i + 4x<2*$step + 08>];
<CODE>
    return "".join(f"0{2 - 2 * (k > 0)}:-:-:-:6 FFMA sum, x{k}, y0{k}, total;\\n" for k in range(4))
</CODE>
<SCHEDULE_BLOCK>
--:-:-:-:1      XMAD.LO t0, tid, n, sum, t1;
<ORDERED>
--:-:-:-:1      IADD t2, t0, -32;
--:-:-:-:1      FADD t3, t2, 1.5;
</ORDERED>
--:-:-:-:1      LOP.AND t1, tid, 0x[+ 2 * step +];
</SCHEDULE_BLOCK>
--:1:-:-:2      STS [i + -16], t3;
01:-:-:Y:5  @!P0 BRA LOOP;
--:-:-:-:5      EXIT;
"""


def texts(source: str, **options: object) -> list[str]:
    kernel = assemble_maxas(SM_52, source, **options)  # type: ignore[arg-type]
    return [str(x.text) for _, x in decode_code(SM_52, kernel.code)]


def test_a_file_with_every_tag_is_assembled() -> None:
    kernel = assemble_maxas(SM_52, SAXPY)
    lines = texts(SAXPY)
    assert (kernel.name, kernel.registers, kernel.barriers) == ("saxpy", 21, 0)
    assert lines[1].endswith("c[0x0][0x140]")
    i = kernel.allocation["i"]
    assert i % 4 == 1  # the bank that was asked for
    assert f"LDS.U.128 R0, [R{i}+0x40]" in lines
    assert [x for x in lines if x.startswith("FFMA")] == [
        f"FFMA R20, R{k}, R{4 + k}, R20" for k in range(4)
    ]
    assert f"STS [R{i}+-0x10], R{kernel.allocation['t3']}" in lines
    assert sum(x.startswith("XMAD") for x in lines) == 3
    assert any(x.startswith("LOP.AND") and x.endswith("0x8") for x in lines)
    assert any(x.endswith(", 1.5") for x in lines) and any(x.endswith(", -0x20") for x in lines)
    assert lines[-1] == "NOP" and len(kernel.code) % 64 == 0
    exits = [i for i, x in enumerate(lines) if x.endswith("EXIT")]
    assert kernel.exits == tuple(32 * (i // 3) + 8 * (i % 3 + 1) for i in exits)


def test_preprocessed_text_assembles_to_the_same_code() -> None:
    shown = preprocess(SM_52, SAXPY)
    assert "CODE" not in shown and "SCHEDULE" not in shown and "REGISTER_MAPPING" in shown
    assert assemble_maxas(SM_52, shown).code == assemble_maxas(SM_52, SAXPY).code


def test_included_files_and_defines(tmp_path: object) -> None:
    files = {"a.sass": '<INCLUDE file="b.sass"/>\n', "b.sass": "--:-:-:-:5 MOV32I R[+ r +], 0x1;\n"}
    code = texts('<INCLUDE file="a.sass"/>', load=files.__getitem__, defines={"r": 7})
    assert code[0] == "MOV32I R7, 0x1"
    with pytest.raises(SassError, match="16 nested files"):
        texts('<INCLUDE file="x"/>', load=lambda name: '<INCLUDE file="x"/>')
    with pytest.raises(SassError, match="must be readable"):
        texts('<INCLUDE file="x"/>', load=folder_loader(tmp_path))  # type: ignore[arg-type]


HEAD = "<REGISTER_MAPPING>\n 0-3 : a<0-3>\n</REGISTER_MAPPING>\n"


@every_row(
    "body, line, message",
    [
        ("--:-:-:-:1 FADD a0, a9, a1;", 4, "a register must be in REGISTER_MAPPING, got 'a9'"),
        ("\n--:-:-:-:1 FADX a0, a1, a1;", 5, "must be an instruction of sm_52"),
        ("--:-:-:-:1 FADD a0, a1, a1", 4, "an instruction must end with ;"),
        ("--:-:-:1 FADD a0, a1, a1;", 4, "a line must be a control code and an instruction"),
        ("ff:-:-:-:1 FADD a0, a1, a1;", 4, "a control code must be like"),
        ("--:-:-:-:1 FADD a0, R1000, a1;", 4, "a register must be R0 to R254 or RZ, got R1000"),
        ("--:-:1:-:1 STG [a0], a1;", 4, "a store must have no write barrier"),
        ("--:-:-:-:5 BRA NOWHERE;", 4, "a label must be defined, got NOWHERE"),
        ("X:\nX:", 5, "a label must be defined once, got X"),
        ("<CODE>\nmy @x = (1);\n</CODE>", 5, "a program must be Python, got perl"),
        ("<CODE>\nx = 1\nreturn 1 / 0\n</CODE>", 6, "got ZeroDivisionError"),
        ("[+ foo(2) +]", 4, "got NameError"),
        ("\n<SCHEDULE_BLOCK>", 5, "must be closed by </SCHEDULE_BLOCK>"),
        ("</CODE>", 4, "a tag must be open before it is closed"),
        ("<SCHEDULE_BLOCK>\nA:\n</SCHEDULE_BLOCK>", 5, "must be without labels"),
        ("<SCHEDULE_BLOCK>\n<ORDERED>\n<ORDERED>\n</SCHEDULE_BLOCK>", 6, "got nested"),
        ("<SCHEDULE_BLOCK>\n<ORDERED>\n</SCHEDULE_BLOCK>", 4, "must be closed inside"),
        ("--:-:-:-:1 XMAD.LO a0, a1, a2, a3, a1;", 4, "a macro must be in a SCHEDULE_BLOCK"),
        ("<SCHEDULE_BLOCK>\n--:-:-:-:1 XMAD.LO2 a0, a0, a2, a3;\n</SCHEDULE_BLOCK>", 5,
         "must differ from its first operand"),
        ("--:-:-:-:1 LDS a0, [a1 + 4x<9**9**9>];", 4, "a shift must be 0 to 64"),
        ("--:-:-:-:1 LDS a0, [a1 + 4x<1/3>];", 4, "an address must be an integer"),
        ("--:-:-:-:1 LDS a0, [a1 + 4x<x.y>];", 4, "an address must consist of integers"),
        ("--:-:-:-:1 LDS a0, [a1 + 0x1000000];", 4, "a number must fit into"),
        ("--:-:-:-:1 IADD a0, a1, 1.5;", 4, "a number must fit into"),
        ("<REGISTER_MAPPING>\n 4-300 : b\n</REGISTER_MAPPING>", 5, "between 0 and 254"),
        ("<REGISTER_MAPPING>\n 4 : a0\n</REGISTER_MAPPING>", 5, "must be defined once, got a0"),
        ("<REGISTER_MAPPING>\n 4-5 : b<0-2>\n</REGISTER_MAPPING>", 5, "3 names must have"),
        ("<REGISTER_MAPPING>\n 4 ~ b, c\n</REGISTER_MAPPING>\n--:-:-:-:1 FADD b, c, c;\n"
         "--:-:-:-:1 FADD a0, b, c;", 0, "a register must be free for c"),
        ("<CONSTANT_MAPPING>\n x c[0][0]\n</CONSTANT_MAPPING>", 5, "a constant must be like"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(body: str, line: int, message: str) -> None:
    with pytest.raises(SassError) as caught:
        assemble_maxas(SM_52, HEAD + body, "file.sass")
    assert message in caught.value.message
    place = caught.value.location
    assert (place.line if place else 0) == line


def test_hostile_files_raise_typed_errors() -> None:
    rng = random.Random(5)
    refused = 0
    source = SAXPY.replace("CODE>", "COMMENT>").replace("[+ 2 * step +]", "8")
    for _ in range(150):
        text = list(source)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            if rng.random() < 0.5:
                text[at] = rng.choice("R0x<>:~=[],-|#;`({\n é9")
            else:
                del text[at : at + rng.randrange(400)]
        try:
            assemble_maxas(SM_52, "".join(text))
        except SassError:
            refused += 1
    assert refused > 75


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(SassError, match="must get an encoding table and a text, got EncodingTable"):
        assemble_maxas(encoding_table(52), 5)  # type: ignore[arg-type]
    with pytest.raises(SassError, match="must have instructions, got none"):
        assemble_maxas(encoding_table(52), "<COMMENT>\n</COMMENT>\n")
