"""Atoms, tilers and layouts in shared memory against CuTe C++: every mode it prints, every offset.

``cute_tiled_make`` made the table. A row is a case, what was given, and CuTe's answers.
"""

import gzip
from functools import cache
from pathlib import Path

from rows import every_row
from tilewright import mma
from tilewright.layout import Layout, Tensor, product_each, zipped_divide
from tilewright.mma import CopyAtom, CpAsync, MmaAtom, TiledMma, UniversalCopy

TABLE = Path(__file__).parents[2] / "data" / "cute_tiled.txt.gz"


@cache
def table():
    """The rows by kind."""
    found = {}
    for row in gzip.decompress(TABLE.read_bytes()).decode().splitlines():
        kind, *fields = row.split("|")
        found.setdefault(kind, []).append(fields)
    return found


def of_kind(*kinds):
    rows = lambda: [(kind, row) for kind in kinds for row in table()[kind]]  # noqa: E731
    return every_row(("kind", "row"), rows, ids=str)


# --- what the table holds ---


def int_tuple(text):
    return eval(text.replace(")", ",)"))  # (1,2,) is a tuple, and so is (1,)


def layout(text):
    shape, stride = text.split(":")
    return Layout(int_tuple(shape), int_tuple(stride))


def mode(text):
    """A tiler of one mode: None, a size, or a layout."""
    return None if text == "_" else layout(text) if ":" in text else int_tuple(text)


def plain(shape, stride):
    """Without tuples of one mode, of which CuTe's atoms have some."""
    if not isinstance(shape, tuple):
        return shape, stride
    modes = tuple(map(plain, shape, stride))
    return modes[0] if len(modes) == 1 else tuple(zip(*modes, strict=True))


def printed(x):
    if isinstance(x, str):
        shape = x.partition(":")[0]
        whole = x.count(":") == 1 and shape.count("(") == shape.count(")")
        return printed(layout(x)) if whole else x
    return str(Layout(*plain(x.shape, x.stride)) if isinstance(x, Layout) else x).replace(" ", "")


class Place:
    """An engine that only knows its offset."""

    def __init__(self, at=0):
        self.at = at

    def __add__(self, offset):
        return Place(self.at + offset)


def counted(text):
    return Tensor(Place(), layout(text))


def held(part):
    return [part.layout, part.engine.at]


def check(found, expected):
    assert [printed(x) for x in found] == [printed(x) for x in expected]


def tiled_mma(opcode, source, atoms, permutations):
    return TiledMma(
        MmaAtom(opcode, source), layout(atoms), tuple(map(mode, permutations.split(";")))
    )


def copy_atom(op, bits):
    name, _, size = op.partition(" ")
    plain = {"copy": UniversalCopy, "cp.async": CpAsync}
    return CopyAtom(plain[name](int(size)) if size else op, f"b{bits}")


def tiled(copy):
    tiler = "(" + ",".join(map(printed, copy.tiler_mn)) + ")"
    return [tiler, copy.layout_tv_tiled, copy.layout_S_TV(), copy.layout_D_TV()]


# --- the cases ---


@of_kind("atom", "sparse", "scaled")
def test_mma_atoms_are_cutes(kind, row):
    opcode, source, *expected = row
    atom = MmaAtom(opcode, source)
    plain = [atom.thr_id, atom.shape_mnk, atom.layout_A, atom.layout_B, atom.layout_C]
    if kind == "scaled":
        check([atom.layout_SFA, atom.layout_SFB], expected)
    else:
        check([*plain, atom.layout_E] if kind == "sparse" else plain, expected)


@of_kind("moved")
def test_copy_atoms_are_cutes(kind, row):
    op, bits, *expected = row
    atom = copy_atom(op, bits)
    check([atom.layout_src, atom.layout_dst, atom.layout_ref], expected)


@of_kind("mma")
def test_tiled_mmas_are_cutes(kind, row):
    one = tiled_mma(*row[:4])
    tvs = [one.layout_A_TV(), one.layout_B_TV(), one.layout_C_TV()]
    whole = one.thr_layout_vmnk.size(3) == 1  # CuTe's C leaves the tile where K has several threads
    found = [one.thr_layout_vmnk, one.tile_size_mnk, *tvs]
    check(found[: 5 if whole else 4], row[4 : 9 if whole else 8])


