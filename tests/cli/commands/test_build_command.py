"""``tilewright build`` needs an assembler and no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ptxas import ptxas
from tilewright import gemm
from tilewright.cli import main
from tilewright.run.devices import serialized_kernel
from tilewright.target import DEFAULT_DEVICE

CONFIG = "tma:128x128x64:2:4"
WORDS = ["build", "512", "512", "512", "--a", "bf16", "--device", "vm", "--config", CONFIG]


pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


@pytest.fixture(autouse=True)
def _assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_PTXAS", str(ptxas()))


def test_kernels_go_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gemm.kernels"
    for layout in ("tn", "nt", "tn"):
        assert main([*WORDS, "--layout", layout, "-o", str(file)]) == 0
    assert "2 kernels" in capsys.readouterr().out
    problem = gemm.Problem(256, 384, 1024, "bf16", "bf16", "bf16", "k", "k")
    (wanted,) = gemm.kernels(problem, gemm.parse(CONFIG), DEFAULT_DEVICE)
    kept = serialized_kernel.read(file)["sm_90a", str(wanted)]
    assert kept.cubin.code.startswith(b"\x7fELF") and kept.entry == wanted.trace().name


@pytest.mark.parametrize("words", [["--a", "f32"], ["--device", "vm:A100"], []], ids=str)
def test_any_kernel_is_built_without_cuda(words: list[str], tmp_path: Path) -> None:
    file = tmp_path / "k"
    assert main(["build", "64", "64", "64", "--device", "vm", *words, "-o", str(file)]) == 0
    assert len(serialized_kernel.read(file)) == 1


def test_a_file_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "k"
    assert main([*WORDS, "-o", str(file)]) == 0
    before = file.read_bytes()
    assert main([*WORDS, "-o", str(tmp_path)]) == 2
    assert "output must be a file" in capsys.readouterr().err

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    assert main([*WORDS, "--layout", "nt", "-o", str(file)]) == 2
    assert "No space left" in capsys.readouterr().err
    assert file.read_bytes() == before and list(tmp_path.iterdir()) == [file]


@pytest.mark.slow
def test_builds_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "k"
    command = [sys.executable, "-m", "tilewright", *WORDS, "-o", str(file), "--layout"]
    running = [subprocess.Popen([*command, x]) for x in ("tn", "nt", "nn")]
    assert not any(process.wait(120) for process in running)
    assert len(serialized_kernel.read(file)) == 3
