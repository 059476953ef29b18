"""Kernel multistage with the types that ldmatrix loads as rows of 16 bytes: tf32 and 8-bit ones.

Integers are exact. Floating-point results have the bits of the matrix instruction, applied to the
k-blocks of its K in order, on the architecture that is modelled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import GemmCase, OperandLayout, check
from gemm_cases.resident import registered
from gemm_cases.tma_cases import layouts
from references.hostile import Source, Stream
from rows import every_row
from tilewright import exact, gemm, mma
from tilewright.dtypes import dtype
from tilewright.errors import ConfigError, TargetError
from tilewright.gemm import Config, Problem
from tilewright.gemm.cp_async.cp_async_operand import CpAsyncOperand
from tilewright.gemm.cp_async.multistage_config import relayout_problem, table
from tilewright.run import VmDevice
from tilewright.target import DEVICES, DeviceSpec, device_spec

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]
INTEGERS = [(a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")]
FP8 = [("e4m3", "e4m3", "bf16"), ("e4m3", "e5m2", "f32"), ("e5m2", "e4m3", "f16")]
TYPES = [*INTEGERS, ("f32", "f32", "f32"), *FP8]  # f32 is multiplied as tf32
SMALL = {"s8": "32x32x64:1x2:3", "u8": "32x32x64:1x2:3", "f32": "32x32x16:1x2:3"}
SMALL |= dict.fromkeys(("e4m3", "e5m2"), "32x32x128:1x2:2")


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def small_vm(name: str, sms: int = 3) -> VmDevice:
    """A virtual machine of this device with a few of its SMs."""
    return VmDevice(replace(device_spec(name), name="few", sms=sms))


def names(row: tuple[Any, ...]) -> str:
    return "-".join(map(str, row))


# --- every layout, size and alignment -----------------------------------------------------------


@every_row("letters", ["tntt", "nttt", "ttnn", "nntn"], parts=17)
@every_row("types", TYPES, ids=names)
def test_every_layout(types: tuple[str, str, str], letters: str) -> None:
    case = GemmCase((45, 37, 150), types, layouts(letters), beta=1.0)
    check(case, small_vm("RTX 4090"), SMALL[types[0]])


@every_row("pad", [1, 2, 4, 8, 16], parts=7)
@every_row("types", [TYPES[1], TYPES[4], TYPES[6]], ids=names)
def test_every_alignment(types: tuple[str, str, str], pad: int) -> None:
    """A and B at multiples of ``pad`` elements; rows that end anywhere."""
    lie = OperandLayout("t", 16 - 77 % 16 + pad, pad), OperandLayout("n", 16 - 77 % 16 + pad, pad)
    case = GemmCase((33, 70, 77), types, (*lie, OperandLayout("t", pad), OperandLayout("t", pad)))
    check(case, small_vm("RTX 4090"), SMALL[types[0]])


CASES = {
    "a stack, not aligned": GemmCase(
        (20, 41, 70), ("u8", "s8", "s32"), layouts("tntt", pad=1, gap=3), beta=1.0, batch=3
    ),
    "one element": GemmCase((1, 1, 1), ("s8", "s8", "s32")),
    "no K": GemmCase((18, 40, 0), ("s8", "u8", "s32"), beta=1.0),
    "alpha is 0": GemmCase((18, 40, 80), ("s8", "s8", "s32"), alpha=0.0, beta=1.0),
    "NaN behind factors of 0": GemmCase((18, 40, 9), ("f32",) * 3, alpha=0.0),
    "factors": GemmCase((33, 30, 70), ("f32",) * 3, layouts("tnnn"), -0.5, 2.0, 2),
    "8-bit floats": GemmCase(
        (33, 130, 400), ("e5m2", "e4m3", "bf16"), layouts("nttt", pad=3), 0.5, -1.0, 2
    ),
    "fast": GemmCase((33, 30, 300), ("e4m3", "e4m3", "f32"), layouts("tntt"), beta=1.0, fast=True),
    "3xTF32": GemmCase((33, 30, 21), ("f32",) * 3, layouts("ttnt"), 2.0, precision="tf32x3"),
}


@every_row("gemm_case", CASES.values(), ids=CASES, parts=3)
def test_nothing_beside_d_is_written(gemm_case: GemmCase) -> None:
    check(gemm_case, small_vm("RTX 4090"), None)


def test_integers_are_exact_over_all_their_values() -> None:
    """And sums wrap around."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in ((40, 333), (333, 50)))
    c = rng.integers(-(2**31), 2**31, (40, 50)).astype(np.int32)
    d = tilewright.matmul(a, b, c=c, beta=1.0, device="vm:A100")
    assert np.array_equal(d, a.astype(np.int32) @ b.astype(np.int32) + c)


