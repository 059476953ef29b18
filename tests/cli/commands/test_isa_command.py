"""``tilewright isa``: listings, explanations, counts, pictures, and errors of wrong arguments."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tilewright import mma
from tilewright.cli import main
from tilewright.cli.form_search import forms
from tilewright.ptx.isa import form
from tilewright.view import draw_fragment, draw_instruction

pytestmark = pytest.mark.vm

HALF = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LISTED = """\
form  PTX  target  bits
mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32  7.0  sm_80  …
mma.sp.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32  7.1  sm_80  …
mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32  8.5  sm_80  …
""".replace("…", "published, not verified")


def run_cli(capsys: Any, *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``tilewright isa …``."""
    code = main(["isa", *arguments])
    return code, *capsys.readouterr()


def squeezed(text: str) -> list[list[str]]:
    """Lines as columns, however wide."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines()]


def test_a_listing(capsys: Any) -> None:
    asked = ("mma", "--target", "sm_80", "--type", "bf16", "--shape", "m16n8k16")
    code, out, err = run_cli(capsys, *asked)
    assert (code, err) == (0, "") and squeezed(out) == squeezed(LISTED)


def listed(capsys: Any, *arguments: str) -> list[str]:
    """The opcodes that a listing has."""
    return [line[0] for line in squeezed(run_cli(capsys, *arguments)[1])[1:]]


def test_filters_are_the_rows(capsys: Any) -> None:
    rows = [i for i in mma.ROWS if i.family in ("mma", "mma.sp") and i.runs_on("sm_90")]
    wanted = [i.opcode for i in rows if "e4m3" in (i.a, i.b)]
    assert listed(capsys, "mma", "--target", "sm_90", "--type", "e4m3") == wanted
    early = [i.opcode for i in rows if "e4m3" in (i.a, i.b) and i.in_version("8.4", "sm_90")]
    asked = ("mma", "--target", "sm_90", "--type", "e4m3", "--version", "8.4")
    assert listed(capsys, *asked) == early != wanted
    kinds = [i.opcode for i in mma.ROWS if i.kind == "mxf4"]
    assert listed(capsys, "--kind", "mxf4") == kinds
    sparse = [i.opcode for i in mma.ROWS if i.family == "wgmma.sp" and i.shape == "m64n8k32"]
    assert listed(capsys, "wgmma.sp", "--shape", "m64n8k32") == sparse
    assert listed(capsys, "mma.sync.aligned.m16n8k8") == [
        i.opcode for i in mma.ROWS if i.family == "mma" and i.shape == "m16n8k8"
    ]


def test_families(capsys: Any) -> None:
    _, out, _ = run_cli(capsys)
    numbers = dict(line for line in squeezed(out) if len(line) == 2)
    for family in ("mma", "mma.sp", "wmma", "wgmma", "wgmma.sp"):
        assert int(numbers[family]) == len([i for i in mma.ROWS if i.family == family])
    assert "other instructions: abs" in out


def test_counts(capsys: Any) -> None:
    _, out, _ = run_cli(capsys, "--count", "--json")
    numbers = json.loads(out)
    total = numbers.pop("all")
    assert total == sum(numbers.values()) and numbers["cvt"] == len(forms("cvt"))
    assert run_cli(capsys, "prmt", "--count")[1].split() == ["prmt", "7", "all", "7"]
    assert run_cli(capsys, "add", "--count")[1].split()[-1] == str(len(forms("add")))


def test_every_form_that_is_counted_is_legal() -> None:
    for opcode in forms("cvt"):
        assert form(opcode).signatures


def test_an_opcode_is_explained(capsys: Any) -> None:
    _, out, _ = run_cli(capsys, "mma.m16n8k16.aligned.sync.row.col.f32.f16.f16.f32")
    assert "needs       PTX 7.0 for sm_80 and later" in out
    assert "a: 4 registers a lane, ((4,8),(2,2,2)):((32,1),(16,8,128))" in out
    assert "bits on sm_90a: verified (Hopper)" in out
    _, out, _ = run_cli(capsys, HALF, "--target", "sm_80")
    assert "bits on sm_80: published, not verified (Ampere)" in out
    assert "2 fused sums in turn, of 8 products each" in out


def test_sparse_and_scales_are_explained(capsys: Any) -> None:
    _, out, _ = run_cli(capsys, "wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16")
    assert "b: in shared memory" in out and "metadata: 1 register a thread" in out
    scaled = next(i.opcode for i in mma.ROWS if i.stype and not i.sparse)
    _, out, _ = run_cli(capsys, scaled)
    assert "scale_a: 1 register a lane" in out and "byte_id_a: 0" in out


def test_rows_of_other_instructions(capsys: Any) -> None:
    rows = listed(capsys, "cvt", "--target", "sm_90a")
    assert "cvt.{rnd}.satfinite[.relu].{D}.{A}" in rows
    assert not set(listed(capsys, "cvt", "--type", "e4m3", "--target", "sm_80"))
    _, out, _ = run_cli(capsys, "cvt.rn.satfinite.e4m3x2.f32")
    assert "PTX 8.1 for sm_89; 7.8 for sm_90 and later" in out
    assert "becomes the upper part" in out and "operands    d:e4m3x2 = a:f32, b:f32" in out


def test_what_moves_fragments_is_explained(capsys: Any) -> None:
    _, out, _ = run_cli(capsys, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16")
    assert "32 lines of 8 b16, at multiples of 16 bytes" in out
    assert "4 registers a lane, ((4,8),(2,4)):((2,32),(1,8))" in out


def test_for_programs(capsys: Any) -> None:
    made = json.loads(run_cli(capsys, "wgmma", "--type", "tf32", "--json")[1])
    assert {m["family"] for m in made} == {"wgmma", "wgmma.sp"}
    assert made[0]["needs"] == [[["8.0", "sm_90a"]]]
    one = json.loads(run_cli(capsys, HALF, "--json")[1])
    assert one["operands"]["a"]["layout"] == "((4,8),(2,2,2)):((32,1),(16,8,128))"
    assert one["shape"] == [16, 8, 16] and one["verified"]
    rows = json.loads(run_cli(capsys, "prmt", "--json")[1])
    assert rows[0]["choices"] == {"mode": ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]}


def test_drawing(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "half.svg"
    code, out, _ = run_cli(capsys, HALF, "--draw", str(file))
    assert code == 0 and str(file) in out
    assert file.read_text() == draw_instruction(mma.find(HALF))
    assert os.listdir(tmp_path) == ["half.svg"]
    run_cli(capsys, HALF, "--draw", str(file), "--operand", "a")
    a = draw_fragment(mma.find(HALF).fragment("a"), HALF, name="a")
    assert file.read_text() == a
    assert run_cli(capsys, HALF, "--draw", "-", "--operand", "a")[1] == a
    _, out, _ = run_cli(capsys, "ldmatrix.sync.aligned.m8n8.x4.b16", "--draw", "-")
    assert ElementTree.fromstring(out).tag.endswith("svg")


def test_drawing_is_all_or_nothing(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "kept.svg").write_text("kept")
    (tmp_path / "plain").write_text("")
    wrong = {
        str(tmp_path): "output must be a file",
        str(tmp_path / "none" / "a.svg"): "No such file or directory",
        str(tmp_path / "plain" / "a.svg"): "Not a directory",
        os.devnull: "output must be a regular file",
        "": "output must be a file, got ''",
        "a\0b": "can't write 'a\\x00b'",
    }
    for name, words in wrong.items():
        code, out, err = run_cli(capsys, HALF, "--draw", name)
        assert (code, out) == (2, "") and words in err, (name, err)
    code, _, err = run_cli(capsys, f"{HALF}x", "--draw", str(tmp_path / "kept.svg"))
    assert code == 2 and "nearest are" in err
    assert (tmp_path / "kept.svg").read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["kept.svg", "plain"]


def test_a_link_is_followed_and_rights_stay(capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "real.svg").write_text("")
    (tmp_path / "real.svg").chmod(0o640)
    (tmp_path / "link.svg").symlink_to("real.svg")
    assert run_cli(capsys, HALF, "--draw", str(tmp_path / "link.svg"))[0] == 0
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "real.svg").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "real.svg").read_text().startswith("<svg")


MISUSE = {
    "an opcode": ((f"{HALF}.f32",), "nearest are"),
    "a type that the shape has not": (
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f16",), "m16n8k16.row.col.f32.bf16",
    ),
    "an opcode of cvt": (("cvt.rn.e4m3x2.f32",), r"nearest are cvt\.rn\.satfinite\.e4m3x2\.f32"),
    "an opcode of ldmatrix": (("ldmatrix.sync.aligned.m8n8.x3.b16",), "nearest are ldmatrix.sync"),
    "an instruction": (("mmma",), "no instruction 'mmma'"),
    "a target": (("mma", "--target", "sm_91"), "unknown target 'sm_91'"),
    "a target that has not got it": (
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "--target", "sm_90"),
        "needs .target sm_90a, got sm_90",
    ),
    "a version that has not got it": ((HALF, "--version", "6.5"), r"needs .version 7\.0, got 6\.5"),
    "a version": (("mma", "--version", "8"), "must be like 8.5"),
    "a type": (("mma", "--type", "f12"), "unknown number format 'f12'"),
    "nothing such": (("mma", "--type", "e3m2", "--target", "sm_90"), "types are b1, bf16"),
    "no row such": (("cvt", "--type", "e4m3", "--target", "sm_80"), "no form of cvt matches"),
    "an operand alone": ((HALF, "--operand", "a"), "add --draw FILE"),
    "an operand that is not there": (
        (HALF, "--draw", "-", "--operand", "metadata"), "has operands d, a, b, c, got 'metadata'",
    ),
    "in shared memory": (
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "--draw", "-", "--operand", "b"),
        "is in shared memory",
    ),
    "no opcode to draw": (("mma", "--draw", "x.svg"), f"tilewright isa {HALF} --draw x.svg"),
    "nothing to draw": (("add.u32", "--draw", "-"), "add.u32 has no fragments to draw"),
    "too many": (("ld", "--count"), "too many to enumerate"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "words"), MISUSE.values(), ids=MISUSE)
def test_misuse_is_one_message(capsys: Any, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run_cli(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ") and re.search(words, err) and "Traceback" not in err
