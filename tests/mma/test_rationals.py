"""Every matrix instruction of every architecture against a second derivation, in fractions.

``rationals`` was written from the published rules alone. Where no H200 can judge (fp6, fp4, block
scales, other architectures) these two agreeing is what there is.
"""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from examples import ALL
from references import hostile, rationals
from rows import every_row
from tilewright import mma
from tilewright.dtypes import dtype
from tilewright.errors import DtypeError, LayoutError, TargetError, UnknownInstruction
from tilewright.number_conversion import encode

ELEMENTS = 6  # of D, for each kind of tiles
KINDS = 2 if ALL else 1  # of tiles, for each form: all have their turn


def mathematics(row):
    """What its bits depend on: not layouts, spellings, versions."""
    return replace(row, alayout="row", blayout="col", aligned=True, needs=(), until="")


ROWS = list({mathematics(r): r for r in mma.ROWS if not (r.asynchronous and r.n > 8)}.values())


@cache
def groups(arch):
    """The rows of an architecture by name of what they share."""
    found = {}
    for row in ROWS:
        exact = row.d in ("s32", "f64") and arch != "sm_90a"  # the same everywhere
        if row.runs_on(arch) and not exact:
            kind = f"{row.kind or row.a} scaled" if row.stype else row.kind or row.a
            found.setdefault(f"{row.family} {kind}", []).append(row.on(arch))
    return found


def cases():
    return [(arch, name) for arch in rationals.FACTS for name in groups(arch)]


def meets(row, metadata, m):
    """The rows of B that row m of stored A meets."""
    return list(range(row.k)) if metadata is None else rationals.columns(row, metadata[m].tolist())


def expected(row, arch, tile, m, n):
    a, b, c, more = tile
    if row.tiles > 1:
        a, b, c = a[0], b[0], c[0]
    where = meets(row, more.get("metadata"), m)
    scales = ()
    if row.stype:
        scales = more["scale_a"][m].tolist(), more["scale_b"][:, n].tolist()
    return rationals.element(row, arch, a[m].tolist(), b[where, n].tolist(), int(c[m, n]), *scales)


@every_row(("arch", "name"), cases)
def test_equals_the_fractions(arch, name):
    for number, row in enumerate(groups(arch)[name]):
        rng = np.random.default_rng(number)
        kinds = hostile.kinds(row)
        for turn in range(min(KINDS, len(kinds))):
            kind = kinds[(number * KINDS + turn) % len(kinds)]
            tiles = hostile.tiles(row, kind, 2)
            more = hostile.extras(row, 2)
            d = row(*tiles, **more)
            assert d.dtype == dtype(row.d).storage
            for _ in range(ELEMENTS):
                t, m, n = rng.integers(2), rng.integers(row.m), rng.integers(row.n)
                tile = *(x[t] for x in tiles), {name: x[t] for name, x in more.items()}
                found = int(d[(t, 0, m, n) if row.tiles > 1 else (t, m, n)])
                required = expected(row, arch, tile, m, n)
                assert found == required, f"{row} on {arch}, {kind}: tile {t}, row {m}, column {n}"


@pytest.mark.parametrize(("arch", "as_"), [("sm_86", "sm_80"), ("sm_103a", "sm_100a")])
def test_the_same_tensor_cores(arch, as_):
    for row in mma.catalogue(arch):
        assert row.arithmetic == row.on(as_).arithmetic


# --- registers --------------------------------------------------------------------------------

SMALL = [r for r in ROWS if r.family in ("mma", "mma.sp") and (r.kind or r.a in rationals.SMALL)]


def held(row, a, b, more, selectors, rng):
    """The registers of one tile, by the manual's formulas."""
    made = {"a": rationals.registers(row, "a", a), "b": rationals.registers(row, "b", b)}
    if row.sparse:
        made["metadata"] = rationals.metadata_registers(row, more["metadata"])
    if row.stype:
        noise = rng.integers(0, 1 << 32, 32)
        for name, at in (("scale_a", 0), ("scale_b", 2)):
            byte, thread = selectors[-4:][at : at + 2]
            made[name] = rationals.scale_registers(
                row, name, more[name], byte, thread, noise.__getitem__
            )
    return {name: np.array(x, np.uint32) for name, x in made.items()}


def legal_selectors(row):
    return list(product(*row.selector_values().values()))


