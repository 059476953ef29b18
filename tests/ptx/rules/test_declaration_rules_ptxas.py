"""NVIDIA's assembler takes and refuses the declarations and arguments that the checker does."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ptx_forms.declarations import PASSED, REFUSED, TAKEN, declared, passed
from ptxas import ptxas

pytestmark = [
    pytest.mark.tools,
    pytest.mark.tools,
    pytest.mark.skipif(ptxas() is None, reason="ptxas is not on this machine"),
]


def judged() -> Iterator[tuple[str, bool]]:
    """(module, whether it is right)."""
    for place, words in TAKEN:
        yield declared(place, words), True
    for place, words, _ in REFUSED:
        yield declared(place, words), False
    for formal, given, fits in PASSED:
        yield passed(formal, given), fits


def test_ptxas_judges_declarations_and_arguments_alike(tmp_path: Path) -> None:
    def wrong(numbered: tuple[int, tuple[str, bool]]) -> str:
        number, (text, right) = numbered
        source = tmp_path / f"{number}.ptx"
        source.write_text(text)
        command = [str(ptxas()), "-arch", "sm_90a", str(source), "-o", f"{source}.cubin"]
        done = subprocess.run(command, capture_output=True, text=True)
        return "" if (done.returncode == 0) is right else f"{text}{done.stdout}{done.stderr}"

    with ThreadPoolExecutor(2) as pool:
        assert not list(filter(None, pool.map(wrong, enumerate(judged()))))
