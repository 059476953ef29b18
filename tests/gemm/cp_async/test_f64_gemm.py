"""f64 products on the virtual machine: each element's bits are a chain's of FMAs, k ascending, as
the tensor cores compute it; α and β are f64, too.

The reference is that chain in exact arithmetic. Of a NaN only that it is one is looked at here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.guarded import GemmCase, OperandLayout, check
from gemm_cases.kernels import MAJORS, make_problem
from gemm_cases.resident import Resident, registered
from gemm_cases.tma_cases import FEW
from references.hostile import Source, Stream
from rows import every_row
from tilewright import exact
from tilewright.dtypes import dtype
from tilewright.errors import ConfigError, DtypeError, ProblemError, TargetError
from tilewright.gemm import Config, build
from tilewright.gemm.cp_async.multistage_config import F64_TABLE
from tilewright.run import VmDevice
from tilewright.vm import Machine
from tilewright.vm.step.numpy_floats import quiet

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]
SMALL = "32x32x16:2x2:3:m16n8k4"
FORMS = ("16x16x16:1x1:2:m8n8k4", SMALL, "32x32x16:2x1:2:m16n8k8", "32x32x32:1x2:2")
TYPES = ("f64",) * 3


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered():
        yield


def bits(x: Array) -> Array:
    """As integers, NaNs all the same."""
    return exact.canonical("f64", np.ascontiguousarray(x).view(np.uint64))


def chain(a: Array, b: Array, alpha: float = 1.0, beta: float = 0.0, c: Any = None) -> Array:
    """The bits of D."""
    one, two = (np.ascontiguousarray(x).view(np.uint64) for x in (a, b))
    sums = np.zeros((a.shape[0], b.shape[1]), np.uint64)
    shape = sums.shape
    for k in range(a.shape[1] if alpha else 0):
        left, right = (np.broadcast_to(x, shape) for x in (one[:, k, None], two[None, k]))
        sums = exact.fma("f64", left, right, sums)
    with quiet():
        scaled = bits(alpha * sums.view(np.float64))
    if not beta:
        return scaled
    factor = np.broadcast_to(np.float64(beta).view(np.uint64), shape)
    return bits(exact.fma("f64", factor, c.view(np.uint64), scaled).view(np.float64))


def numbers(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng((*shape, seed)).standard_normal(shape)


def laid(x: Array, letter: str) -> Array:
    """The same matrix, row- or column-major."""
    return np.ascontiguousarray(x) if letter == "t" else np.asfortranarray(x)


def product(a: Array, b: Array, **options: Any) -> Array:
    d = tilewright.matmul(a, b, **{"device": "vm", "config": SMALL} | options)
    assert d.dtype == np.float64
    return bits(d)


# --- all that a kernel can have to do -----------------------------------------------------------


@every_row("layout", MAJORS, parts=5)
@every_row("sizes", [(32, 64, 32), (21, 39, 19), (1, 33, 8), (17, 1, 9)])
def test_the_bits_of_every_layout_and_edge(sizes: tuple[int, int, int], layout: str) -> None:
    m, n, k = sizes
    a, b, c = numbers((m, k)), numbers((k, n)), numbers((m, n))
    options = {"c": c, "alpha": 0.3, "beta": -1.7}
    want = chain(a, b, **options)
    assert np.array_equal(product(laid(a, layout[0]), laid(b, layout[1]), **options), want)


@every_row("layout", MAJORS, parts=8)
@every_row("config", FORMS)
def test_every_instruction(config: str, layout: str) -> None:
    a, b = numbers((35, 50)), numbers((50, 41))
    d = product(laid(a, layout[0]), laid(b, layout[1]), config=config)
    assert np.array_equal(d, chain(a, b))


@every_row("config", F64_TABLE, ids=str, parts=6)
def test_no_configuration_changes_a_bit(config: Config) -> None:
    a, b = numbers((70, 40)), numbers((40, 130))
    assert np.array_equal(product(a, b.T.copy().T, config=config), product(a, b))


@pytest.mark.parametrize("depth", [0, 1, 15, 16, 17, 32, 50])
def test_any_depth_against_the_ring(depth: int) -> None:
    a, b = numbers((16, depth)), numbers((depth, 32))
    assert np.array_equal(product(a, b, config="16x32x16:1x1:4:m16n8k4"), chain(a, b))


CASES = {
    "one element apart": GemmCase((20, 36, 24), TYPES, (OperandLayout("t", 1, 1),) * 4, 1.0, 2.0),
    "columns, D too": GemmCase((37, 21, 40), TYPES, (OperandLayout("n", 1),) * 4, -0.5, 1.0),
    "aligned lines": GemmCase(
        (33, 30, 18),
        TYPES,
        (OperandLayout("n", 2), OperandLayout("t"), OperandLayout("t", 3), OperandLayout("t", 2)),
    ),
    "C alone at 8 bytes": GemmCase(
        (33, 34, 16),
        TYPES,
        (OperandLayout(), OperandLayout(), OperandLayout("t", 1), OperandLayout()),
        beta=-1.0,
    ),
    "a stack": GemmCase(
        (18, 40, 10),
        TYPES,
        (OperandLayout("t", gap=3), OperandLayout("n"), OperandLayout(), OperandLayout("t", 1)),
        2.0,
        -1.0,
        3,
    ),
    "no K": GemmCase((18, 40, 0), TYPES, beta=1.0),
    "nothing of A and B": GemmCase((18, 40, 9), TYPES, alpha=0.0, beta=1.0),
    "nothing of C": GemmCase((32, 32, 32), TYPES, alpha=0.0),
}


@every_row("config", [SMALL, "32x16x16:1x1:2p:m8n8k4"], parts=7)
@every_row("gemm_case", CASES.values(), ids=CASES)
def test_nothing_beside_d_is_written(config: str, gemm_case: GemmCase) -> None:
    check(gemm_case, VmDevice(FEW), config)


def test_a_stack_of_products() -> None:
    a, b, c = numbers((3, 18, 10)), numbers((3, 10, 40)), numbers((3, 18, 40))
    d = product(a, b.swapaxes(1, 2).copy().swapaxes(1, 2), c=c, beta=2.0)
    for i in range(3):
        assert np.array_equal(d[i], chain(a[i], b[i], beta=2.0, c=c[i]))


@pytest.mark.slow
def test_a_cta_may_take_tiles_in_turn() -> None:
    a, b = numbers((128, 48)), numbers((48, 96))
    d = product(a, b, config="32x32x16:2x1:3p:m16n8k4", device=VmDevice(FEW))
    assert np.array_equal(d, chain(a, b))


def test_without_a_configuration() -> None:
    """An H200 and an A100 have other instructions, and the same bits."""
    a, b = numbers((40, 30)), numbers((30, 50))
    for name, shape in (("vm", (16, 8, 4)), ("vm:A100", (8, 8, 4))):
        config = tilewright.plan(a, b, device=name).config
        assert isinstance(config, Config) and config.mma == shape
        assert np.array_equal(product(a, b, config=None, device=name), chain(a, b))


# --- α and β ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.1, 1e300, -5e-324])
def test_factors_are_not_rounded(alpha: float) -> None:
    a, b, c = np.full((8, 1), 1.5), np.ones((1, 8)), numbers((8, 8))
    options = {"c": c, "alpha": alpha, "beta": 1 / 3}
    assert np.array_equal(product(a, b, **options), chain(a, b, **options))


def test_factors_on_the_device_are_f64() -> None:
    a, b, c = numbers((20, 9)), numbers((9, 30)), numbers((20, 30))
    there = [Resident.of(x) for x in (a, b, c)]
    alpha, beta = (Resident.of(np.array([x])) for x in (0.1, -1 / 3))
    d = tilewright.matmul(*there[:2], c=there[2], alpha=alpha, beta=beta, config=SMALL)
    assert np.array_equal(bits(d.numpy()), chain(a, b, 0.1, -1 / 3, c))
    with pytest.raises(DtypeError, match="alpha on the GPU must be f64, got f32"):
        tilewright.matmul(*there[:2], alpha=Resident.of(np.ones(1, np.float32)))


# --- hostile numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize("sort", ["uniform", "special", "subnormal", "zero", "largest"])
def test_hostile_numbers(sort: str) -> None:
    rng = Stream(sort)
    source = Source(rng, dtype("f64"))

    def matrix(*shape: int) -> Array:
        odd = np.asarray(getattr(source, sort)(shape), np.uint64)
        ordinary = np.asarray(source.normal(shape), np.uint64)
        return np.where(rng.random(shape) < 0.15, odd, ordinary).view(np.float64)

    a, b, c = matrix(16, 12), matrix(12, 32), matrix(16, 32)
    options = {"c": c, "alpha": -1.5, "beta": 1.0}
    assert np.array_equal(product(a, b, **options), chain(a, b, **options))


def test_a_nan_where_nothing_is_read_stays_out() -> None:
    a, b, c = np.full((16, 8), np.nan), numbers((8, 32)), numbers((16, 32))
    assert np.array_equal(product(a, b, c=c, alpha=0.0, beta=2.0), bits(2 * c))
    assert not product(a, b, alpha=0.0).any()
    assert np.array_equal(product(b.T, b, c=np.full((32, 32), np.inf)), chain(b.T, b))


# --- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["tn", "nt"])
def test_no_order_of_warps_and_copies_changes_a_bit_and_nothing_races(layout: str) -> None:
    a, b = numbers((64, 40)), numbers((40, 64))
    results = set()
    for machine in (*(Machine(seed=s) for s in range(3)), Machine(checked=True)):
        results.add(launched(machine, a, b, layout))
    assert results == {chain(a, b).tobytes()}


def launched(machine: Machine, a: Array, b: Array, layout: str) -> bytes:
    """D's bytes, by four warps of one CTA."""
    config = Config.parse("64x64x16:2x2:3:m16n8k4")
    traced = build(make_problem((64, 64, 40), layout, "f64"), config, FEW)
    machine.load(traced.module)
    d = np.full((64, 64), np.nan)
    lines = a if layout[0] == "t" else a.T, b if layout[1] == "t" else b.T
    places = [machine.upload(np.ascontiguousarray(x)) for x in (*lines, d, d)]
    leading = lines[0].shape[1], lines[1].shape[1], 64, 64
    args = [*places, 64, 64, 40, *leading, 1.0, 0.0, 0, 0, 0, 0, 0, 0]
    machine.launch(traced.name, 1, traced.block, args, shared=traced.dynamic_shared)
    return machine.download(places[3], like=d).tobytes()