# --- configurations -----------------------------------------------------------------------------


@every_row("config", ["64x32x64:2x1:2p", "64x32x64:2x1:3:m16n8k16", "16x16x128:1x1:5"])
def test_forms_of_s8(config: str) -> None:
    check(GemmCase((128, 64, 200), ("s8", "u8", "s32")), small_vm("A100"), config)


@every_row("config", ["64x32x32:2x1:2p", "64x32x16:2x1:3:m16n8k4", "32x64x64:1x2:2"])
def test_forms_of_tf32(config: str) -> None:
    check(GemmCase((128, 64, 100), ("f32",) * 3), small_vm("A100"), config)


@every_row("config", table("s8", device_spec("A100").target), ids=str, parts=4)
def test_every_configuration_of_the_table(config: Config) -> None:
    m, n, _ = config.tile
    check(GemmCase((m, n, 200), ("s8", "s8", "s32")), VmDevice(), config)


ABLE = {name: gpu for name, gpu in DEVICES.items() if gpu.target.runs("sm_80")}
PROBLEMS = [
    Problem(*sizes, *types, a_major=major, align_a=4)
    for sizes in ((8192,) * 3, (16, 4096, 4096), (33, 20, 5))
    for types, major in (
        (("s8", "u8", "s32"), "k"),
        (("tf32", "tf32", "f32"), "m"),
        (("e4m3", "e5m2", "f16"), "k"),
    )
]


@every_row("gpu", ABLE.values(), ids=ABLE, parts=4)
@every_row("problem", PROBLEMS, ids=str)
def test_the_chosen_one_fits(problem: Problem, gpu: DeviceSpec) -> None:
    if problem.input.kind == "float" and problem.input.bits == 8 and gpu.target.number < 89:
        with pytest.raises(TargetError, match="m16n8k32 of e4m3 needs sm_89 or later"):
            gemm.choose(problem, gpu)
        return
    config = gemm.choose(problem, gpu)
    gemm.check(problem, config, gpu)
    assert isinstance(config, Config) or gpu.target.name == "sm_90a"


def test_relayout_makes_operands_k_major_and_aligned() -> None:
    problem = Problem(8, 8, 8, "s8", "s8", "s32", "m", "k", align_a=1, align_b=1)
    relaid = relayout_problem(problem)
    assert (relaid.a_major, relaid.align_a, relaid.b_major, relaid.align_b) == ("k", 16, "k", 16)
    kept = replace(problem, a_major="k", align_a=4, align_b=8)
    assert relayout_problem(kept) == kept
    with pytest.raises(ConfigError, match="operands of s8 must be K-major and aligned to 4 bytes"):
        gemm.cp_async.multistage_config.check(
            problem, Config.parse(SMALL["s8"]), device_spec("A100")
        )


