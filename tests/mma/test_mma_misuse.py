"""Wrong arguments of ``mma``: a typed error for each, with the rule that was broken."""

from functools import partial

import numpy as np
import pytest

from references import hostile
from rows import every_row
from tilewright import mma
from tilewright.dtypes import dtype
from tilewright.errors import (
    DtypeError,
    LayoutError,
    TargetError,
    TilewrightError,
    UnknownInstruction,
)
from tilewright.layout import ComposedLayout, Layout, Swizzle
from tilewright.mma.nearest_form import mismatch_reason
from tilewright.mma.sparse_metadata import dense_columns
from tilewright.number_conversion import decode
from tilewright.target import Target

DENSE = mma.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
SPARSE = mma.instruction("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32")
SCALED = mma.instruction(
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
)
BITS = mma.instruction("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc")
NIBBLES = mma.instruction("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32")
LOAD = mma.fragment_move("wmma.load.a.sync.aligned.row.m16n16k16.f16")
STORE = mma.fragment_move("wmma.store.d.sync.aligned.row.m16n16k16.f16")


def matrices(row):
    """Each operand, as bits."""
    operands = dict(zip("abc", hostile.tiles(row, hostile.kinds(row)[0], 1), strict=True))
    return {name: x[0] for name, x in {**operands, **hostile.extras(row, 1)}.items()}


def registers(row):
    return {name: row.fragment(name).registers(x) for name, x in matrices(row).items()}


NONSENSE = (
    None, 1.5, "x", b"x", len, [[1, 2], [3]], {}, {1}, 1 << 100,
    np.zeros(0), np.zeros(16, np.float16), np.full((16, 16), None), np.full((16, 16), -1),
    np.full((32, 4), 1.5), np.full((32, 4), "x"), np.zeros((16, 16), complex),
    np.zeros((16, 16), [("x", "i4")]),
)  # fmt: skip


# The messages that an argument's kind allows.
ARRAY = r"expected an array, got|must have shape"
OPCODE = r"an opcode must be a str|no matrix instruction 'x'|unknown instruction .* 'x'"
TARGET = r"a target must be a str|unknown target 'x'"
COUNT = "the number of matrices of ldmatrix must be 1, 2 or 4, got"
OPERAND = r"has operands d, a, b, c.*, got"
SELECTORS = r"selectors must be a tuple of int|has \d selectors, got|must be in \("
MATRIX = rf"a matrix of \w+ must be|a code of \w+ must have at most|{ARRAY}"
REGISTERS = rf"registers must be integers|a register must have at most 32 bits|{ARRAY}"
METADATA = rf"indices of metadata must be integers|invalid metadata|{ARRAY}"
DENSE_A = "has no sparse A"


def uses():
    """(name, allowed messages, function) of each argument."""
    yield "instruction", OPCODE, mma.instruction
    yield "its target", TARGET, lambda x: mma.instruction(DENSE.opcode, x)
    yield "move", OPCODE, mma.fragment_move
    yield "a move's target", TARGET, lambda x: mma.fragment_move(LOAD.opcode, x)
    yield "catalogue", TARGET, mma.catalogue
    yield "generation", TARGET, mma.generation
    yield "ldmatrix", COUNT, mma.ldmatrix
    yield "trans", "trans must be True or False, got", lambda x: mma.ldmatrix(1, x)
    yield "ldmatrix_rows", COUNT, mma.ldmatrix_rows
    yield "fragment", OPERAND, DENSE.fragment
    yield "extent", OPERAND, DENSE.extent
    yield "matrix_shape", OPERAND, SPARSE.matrix_shape
    yield "on", TARGET, SPARSE.on
    yield "runs_on", TARGET, DENSE.runs_on
    yield "in_version", TARGET, lambda x: DENSE.in_version("8.0", x)
    yield "copies", SELECTORS, SCALED.copies
    yield "registers", MATRIX, DENSE.fragment("c").registers
    yield "matrix", REGISTERS, DENSE.fragment("b").matrix
    one_register = np.zeros((32, 1), np.uint32)
    copy = partial(SPARSE.fragment("metadata").matrix, one_register)
    yield "copy", "copy must be 0 to 1, got", copy
    yield "load", rf"{MATRIX}|loads \(16, 16\), got", LOAD
    yield "store", REGISTERS, STORE
    a, metadata = matrices(SPARSE)["a"], matrices(SPARSE)["metadata"]
    yield "compress", MATRIX, partial(mma.compress, SPARSE)
    yield "compress for", DENSE_A, lambda x: mma.compress(x, np.zeros((16, 32), np.uint16))
    yield "expand", MATRIX, lambda x: mma.expand(SPARSE, x, metadata)
    yield "expand by", METADATA, partial(mma.expand, SPARSE, a)
    yield "expand for", DENSE_A, lambda x: mma.expand(x, a, np.zeros((16, 16), int))
    yield "positions", METADATA, lambda x: dense_columns(x, (2, 4), False)
    for row in (DENSE, SPARSE, SCALED):
        for name in row.operands[1:]:
            messages = (METADATA if name == "metadata" else MATRIX) + f"|needs {name}"
            yield f"{name} of {row}", messages, partial(called, row, matrices(row), name)
            execute = partial(called, row.execute, registers(row), name)
            yield f"{name} executed by {row}", f"{REGISTERS}|needs {name}", execute
        selectors = partial(called, row.execute, registers(row), "selectors")
        yield f"selectors of {row}", SELECTORS, selectors


