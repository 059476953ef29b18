"""Cubins through read, edit and write: every byte kept, every reference to moved code right."""

from __future__ import annotations

import random
import re
import struct
from pathlib import Path
from subprocess import run

import pytest

from ptxas import ptxas
from rows import every_row
from sass_cubins import ARCHITECTURES, QUICK, cubin, names
from tilewright.errors import CubinError
from tilewright.sass import CodeMotion, CubinFile, with_code
from tilewright.sass.elf_tables import FUNCTION
from tilewright.sass.nv_info import EXIT_OFFSETS

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]

NOP = struct.pack("<QQ", 0x0000000000007918, 0x000FC00000000000)
EXIT = 0x94D


def grown(code: bytes, places: list[int], tail: int = 0) -> tuple[bytes, CodeMotion]:
    """The code with a NOP before each instruction number in ``places``, and ``tail`` at the end."""
    words = [code[i : i + 16] for i in range(0, len(code), 16)]
    out: list[bytes] = []
    offsets = {}
    for i, word in enumerate(words):
        out += [NOP] * places.count(i)
        offsets[16 * i] = 16 * len(out)
        out.append(word)
    out += [NOP] * (tail + -(len(out) + tail) % 8)
    new = b"".join(out)
    return new, CodeMotion(offsets, len(code), len(new))


@every_row("name", QUICK)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_an_unedited_cubin_keeps_every_byte(name: str, arch: str) -> None:
    data = cubin(name, arch)
    if data is None:
        pytest.skip("ptxas does not take it")
    read = CubinFile.parse(data)
    assert read.build() == data
    assert f"sm_{read.sm}" == arch.rstrip("a")
    assert read.functions


@pytest.mark.slow
@pytest.mark.parametrize("arch", [*ARCHITECTURES, "sm_52", "sm_120a"])
def test_every_cubin_of_the_corpus_keeps_every_byte(arch: str) -> None:
    made = {name: data for name in names() if (data := cubin(name, arch))}
    assert made or arch == "sm_52"
    assert not [name for name, data in made.items() if CubinFile.parse(data).build() != data]


def test_a_relocatable_object_keeps_every_byte(tmp_path: Path) -> None:
    """Its shared and global memory have types of their own, and no bytes in the file."""
    made, source = tmp_path / "code.o", tmp_path / "code.ptx"
    source.write_text(
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .global .align 4 .b8 g[64];\n"
        ".visible .entry one() {.shared .align 4 .b8 s[4096]; .reg .u32 a; mov.u32 a, s;\n"
        "st.shared.u32 [a], a; ret;}\n"
        ".visible .entry two() {.shared .align 4 .b8 t[64]; .reg .u32 a; mov.u32 a, t;\n"
        "st.shared.u32 [a], a; ret;}\n"
    )
    run([str(ptxas()), "-c", "-arch", "sm_90a", str(source), "-o", str(made)], check=True)
    data = made.read_bytes()
    read = CubinFile.parse(data)
    assert read.build() == data
    memory = [s for s in read.elf.sections if s.name.startswith((".nv.shared.", ".nv.global"))]
    assert sum(s.size for s in memory) >= 4096 + 64 + 64
    assert not any(s.data or s.in_file for s in memory)


def test_registers_and_barriers_are_edited_in_place() -> None:
    data = cubin("matmul", "sm_90a")
    assert data
    read = CubinFile.parse(data)
    name = read.functions[0]
    changed = CubinFile.parse(read.with_registers(name, 77).with_barriers(name, 3).build())
    assert (changed.registers(name), changed.barriers(name)) == (77, 3)
    again = changed.with_registers(name, read.registers(name))
    assert again.with_barriers(name, read.barriers(name)).registers(name) == read.registers(name)
    with pytest.raises(CubinError, match=r"registers of .* must be between 1 and 255, got 256"):
        read.with_registers(name, 256)
    with pytest.raises(CubinError, match=r"barriers of .* must be between 0 and 16, got 17"):
        read.with_barriers(name, 17)


def exits(cubin: CubinFile, name: str) -> set[int]:
    """The offsets of the EXIT instructions in the code."""
    words = struct.iter_unpack("<QQ", cubin.code(name))
    return {16 * i for i, (low, _) in enumerate(words) if low & 0xFFF == EXIT}


def listed_exits(cubin: CubinFile, name: str) -> set[int]:
    return {w for a in cubin.attributes(name) if a.code == EXIT_OFFSETS for w in a.words}


def function_words(cubin: CubinFile) -> dict[str, tuple[bytes, bytes]]:
    """The first and the last instruction of each function symbol."""
    found = {}
    for symbol in cubin.symbols:
        if symbol.type == FUNCTION and symbol.section and symbol.size:
            code = cubin.elf.sections[symbol.section].data
            end = symbol.value + symbol.size
            found[symbol.name] = code[symbol.value :][:16], code[end - 16 : end]
    return found


