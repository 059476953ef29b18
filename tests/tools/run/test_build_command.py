"""``tilewright build`` needs an assembler and no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxas import ptxas
from tilewright import gemm
from tilewright.cli import main
from tilewright.run import built
from tilewright.target import DEFAULT_DEVICE

CONFIG = "tma:128x128x64:2:4"
WORDS = ["build", "512", "512", "512", "--a", "bf16", "--device", "vm", "--config", CONFIG]


@pytest.mark.skipif(ptxas() is None, reason="no ptxas")
def test_kernels_go_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_PTXAS", str(ptxas()))
    file = tmp_path / "gemm.kernels"
    for layout in ("tn", "nt", "tn"):
        assert main([*WORDS, "--layout", layout, "-o", str(file)]) == 0
    assert "2 kernels" in capsys.readouterr().out
    problem = gemm.Problem(256, 384, 1024, "bf16", "bf16", "bf16", "k", "k")
    (wanted,) = gemm.kernels(problem, gemm.parse(CONFIG), DEFAULT_DEVICE)
    kept = built.read(file)["sm_90a", str(wanted)]
    assert kept.cubin.code.startswith(b"\x7fELF") and kept.entry == wanted.trace().name
