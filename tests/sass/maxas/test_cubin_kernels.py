"""maxas' commands over cubins: extract and insert are inverse, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ptxas import ptxas
from sass_cubins import cubin
from tilewright.cli import main
from tilewright.errors import CubinError, SassError
from tilewright.sass import CubinFile, decode_code, encoding_table
from tilewright.sass.lint import lint_function
from tilewright.sass.machine.code_paths import SassCode
from tilewright.sass.maxas import (
    SassDump,
    assemble_maxas,
    check_encodings,
    extract_kernel,
    insert_kernel,
    list_kernels,
)

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]
SM_90 = encoding_table(90)


def parsed(name: str) -> CubinFile:
    data = cubin(name, "sm_90a")
    assert data
    return CubinFile.parse(data)


@pytest.mark.parametrize("name", ["clang/plain", "stencil"])
def test_what_is_extracted_and_inserted_is_the_same_cubin(name: str) -> None:
    before = parsed(name)
    after = before
    for kernel in before.functions:
        made = assemble_maxas(SM_90, extract_kernel(before, kernel), automatic_reuse=False)
        old = before.code(kernel)
        assert made.code == old
        assert made.registers <= before.registers(kernel)
        after = insert_kernel(after, made)
    again = CubinFile.parse(after.build())
    assert [again.code(k) for k in before.functions] == [before.code(k) for k in before.functions]
    for kernel in before.functions:
        assert again.attributes(kernel) == before.attributes(kernel)


def test_a_kernel_that_calls_others_keeps_its_registers() -> None:
    before = parsed("triton/told")  # vprintf may take more registers than the kernel's code names
    made = assemble_maxas(SM_90, extract_kernel(before, "told"), automatic_reuse=False)
    fewer = replace(made, registers=made.registers - 1)
    assert insert_kernel(before, fewer).build() == before.build()


def test_automatic_reuse_is_legal_on_hopper() -> None:
    """An instruction that yields keeps no operand from sm_70 on."""
    before = parsed("stencil")
    reused = 0
    for kernel in before.functions:
        made = assemble_maxas(SM_90, extract_kernel(before, kernel))
        code = SassCode.of(90, decode_code(SM_90, made.code))
        assert not [f for f in lint_function(code) if f.rule == "reuse-yield"]
        reused += sum(bool(x.control and x.control.reuse) for x in code.instructions)
    assert reused


def test_preprocessing_takes_the_architecture_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "blur.sass"
    file.write_text(extract_kernel(parsed("stencil"), "blur"))
    assert main(["sass", "pre", str(file)]) == 0
    assert "LDC" in capsys.readouterr().out


def test_a_longer_kernel_is_inserted() -> None:
    before = parsed("stencil")
    text = extract_kernel(before, "blur").replace("EXIT;", "NOP;\n--:-:-:-:5       EXIT;")
    after = insert_kernel(before, assemble_maxas(SM_90, text))
    again = CubinFile.parse(after.build())
    names = [x.text.opcode for _, x in decode_code(SM_90, again.code("blur")) if x.text]
    exits = next(a.words for a in again.attributes("blur") if a.name == "EXIT_INSTR_OFFSETS")
    assert sorted(exits) == [16 * i for i, n in enumerate(names) if n == "EXIT"]
    with pytest.raises(CubinError, match=r"a kernel must be one of .*, got 'blur2'"):
        insert_kernel(before, assemble_maxas(SM_90, text), "blur2")


def test_a_cubin_is_listed_and_tested() -> None:
    cubin_file = parsed("stencil")
    shown = list_kernels(cubin_file)
    assert "arch: sm_90" in shown and "Kernel: blur (Params: 4, Size: " in shown
    found = check_encodings(cubin_file)
    assert not found.failed and found.passed > 400
    assert found.opcodes["IMAD"] > 10 and f"Pass: {found.passed} Fail: 0" in str(found)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = cubin("stencil", "sm_90a")
    assert data
    file, text, new = tmp_path / "a.cubin", tmp_path / "a.sass", tmp_path / "b.cubin"
    file.write_bytes(data)
    assert main(["sass", "list", str(file)]) == 0
    assert main(["sass", "test", "--all", str(file)]) == 0
    assert main(["sass", "extract", "--kernel", "blur", str(file), str(text)]) == 0
    assert main(["sass", "insert", "--auto", str(text), str(file), str(new)]) == 0
    assert "blur: " in capsys.readouterr().out
    assert CubinFile.parse(new.read_bytes()).functions == CubinFile.parse(data).functions
    assert main(["sass", "pre", "--sm", "90", "-D", "x=1", str(text)]) == 0
    assert "STG.E.U8" in capsys.readouterr().out
    assert main(["sass", "pre", "-D", "x", str(text)]) == 2


def test_the_words_of_maxas() -> None:
    """Its SGEMM by our assembler, where TILEWRIGHT_MAXAS names a checkout of maxas."""
    checkout = os.environ.get("TILEWRIGHT_MAXAS")
    if not checkout:
        pytest.skip("TILEWRIGHT_MAXAS is not set")
    script = Path(__file__).parents[3] / "scripts" / "compare_maxas.py"
    done = subprocess.run([sys.executable, str(script), checkout], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("same") == 8


def test_every_control_code_of_a_compiled_kernel_is_assigned_again() -> None:
    """Control codes of ptxas are dropped and assigned anew: the lint finds nothing."""
    for name in ("stencil", "sort"):
        read = parsed(name)
        for kernel in read.functions:
            made = assemble_maxas(SM_90, extract_kernel(read, kernel), automatic_control=True)
            assert not lint_function(SassCode.of(90, decode_code(SM_90, made.code))), kernel


def dump(name: str) -> str:
    """A listing as cuobjdump writes it: the words of each instruction in comments."""
    read = parsed(name)
    lines = ["code for sm_90a"]
    for kernel in read.functions:
        lines.append(f"        Function : {kernel}")
        code = read.code(kernel)
        for at in range(0, len(code), 16):
            low, high = (int.from_bytes(code[i : i + 8], "little") for i in (at, at + 8))
            lines.append(f"        /*{at:04x}*/   TEXT ;   /* {low:#018x} */")
            lines.append(f"                          /* {high:#018x} */")
    return "\n".join(lines)


def test_listings_are_tested_and_extracted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, cubin_path = tmp_path / "a.txt", tmp_path / "a.cubin"
    file.write_text(dump("stencil"))
    data = cubin("stencil", "sm_90a")
    assert data
    cubin_path.write_bytes(data)
    assert main(["sass", "test", "--reg", str(file)]) == 0
    from_listing = capsys.readouterr().out
    assert main(["sass", "test", "--reg", str(cubin_path)]) == 0
    assert capsys.readouterr().out == from_listing
    assert "CONFLICT laplace_3d 0x" in from_listing
    read, listed = parsed("stencil"), SassDump.parse(file.read_text())
    made = assemble_maxas(SM_90, extract_kernel(listed, "blur"), automatic_reuse=False)
    assert made.code == read.code("blur") == listed.code("blur")
    word = "/* 0x001f8000fc0007e0 */\n"  # nvdisasm of sm_52 names the architecture in flags alone
    assert SassDump.parse(f'.headerflags @"EF_CUDA_SM52"\n{4 * word}').sm == 52
    for text in ("sm_90", "code for sm_52\n/* 0x0123456789abcdef */", ""):
        with pytest.raises(SassError, match=r"a listing must have|must have a multiple of 4 words"):
            SassDump.parse(text)


def test_inserting_prints_what_the_lint_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = cubin("stencil", "sm_90a")
    assert data
    file, text = tmp_path / "a.cubin", tmp_path / "a.sass"
    file.write_bytes(data)
    lines = "--:-:-:-:1 FADD R2, R3, R3;\n--:-:-:-:1 FADD R4, R2, R2;\n--:-:-:-:5 EXIT;\n"
    text.write_text("# Kernel: blur\n" + lines)
    assert main(["sass", "insert", str(text), str(file)]) == 0
    warnings = capsys.readouterr().err
    assert "raw-latency" in warnings and "unset-register" in warnings
    assert main(["sass", "insert", "-w", str(text), str(file)]) == 0
    assert not capsys.readouterr().err
