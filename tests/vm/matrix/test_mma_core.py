"""The compiled arithmetic itself: the bits of ``tilewright.mma`` with any vector instructions."""

from __future__ import annotations

import ctypes
from functools import cache

import llvmlite.ir as ir
import numpy as np
import pytest

from ptx_kernels.one_instruction import Case, Tiles
from references import hostile
from rows import every_row
from tilewright import mma
from tilewright.errors import PtxCheckError
from tilewright.mma import MmaInstruction
from tilewright.native.jit import Jit
from tilewright.number_conversion import encode
from tilewright.vm.matrix.mma_decode import NARROW
from tilewright.vm.matrix.mma_function import OPERANDS, MmaFunction, symbol
from tilewright.vm.matrix.mma_plan import columns, plan, scratch_indices

pytestmark = pytest.mark.vm

FEATURES = {"avx2": "-avx512f,+avx2,+fma", "sse2": "-avx,-fma"}  # the host's own: test_matrices
CALL = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * len(OPERANDS))

SUMS = {
    "f16": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_90a"),
    "f16 in two": ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80"),
    "f16 to f16": ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"),
    "mixed": ("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32", "sm_90a"),
    "transposed": ("wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32", "sm_90a"),
    "volta": ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70"),
    "f16 to f32 in four": ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16.satfinite", "sm_70"),
    "bf16": ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "sm_90a"),
    "tf32": ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_90a"),
    "fp8": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", "sm_89"),
    "fp8 of f16": ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", "sm_90a"),
    "fp6": ("mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m1.f32", "sm_120a"),
    "sparse": ("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "sm_90a"),
    "sparse tf32": ("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90a"),
    "sparse s4": ("mma.sp.sync.aligned.m16n8k128.row.col.satfinite.s32.s4.u4.s32", "sm_90a"),
    "s8": ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", "sm_90a"),
    "b1": ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", "sm_90a"),
    "f64": ("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", "sm_90a"),
    "f64 up": ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rp", "sm_90a"),
    "scaled": (
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e2m1.f32.ue8m0",
        "sm_120a",
    ),
    "scaled groups": (
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.kind::mxf4nvf4.block_scale"
        ".scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3",
        "sm_120a",
    ),
}  # fmt: skip


@cache
def jit(features: str) -> Jit:
    return Jit(FEATURES[features])


def compiled(i: MmaInstruction, features: str) -> object:
    module = ir.Module(symbol(i))
    MmaFunction(module, i).emit()
    loaded = jit(features).load(jit(features).compile(module), [symbol(i)])
    function = CALL(loaded[symbol(i)])
    function.loaded = loaded
    return function


def lines(registers: np.ndarray) -> np.ndarray:
    """(32, count) registers as lines of lanes, at a multiple of 64 bytes."""
    held = np.ascontiguousarray(registers.T)
    stack_buffer = np.zeros(held.nbytes + 64, np.uint8)
    start = -stack_buffer.ctypes.data % 64
    place = stack_buffer[start : start + held.nbytes].view(held.dtype).reshape(held.shape)
    place[:] = held
    return place


def run(function, i: MmaInstruction, tiles: Tiles) -> np.ndarray:
    """D of each tile."""
    given = {"a": tiles.a, "b": tiles.b, "c": tiles.c, "d": np.zeros_like(tiles.expected())}
    given |= tiles.extras
    held = {name: i.fragment(name).registers(x) for name, x in given.items()}
    made = []
    for number in range(len(tiles.a)):
        places = {name: lines(x[number]) for name, x in held.items()}
        pointers = [places[n].ctypes.data if n in places else None for n in OPERANDS]
        assert function(*pointers) == 0
        made.append(i.fragment("d").matrix(places["d"].T))
    return np.stack(made)


@every_row("features", FEATURES, parts=7)
@every_row("name", SUMS)
def test_the_bits_do_not_depend_on_vector_instructions(name, features):
    opcode, arch = SUMS[name]
    i = mma.instruction(opcode, arch)
    function = compiled(i, features)
    for kind in hostile.kinds(i):
        tiles = Case(i).tiles(kind, 4, seed=2)
        np.testing.assert_array_equal(run(function, i, tiles), tiles.expected(), err_msg=kind)


def test_sum_of_one_large_and_many_small_products_truncates_like_the_unit():
    """By hand: 2^15·2^0 and fifteen products just below and at the last bit kept, 2^(15-25)."""
    i = mma.instruction(SUMS["f16"][0])
    function = compiled(i, "avx2")
    a = np.zeros((1, 16, 16), np.float16)
    b = np.ones((1, 16, 8), np.float16)
    a[0, :, 0] = 2.0**15
    a[0, 0, 1:] = 2.0**-10  # kept
    a[0, 1, 1:] = 2.0**-10 - 2.0**-21  # cut to nothing
    tiles = Tiles(Case(i), *(x.view(np.uint16) for x in (a, b)), np.zeros((1, 16, 8), "u4"), {})
    made = run(function, i, tiles).view(np.float32)[0, :, 0]
    assert made[0] == 2.0**15 + 3 * 2.0**-8  # of 15 units, f32 has room for fours
    assert made[1] == 2.0**15


@every_row("features", FEATURES, parts=4)
@every_row("name", ["bf16", "tf32"])
@every_row("reach", [NARROW, NARROW + 1])
def test_narrow_and_wide_cores_at_the_f32_exponent_limit(reach, name, features):
    """Exponents just within, or just beyond, what is summed in f32; c anywhere at all."""
    i = mma.instruction(SUMS[name][0])
    rng = np.random.default_rng(reach)

    def far(type_, shape):
        exponents = rng.choice([-reach, reach, 0], shape)
        numbers = rng.choice([-1, 1], shape) * (1 + rng.random(shape) * 0.99) * 2.0**exponents
        return encode(type_, np.where(rng.random(shape) < 0.3, 0.0, numbers), "rz")

    a, b = far(i.a, (40, i.m, i.k)), far(i.b, (40, i.k, i.n))
    c = rng.integers(0, 0x7F800000, (40, i.m, i.n)).astype(np.uint32)
    c = np.where(rng.random(c.shape) < 0.5, c, np.uint32(0))
    tiles = Tiles(Case(i), a, b, c, {})
    np.testing.assert_array_equal(run(compiled(i, features), i, tiles), tiles.expected())


def test_instructions_with_equal_plans_share_a_core():
    names = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    dense, other = (mma.instruction(names, arch) for arch in ("sm_80", "sm_86"))
    assert plan(dense) == plan(other)
    assert plan(dense) != plan(mma.instruction(names, "sm_90a"))


@every_row("name", SUMS)
def test_scratch_has_each_element_once(name):
    i = mma.instruction(*SUMS[name])
    k = plan(i).k
    for operand, size in {"b": i.n * k, "c": i.m * i.n, "d": i.m * i.n}.items():
        assert set(scratch_indices(i, operand).reshape(-1)) == set(range(size * i.tiles))
    assert sorted(columns(i)) == list(range(k))


def test_instruction_that_ptxas_lowers_is_unsupported():
    i = mma.instruction(SUMS["volta"][0], "sm_90a")
    with pytest.raises(PtxCheckError, match=r"m8n8k4\.row\.col\.f32\.f16\.f16\.f32 as sm_90a"):
        MmaFunction(ir.Module(), i)
