"""Atoms: every matrix instruction has one, and its layouts are its fragments'.

``test_tiled_reference`` compares them with CuTe's own.
"""

import numpy as np
import pytest

from references import hostile
from rows import every_row
from tilewright import mma
from tilewright.errors import DtypeError, LayoutError, TargetError
from tilewright.layout import size
from tilewright.mma import CopyAtom, CpAsync, MmaAtom, UniversalCopy

F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WIDE = "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"


def places(layout):
    return layout.indices().reshape((size(layout[0]), -1), order="F")


def atoms():
    for row in hostile.one_of_each(mma.ROWS):
        for source in ("smem", "rmem") if row.asynchronous else ("",):
            yield MmaAtom(row, source)


@every_row("atom", list(atoms()), ids=lambda a: f"{a.instruction} {a.a_src}")
def test_layouts_are_the_fragments(atom):
    """(thread, value) has the element of the fragment; what stands for several columns, each."""
    i = atom.instruction
    threads = atom.thr_id.indices()
    for name in i.operands:
        found = places(atom.layout(name))
        rows = i.n if name in ("b", "scale_b") else i.m
        columns = i.n if name in "cd" else i.k
        assert np.array_equal(np.unique(found), np.arange(rows * columns)), name
        if i.asynchronous and (name == "b" or (name == "a" and atom.a_src == "smem")):
            assert (found == np.arange(rows * columns)).all()
            continue
        fragment = i.fragment(name)
        *tile, row, column = (x[threads] for x in fragment.coordinates())
        assert not any(t.any() for t in tile)
        if name in ("b", "scale_b"):
            row, column = column, row
        each = columns // (fragment.columns if name not in "cd" else columns)
        values = size(atom.layout(name)[1]) // each  # without the copies of scales
        kept = found.reshape((len(threads), values, each))
        expected = (row + rows * each * column)[:, :values, None] + rows * np.arange(each)
        assert np.array_equal(kept, expected), name


def test_every_instruction_has_an_atom():
    for row in mma.ROWS:
        atom = MmaAtom(row)
        assert atom.shape_mnk == (row.m, row.n, row.k)
        assert size(atom.thr_id) == size(atom.layout_C[0])


def test_an_atom_prints_as_cutes():
    assert str(MmaAtom(F16)) == (
        "MMA_Atom\n"
        "  ThrID:      32:1\n"
        "  Shape_MNK:  (16,8,16)\n"
        "  LayoutA_TV: ((4,8),(2,2,2)):((32,1),(16,8,128))\n"
        "  LayoutB_TV: ((4,8),(2,2)):((16,1),(8,64))\n"
        "  LayoutC_TV: ((4,8),(2,2)):((32,1),(16,8))"
    )
    assert str(CopyAtom("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "f16")) == (
        "Copy_Atom\n"
        "  ThrID:        32:1\n"
        "  ValLayoutSrc: (32,8):(8,1)\n"
        "  ValLayoutDst: (32,(2,4)):(2,(1,64))\n"
        "  ValLayoutRef: (32,(2,4)):(2,(1,64))\n"
        "  ValueType:    16b"
    )
    assert MmaAtom(SPARSE).layout_E.shape == ((2, 2, 8), (16, 2))


def test_arch_is_the_instructions():
    wmma = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    old, new = MmaAtom(wmma, arch="sm_70"), MmaAtom(mma.instruction(wmma))
    assert old.instruction.arch == "sm_70" != new.instruction.arch
    assert old.layout_A != new.layout_A
    assert hash(MmaAtom(wmma)) == hash(new)


MATRIX = [m for m in mma.FRAGMENT_MOVES if not m.instruction]


@every_row("move", MATRIX, ids=str)
def test_moves_agree_with_their_layouts(move):
    """The bits that a thread reads at (thread, value) stand where the written side has the same."""
    atom = CopyAtom(move, "b16" if move.shape == "m8n8" else "b8")
    bits, total = atom.dtype.bits, size(atom.layout_ref)
    rng = np.random.default_rng(0)
    values = rng.permutation(total).astype(atom.dtype.storage)
    values &= atom.dtype.storage.type((1 << (move.fragment.dtype.bits if bits < 16 else 16)) - 1)
    sides = (values[places(side)] for side in (atom.layout_src, atom.layout_dst))
    read, written = (np.ascontiguousarray(x) for x in sides)
    if move.family == "movmatrix":
        assert np.array_equal(move(read.view(np.uint32)), written.view(np.uint32))
    elif move.loads:
        assert np.array_equal(move(read[: move.lines[0]]), written.view(np.uint32))
    else:
        assert np.array_equal(move(read.view(np.uint32)), written[: move.lines[0]])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: MmaAtom(F16, "smem"), LayoutError, "a_src of .* must be rmem, got 'smem'"),
        (lambda: MmaAtom(WIDE, "gmem"), LayoutError, "must be smem or rmem, got 'gmem'"),
        (lambda: MmaAtom(WIDE, arch="sm_80"), TargetError, "needs sm_90a, got sm_80"),
        (lambda: MmaAtom(F16).layout_E, LayoutError, "has operands d, a, b, c, got 'metadata'"),
        (lambda: UniversalCopy(48), LayoutError, "bits must be a power of two up to 256, got 48"),
        (lambda: CpAsync(2), LayoutError, "must be 4, 8 or 16, got 2"),
        (lambda: CpAsync(8, "cg"), LayoutError, "of 8 bytes does not support .cg"),
        (lambda: CopyAtom(UniversalCopy(16), "f32"), DtypeError, "not move whole values of f32"),
        (lambda: CopyAtom(CpAsync(4), "f64"), DtypeError, "not move whole values of f64"),
        (lambda: CopyAtom(CpAsync(4), "e2m3"), DtypeError, "not move whole values of e2m3"),
        (
            lambda: CopyAtom("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "f32"),
            DtypeError,
            "does not move whole values of f32",
        ),
        (
            lambda: CopyAtom("wmma.load.a.sync.aligned.row.m16n16k16.f16", "f16"),
            LayoutError,
            "its stride is an operand",
        ),
        (lambda: CopyAtom(None, "f16"), LayoutError, "got None"),
        (lambda: MmaAtom(None), LayoutError, "got None"),
    ],
)
def test_wrong_arguments_are_rejected(make, error, message):
    with pytest.raises(error, match=message):
        make()
