"""``tilewright run``: kernels of PTX files, with arguments from the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from pages import ROOT
from ptx_kernels import simt
from rows import every_row
from tilewright.cli import main

pytestmark = pytest.mark.vm

PTX = ROOT / "tests" / "data" / "ptx"
SGEMM = [str(PTX / "sgemm.ptx"), "--grid", "2,2", "--block", "16,16"]
BOX = [str(PTX / "box.ptx"), "--grid", "1", "--block", "512", "--array", "x=arange:f32:64x64"]


def args(*given: str) -> list[str]:
    return [word for text in given for word in ("--arg", text)]


def run_cli(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command."""
    code = main(["run", *arguments])
    return code, *capsys.readouterr()


def test_it_runs_reports_and_saves(capsys: Any, tmp_path: Path) -> None:
    files = {name: str(tmp_path / f"{name}.npy") for name in "abc"}
    saves = [word for name, file in files.items() for word in ("--save", f"{name}={file}")]
    given = args("a=random:f32:20x20", "b=random:f32:20x20", "c=zeros:f32:20x20", "n=u32:20")
    code, out, _ = run_cli(capsys, *SGEMM, *given, *saves, "--seed", "3", "--checked")
    a, b, c = (np.load(file) for file in files.values())
    assert code == 0 and np.allclose(c, a @ b, atol=1e-4) and c.dtype == np.float32
    assert "sgemm of " in out and "grid 2×2, block 16×16, seed 3, checked" in out
    assert f"c         f32 20×20, {c.min():.6g} … {c.max():.6g}, mean" in out
    again = args(f"a={files['a']}", f"b={files['b']}", "c=ones:f32:20x20", "n=s32:0x14")
    bits = re.compile(r"^c .* bits (\w{16})$", re.M)
    assert bits.findall(run_cli(capsys, *SGEMM, *again)[1]) == bits.findall(out) != []