def called(function, operands, name, x):
    return function(**operands | {name: x})


USES = {name: use for name, *use in uses()}


@every_row("use", USES)
@every_row("argument", NONSENSE, ids=lambda x: type(x).__name__)
def test_a_wrong_argument_is_a_typed_error(use, argument):
    message, function = USES[use]
    with pytest.raises(TilewrightError, match=message):
        function(argument)


def test_metadata_and_scales_are_required_where_they_are_operands():
    for row, name in ((SPARSE, "metadata"), (SCALED, "scale_a"), (SCALED, "scale_b")):
        for function, operands in ((row, matrices(row)), (row.execute, registers(row))):
            with pytest.raises(LayoutError, match=f"needs {name}"):
                called(function, operands, name, None)
    for name in ("metadata", "scale_a", "scale_b"):
        for function, operands in ((DENSE, matrices(DENSE)), (DENSE.execute, registers(DENSE))):
            with pytest.raises(LayoutError, match=f"has no {name}"):
                called(function, operands, name, np.zeros((32, 1), np.uint32))


@pytest.mark.parametrize(
    ("row", "code"), [(BITS, 3), (NIBBLES, 200), (SCALED, 31)], ids=["b1", "s4", "e2m1"]
)
def test_a_code_must_fit_its_type(row, code):
    given, size = matrices(row), dtype(row.a).bits
    given["a"][1, 2] = code
    message = f"a code of {row.a} must have at most {size} bits, got {code:#x}"
    with pytest.raises(DtypeError, match=message):
        row(**given)
    with pytest.raises(DtypeError, match=message):
        row.fragment("a").registers(given["a"])


def test_registers_are_integers_of_their_size():
    fragment = DENSE.fragment("c")
    held = fragment.registers(matrices(DENSE)["c"])
    for same in (held.view(np.int32), held.astype(np.int64), held.astype(">u4"), held.tolist()):
        assert np.array_equal(fragment.matrix(same), fragment.matrix(held))
    for value in (1 << 32, -(1 << 31) - 1):
        with pytest.raises(
            DtypeError, match=f"a register must have at most 32 bits, got {value:#x}"
        ):
            fragment.matrix(np.full(held.shape, value))


def test_bools_are_bits():
    """NumPy's bool is the type of b1; D then has NumPy's type too."""
    given = matrices(BITS)
    typed = {name: x.astype(bool) for name, x in given.items() if name != "c"}
    made = BITS(**typed, c=given["c"].view(np.int32))
    assert made.dtype == np.int32 and np.array_equal(made.view(np.uint32), BITS(**given))
    fragment = BITS.fragment("a")
    assert np.array_equal(fragment.registers(typed["a"]), fragment.registers(given["a"]))


def test_a_type_that_numpy_lacks_must_be_bits():
    row = mma.instruction("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    with pytest.raises(
        DtypeError, match="a matrix of tf32 must be its bits as uint32, got float32"
    ):
        row(**matrices(row) | {"a": np.zeros((16, 8), np.float32)})


def test_batches_broadcast_or_are_rejected():
    a, b, c = hostile.tiles(DENSE, "random_normal", 3)
    with pytest.raises(LayoutError, match=r"batches of \(2,\), \(3,\) do not broadcast"):
        DENSE(a[:2], b, c)
    assert np.array_equal(DENSE(a[0], b, c[:1]), DENSE(a[[0] * 3], b, c[[0] * 3]))
    kept, metadata = matrices(SPARSE)["a"], hostile.extras(SPARSE, 2)["metadata"]
    assert mma.expand(SPARSE, kept, metadata).shape == (2, 16, 32)
    with pytest.raises(LayoutError, match="do not broadcast"):
        mma.expand(SPARSE, np.stack([kept] * 3), metadata)


