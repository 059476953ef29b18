"""CUDA programs without CUDA: whichever way the runtime is linked, calls and kernels end as on a
GPU, and however a program ends, the command ends like it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cuda_programs import (
    CC,
    PTX,
    RUNTIME,
    compiled,
    fatbinary,
    run_program,
    running_program,
    shared,
)
from tilewright.cudart.shim_library import library
from tilewright.target import DEFAULT_DEVICE

pytestmark = [pytest.mark.vm, pytest.mark.skipif(CC is None, reason="no C compiler, or no Linux")]

OK = "cudaSuccess"
BOX = Path(__file__).parents[1] / "data" / "ptx" / "box.ptx"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program whose runtime is a library."""
    folder = tmp_path_factory.mktemp("shared")
    runtime = shared(folder, "libcudart.so.12", RUNTIME)
    return compiled(folder, "host", *runtime, fatbin=fatbinary(PTX))


@pytest.fixture(scope="module", params=["shared", "linked in"])
def either(
    request: pytest.FixtureRequest, program: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """That one, and one that has the runtime linked in."""
    if request.param == "shared":
        return program
    folder = tmp_path_factory.mktemp("linked")
    return compiled(folder, "host", str(RUNTIME), fatbin=fatbinary(PTX))


def test_products(either: Path, capfd: Any) -> None:
    ended = run_program(capfd, either, "products")
    results = [f"{what} {OK}" for what in ("managed", "malloc", "scale", "scale", "copy")]
    assert ended.lines == [*results, "0.5 198.5 147.25 50, 150 calls", f"free {OK}"]
    assert (ended.code, ended.errors) == (0, "")


def test_misuse_gives_cuda_errors_and_messages(either: Path, capfd: Any) -> None:
    ended = run_program(capfd, either, "misuse")
    assert dict(line.split() for line in ended.lines) == {
        "outside": "cudaErrorInvalidValue",
        "swapped": "cudaErrorInvalidValue",
        "kind": "cudaErrorInvalidMemcpyDirection",
        "inner": "cudaErrorInvalidValue",
        "host": "cudaErrorInvalidValue",
        "graph": "cudaErrorNotSupported",
        "block": "cudaErrorInvalidConfiguration",
        "grid": "cudaErrorInvalidConfiguration",
        "kernel": "cudaErrorInvalidDeviceFunction",
        "last": "cudaErrorInvalidDeviceFunction",
        "cleared": OK,
        "freed": OK,
        "twice": "cudaErrorInvalidValue",
    }
    for word in ("65 bytes at", "cudaGraphCreate is not supported", "got (2000, 1, 1)"):
        assert word in ended.errors


def test_kernel_output_appears_when_the_host_waits(program: Path, capfd: Any) -> None:
    assert run_program(capfd, program, "prints").lines == ["launched 1", "1", "launched 2", "2"]


def test_a_fault_is_sticky(either: Path, capfd: Any) -> None:
    ended = run_program(capfd, either, "fault", 7)
    assert ended.lines == [f"{w} cudaErrorIllegalAddress" for w in ("launch", "wait", "after")]
    assert ended.code == 7 and ended.errors.count("out of bounds: ") == 1
    assert "ld.global.f32 \t%v, [%x]" in ended.errors.replace(" %v", " \t%v")


def test_options_are_passed_to_the_machine(program: Path, capfd: Any) -> None:
    for arch, sms in ((DEFAULT_DEVICE.target.name, DEFAULT_DEVICE.sms), ("sm_86", 72)):
        message = f"{sms} SMs, PTX for sm_80 on {arch.rstrip('a')}"
        assert run_program(capfd, program, "device", options=("--arch", arch)).lines == [message]
    ended = run_program(capfd, program, "spin", options=("--step-limit", "100000"))
    assert ended.lines == ["spinning", "spin cudaErrorLaunchTimeout"]
    assert "operations in loops" in ended.errors


def test_an_architecture_without_ptx(program: Path, capfd: Any) -> None:
    ended = run_program(capfd, program, "spin", options=("--arch", "sm_75"))
    assert "spin cudaErrorNoKernelImageForDevice" in ended.lines
    assert "must have PTX that sm_75 runs, got PTX for sm_80" in ended.errors


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_of_the_program(program: Path, code: int, capfd: Any) -> None:
    assert run_program(capfd, program, "", code).code == code


def test_a_crash_is_reported_with_the_shell_s_exit_code(program: Path, capfd: Any) -> None:
    ended = run_program(capfd, program, "abort")
    assert (
        ended.code == 128 + signal.SIGABRT
        and f"ended by signal {signal.SIGABRT} (Aborted)" in ended.errors
    )


def test_a_fork_after_the_first_call_has_no_gpu(program: Path, capfd: Any) -> None:
    assert run_program(capfd, program, "forks").lines == [
        f"parent {OK}",
        "child cudaErrorInitializationError",
    ]


def test_each_process_has_a_gpu_of_its_own(program: Path, capfd: Any) -> None:
    ended = run_program(
        capfd, "sh", "-c", f"{program} products && {program} products; {program} '' 5"
    )
    assert ended.lines.count("0.5 198.5 147.25 50, 150 calls") == 2 and ended.code == 5


@pytest.mark.parametrize("whom", ["all", "us"])
def test_control_c_stops_a_kernel(program: Path, whom: str) -> None:
    with running_program(program, "spin") as process:
        assert process.stdout is not None and process.stdout.readline() == "spinning\n"
        began = time.monotonic()
        (os.killpg if whom == "all" else os.kill)(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130 and "stopped" in errors
        assert time.monotonic() - began < 20


def test_killing_a_program_ends_its_kernel(program: Path, capfd: Any) -> None:
    results = f"{program}.told"
    script = f"{program} spin > {results} & read word < {results}; kill -9 $!; echo killed"
    ended = run_program(capfd, "sh", "-c", f"mkfifo {results}; {script}; rm {results}")
    assert (ended.code, ended.lines) == (0, ["killed"])


def test_the_driver_api(tmp_path: Path, capfd: Any) -> None:
    (tmp_path / "kernels.ptx").write_text(PTX)
    driver = library(lambda kind, key, make: make())
    program = compiled(tmp_path, "driver", *shared(tmp_path, "libcuda.so.1", driver))
    ended = run_program(capfd, program, tmp_path / "kernels.ptx", BOX)
    assert ended.lines == [
        "init CUDA_SUCCESS",
        f"{DEFAULT_DEVICE.name} (tilewright's virtual machine)",
        "no module CUDA_ERROR_FILE_NOT_FOUND",
        "no PTX CUDA_ERROR_INVALID_PTX",
        "module CUDA_SUCCESS",
        "no kernel CUDA_ERROR_NOT_FOUND",
        "global CUDA_SUCCESS",
        "0x3f000000 of 4 bytes",
        "0x12345678",
        "served CUDA_SUCCESS",
        "refused CUDA_ERROR_NOT_SUPPORTED",
        "unknown CUDA_ERROR_NOT_FOUND",
        "entry CUDA_SUCCESS",
        "wrong map CUDA_ERROR_INVALID_VALUE",
        "map CUDA_SUCCESS",
        "load CUDA_SUCCESS",
        "function CUDA_SUCCESS",
        "launch CUDA_SUCCESS",
        "544 575 1535",
    ]
    assert "multiple of 16" in ended.errors


def test_programs_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    ended = run_program(capfd, tmp_path / "nothing")
    assert ended.code == 2 and "can't be started: No such file" in ended.errors
    assert run_program(capfd).code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    ended = run_program(capfd, sys.executable, "-c", "")
    assert ended.code == 2 and "C compiler" in ended.errors
    monkeypatch.setenv("CC", f"{sys.executable} -c raise --")
    ended = run_program(capfd, sys.executable, "-c", "")
    assert ended.code == 2 and "failed:" in ended.errors
