"""``mma`` against what an H200 returned for every matrix instruction, by digests of D.

A failure names the variant and the kind of tiles; ``benchmarks/mma_probe.py PATTERN`` shows the
bits on a GPU. All kinds of all variants take minutes (``make test-all``); each instruction has two
kinds here, others for other variants.
"""

from __future__ import annotations

import zlib

import pytest

from golden import golden_matrix
from ptx_kernels import one_instruction
from references.hostile import kinds
from rows import every_row
from tilewright import mma

CASES = [c for i in mma.catalogue("sm_90a") if not i.until for c in one_instruction.cases(i)]
GOLDEN = golden_matrix.read(CASES)
FEW = 2


def groups() -> dict[str, list[one_instruction.Case]]:
    """Variants by family, types and, of wgmma, N: a test for each."""
    made: dict[str, list[one_instruction.Case]] = {}
    for case in CASES:
        i = case.i
        made.setdefault(f"{i.family} {i.a} {i.b} {i.d}", []).append(case)
    return made


GROUPS = groups()


def test_every_variant_that_sm_90a_runs_is_kept() -> None:
    assert {str(case) for case in CASES} == GOLDEN.keys()


def check(case: one_instruction.Case, kind: str) -> None:
    tiles = case.tiles(kind, golden_matrix.tiles(case))
    assert golden_matrix.digest(tiles.expected()) == GOLDEN[str(case)][kind], f"{case}: {kind}"


@every_row("group", GROUPS)
def test_the_bits_are_the_h200s(group: str) -> None:
    for case in GROUPS[group]:
        if case.i.asynchronous and case.i.n not in (8, 24):
            continue
        chosen = zlib.crc32(str(case).encode())
        for n in range(FEW if case.i.d != "f64" else 1):
            check(case, kinds(case.i)[(chosen + 7 * n) % len(kinds(case.i))])


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_all_bits_are_the_h200s(group: str) -> None:
    for case in GROUPS[group]:
        for kind in kinds(case.i):
            if not case.i.asynchronous or case.i.n <= 64 or zlib.crc32(kind.encode()) % 4 == 0:
                check(case, kind)