def test_the_shared_layout_is_that_of_f16_in_bytes() -> None:
    """So no access has bank conflicts where those of f16 have none."""

    def bytes_of(type_: str) -> list[int]:
        """The bytes of shared memory where each fourth byte of 64 rows of 128 is."""
        size = dtype(type_).bits // 8
        layout = CpAsyncOperand("a", type_, 64, 128 // size, "k", 16, True, True, 128).layout
        elements = range(0, 128 // size, 4 // size)
        return [layout(row, k) * size for row in range(64) for k in elements]

    assert bytes_of("s8") == bytes_of("tf32") == bytes_of("f16")


# --- bits ---------------------------------------------------------------------------------------


def chained(a: Array, b: Array, shape: str, types: str, arch: str) -> Array:
    """The bits of the instruction applied to the k-blocks of A (M×K) and B (K×N) in order."""
    instruction = mma.instruction(f"mma.sync.aligned.{shape}.row.col.{types}", arch)
    m, n, k = instruction.m, instruction.n, instruction.k
    rows, columns = a.shape[0] // m, b.shape[1] // n
    total = np.zeros((rows, columns, m, n), dtype(instruction.d).storage)
    a = np.pad(a, ((0, 0), (0, -a.shape[1] % k)))
    b = np.pad(b, ((0, -b.shape[0] % k), (0, 0)))
    for first in range(0, a.shape[1], k):
        left = a[:, first : first + k].reshape(rows, 1, m, k)
        right = b[first : first + k].reshape(k, columns, n).swapaxes(0, 1)[None]
        left, right = (np.broadcast_to(x, (rows, columns, *x.shape[2:])) for x in (left, right))
        total = instruction(left, right, total)
    return total.swapaxes(1, 2).reshape(a.shape[0], b.shape[1])


def hostile(type_: str, sort: str, *shape: int) -> Array:
    """Bits of a type, some of them of an odd sort."""
    rng = Stream(type_, sort, *shape)
    source = Source(rng, dtype(type_))
    odd = np.asarray(getattr(source, sort)(shape), source.t.storage)
    return np.where(rng.random(shape) < 0.15, odd, source.normal(shape))


def product(a: Array, b: Array, types: tuple[str, str], device: str, **options: Any) -> Array:
    """The bits of the f32 result of matrices of bits."""
    left, right = (x.view(dtype(t).numpy) for x, t in zip((a, b), types, strict=True))
    d = tilewright.matmul(left, right, out_dtype="f32", device=f"vm:{device}", **options)
    return np.ascontiguousarray(d).view(np.uint32)


SORTS = ["uniform", "special", "subnormal", "zero", "largest"]


@every_row("sort", SORTS)
@every_row("device", ["A100", "B200"], parts=3)
def test_the_bits_of_tf32_are_the_instruction_s(device: str, sort: str) -> None:
    a, b = hostile("tf32", sort, 32, 44), hostile("tf32", sort, 44, 32)
    arch = device_spec(device).target.name
    want = chained(a, b, "m16n8k8", "f32.tf32.tf32.f32", arch)
    config = "32x32x16:1x1:2"
    got = product(a, b, ("f32", "f32"), device, precision="tf32", config=config)
    assert np.array_equal(got, want)


@every_row("sort", SORTS)
@every_row("device", ["RTX 4090", "B200"], parts=3)
def test_the_bits_of_8_bit_floats_are_the_instruction_s(device: str, sort: str) -> None:
    """``fast_accum`` is one chain of instructions; else each 128 of K are one, added in f32."""
    a, b = hostile("e4m3", sort, 16, 300), hostile("e5m2", sort, 300, 32)
    arch, form = device_spec(device).target.name, ("m16n8k32", "f32.e4m3.e5m2.f32")
    types, config = ("e4m3", "e5m2"), "16x32x128:1x1:2"
    assert np.array_equal(
        product(a, b, types, device, fast_accum=True, config=config), chained(a, b, *form, arch)
    )
    total = np.zeros((16, 32), np.float32)
    with np.errstate(all="ignore"):
        for k in range(0, 300, 128):
            total += chained(a[:, k : k + 128], b[k : k + 128], *form, arch).view(np.float32)
    want = exact.canonical("f32", total.view(np.uint32))
    assert np.array_equal(product(a, b, types, device, config=config), want)
