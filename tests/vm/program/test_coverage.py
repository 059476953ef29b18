"""What PTX needs of the virtual machine: ``coverage`` and ``tilewright vm``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pages import ROOT
from ptx_kernels.simt import kernel
from rows import every_row
from tilewright import ptx
from tilewright.cli import main
from tilewright.errors import PtxError
from tilewright.vm.program.coverage import InstructionUse, coverage
from tilewright.vm.program.program import build

pytestmark = pytest.mark.vm

PTX = ROOT / "tests" / "data" / "ptx"
FILES = sorted([*PTX.glob("*.ptx"), *(ROOT / "tests" / "corpus").rglob("*.ptx")])
REFUSED = {
    "multimem.red.global.add.f32": "multimem.red.global.add.f32 [%a0], %f1;",
    "ad.u32": "ad.u32 %r1, %r2, 5;",
    "add.u32": "add.u32 %r1, %r2;",
    "callseq.f32": "callseq.f32 [%a0], %f1;",
    "sub.u32": "sub.u32 %rd1, %r2, 3;",
    "bra": "bra NOWHERE;",
    "mul.lo.u32": "@%q mul.lo.u32 %r1, %r2,\n\t%undeclared;",
    "cvt.rn.f16x2.e3m2x2": "cvt.rn.f16x2.e3m2x2 %r1, %h1;",  # for sm_100a
}
HEAD = "\nadd.f32 %f1, %f2, %f3;\n"


def run_command(capsys: Any, *files: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    code = main(["vm", "--coverage", *map(str, files)])
    return code, *capsys.readouterr()


def runs(module: ptx.Module) -> bool:
    """Whether all kernels of a module can be made ready to run."""
    items = (item for item in module.items if isinstance(item, ptx.tree.Variable))
    names = [item.name for item in items if item.space != "shared"]
    try:
        for entry in module.entries:
            build(module, entry, dict.fromkeys(names, 0))
    except PtxError:
        return False
    return True


@every_row("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}", parts=6)
def test_coverage_agrees_with_a_launch(file: Path) -> None:
    module = ptx.parse(file.read_text(), str(file))
    found = coverage(module)
    assert runs(module) is not (any(need.refused for need in found.needs) or bool(found.others))
    words = {need.opcode for need in found.needs}
    assert {i.opcode for entry in module.entries for i in entry.instructions()} <= words


@pytest.mark.parametrize(("opcode", "line"), REFUSED.items(), ids=REFUSED)
def test_refused_instruction_is_named_with_its_line(opcode: str, line: str) -> None:
    source = kernel(HEAD + line)
    module = ptx.parse(source)
    found = {need.opcode: need for need in coverage(module).needs}
    assert not runs(module) and not found["add.f32"].refused
    assert [need.opcode for need in found.values() if need.refused] == [opcode]
    (error,) = found[opcode].refused
    first = source[: source.index(line)].count("\n") + 1
    assert error.location is not None and error.location.line - first in range(line.count("\n") + 1)


def test_errors_outside_of_instructions_are_listed() -> None:
    module = ptx.parse(kernel(HEAD, directives=".blocksareclusters"))
    found = coverage(module)
    assert not runs(module) and found.others
    assert not any(need.refused for need in found.needs)


CALLED = ".func f() {{ .reg .u32 %r<3>; {line}\n ret; }}"


@pytest.mark.parametrize("call", ["", "call f, ();"])
def test_only_called_functions_are_counted(call: str) -> None:
    module = ptx.parse(kernel(HEAD + call, top=CALLED.format(line=REFUSED["ad.u32"])))
    found = {need.opcode: need for need in coverage(module).needs}
    assert runs(module) is not ("ad.u32" in found) and ("ad.u32" in found) is bool(call)


def test_module_without_kernels() -> None:
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    text = head + CALLED.format(line="add.u32 %r1, %r2, 5; " + REFUSED["ad.u32"])
    found = {need.opcode: len(need.refused) for need in coverage(ptx.parse(text)).needs}
    assert found == {"ad.u32": 1, "add.u32": 0, "ret": 0}


def test_form_refused_in_some_uses() -> None:
    good, bad = "add.u32 %r1, %r2, 5;\n", "add.u32 %r1, %r2;\n"
    (need,) = (n for n in coverage(ptx.parse(kernel(good + bad + good))).needs if n.refused)
    assert (need.opcode, need.count, len(need.refused)) == ("add.u32", 3, 1)


def test_a_module_without_text() -> None:
    module = replace(ptx.parse(kernel(HEAD + REFUSED["ad.u32"])), source="")
    found = coverage(module).needs
    assert InstructionUse("ret", 1) in found and [
        need.opcode for need in found if need.refused
    ] == ["ad.u32"]


def test_the_command_adds_files_up(capsys: Any, tmp_path: Path) -> None:
    sgemm = PTX / "sgemm.ptx"
    once, twice = run_command(capsys, sgemm), run_command(capsys, sgemm, sgemm)
    assert once[0] == twice[0] == 0 and not once[2]
    assert "23 of 23 forms, 167 of 167 instructions" in once[1]
    assert "23 of 23 forms, 334 of 334 instructions" in twice[1]
    file = tmp_path / "refused.ptx"
    file.write_text(kernel(HEAD + REFUSED["ad.u32"]))
    code, out, err = run_command(capsys, sgemm, file)
    line = next(line for line in out.splitlines() if line.startswith("ad.u32"))
    assert code == 1 and line.split()[1:3] == ["1", "no"] and f"{file}:" in line
    assert "no instruction 'ad.u32'" in err and "^^^^^^" in err


def test_a_file_that_can_not_be_read_does_not_stop_it(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "wrong.ptx"
    file.write_text(".version 8.0\n.target sm_80\n.visible .entry f() { add.u32 ; ")
    code, out, err = run_command(capsys, file, "/no/such.ptx", PTX / "box.ptx")
    assert code == 2 and "of 19 forms" in out
    assert f"{file}:3:" in err and "/no/such.ptx: No such file" in err


def test_files_of_one_program(capsys: Any, tmp_path: Path) -> None:
    files = [ROOT / "tests" / "corpus" / f"{name}.ptx" for name in ("linked", "parts")]
    assert run_command(capsys, *files)[0] == 1  # each alone has calls of the other
    code, out, _ = run_command(capsys, *files, "--linked")
    assert code == 0 and "call.uni" in out
    wrong = [tmp_path / file.name for file in files]
    for copy, file in zip(wrong, files, strict=True):
        copy.write_text(file.read_text().replace("add.s32", "ad.s32", 1))
    code, _, error = run_command(capsys, *wrong, "--linked")
    assert code == 1 and all(f"{copy}:" in error for copy in wrong[:1])
    found = coverage(ptx.link([ptx.parse(f.read_text(), str(f)) for f in wrong]))
    (need,) = (need for need in found.needs if need.refused)
    assert [e.location.file for e in need.refused] == list(map(str, wrong)) and not found.others