@of_kind("parts")
def test_partitions_are_cutes(kind, row):
    one, (thr, a, b, c), expected = tiled_mma(*row[:4]), row[4:8], row[8:]
    thread = one.thr_slice(int(thr))
    a, b, c = map(counted, (a, b, c))
    every = [one.thrfrg_A(a.layout), one.thrfrg_B(b.layout), one.thrfrg_C(c.layout)]
    parts = [thread.partition_A(a), thread.partition_B(b), thread.partition_C(c)]
    check([*every, *(x for part in parts for x in held(part))], expected)
    shapes = [one.partition_shape_A(a.shape), one.partition_shape_B(b.shape)]
    shapes.append(one.partition_shape_C(c.shape))
    assert [product_each(shape) for shape in shapes] == [product_each(x.shape) for x in parts]


@of_kind("copy", "copies")
def test_tiled_copies_are_cutes(kind, row):
    op, bits, thr_layout, val_layout, *rest = row
    copy = mma.make_tiled_copy(copy_atom(op, bits), layout(thr_layout), layout(val_layout))
    if kind == "copy":
        return check(tiled(copy), rest)
    thread, source, target = copy.thr_slice(int(rest[0])), counted(rest[1]), counted(rest[2])
    every = [copy.tidfrg_S(source.layout), copy.tidfrg_D(target.layout)]
    check([*every, *held(thread.partition_S(source)), *held(thread.partition_D(target))], rest[3:])


OPERANDS = {"A": "A", "B": "B", "C": "C", "C_atom": "C"}


@of_kind(*(f"{what}_{operand}" for what in ("copy", "retile") for operand in OPERANDS))
def test_copies_of_tiled_mmas_are_cutes(kind, row):
    what, _, operand = kind.partition("_")
    op, bits, opcode, atoms, permutations, *rest = row
    one = tiled_mma(opcode, "", atoms, permutations)
    copy = getattr(mma, f"make_tiled_copy_{operand}")(copy_atom(op, bits), one)
    if what == "copy":
        return check(tiled(copy), rest)
    thread, given = one.thr_slice(int(rest[0])), layout(rest[1])
    part = getattr(thread, f"partition_{OPERANDS[operand]}")(given)
    check([part, copy.retile(part)], rest[2:])


@of_kind("cotiled", "again")
def test_other_tilings_are_cutes(kind, row):
    if kind == "cotiled":
        tv, data, *expected = row
        atom = copy_atom("copy 32", 32)
        return check(tiled(mma.make_cotiled_copy(atom, layout(tv), layout(data))), expected)
    side, op, thr_layout, val_layout, *expected = row
    first = mma.make_tiled_copy(copy_atom(op, 16), layout(thr_layout), layout(val_layout))
    again = getattr(mma, f"make_tiled_copy_{side}")(copy_atom("copy 16", 16), first)
    check(tiled(again), expected)


# --- shared memory ---


TYPES = {8: "e4m3", 16: "f16", 32: "tf32"}


def inner(x):
    return x if isinstance(x, Layout) else x.inner


@of_kind("shared")
def test_layouts_and_descriptors_are_cutes(kind, row):
    bits, major, swizzle, shape, order, *expected = row
    type_, swizzle = TYPES[int(bits)], int(swizzle)
    atom = mma.make_smem_layout_atom(type_, major, swizzle)
    whole = mma.make_smem_layout(type_, major, int_tuple(shape), swizzle, int_tuple(order))
    tile = zipped_divide(whole, (64, 256 // int(bits)))[0]
    made = mma.make_descriptor(tile, type_, major)
    assert made.start == made.base_offset == 0
    fields = [made.leading, made.stride, made.bits >> 62]
    check([inner(atom), inner(whole), *map(str, fields)], expected)


@of_kind("descriptors")
def test_descriptors_step_as_cutes(kind, row):
    major, swizzle, *expected = row
    whole = mma.make_smem_layout("f16", major, (128, 64, 2), int(swizzle))
    one = TiledMma(MmaAtom("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16")).thr_slice(0)
    parts = one.partition_A(whole), one.partition_B(whole)
    check([mma.make_descriptor_tensor(part, "f16", major).layout for part in parts], expected)
