"""Programs whose every instruction went through text and back give the same results on the GPU."""

from __future__ import annotations

import pytest

from corpus_cases.on_gpu import CASES, on_gpu, skip_reason
from tilewright.sass import CodeMotion, CubinFile, assemble, disassemble, encoding_table, with_code

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]
LEAST = 40  # programs


def through_text(data: bytes) -> bytes:
    """The cubin whose functions are assembled from their listings."""
    cubin = CubinFile.parse(data)
    table = encoding_table(cubin.sm)
    for name in cubin.functions:
        old = cubin.code(name)
        new = assemble(table, disassemble(table, old))
        motion = CodeMotion({at: at for at in range(0, len(old), 16)}, len(old), len(new))
        cubin = with_code(cubin, name, new, motion)
    return cubin.build()


def programs() -> list[int]:
    """The first case of every second file that a GPU can run by itself."""
    first: dict[str, int] = {}
    for number, case in enumerate(CASES):
        if not skip_reason(case) and not case.slow:
            first.setdefault(case.file, number)
    return list(first.values())[::2]


def test_there_are_enough_programs() -> None:
    assert len(programs()) >= LEAST


@pytest.mark.parametrize("number", programs(), ids=lambda n: CASES[n].file)
def test_results_are_the_same(number: int) -> None:
    """``on_gpu`` compares with NumPy's results, too."""
    for mine, theirs in zip(on_gpu(number, through_text), on_gpu(number), strict=True):
        assert mine.tobytes() == theirs.tobytes()
