"""Annotated listings, differences, listings back into cubins, and the commands that print them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tilewright
from ptxas import ptxas
from sass_cubins import cubin
from tilewright import cuda
from tilewright.builder import f32, kernel, ptr
from tilewright.cli import main
from tilewright.errors import CubinError, SassError
from tilewright.sass import CubinFile, disassemble, encoding_table
from tilewright.sass.lint import lint_cubin
from tilewright.sass.machine.hazards import function_code
from tilewright.sass.machine.sass_machine import SassMachine
from tilewright.sass.maxas import check_encodings, extract_kernel, list_kernels
from tilewright.sass.report import annotate, diff_functions, insert_text
from tilewright.sass.source_lines import source_places

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


@kernel
def twice(k, x: ptr(f32)):
    x[k.tid.x] = x[k.tid.x] * 2.0


@pytest.fixture(scope="module")
def reduce() -> CubinFile:
    data = cubin("reduce", "sm_90a")
    assert data
    return CubinFile.parse(data)


def listing(file: CubinFile, name: str) -> str:
    head = f"# {name}: sm_{file.sm}, {file.registers(name)} registers, 0 barriers\n"
    return head + disassemble(encoding_table(file.sm), file.code(name))


def test_cycles_grow_by_the_stalls(reduce: CubinFile) -> None:
    name = reduce.functions[0]
    rows = [x.split(maxsplit=3) for x in annotate(reduce, name).splitlines() if x[0] == " "]
    cycles = [int(row[0]) for row in rows]
    assert cycles[0] == 0 and all(a < b for a, b in pairwise(cycles))
    code = function_code(reduce, name)
    for i in range(len(cycles) - 1):
        control = code.instructions[i].control
        assert control and cycles[i + 1] - cycles[i] >= max(1, control.stall)


def test_live_registers_fall_to_none_at_the_end(reduce: CubinFile) -> None:
    name = reduce.functions[0]
    rows = [x for x in annotate(reduce, name).splitlines() if x[0] == " "]
    live = [int(x[13:18]) for x in rows]
    ends = [n for n, x in zip(live, rows, strict=True) if " EXIT ;" in x and "@" not in x]
    assert ends and not any(ends)
    assert 3 < max(live) <= reduce.registers(name)


def test_each_instruction_has_its_lines_of_python_and_ptx() -> None:
    traced = twice.trace()
    made = cuda.compile(traced.ptx, "sm_90a", lineinfo=True)
    file = CubinFile.parse(made.code)
    code = function_code(file, traced.name)
    places = source_places(file, traced.name, code.offsets)
    product = next(i for i in range(len(places)) if code.name(i) in ("FADD", "FMUL"))
    assert Path(places[product].file).name == Path(__file__).name
    assert "mul" in places[product].ptx
    line = places[product].line
    shown = annotate(file, traced.name)
    assert f"// {Path(__file__).name}:{line}  x[k.tid.x] = x[k.tid.x] * 2.0" in shown


def test_a_listing_goes_back_as_it_was(reduce: CubinFile) -> None:
    name = reduce.functions[0]
    assert insert_text(reduce, listing(reduce, name)).build() == reduce.build()


def test_an_edited_listing_changes_what_differs(reduce: CubinFile) -> None:
    name = reduce.functions[0]
    text = listing(reduce, name)
    first = next(x for x in text.splitlines() if " MOV " in x or " LDC " in x)
    nop = "--:-:-:-:1      NOP ;"
    grown = insert_text(reduce, text.replace(first, f"{first}\n{nop}\n" + f"{nop}\n" * 7, 1))
    shown = diff_functions(reduce, grown, name)
    assert shown.count(f"+ {nop}") == 8 and not [x for x in shown if x.startswith("-")]
    slower = insert_text(reduce, text.replace("--:-:-:-:1 ", "--:-:-:-:2 ", 1))
    marks = [x[0] for x in diff_functions(reduce, slower, name)]
    assert marks.count("-") == marks.count("+") == 1
    assert diff_functions(reduce, reduce, name) == []


def test_a_name_is_no_cubin(reduce: CubinFile) -> None:
    calls: list[Callable[[Any], object]] = [
        lint_cubin, list_kernels, check_encodings, SassMachine, lambda x: annotate(x, "f"),
        lambda x: diff_functions(x, reduce, "f"), lambda x: insert_text(x, ""),
        lambda x: extract_kernel(x, "f"),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(CubinError, match="a cubin must be a CubinFile, got str"):
            call("f.cubin")
    with pytest.raises(CubinError, match="a section must exist"):
        lint_cubin(reduce, "no_such_function")
    with pytest.raises(CubinError, match="registers of"):
        reduce.with_registers(reduce.functions[0], "64")  # type: ignore[arg-type]


def test_a_listing_that_cannot_be_read(reduce: CubinFile) -> None:
    with pytest.raises(CubinError, match="got none"):
        insert_text(reduce, "NOP ;\n")
    with pytest.raises(CubinError, match="a listing must be of the cubin's sm_90, got f of sm_80"):
        insert_text(reduce, "# f: sm_80, 8 registers, 0 barriers\n")
    text = listing(reduce, reduce.functions[0]) + "--:-:-:-:1 FROB R1 ;\n"
    with pytest.raises(SassError, match=f"f.sass:{text.count(chr(10))}:1: FROB"):
        insert_text(reduce, text, "f.sass")


def test_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], reduce: CubinFile
) -> None:  # fmt: skip
    name = reduce.functions[0]
    file, other = tmp_path / "a.cubin", tmp_path / "b.cubin"
    file.write_bytes(reduce.build())
    assert main(["sass", "annotate", str(file), "--function", name]) == 0
    assert f"# {name}: sm_90" in capsys.readouterr().out
    text = tmp_path / "a.sass"
    text.write_text(listing(reduce, name).replace("--:-:-:-:1 ", "--:-:-:-:2 ", 1))
    assert main(["sass", "assemble", str(text), str(file), str(other)]) == 0
    assert main(["sass", "diff", str(file), str(other)]) == 1
    assert f"# {name}" in capsys.readouterr().out
    assert main(["sass", "diff", str(file), str(file)]) == 0
    assert capsys.readouterr().out == ""
    for output in ("", "-"):
        assert main(["sass", "assemble", str(text), str(file), output]) == 2
    assert file.read_bytes() == reduce.build()
    assert "a cubin must be written to a file" in capsys.readouterr().err
    assert main(["sass", "reschedule", str(file), "--registers", "0"]) == 2
    assert "registers per thread must be 16 to 255" in capsys.readouterr().err
    text.write_bytes(b"\xff\xfe")
    for action in ("assemble", "insert"):
        assert main(["sass", action, str(text), str(file), str(other)]) == 2
        assert "must be UTF-8 text" in capsys.readouterr().err


def test_time_estimates_cycles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "twice.cubin"
    file.write_bytes(cuda.compile(twice.trace().ptx, "sm_90a").code)
    command = ["sass", "time", str(file), "--block", "64", "--arg", "random:f32:64"]
    assert main([*command, "--ctas", "4"]) == 0
    said = dict(x.split(maxsplit=1) for x in capsys.readouterr().out.splitlines())
    assert int(said["cycles"]) > 350  # a load from global memory
    assert said["issued"].startswith("9") or int(said["issued"].split()[0]) >= 64
    for wrong in (
        ["--ctas", "0"], ["--ctas", "1000"], ["--block", "0"], ["--block", "1024,2"],
        ["--block=-3"], ["--block", "1,1,1,1"], ["--shared=-4"], ["--shared", "999999"],
        ["--arg", "zeros:f32:99999999999x9999999999"], ["--arg", "bytes:00"],
    ):  # fmt: skip
        assert main([*command, *wrong]) == 2
    assert "--arg bytes:00: bytes is not a scalar type" in capsys.readouterr().err
    assert main([*command[:-1], "zeros:f32:5000000"]) == 0  # more than the machine's own memory


def test_a_plan_shows_its_machine_code() -> None:
    text = tilewright.plan(256, 256, 256, dtype="f16", device="vm").sass
    assert "HGMMA" in text and " EXIT ;" in text
