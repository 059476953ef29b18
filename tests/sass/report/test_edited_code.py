"""Listings whose code grew: what refers to an instruction still refers to it."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxas import ptxas
from sass_cubins import cubin
from sass_on_gpu import WAYS, edited
from tilewright.errors import CubinError
from tilewright.sass import (
    CodeMotion,
    CubinFile,
    assemble,
    decode_code,
    disassemble,
    encoding_table,
    with_code,
)
from tilewright.sass.edited_code import motion_between
from tilewright.sass.elf_tables import FUNCTION
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.nv_info import (
    EXIT_OFFSETS,
    OFFSET_RECORDS,
    SIZED,
    InfoAttribute,
    move_attribute,
)

needs_ptxas = pytest.mark.skipif(ptxas() is None, reason="no ptxas")
MOVES = ("MOV", "IMAD.U32")
TABLE = ".nv.constant2.by_table"


def parsed(name: str) -> CubinFile:
    data = cubin(name, "sm_90a")
    assert data
    return CubinFile.parse(data)


def opcode(code: bytes, at: int) -> int:
    return int.from_bytes(code[at : at + 2], "little") & 0xFFF


def references(file: CubinFile, name: str) -> list[tuple[int, int]]:
    """(attribute, opcode of its instruction) of each offset but those of EXIT."""
    return [
        (a.code, opcode(file.code(name), at))
        for a in file.attributes(name)
        if a.code in OFFSET_RECORDS and a.code != EXIT_OFFSETS
        for at in a.words[:: OFFSET_RECORDS[a.code]]
    ]


@pytest.mark.tools
@needs_ptxas
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("program", ["clang/plain_O0", "sort"])
def test_attributes_functions_and_returns_follow(program: str, how: str) -> None:
    old = parsed(program)
    new = CubinFile.parse(edited(old.build(), how))
    for name in old.functions:
        assert references(new, name) == references(old, name)
        code = function_code(new, name)
        loads = {t.numbers[-1] for x in code.instructions if (t := x.text) and t.opcode in MOVES}
        for at, x in zip(code.offsets, code.instructions, strict=True):
            if x.text and x.text.opcode.startswith("CALL.REL") and "R#" not in x.text.form[1]:
                assert loads & {at + 16, at + 32}  # a NOP may follow the call
    functions = [(a, b) for a, b in zip(old.symbols, new.symbols, strict=True) if a.value]
    for a, b in functions:
        if a.type == FUNCTION and a.size:
            codes = (f.elf.sections[s.section].data for f, s in ((old, a), (new, b)))
            assert len({opcode(c, s.value) for c, s in zip(codes, (a, b), strict=True)}) == 1
    if program == "clang/plain_O0":
        words = [
            [int.from_bytes(f.section(TABLE).data[i : i + 8], "little") for i in range(8, 32, 8)]
            for f in (old, new)
        ]
        assert set(zip(*words, strict=True)) <= {(a.value, b.value) for a, b in functions}


@pytest.mark.tools
@needs_ptxas
@pytest.mark.parametrize("how", WAYS)
def test_a_jump_goes_where_its_table_says(how: str) -> None:
    """BRX adds a register, a number and the next instruction's offset: the number takes that off,
    and the table has offsets in the function.
    """
    old = parsed("language")
    new = CubinFile.parse(edited(old.build(), how))
    numbers = []
    for file in (old, new):
        for at, x in decode_code(encoding_table(90), file.code("switches")):
            if x.text and x.text.opcode == "BRX":
                numbers.append(x.text.operands[-1].numbers[-1])
                assert at + 16 + numbers[-1] == 0
    assert len(numbers) == 4


@pytest.mark.tools
@needs_ptxas
def test_code_that_grows_leaves_no_holes() -> None:
    """Also where a shared array is aligned to 1024 bytes."""
    sections = CubinFile.parse(edited(parsed("hopper").build(), "after")).elf.sections
    code = sorted((s.offset, s.size) for s in sections if s.name.startswith(".text."))
    assert any(s.alignment > 128 for s in sections)
    assert all(a + n == b for (a, n), (b, _) in pairwise(code))


@pytest.mark.tools
@needs_ptxas
def test_a_function_table_with_other_words_is_refused() -> None:
    file = parsed("clang/plain_O0")
    index = file.index(TABLE)
    assert index is not None
    data = file.elf.sections[index].data
    code = file.code("by_table")
    moved = CodeMotion({at: at + 128 for at in range(0, len(code), 16)}, len(code), len(code) + 128)
    followed = file.with_data(index, data + b"constant")
    tables = [
        with_code(x, "by_table", bytes(128) + code, moved).elf.sections[index].data
        for x in (file, followed)
    ]
    assert tables[1] == tables[0] + b"constant" != data + b"constant"
    file = file.with_data(index, data[:8] + b"\x07" + data[9:])
    with pytest.raises(CubinError, match="must be a table of functions"):
        with_code(file, "by_table", bytes(128) + code, moved)


@pytest.mark.tools
@needs_ptxas
def test_a_word_that_may_be_a_branch_does_not_move() -> None:
    """A word without an encoding is kept as it is, and so would be the distance that it jumps."""
    file = parsed("sort")
    name = file.functions[0]
    code = bytearray(file.code(name))
    code[16:32] = (0x2FEA800B8000000000000108047547).to_bytes(16, "little")  # not legal
    file = with_code(file, name, bytes(code), CodeMotion({}, len(code), len(code)))
    assert decode_code(encoding_table(90), bytes(code))[1][1].text is None
    with pytest.raises(CubinError, match="0x10, 0x2fea800b8000000000000108047547, may be a branch"):
        edited(file.build(), "between")


def test_attributes_of_spills_and_of_registers_move() -> None:
    spills = InfoAttribute(SIZED, 0x55, data=struct.pack("<4I", 1, 0x20, 1, 0x40))
    registers = InfoAttribute(SIZED, 0x40, data=struct.pack("<3I", 0x20, 0xD0201, 0xFFFFFFFF))
    moved = {0x20: 0x30}.get
    assert move_attribute(spills, moved).words == (1, 0x30)
    assert move_attribute(registers, moved).words == (0x30, 0xD0201, 0xFFFFFFFF)
    for unknown in (spills.with_words([2, 0x20]), registers.with_words([0x20, 1, 0x30])):
        with pytest.raises(CubinError, match="must"):
            move_attribute(unknown, moved)


LINES = [f"--:-:-:-:1 MOV R{i}, R{i + 1} ;" for i in range(4)]


def listed(picks: list[int]) -> list[str]:
    return [LINES[i] for i in picks]


@given(st.lists(st.integers(0, 3), max_size=40), st.data())
def test_inserted_instructions_are_told_from_kept_ones(
    picks: list[int], data: st.DataObject
) -> None:
    """Also in code that repeats itself: what was inserted is named by nothing."""
    table = encoding_table(90)
    old = listed(picks)
    places = sorted(data.draw(st.lists(st.integers(0, len(old)), max_size=10)))
    new = list(old)
    for place in reversed(places):
        new.insert(place, "--:-:-:-:1 NOP ;")
    codes = [assemble(table, "\n".join(x)) for x in (old, new)]
    sizes = len(codes[0]), len(codes[1])
    motion = motion_between(*(decode_code(table, code) for code in codes), sizes)
    kept = [at for at, line in enumerate(new) if "NOP" not in line]
    assert motion.offsets == {16 * i: 16 * k for i, k in enumerate(kept)}


@given(st.permutations(range(12)), st.lists(st.integers(0, 3), max_size=12))
def test_reordered_instructions_are_found(order: list[int], repeats: list[int]) -> None:
    table = encoding_table(90)
    lines = [f"--:-:-:-:1 MOV R{i}, 0x{i:x} ;" for i in range(12)] + listed(repeats)
    codes = [assemble(table, "\n".join(x)) for x in (lines, [lines[i] for i in order] + lines[12:])]
    motion = motion_between(*(decode_code(table, c) for c in codes), (len(codes[0]), len(codes[1])))
    assert [motion.offsets[16 * i] for i in order] == [16 * k for k in range(12)]


def test_a_replaced_instruction_keeps_its_place() -> None:
    table = encoding_table(90)
    code = assemble(table, "\n".join(LINES))
    other = assemble(table, "\n".join([LINES[0], "--:-:-:-:2 IADD3 R1, R2, R3, RZ ;", *LINES[2:]]))
    motion = motion_between(
        *(decode_code(table, c) for c in (code, other)), (len(code), len(other))
    )
    assert motion.is_identity


def test_a_base_of_a_relative_return_is_no_label() -> None:
    """``RET.REL R2 0x0`` adds R2 to the function's start, whatever is inserted before it."""
    table = encoding_table(90)
    text = disassemble(table, assemble(table, "--:-:-:Y:5 RET.REL.NODEC R2 0x0 ;"))
    assert "RET.REL.NODEC R2 0x0" in text
