"""Whole programs, such as PTX with setmaxnreg, are assembled by ptxas.

Tests how ptxas is found, its reports, and what happens if it is broken or missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxas import ptxas as wheel
from tilewright import cuda
from tilewright.cuda import assembler, ptxas
from tilewright.cuda.cubin import Cubin, is_whole
from tilewright.errors import CudaError, DeviceError, MissingPackage, TilewrightError

pytestmark = [pytest.mark.tools, pytest.mark.skipif(wheel() is None, reason="no ptxas")]

PLAIN = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry f()
.maxntid 384, 1, 1
.minnctapersm 1
{
    ret;
}
"""
PTX = PLAIN.replace("    ret;", "    setmaxnreg.dec.sync.aligned.u32 24;\n    ret;")
OPTIONS = assembler.AssemblerOptions(True, False, None, "my.ptx")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(wheel())
    monkeypatch.setenv(ptxas.VARIABLE, path)
    return path


def script(folder: Path, body: str) -> str:
    """A shell script in place of ptxas."""
    path = folder / "ptxas"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)
    return str(path)


def test_setmaxnreg_is_not_ignored(program: str) -> None:
    cubin = cuda.compile(PTX)
    assert is_whole(cubin.code) and cubin.compiler == cuda.compiler(PTX) == str(ptxas.find())
    assert not cubin.warnings and not cubin.spills


def test_setmaxnreg_without_a_register_count_is_ignored_with_a_warning(program: str) -> None:
    (warning,) = cuda.compile(PTX.replace(".minnctapersm 1\n", "")).warnings
    assert "C7508" in warning and "unable to determine register count" in warning


def test_relocatable_code_ignores_setmaxnreg_with_a_warning(program: str) -> None:
    _, code, log = ptxas.find()(PTX, [*OPTIONS.ptxas("sm_90a"), "-c"])
    (warning,) = Cubin(code, "sm_90a", log).warnings
    assert "C7504" in warning and "'setmaxnreg' ignored" in warning


def test_options_are_passed_to_ptxas(program: str) -> None:
    options = assembler.AssemblerOptions(False, True, 64, "my.ptx")
    assert assembler.with_ptxas(PLAIN, "sm_90a", options).code.count(b".debug_line")


def test_an_error_has_the_line_of_the_ptx(program: str) -> None:
    with pytest.raises(CudaError, match="bogus") as caught:
        cuda.compile(PTX.replace("ret;", "bogus.u32 3;"), file="my.ptx")
    location = caught.value.location
    assert location and (location.file, location.line, location.column) == ("my.ptx", 9, 5)
    assert caught.value.name == "PTXAS_REFUSED" and "ptxas" in caught.value.__notes__[0]


@pytest.mark.parametrize("future", [("8.0", "99.0"), ("sm_90a", "sm_999")])
def test_a_ptxas_that_is_too_old_falls_back_to_the_driver(
    program: str, future: tuple[str, str]
) -> None:
    ptx = PTX.replace(*future)
    with pytest.raises(CudaError, match=r"99\.0|sm_999") as caught:
        assembler.with_ptxas(ptx, assembler.target_of(ptx), OPTIONS)
    assert assembler._may_fall_back(caught.value)
    if not cuda.available():
        with pytest.raises(TilewrightError, match=r"99\.0|sm_999"):
            cuda.compile(ptx)


VERSION = "echo 'Cuda compilation tools, release 12.1, V12.1.105'"


@pytest.mark.parametrize("fault", ["kill -SEGV $$", "exit 0", "echo no library; exit 127"])
def test_a_broken_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    body = f"if [ $1 = --version ]; then {VERSION}; else {fault}; fi"
    monkeypatch.setenv(ptxas.VARIABLE, script(tmp_path, body))
    with pytest.raises(CudaError, match="can't be used") as caught:
        assembler.with_ptxas(PTX, "sm_90a", OPTIONS)
    assert caught.value.name == ptxas.BROKEN and assembler._may_fall_back(caught.value)


def test_a_truncated_cubin_is_an_error(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk leaves it, which ptxas does not notice."""
    for size in (0, 400):
        cut = f'{program} "$@" && for cubin; do :; done && truncate -s {size} $cubin'
        body = f"if [ $1 = --version ]; then {VERSION}; else {cut}; fi"
        monkeypatch.setenv(ptxas.VARIABLE, script(tmp_path, body))
        with pytest.raises(CudaError, match=f"exit status 0, {size} bytes"):
            assembler.with_ptxas(PTX, "sm_90a", OPTIONS)


def test_no_temporary_folder_for_the_ptx(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(CudaError, match="/nowhere") as caught:
        assembler.with_ptxas(PTX, "sm_90a", OPTIONS)
    assert "TMPDIR" in caught.value.hint


def test_search_path_of_ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = script(tmp_path, VERSION)
    assert path in ptxas._paths()
    monkeypatch.setenv(ptxas.VARIABLE, path)
    assert ptxas.find(12) == ptxas.find() == ptxas.Ptxas(path, "12.1.105")
    with pytest.raises(DeviceError, match=r"CUDA 11 driver can't load code of ptxas 12\.1\.105"):
        ptxas.find(11)
    monkeypatch.setenv(ptxas.VARIABLE, "/nowhere/ptxas")
    with pytest.raises(DeviceError, match="/nowhere/ptxas"):
        cuda.compile(PTX)
    monkeypatch.delenv(ptxas.VARIABLE)
    with pytest.raises(MissingPackage, match="CUDA 11 driver can't load code"):
        ptxas.find(11)


def test_a_cubin_of_ptx_that_only_the_driver_can_assemble() -> None:
    cubin = Cubin(PTX.encode(), "sm_90a", "", "driver 13.0, when loaded")
    assert cubin.is_ptx and Cubin.unpack(cubin.pack()) == cubin and not cubin.warnings