def test_wrong_arguments_of_look_ups_are_named():
    with pytest.raises(
        UnknownInstruction, match=r"unknown field 'type' .*\n.*the fields are a, alayout, "
    ):
        mma.catalogue(type="f16")
    with pytest.raises(UnknownInstruction, match="k must be a str or an int, got None"):
        mma.catalogue(k=None)
    with pytest.raises(UnknownInstruction, match="an opcode must be a str, got int"):
        mma.find(5)
    with pytest.raises(UnknownInstruction, match="an opcode must be a str, got list"):
        mma.find_fragment_move([])
    with pytest.raises(TargetError, match="a target must be a str like sm_90a, got int"):
        mma.generation(90)
    assert mma.instruction(DENSE.opcode, Target.parse("sm_80")).arch == "sm_80"


def test_selectors_must_be_a_tuple_of_integers():
    with pytest.raises(LayoutError, match="selectors must be a tuple of int, got int"):
        SPARSE.copies(1)
    with pytest.raises(LayoutError, match=r"selector of .* must be in \(0, 1\), got 1.0"):
        SPARSE.execute(**registers(SPARSE), selectors=(1.0,))
    assert SPARSE.copies((np.int64(1),)) == {"metadata": 1}


def test_metadata_must_be_integers():
    given = matrices(SPARSE)
    with pytest.raises(DtypeError, match="indices of metadata must be integers, got float64"):
        SPARSE(**given | {"metadata": given["metadata"] + 0.5})
    with pytest.raises(LayoutError, match="no sparse A"):
        mma.expand(DENSE, given["a"], given["metadata"])


@pytest.mark.parametrize("type_", ["f16", "tf32", "s8", "u4", "e4m3"])
def test_expand_inverts_compress(type_):
    """Also for NumPy's types."""
    row = next(i for i in mma.ROWS if i.family == "mma.sp" and i.a == type_)
    made = {name: x[0] for name, x in hostile.extras(row, 1).items()}
    kept = hostile.tiles(row, hostile.kinds(row)[0], 1)[0][0]
    dense = mma.expand(row, kept, **made)
    again = mma.expand(row, *mma.compress(row, dense))
    assert np.array_equal(decode(type_, again), decode(type_, dense))
    if type_ != "tf32":
        typed = mma.compress(row, dense.view(dtype(type_).numpy))
        assert np.array_equal(typed[0].view(dense.dtype), mma.compress(row, dense)[0])
    with pytest.raises(DtypeError, match=f"a matrix of {type_} must be"):
        mma.compress(row, dense.astype(complex))


def test_reasons():
    known = [row.opcode for row in mma.ROWS]
    assert (
        mismatch_reason("", known)
        == mismatch_reason("add.f32", known)
        == "it must begin with mma or wmma or wgmma"
    )
    assert mismatch_reason("mma..sync", known) == "a modifier is empty"
    assert mismatch_reason("mma.sync.x", known) == "mma has no .x"
    assert mismatch_reason(DENSE.opcode.replace(".aligned", ""), known) == ".aligned is missing"
    assert mismatch_reason("mma.sync", []) == ""


COPY = mma.CopyAtom(mma.UniversalCopy(32), "f16")
PRODUCT = mma.TiledMma(mma.MmaAtom(DENSE.opcode), (2, 2, 1))
TILED = mma.make_tiled_copy(COPY, Layout((16, 8), (8, 1)), Layout((1, 8)))
TILING = {
    mma.TiledCopy: (COPY, TILED.layout_tv_tiled, TILED.tiler_mn),
    mma.make_tiled_copy: (COPY, Layout((16, 8), (8, 1)), Layout((1, 8))),
    mma.make_tiled_copy_tv: (COPY, TILED.layout_tv_tiled, TILED.tiler_mn),
    mma.make_cotiled_copy: (COPY, Layout((32, 8), (8, 1)), Layout((8, 32))),
    mma.make_tiled_copy_A: (COPY, PRODUCT),
    mma.make_tiled_copy_C_atom: (COPY, PRODUCT),
    mma.make_tiled_copy_S: (COPY, TILED),
    mma.make_tiled_copy_D: (COPY, TILED),
}


@pytest.mark.parametrize("make", TILING, ids=lambda f: f.__name__)
def test_a_tiled_copy_needs_atoms_layouts_and_tilers(make):
    assert isinstance(make(*TILING[make]), mma.TiledCopy)
    composed = ComposedLayout(Swizzle(1, 0, 3), 0, Layout((16, 8)))
    rules = (
        "a TiledCopy needs",
        "must be (a layout|layouts)",
        "tuple of tilers",
        "expected a Tiled",
        "shape must",
    )
    for i in range(len(TILING[make])):
        for wrong in (None, 5, "x", (3, "a"), np.zeros(3), composed):
            arguments = list(TILING[make])
            arguments[i] = wrong
            with pytest.raises(LayoutError, match="|".join(rules)):
                make(*arguments)
