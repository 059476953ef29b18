"""Every form of every matrix instruction in a kernel of its own: the bits of its row.

``test_matrices`` and ``test_wgmma`` try one of each kind; this is all of them, each on tiles of two
kinds, and takes minutes.
"""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from ptx_kernels.one_instruction import SHARED, Case, cases
from references.hostile import kinds
from tilewright import mma
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

TARGETS = ("sm_90a", "sm_120a", "sm_100a", "sm_70", "sm_72", "sm_75")


def groups() -> dict[str, list[mma.MmaInstruction]]:
    """The forms by family and types."""
    made: dict[str, list[mma.MmaInstruction]] = {}
    for i in mma.ROWS:
        made.setdefault(f"{i.family} {i.kind} {i.stype} {i.a} {i.d}", []).append(i)
    return made


GROUPS = groups()


def check(i: mma.MmaInstruction) -> None:
    """As an architecture that has it computes it."""
    arch = next(t for t in TARGETS if i.runs_on(t) and not (i.until and t == "sm_90a"))
    chosen = zlib.crc32(i.opcode.encode())
    case: Case = cases(i.on(arch))[chosen % len(cases(i.on(arch)))]
    some = [kinds(i)[(chosen + 5 * n) % len(kinds(i))] for n in range(2)]
    tiles = [case.tiles(kind, 1) for kind in some]
    words = np.concatenate([t.words() for t in tiles])
    if i.asynchronous:
        words[:, [0, 2]] -= SHARED >> 4  # the machine's shared memory begins at 0
    machine = Machine(arch)
    version, target, rest = case.ptx.split("\n", 2)
    if not i.until:
        version, target = ".version 9.1", f".target {arch}"
    machine.load("\n".join([version, target, rest]))
    made = np.zeros((len(words), case.made_words), np.uint32)
    given, out = machine.upload(words), machine.upload(made)
    machine.launch("one", len(words), case.threads, [given, out])
    expected = np.concatenate([t.expected() for t in tiles])
    np.testing.assert_array_equal(tiles[0].read(machine.download(out, made)), expected, str(case))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("group", GROUPS)
def test_a_kernel_of_it_gives_the_bits_of_its_row(group: str) -> None:
    for i in GROUPS[group]:
        check(i)