@pytest.mark.parametrize("kind", ["", *dict.fromkeys(r.kind for r in SMALL if r.kind)])
def test_registers_by_the_manuals_formulas(kind):
    """Containers, packing, metadata, and scales from every place that selectors can name."""
    for row in (r for r in SMALL if r.kind == kind):
        rng = np.random.default_rng(3)
        tiles, more = hostile.tiles(row, "random_bits", 1), hostile.extras(row, 1)
        a, b, c = (x[0] for x in tiles)
        one = {name: x[0] for name, x in more.items()}
        d = row(a, b, c, **one)
        start = row.fragment("c").registers(c)
        choices = legal_selectors(row)
        for selectors in choices if row.a == row.b == "e2m1" else choices[-1:]:
            words = held(row, a, b, one, selectors, rng)
            given = words.pop("a"), words.pop("b"), start
            made = row.execute(*given, **words, selectors=selectors)
            assert np.array_equal(row.fragment("d").matrix(made), d), f"{row} {selectors}"


# --- what is particular -------------------------------------------------------------------------

MXF8 = "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
MXF4 = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0"
NVF4 = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)

NVF4_E8 = NVF4.replace("ue4m3", "ue8m0")


def zeros(row):
    return [np.zeros(row.matrix_shape(x), dtype(getattr(row, x)).storage) for x in "abc"]


def scales(row, of_a=0, of_b=0):
    """2^of_a for all rows of A, 2^of_b for all columns of B."""
    pairs = (("scale_a", of_a), ("scale_b", of_b))
    return {name: np.full(row.matrix_shape(name), encode(row.stype, 2.0**x)) for name, x in pairs}


def test_a_scale_multiplies_its_block_alone():
    row = mma.instruction(NVF4)
    a, b, c = zeros(row)
    a[:], b[:] = 0b0010, 0b0010  # all ones
    given = scales(row)
    given["scale_a"][3, 2] = 0x40  # 2, for k = 32 … 47 of row 3
    d = row(a, b, c, **given).view(np.float32)
    assert (d[3] == 80).all()
    assert (np.delete(d, 3, 0) == 64).all()


def test_a_group_that_cancels_still_counts_and_one_of_zeros_does_not():
    """2^34 * (1 - 1) cuts 1/4 off, 35 places below; 2^34 * 0 does not, nor 2^33 * (1 - 1)."""
    row = mma.instruction(NVF4_E8)
    a, b, c = zeros(row)
    given = scales(row)
    a[0, :2], b[:2, 0] = (0b0010, 0b1010), 0b0010  # 1 - 1
    a[0, 16], b[16, 0] = 0b0001, 0b0001  # 1/4
    for exponent, kept in ((33, 0.25), (34, 0)):
        given["scale_a"][0, 0] = 127 + exponent
        assert row(a, b, c, **given)[0, 0].view(np.float32) == kept
    a[0, :2] = 0
    assert row(a, b, c, **given)[0, 0].view(np.float32) == 0.25


@pytest.mark.parametrize(("opcode", "nan"), [(MXF8, 0xFF), (MXF4, 0xFF), (NVF4, 0x7F)])
def test_a_scale_that_is_no_number(opcode, nan):
    row = mma.instruction(opcode)
    given = scales(row)
    given["scale_a"][5, -1] = nan
    d = row(*zeros(row), **given)
    assert (d[5] == 0x7FFFFFFF).all()
    assert (np.delete(d, 5, 0) == 0).all()


F16 = "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
TURING = "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16"
QUAD = "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16"
WARPGROUP = "wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16"


def tile(row, products):
    """One row times one column, the rest and c zero."""
    a, b, c = (np.zeros(row.matrix_shape(x)) for x in "abc")
    for k, (x, y) in enumerate(products):
        a[..., 0, k], b[..., k, 0] = x, y
    return encode(row.a, a), encode(row.b, b), encode(row.c, c)