@pytest.mark.parametrize("name", ["clang/plain", "language_debug", "networks"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_code_that_grows_takes_its_references_along(name: str, arch: str) -> None:
    data = cubin(name, arch)
    if data is None:
        pytest.skip("ptxas does not take it")
    rng = random.Random(name)
    before = after = CubinFile.parse(data)
    for function in before.functions:
        code = before.code(function)
        # not before the first instruction of a function, which would belong to the one before it
        places = sorted(rng.choices(range(2, len(code) // 16 - 2), k=rng.randrange(1, 40)))
        starts = {s.value // 16 for s in before.symbols if s.type == FUNCTION}
        new, motion = grown(code, [p for p in places if p not in starts])
        after = with_code(after, function, new, motion)
    after = CubinFile.parse(after.build())
    for function in before.functions:
        assert listed_exits(before, function) <= exits(before, function)
        assert len(listed_exits(after, function)) == len(listed_exits(before, function))
        assert listed_exits(after, function) <= exits(after, function)
    old, new_words = function_words(before), function_words(after)
    assert {k: v[0] for k, v in old.items()} == {k: v[0] for k, v in new_words.items()}
    segments = [s for s in after.elf.segments if s.flags & 1]
    code_sections = [s for s in after.elf.sections if s.name.startswith(".text.")]
    for section in code_sections:
        assert section.offset % section.alignment == 0
        assert any(
            s.offset <= section.offset and section.offset + section.size <= s.offset + s.file_size
            for s in segments
        )


def rows(cubin: CubinFile, section: str) -> list[tuple[str, int, int]]:
    """(function, address, line) of a line table, read apart from the code under test."""
    index = cubin.index(section)
    assert index is not None
    data = cubin.elf.sections[index].data
    tables = [i for i, s in enumerate(cubin.elf.sections) if s.info == index and s.type in (4, 9)]
    starts = {r.offset: cubin.symbols[r.symbol].name for t in tables for r in cubin.relocations(t)}
    length = struct.unpack_from("<IHI", data)[2]
    base, span, first = struct.unpack_from("<bBB", data, 12)
    at, found = 10 + length, []
    name, address, line = "", 0, 1

    def leb(signed: bool = False) -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    while at < len(data):
        op = data[at]
        at += 1
        if op >= first:
            address += (op - first) // span
            line += base + (op - first) % span
            found.append((name, address, line))
        elif op == 0:
            size = leb()
            if data[at] == 2:
                name, address, line = starts[at + 1], 0, 1
            elif data[at] == 1:
                found.append((name, address, -1))
            at += size
        elif op == 1:
            found.append((name, address, line))
        elif op == 2:
            address += leb()
        elif op == 3:
            line += leb(True)
        elif op == 8:
            address += (255 - first) // span
        elif op == 9:
            address += struct.unpack_from("<H", data, at)[0]
            at += 2
        elif op in (4, 5, 12):
            leb()
    return found


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("section", [".debug_line", ".nv_debug_line_sass"])
def test_line_tables_follow_their_instructions(arch: str, section: str) -> None:
    data = cubin("language_debug", arch)
    assert data
    before = CubinFile.parse(data)
    function = before.functions[2]
    new, motion = grown(before.code(function), [3, 3, 3, 9, 10, 20], tail=30)
    after = CubinFile.parse(with_code(before, function, new, motion).build())
    moved = [
        (name, motion.address(at) if name == function else at, line)
        for name, at, line in rows(before, section)
    ]
    assert rows(after, section) == moved
    assert any(a != b for a, b in zip(rows(before, section), moved, strict=True))


def test_a_removed_exit_leaves_the_attribute() -> None:
    data = cubin("clang/plain", "sm_90a")
    assert data
    read = CubinFile.parse(data)
    name = next(n for n in read.functions if len(listed_exits(read, n)) > 1)
    gone = max(listed_exits(read, name))
    code = read.code(name)
    kept = [i for i in range(0, len(code), 16) if i != gone]
    new = b"".join(code[i : i + 16] for i in kept) + NOP
    motion = CodeMotion({old: 16 * i for i, old in enumerate(kept)}, len(code), len(new))
    after = with_code(read, name, new, motion)
    assert listed_exits(after, name) == {e for e in listed_exits(read, name) if e != gone}


def test_wrong_edits_are_refused() -> None:
    data = cubin("clang/plain", "sm_90a")
    assert data
    read = CubinFile.parse(data)
    name = read.functions[0]
    code = read.code(name)
    with pytest.raises(CubinError, match=r"it has: by_table, as_text"):
        with_code(read, "nowhere", code, CodeMotion({}, len(code), len(code)))
    with pytest.raises(CubinError, match="sizes must be those of its motion"):
        with_code(read, name, code + NOP, CodeMotion({}, len(code), len(code)))
    with pytest.raises(CubinError, match="kept at most once"):
        CodeMotion.from_origins([0, 0], [0, 16], 16, 32)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """A truncated file, or one with bytes or words of its tables changed."""
    if rng.random() < 0.2:
        return data[: rng.randrange(len(data))]
    out = bytearray(data)
    (tables,) = struct.unpack_from("<Q", data, 0x28)
    for _ in range(rng.randrange(1, 6)):
        at = rng.choice(
            (rng.randrange(len(out)), rng.randrange(64), rng.randrange(tables, len(out)))
        )
        out[at] = rng.choice((0, 1, 0xFF, 0x80, rng.randrange(256)))
    return bytes(out)


def hostile(count: int) -> int:
    """Read, edit and write mutated cubins; the number of those that were refused."""
    refused = 0
    rng = random.Random(23)
    sources = [d for d in (cubin(n, "sm_90a") for n in ("clang/plain", "language_debug")) if d]
    for i in range(count):
        data = mutate(sources[i % len(sources)], rng)
        try:
            read = CubinFile.parse(data)
            assert read.build() == data
            name = read.functions[i % len(read.functions)] if read.functions else ""
            code = read.code(name)
            new, motion = grown(code, [rng.randrange(1 + len(code) // 16)], tail=8)
            CubinFile.parse(with_code(read, name, new, motion).build())
        except CubinError as error:
            refused += 1
            assert len(re.sub(r"\n.*", "", str(error))) < 250
    return refused


def test_hostile_cubins_raise_typed_errors() -> None:
    assert hostile(300) > 60


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_hostile_cubins_raise_typed_errors() -> None:
    assert hostile(100_000) > 20_000
