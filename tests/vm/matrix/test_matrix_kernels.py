"""``ldmatrix`` and ``mma.sync`` in kernels, against their rows in ``tilewright.mma``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ptx_kernels.one_instruction import Case, Tiles, cases
from ptx_kernels.simt import both, kernel, zeros
from references import hmma_cases, hostile
from rows import every_row
from tilewright import mma
from tilewright.errors import VmFault
from tilewright.target import Target
from tilewright.vm import Machine
from tilewright.vm.matrix.mma_plan import plan

pytestmark = pytest.mark.vm

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_rows_at_arbitrary_addresses(count, trans):
    """Rows stand in shared memory in a random order; each lane names one."""
    registers = ", ".join(f"%r{10 + i}" for i in range(count))
    stores = "".join(f"st.global.b32 [%rd2+{128 * i}], %r{10 + i};" for i in range(count))
    text = kernel(
        f"""mov.u32 %r2, rows; mad.lo.u32 %r3, %t, 16, %r2; mad.wide.u32 %rd0, %t, 16, %a1;
        ld.global.v4.b32 {{%r4, %r5, %r6, %r7}}, [%rd0];
        st.shared.v4.b32 [%r3], {{%r4, %r5, %r6, %r7}}; bar.warp.sync -1;
        mad.wide.u32 %rd1, %t, 4, %a2; ld.global.u32 %r8, [%rd1]; mad.lo.u32 %r9, %r8, 16, %r2;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r9];
        mad.wide.u32 %rd2, %t, 4, %a0; {stores}""",
        ".shared .align 16 .b8 rows[512];",
    )
    given, order = RNG.integers(0, 2**16, (32, 8), np.uint16), RNG.permutation(32).astype(np.uint32)
    out, *_ = both(text, [zeros(32 * count), given, order])
    rows = given[order][: 8 * count]
    expected = mma.ldmatrix(count, bool(trans)).registers(rows)
    np.testing.assert_array_equal(out.reshape(count, 32).T, expected)


def launched(case: Case, words: np.ndarray, machine: Machine, arch="sm_90a", **how) -> np.ndarray:
    """What the kernel of one instruction writes, a tile for each row of words."""
    text = case.ptx.replace(".target sm_90a", f".target {arch}")
    machine.load(text.replace(".version 8.4", ".version 8.7"))
    made = np.zeros((len(words), case.made_words), np.uint32)
    places = [machine.upload(words), machine.upload(made)]
    machine.launch("one", len(words), case.threads, places, **how)
    return machine.download(places[1], made)


def one_of_each(arch: str) -> list[Case]:
    """The largest instruction of each type and family, with its last selectors."""
    found: dict[object, mma.MmaInstruction] = {}
    for i in mma.catalogue(arch):
        if summed(i):
            rounded = i.rounding not in ("", "rn")
            sums = (i.a, i.c, i.d, i.kind, i.stype, i.operation, rounded, i.satfinite)
            found[i.family, *sums, i.ordered, i.n > 16] = i
    return [cases(i)[-1] for i in found.values()]


def mixed(case: Case, count: int) -> tuple[list[Tiles], np.ndarray]:
    """Tiles of every kind that suits the instruction, and all of their words."""
    tiles = [case.tiles(kind, count) for kind in hostile.kinds(case.i)]
    return tiles, np.concatenate([t.words() for t in tiles])


def elsewhere() -> Iterator[tuple[str, Case]]:
    """What computes in its own way on other architectures."""
    known = {plan(i) for i in mma.catalogue("sm_90a") if summed(i)}
    for arch in ("sm_70", "sm_75", "sm_80", "sm_89", "sm_100a", "sm_120a"):
        for case in one_of_each(arch):
            if plan(case.i) not in known:
                known.add(plan(case.i))
                needs = tuple(n for n in case.i.needs if Target.parse(arch).runs(n[1]))
                yield arch, Case(replace(case.i, needs=needs), case.selectors)


def summed(i: mma.MmaInstruction) -> bool:
    return not (i.asynchronous or isinstance(i.arithmetic, mma.LoweredDotAdd))


@every_row(("arch", "case"), elsewhere, ids=str, parts=29)
def test_arithmetic_of_each_architecture(arch, case):
    tiles, words = mixed(case, 2)
    expected = np.concatenate([t.expected() for t in tiles])
    made = launched(case, words, Machine(arch), arch)
    np.testing.assert_array_equal(tiles[0].read(made), expected)


@every_row("case", lambda: one_of_each("sm_90a"), ids=str, parts=17)
def test_a_kernel_of_one_instruction_gives_the_bits_of_its_row(case):
    tiles, words = mixed(case, 3)
    expected = np.concatenate([t.expected() for t in tiles])
    made = launched(case, words, Machine())
    np.testing.assert_array_equal(tiles[0].read(made), expected)


@every_row("case", lambda: one_of_each("sm_90a")[::7], ids=str)
def test_both_evaluators_give_the_same_product(case):
    words = case.tiles(hostile.kinds(case.i)[-1], 2).words()
    compiled, stepped = (
        launched(case, words, Machine(), on_step=on_step) for on_step in (None, lambda s: None)
    )
    np.testing.assert_array_equal(compiled, stepped)


COMPILED = (  # the others of ``hmma_cases`` differ in what ``test_mma_core`` compiles
    (hmma_cases.quad("f32", "f16"), "sm_75"),
    (hmma_cases.wmma("f32", "f16"), "sm_70"),
    (hmma_cases.wmma("f16", "f32", ".satfinite"), "sm_75"),
)


def test_hmma_884_and_satfinite_in_kernels():
    """On Volta and Turing; the cases were worked out by hand."""
    wrong = []
    for group in hmma_cases.by_instruction():
        case, arch = Case(group[0].instruction), group[0].arch
        operands = zip(*(one.tiles() for one in group), strict=True)
        tiles = Tiles(case, *map(np.stack, operands), {})
        compiled = [None] if group[0][:2] in COMPILED else []
        for on_step in (lambda s: None, *compiled):
            made = launched(case, tiles.words(), Machine(arch), arch, on_step=on_step)
            wrong += [o.wrong(d) for o, d in zip(group, tiles.read(made), strict=True)]
    assert not any(wrong), "\n".join(filter(None, wrong))


SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


@pytest.mark.parametrize("on_step", [None, lambda s: None], ids=["compiled", "stepped"])
def test_invalid_metadata_is_a_fault(on_step):
    """Of the threads that the selector names; the others' doesn't matter."""
    case = Case(mma.instruction(SPARSE), (1,))
    words = case.tiles("random_normal", 1).words()
    registers = words[:, -32:]
    registers[:, [0, 1, 4, 5]] = 0
    launched(case, words, Machine(), on_step=on_step)
    registers[:, 2 + 4 * 3] = registers[:, 2 + 4 * 3] & ~np.uint32(0xF0) | np.uint32(0x50)
    with pytest.raises(VmFault, match="0b0101, which is not a valid selection"):
        launched(case, words, Machine(), on_step=on_step)


@pytest.mark.parametrize("on_step", [None, lambda s: None], ids=["compiled", "stepped"])
def test_metadata_is_not_checked_if_the_guard_is_false(on_step):
    """D stays what it was: here C, which is copied to it before."""
    case = Case(mma.instruction(SPARSE))
    words = case.tiles("random_normal", 1).words()
    words[:, -32:] = 0
    before = "".join(f"mov.f32 %d_{n}, %c_{n}; " for n in range(4)) + "setp.ne.u32 %p, %x, %x; @%p "
    machine = Machine()
    machine.load(case.ptx.replace("mma.sp", before + "mma.sp"))
    made = np.zeros(case.made_words, np.uint32)
    places = [machine.upload(words), machine.upload(made)]
    machine.launch("one", 1, 32, places, on_step=on_step)
    c = words[0, 8 * 32 : 12 * 32]
    np.testing.assert_array_equal(machine.download(places[1], made), c)