@pytest.mark.parametrize(
    ("opcode", "arch", "last"),
    [
        (F16, "sm_90a", -46), (F16, "sm_120a", -46), (F16, "sm_80", -44), (F16, "sm_89", -44),
        (QUAD, "sm_70", -42), (QUAD, "sm_75", -42), (TURING, "sm_75", -44),
        (WARPGROUP, "sm_90a", -46),
    ],
)  # fmt: skip
def test_the_last_bit_of_f16_accumulators(opcode, arch, last):
    """Half of f16's least number is rounded to even, with a little more it is rounded up.

    An H200 gave those of sm_90a.
    """
    row = mma.instruction(opcode, arch)
    for exponent in range(last - 1, -40):
        x = 2.0 ** -(-exponent // 2), 2.0 ** (exponent + -exponent // 2)
        if min(x) < 2.0**-24:
            continue
        given = tile(row, [(2.0**-12, 2.0**-13), x])
        d = row(*given)[(0,) * (row.tiles > 1)]
        assert d[0, 0] == (exponent >= last)
        a, b = given[0][..., 0, :], given[1][..., :, 0]
        a, b = (x[0] if row.tiles > 1 else x for x in (a, b))
        assert d[0, 0] == rationals.element(row, arch, a.tolist(), b.tolist(), 0)


def bf16_terms(row, exponent):
    return tile(row, [(2.0**-75, 2.0**-74), (-(2.0**-80), 2.0 ** (exponent + 80))]), {}


def mxf8_terms(row, exponent):
    given = tile(row, [(1.0, 1.0), (-(2.0**-8), 2.0 ** (exponent + 157))])
    return given, scales(row, -75, -74)


def mxf4_terms(row, exponent):
    more = scales(row, -75, -74)
    more["scale_b"][1] -= -149 - exponent
    return tile(row, [(1.0, 1.0), *[(0.0, 0.0)] * 15, (-1.0, 1.0)]), more


@pytest.mark.parametrize(
    ("opcode", "arch", "terms", "last"),
    [
        (BF16, "sm_80", bf16_terms, -156), (BF16, "sm_90a", bf16_terms, -158),
        (MXF8, "sm_120a", mxf8_terms, -158), (NVF4_E8, "sm_120a", mxf4_terms, -174),
    ],
)  # fmt: skip
def test_the_last_bit_of_f32_accumulators(opcode, arch, terms, last):
    """f32's least number less a little is cut off to zero, unless the little was cut off before."""
    row = mma.instruction(opcode, arch)
    for exponent in (last - 1, last):
        given, more = terms(row, exponent)
        assert row(*given, **more)[0, 0] == (exponent < last)
        assert expected(row, arch, (*given, more), 0, 0) == (exponent < last)


def test_a_scale_vec_that_may_be_left_out():
    assert ".scale_vec::1X." in mma.find(MXF8).opcode
    assert mma.find(mma.find(MXF8).opcode) is mma.find(MXF8)
    assert ".scale_vec::2X." in mma.find(MXF4).opcode
    assert mma.find(NVF4.replace(".scale_vec::4X", "")) is None
    with pytest.raises(UnknownInstruction, match="mxf4nvf4"):
        mma.instruction(NVF4.replace(".scale_vec::4X", ""))


def test_impossible_layouts_are_rejected():
    row = mma.instruction(MXF4)
    given = scales(row)
    a, b, c = zeros(row)
    with pytest.raises(LayoutError, match="needs scale_b"):
        row(a, b, c, scale_a=given["scale_a"])
    with pytest.raises(
        LayoutError, match=r"SCALE_A of .* must have shape \(16, 2\), got \(16, 4\)"
    ):
        row(a, b, c, **(given | {"scale_a": np.full((16, 4), 127, np.uint8)}))
    with pytest.raises(
        DtypeError, match="ue8m0 must be float8_e8m0fnu or its bits as uint8, got float"
    ):
        row(a, b, c, **(given | {"scale_a": np.ones((16, 2))}))
    with pytest.raises(LayoutError, match=r"byte_id_a of .* must be in \(0, 2\), got 1"):
        row.copies((1, 0, 0, 0))
    with pytest.raises(LayoutError, match=r"thread_id_a of .* must be in \(0, 1\), got 2"):
        row.copies((0, 2, 0, 0))
    with pytest.raises(LayoutError, match="has 4 selectors, got 2"):
        row.copies((0, 0))
    plain = mma.instruction("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32")
    with pytest.raises(LayoutError, match="has no scale_a"):
        plain(*zeros(plain), scale_a=given["scale_a"])
    with pytest.raises(TargetError, match="needs sm_120a or sm_120f, got sm_90a"):
        mma.instruction(MXF4, "sm_90a")
    with pytest.raises(TargetError, match="needs sm_120a or sm_120f, got sm_90a"):
        _ = row.on("sm_90a").arithmetic


def test_unverified_instructions_are_labelled():
    """What is exact by its definition, too: the label is of the hardware, not of the rule."""
    for row in ROWS:
        assert row.verified == (row.arch == "sm_90a"), row
    assert not mma.instruction(MXF8, "sm_121a").verified
    s8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
    found = {arch: mma.instruction(s8, arch).verified for arch in ("sm_80", "sm_90", "sm_120")}
    assert found == {"sm_80": False, "sm_90": True, "sm_120": False}
