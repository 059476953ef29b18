"""``tilewright sass disassemble``."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxas import ptxas
from sass_cubins import cubin
from tilewright.cli import main

pytestmark = [pytest.mark.tools, pytest.mark.skipif(ptxas() is None, reason="no ptxas")]


def test_a_function_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = cubin("clang/plain", "sm_90a")
    assert data
    file = tmp_path / "plain.cubin"
    file.write_bytes(data)
    assert main(["sass", "disassemble", str(file), "--function", "block_sums"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# block_sums: sm_90, ")
    assert ".L_0:\n" in said and "BAR.SYNC.DEFER_BLOCKING 0x0 ;\n" in said
    assert ".word" not in said
    assert main(["sass", "disassemble", str(file), "--function", "sums"]) == 2
    assert "--function must be one of by_table, " in capsys.readouterr().err
    file.write_bytes(data[:-100])
    assert main(["sass", "disassemble", str(file)]) == 2
    assert "truncated" in capsys.readouterr().err