def test_a_map_of_an_array_that_is_no_argument(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "out.npy"
    given = args("m=map:x:box=16x32:fill=nan", "out=zeros:f32:16x32", "column=u32:32", "row=u32:60")
    code, out, _ = run_cli(capsys, *BOX, *given, "--save", f"out={file}")
    assert code == 0 and "384 NaNs" in out
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    assert np.array_equal(np.load(file)[:4], x[60:, 32:])


def test_files_are_linked(capsys: Any, tmp_path: Path) -> None:
    files = [str(ROOT / "tests" / "corpus" / f"{name}.ptx") for name in ("parts", "linked")]
    file = str(tmp_path / "y.npy")
    shape = ["--entry", "part", "--grid", "1", "--block", "8", *args("y=zeros:s32:8")]
    code, out, _ = run_cli(capsys, *files, *shape, "--save", f"y={file}")
    assert code == 0 and f"part of {files[0]} and {files[1]}" in out
    assert np.load(file).tolist() == [1, 2, 6, 24, 120, 1, 2, 6]
    code, _, error = run_cli(capsys, *files, *shape, "--stack", "64")
    assert code == 2 and "product" in error and "of a stack of 64, 1 calls deep" in error
    code, _, error = run_cli(capsys, files[0], files[0], *shape)
    assert code == 2 and "is defined twice" in error


DOUBLED = """ld.global.u16 %h0, [%a0]; add.u16 %h0, %h0, %h0; st.global.u16 [%a0], %h0;
st.global.u32 [%a1], %n0; st.global.u32 [%a1+4], %n1;"""


def test_formats_that_numpy_does_not_know(capsys: Any, tmp_path: Path) -> None:
    """A .npy file says of bf16 that it has two bytes; scalars are bits of their type."""
    file, ptx, saved = tmp_path / "x.npy", tmp_path / "k.ptx", tmp_path / "y.npy"
    np.save(file, np.ones(1, ml_dtypes.bfloat16))
    ptx.write_text(simt.kernel(DOUBLED))
    rest = [f"p{i}=u64:0" for i in range(4)]
    given = args(f"x={file}:bf16", "y=zeros:s32:2", *rest, "a=f32:0.5", "b=s32:-1", "c=u32:0")
    shape = [str(ptx), "--entry", "k", "--grid", "1", "--block", "1", "--save", f"y={saved}"]
    refused, _, why = run_cli(capsys, *shape, *given, *args("d=f32:1"))
    assert refused == 2 and "n0 (.u32) can't be" in why
    given[given.index("a=f32:0.5")] = "a=bytes:0000003f"
    code, out, _ = run_cli(capsys, *shape, *given, *args("d=u32:1"))
    doubled = np.array([2 * 0x3F80], np.uint16).view(ml_dtypes.bfloat16)[0]
    assert code == 0 and f"bf16 1, {float(doubled):.6g} …" in out
    assert np.load(saved).tolist() == [0x3F000000, -1]


A, B, C = "a=random:f32:4x4", "b=random:f32:4x4", "c=zeros:f32:4x4"
MISUSE = {
    "a file": (["/no/such.ptx", *SGEMM[1:]], "/no/such.ptx: No such file"),
    "an entry": ([*SGEMM, "--entry", "f"], "has no kernel 'f'; it has: sgemm"),
    "a count": ([*SGEMM, *args(A, B, C)], "4 parameters, got 3 arguments"),
    "an array": ([*SGEMM, *args(A, B, C, "d=zeros:u32:1")], "--arg d=.*_3 .* got an array"),
    "a number's size": ([*SGEMM, *args(A, B, C, "n=u64:4")], "--arg n=.* expected 4 bytes, got 8"),
    "a float": ([*SGEMM, *args(A, B, C, "n=f32:4")], "expected .u32, got NumPy's float32"),
    "a map": ([*SGEMM, *args(A, "m=map:a:box=4x4", C, "n=u32:4")], "expected 8 bytes, got 128"),
    "a huge shape": ([*SGEMM, *args("a=ones:f32:0x" + 19 * "9", B, C, "n=u32:4")], "not support"),
    "no end": ([*SGEMM, *args("a=ones:f32:" + 5000 * "9", B, C, "n=u32:4")], "must be extents"),
    "a range": ([*SGEMM, *args(A, B, C, "n=u32:-4")], "u32 must be from 0 to 4294967295, got -4"),
    "a range of floats": ([*SGEMM, *args(A, B, C, "n=f16:1e6")], "1e6 is out of range for f16"),
    "no number": ([*SGEMM, *args(A, B, C, "n=u32:four")], "must be an integer, got 'four'"),
    "no bytes": ([*SGEMM, *args(A, B, C, "n=bytes:0g")], "bytes must be hexadecimal.*, got '0g'"),
    "a type": ([*SGEMM, *args("a=zeros:f33:4", B, C, "n=u32:4")], "unknown number format 'f33'"),
    "a kind": ([*SGEMM, *args("a=full:f32:4", B, C, "n=u32:4")], "hint: valid values are zeros"),
    "no shape": ([*SGEMM, *args("a=ones:f32", B, C, "n=u32:4")], "example ones:f32:64x64"),
    "a shape": ([*SGEMM, *args("a=ones:f32:4x-4", B, C, "n=u32:4")], "extents.*, got '4x-4'"),
    "a size": ([*SGEMM, *args("a=ones:f32:9999999x99999", B, C, "n=u32:4")], "contiguous free"),
    "an array's file": ([*SGEMM, *args("a=/no.npy", B, C, "n=u32:4")], "/no.npy: No such file"),
    "what is in it": ([*SGEMM, *args("a={junk}.npy", B, C, "n=u32:4")], "can't read an array"),
    "a name": ([*SGEMM, *args(A, A, C, "n=u32:4")], "a is already defined"),
    "no name": ([*SGEMM, *args(A, "zeros:f32:4", C, "n=u32:4")], "must be NAME=VALUE"),
    "a folder to save in": (
        [*SGEMM, *args(A, B, C, "n=u32:4"), "--save", "c=/nowhere/x.npy"],
        "can't write '/nowhere/x.npy': folder /nowhere does not exist",
    ),
    "a device to save in": (
        [*SGEMM, *args(A, B, C, "n=u32:4"), "--save", "c=/dev/null"], "must be a regular file",
    ),
    "a save": ([*SGEMM, *args(A, B, C, "n=u32:4"), "--save", "n=x.npy"], "arrays are: a, b, c"),
    "a GPU": ([*SGEMM, "--arch", "sm_1"], "sm_1"),
    "a grid": ([*SGEMM, *args(A, B, C, "n=u32:4"), "--grid", "1,99999"], "grid must be from"),
    "a map's array": ([*BOX, *args("m=map:y:box=4x4", *"abc")], "no array 'y'.* arrays are: x"),
    "a map's box": ([*BOX, *args("m=map:x", *"abc")], "a tensor map needs the box"),
    "a map's word": ([*BOX, *args("m=map:x:bix=4", *"abc")], "no option 'bix'; options are box"),
    "a map's rule": ([*BOX, *args("m=map:x:box=16x320", *"abc")], "must be 1 … 256, got 320"),
    "no array": ([*BOX, "--array", "y=u32:4"], "--array y=u32:4: must be an array"),
    "a fault": ([*SGEMM, *args(A, B, C, "n=u32:5")], r"out of bounds: ld.f32(?s:.*)\^\^\^"),
}  # fmt: skip


@every_row(("arguments", "words"), MISUSE.values(), ids=MISUSE)
def test_misuse_is_one_message(
    capsys: Any, tmp_path: Path, arguments: list[str], words: str
) -> None:
    (tmp_path / "junk.npy").write_bytes(b"\x93NUMPY junk")
    given = [word.replace("{junk}", str(tmp_path / "junk")) for word in arguments]
    code, _, err = run_cli(capsys, *given)
    assert code == 2 and err.startswith("error: ") and re.search(words, err), err
    assert "Traceback" not in err


TYPES = "pred u4 s4 u8 s8 u16 s64 e2m1 e2m3 e3m2 e4m3 e5m2 ue8m0 f16 bf16 f64".split()


@every_row("type_", TYPES)
@every_row("kind", ["zeros", "ones", "arange", "random"])
def test_every_type_that_numpy_has(capsys: Any, tmp_path: Path, type_: str, kind: str) -> None:
    file = tmp_path / "k.ptx"
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    file.write_text(f"{head}.entry k(.param .u64 p) {{ ret; }}")
    shape = [str(file), "--grid", "4", "--block", "32", "--cluster", "2", "--arch", "sm_90"]
    code, out, _ = run_cli(capsys, *shape, *args(f"x={kind}:{type_}:3x5"))
    assert code == 0 and f"x         {type_} 3×5, " in out and "clusters of 2, seed" in out


def test_a_file_of_two_kernels_needs_a_name(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "two.ptx"
    head = ".version 8.0\n.target sm_100\n.address_size 64\n"
    entries = [f".visible .entry {name}()\n{{\n\tret;\n}}\n" for name in "fg"]
    file.write_text(head.replace("8.0", "8.6") + "".join(entries))
    shape = [str(file), "--grid", "1", "--block", "32"]
    assert "has 2 kernels: f, g" in run_cli(capsys, *shape)[2]
    code, out, _ = run_cli(capsys, *shape, "--entry", "g")
    assert code == 0 and "as sm_100" in out  # the usual GPU does not run it