# --- misuse -------------------------------------------------------------------------------------

ONES = np.ones((32, 32))
MISUSE: dict[str, tuple[Any, type[Exception], str]] = {
    "tma": (
        lambda: product(ONES, ONES, config="tma:64x64x64:1:2"), TargetError,
        "tma does not multiply f64",
    ),
    "simt": (lambda: product(ONES, ONES, config="simt:64x64x8:8x8:2"), TargetError, "not f64"),
    "an A100": (
        lambda: product(ONES, ONES, device="vm:A100"), TargetError,
        "m16n8k4 of f64 needs sm_90 or later; A100 is sm_80",
    ),
    "f16's": (
        lambda: product(*[ONES.astype(np.float16)] * 2), ConfigError,
        "mma shape for f16 must be one of m16n8k16$",
    ),
    "a large tile": (
        lambda: product(ONES, ONES, config="128x128x16:2x2:3:m16n8k4"), ConfigError,
        "take 256 of 255 registers",
    ),
    "f32 from it": (
        lambda: product(ONES, ONES, out_dtype="f32"), DtypeError, "must be f64, got f32",
    ),
    "f32 with it": (
        lambda: product(ONES, ONES.astype(np.float32)), DtypeError, "b must be f64 if a is f64",
    ),
    "alpha": (
        lambda: product(ONES, ONES, alpha=10**400), ProblemError, "alpha must be in the range of",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "error", "says"), MISUSE.values(), ids=MISUSE)
def test_what_cant_be_done_says_why(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()
