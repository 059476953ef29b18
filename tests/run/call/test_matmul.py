"""``matmul`` on the virtual machine: any layout, stride, type and factor gives the product."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright import gemm
from tilewright.builder import f32, ptr, u32
from tilewright.errors import ConfigError, DeviceError, DtypeError, LaunchError, ProblemError
from tilewright.run import VmDevice, device
from tilewright.run.devices.device_protocol import ExecutionDevice

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]

TINY = "32x32x32:1x1:2"  # compiles quickly
M, N, K = 50, 48, 72
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}


def numbers(*shape: int, dtype: Any = np.float16, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)


def product(a: Array, b: Array, **options: Any) -> Array:
    options = {"device": "vm", "config": TINY, "out_dtype": "f32", **options}
    if "out" in options:
        del options["out_dtype"]
    return tilewright.matmul(a, b, **options)


def assert_product(d: Array, a: Array, b: Array, extra: Any = 0.0, alpha: float = 1.0) -> None:
    """Within what f32 sums can lose, and one rounding."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    exact = alpha * (wide_a @ wide_b) + extra
    lost = 2.0**-22 * a.shape[1] * abs(alpha) * (abs(wide_a) @ abs(wide_b))
    allowed = lost + 2 * UNIT[d.dtype.name] * abs(exact) + 2.0**-24
    assert d.shape == exact.shape
    assert (np.abs(d.astype(np.float64) - exact) <= allowed).all()


# --- layouts, types, sizes ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_layouts_and_types(layout: str, dtype: Any) -> None:
    orders = ["C" if letter == "t" else "F" for letter in layout]
    a, b = numbers(M, K, dtype=dtype).copy(orders[0]), numbers(K, N, dtype=dtype).copy(orders[1])
    d = product(a, b)
    assert d.dtype == np.float32
    assert_product(d, a, b)
    assert tilewright.plan(a, b, device="vm").problem.layout == layout


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
def test_the_result_has_the_inputs_type(dtype: Any) -> None:
    a, b = numbers(M, K, dtype=dtype), numbers(K, N, dtype=dtype)
    d = product(a, b, out_dtype=None)
    assert d.dtype == dtype
    assert_product(d, a, b)


def test_odd_sizes() -> None:
    a, b = numbers(37, 51), numbers(51, 41)
    assert_product(product(a, b), a, b)
    assert_product(product(a[:1], b), a[:1], b)
    assert_product(product(a[:, :1], b[:1]), a[:, :1], b[:1])


def test_the_chosen_configuration() -> None:
    a, b = numbers(64, 128), numbers(128, 64)
    assert_product(product(a, b, config=None), a, b)


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 4), (4, 0, 4), (0, 0, 0)])
def test_empty_results(m: int, n: int, k: int) -> None:
    assert product(numbers(m, k), numbers(k, n)).shape == (m, n)


def test_k_of_0_runs_the_epilogue() -> None:
    a, b, c = numbers(M, 0), numbers(0, N), numbers(M, N, dtype=np.float32)
    assert not product(a, b).any()
    assert np.array_equal(product(a, b, c=c, beta=-2.0), -2 * c)


# --- strides ------------------------------------------------------------------------------------

CUTS = {
    "sub-view": lambda x: x[3 : 3 + M, 8 : 8 + K],
    "unaligned": lambda x: x[3 : 3 + M, 1 : 1 + K],
    "steps": lambda x: x[: 2 * M : 2, : 2 * K : 2],
    "backwards": lambda x: x[M - 1 :: -1, K - 1 :: -1],
    "rows backwards": lambda x: x[M - 1 :: -1, :K],
    "one row": lambda x: np.broadcast_to(x[5, :K], (M, K)),
    "one column": lambda x: np.broadcast_to(x[:M, 5:6], (M, K)),
    "one number": lambda x: np.broadcast_to(x[:1, :1], (M, K)),
    "window": lambda x: np.lib.stride_tricks.as_strided(x, (M, K), (2, 2)),
    "odd address": lambda x: odd(x[:M, :K]),
}


def odd(x: Array) -> Array:
    """A copy at an odd address."""
    room = np.zeros(x.nbytes + 1, np.uint8)
    made = room[1:].view(x.dtype).reshape(x.shape)
    made[:] = x
    return made


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_any_strides(cut: Any) -> None:
    a, b = cut(numbers(2 * M, 2 * K)), numbers(K, N)
    before = a.copy()
    assert_product(product(a, b), a, b)
    assert np.array_equal(a, before)


@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x[:M, :N],
        lambda x: x[: 2 * M : 2, : 2 * N : 2],
        lambda x: x[M - 1 :: -1, N - 1 :: -1],
    ],
    ids=["sub-view", "steps", "backwards"],
)
def test_out_of_any_strides(cut: Any) -> None:
    whole = np.full((2 * M, 2 * N), 7, np.float32)
    out, a, b = cut(whole), numbers(M, K), numbers(K, N)
    assert product(a, b, out=out) is out
    assert_product(out, a, b)
    out[:] = 7
    assert (whole == 7).all(), "only out was written"


def test_a_column_major_out_is_the_transposed_problem() -> None:
    a, b, c = numbers(M, K), numbers(K, N), numbers(M, N, dtype=np.float32)
    out = np.zeros((M, N), np.float32, order="F")
    assert tilewright.plan(a, b, out=out, device="vm").problem.m == N
    product(a, b, c=c, beta=1.0, out=out)
    assert_product(out, a, b, c)


# --- factors ------------------------------------------------------------------------------------


def test_alpha_beta_and_c() -> None:
    a, b, c = numbers(M, K), numbers(K, N), numbers(M, N, dtype=np.float32)
    assert_product(product(a, b, c=c, alpha=0.5, beta=-2), a, b, -2 * c.astype(float), 0.5)
    assert_product(product(a, b, c=c.T.copy().T, beta=1), a, b, c)
    row = np.broadcast_to(c[:1], (M, N))
    assert_product(product(a, b, c=row, beta=np.array([1.0])), a, b, row)


def test_c_may_be_out() -> None:
    a, b, c = numbers(M, K), numbers(K, N), numbers(M, N, dtype=np.float32)
    out = c.copy()
    assert product(a, b, c=out, beta=1.0, out=out) is out
    assert_product(out, a, b, c)


def test_operands_with_a_zero_factor_are_not_read() -> None:
    """As BLAS has it: β = 0, C is not read; α = 0, A and B are not."""
    a, b, nan = numbers(M, K), numbers(K, N), np.full((M, N), np.nan, np.float32)
    assert_product(product(a, b, c=nan), a, b)
    a[:], c = np.nan, numbers(M, N, dtype=np.float32)
    assert np.array_equal(product(a, b, c=c, alpha=0.0, beta=1.0), c)


def test_beta_needs_a_c() -> None:
    with pytest.raises(ProblemError, match="c must be given"):
        product(numbers(M, K), numbers(K, N), beta=1.0)


# --- other libraries, devices, configurations ---------------------------------------------------


class Foreign:
    """An array that speaks DLPack and nothing else."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_arrays_by_dlpack() -> None:
    a, b, out = numbers(M, K), numbers(K, N), np.zeros((M, N), np.float32)
    product(Foreign(a), Foreign(b), out=out)
    assert_product(out, a, b)
    with pytest.raises(ProblemError, match="pass out="):
        product(Foreign(a), b)


def test_bits_do_not_depend_on_order_or_cores() -> None:
    a, b = numbers(M, K), numbers(K, N)
    first = product(a, b)
    other = product(a, b, device=VmDevice(seed=12345, threads=1))
    assert np.array_equal(first.view(np.uint32), other.view(np.uint32))


def test_a_configuration_that_does_not_fit() -> None:
    a, b = numbers(M, K), numbers(K, N)
    with pytest.raises(ConfigError, match=r"needs .* bytes of shared memory; H200 has 232448"):
        product(a, b, config="256x256x64:4x4:8")
    with pytest.raises(ConfigError, match="such as"):
        product(a, b, config="large")
    for bad in (3, [], {}, np.zeros(2)):
        with pytest.raises(
            ConfigError, match=r"config must be .* got .* \((int|list|dict|ndarray)\)"
        ):
            product(a, b, config=bad)


def test_memory_is_freed_after_errors() -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    a, b = numbers(M, K), numbers(K, N)
    on = VmDevice()
    for watch in (None, stop):
        on.watch = watch
        try:
            product(a, b, device=on)
        except KeyboardInterrupt:
            assert watch
        assert not live_pieces(on)


def live_pieces(on: VmDevice) -> list[Any]:
    return [p for p in on._home.memory.allocations if p.live]


def test_all_memory_is_freed_if_one_free_fails() -> None:
    on, freed = VmDevice(), []
    free = on.free

    def stubborn(address: int) -> None:
        freed.append(address)
        free(address)
        if len(freed) == 2:
            raise DeviceError("not this one")

    on.free = stubborn
    with pytest.raises(DeviceError, match="not this one"):
        product(numbers(M, K), numbers(K, N), device=on)
    assert len(set(freed)) == 3 and not live_pieces(on)


# --- plans --------------------------------------------------------------------------------------


def test_a_plan_runs_what_it_shows() -> None:
    a, b = numbers(M, K), numbers(K, N)
    plan = tilewright.plan(M, N, K, out_dtype="f32", device="vm", config=TINY)
    assert plan == tilewright.plan(a, b, out_dtype="f32", device="vm", config=TINY)
    assert plan.config == gemm.Config.parse(TINY)
    assert plan.traced.name in plan.ptx
    assert_product(plan.run(a, b), a, b)
    with pytest.raises(ProblemError, match="the plan's problem 50×48×72"):
        plan.run(b, a[:N])


def test_a_plan_explains_itself() -> None:
    text = tilewright.plan(4096, 4096, 4096, dtype="bf16", layout="tn", device="vm").explain()
    for word in ("bf16 TN", "CTA tile", "stages", "waves", "intensity", "bound by", "why"):
        assert word in text


def test_a_plan_takes_sizes_or_arrays() -> None:
    with pytest.raises(ProblemError, match="three sizes or two arrays"):
        tilewright.plan(4, 4)
    for letters in ("xy", ""):
        with pytest.raises(ProblemError, match="layout must be one of"):
            tilewright.plan(4, 4, 4, layout=letters)
    assert tilewright.plan(4, 4, 4, c=np.True_).problem.with_c
    for wrong in ("q7", "e4m3,e5m2,s8", 3):
        with pytest.raises(DtypeError, match=r"^dtype must be "):
            tilewright.plan(4, 4, 4, dtype=wrong)


@pytest.mark.parametrize("given", ["c", "out"])
def test_sizes_and_arrays_don_t_mix(given: str) -> None:
    with pytest.raises(ProblemError, match="must not be arrays if sizes are given"):
        tilewright.plan(4, 4, 4, **{given: np.ones((4, 4), "f2")})


@pytest.mark.parametrize("given", [{"dtype": "f16"}, {"layout": "tt"}, {"batch": 1}], ids=str)
def test_options_that_follow_from_arrays(given: dict[str, Any]) -> None:
    with pytest.raises(ProblemError, match="must not be given with arrays"):
        tilewright.plan(*[np.ones((4, 4), "f2")] * 2, **given)


@pytest.mark.parametrize("shape", [(0, 4, 8), (4, 0, 8), (4, 4, 0)], ids=str)
def test_empty_matrices_can_be_uploaded(shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, d = np.ones((m, k), "f2"), np.ones((k, n), "f2"), np.ones((m, n), "f2")
    with tilewright.plan(m, n, k, device="vm").upload(a, b, out=d) as there:
        there.start()
        there.download()
    assert not d.any()


def test_a_plan_takes_numpy_sizes_and_types() -> None:
    made = tilewright.plan(np.int64(4), True, 4, dtype=np.float16)
    assert made.problem == tilewright.plan(4, 1, 4).problem
    assert "True" not in str(made.problem)


# --- user kernels ------------------------------------------------------------------------------


@tilewright.kernel(block=32)
def scaled(k, n: u32, x: ptr(f32), y: ptr(f32), *, by=2.0):
    """y = by · x."""
    i = k.ctaid.x * 32 + k.tid.x
    with k.if_(i < n):
        y[i] = x[i] * by


def test_a_kernel_is_launched_with_arrays() -> None:
    x, y = np.arange(50, dtype=np.float32), np.zeros(50, np.float32)
    scaled[2](50, x, y, device="vm")
    assert np.array_equal(y, 2 * x)
    scaled[2](50, y, y, device="vm", by=0.5)  # one array, twice
    assert np.array_equal(y, x)


def test_arguments_that_do_not_fit_their_parameters() -> None:
    x = np.zeros(50, np.float32)
    for args, words in {
        (50, "x", "x"): "can't be 'x'",
        (50, x.tobytes(), 0): "expected 8 bytes, got 200",
    }.items():
        with pytest.raises(LaunchError, match=words):
            scaled[2](*args, device="vm")
    for bad, words in (
        (x.astype(float), "must be an array of f32, got an array of f64"),
        (x[::2], "must be a contiguous array"),
        (x[1:], "must not share memory"),
    ):
        with pytest.raises(LaunchError, match=words):
            scaled[2](50, x, bad, device="vm")
    with pytest.raises(LaunchError, match="n: u32 must be a number, got an array"):
        scaled[2](x, x, x, device="vm")


def test_devices_by_name() -> None:
    assert device("vm") is device("vm") and device("vm").target.name == "H200"
    a100: ExecutionDevice = device("vm:A100")
    assert a100.name == "vm:A100" and device(a100) is a100


def test_cuda_without_a_gpu_says_why() -> None:
    if tilewright.cuda.available():
        pytest.skip("there is a GPU")
    for name in ("cuda", "cuda:0"):
        with pytest.raises(DeviceError, match=r"no GPU can be used: .*\n.*device='vm'"):
            product(numbers(M, K), numbers(K, N), device=name)


@pytest.mark.parametrize("layout", ["tt", "tn", "nt", "nn"])
@pytest.mark.parametrize(("m", "n", "k"), [(4, 5, 0), (0, 5, 6), (4, 0, 6), (0, 0, 0)])
def test_a_plan_of_empty_matrices_runs(layout: str, m: int, n: int, k: int) -> None:
    p = tilewright.plan(m, n, k, layout=layout, device="vm")
    a, b = (
        np.ones(shape, np.float16, order="C" if letter == "t" else "F")
        for shape, letter in zip(((m, k), (k, n)), layout, strict=True)
    )
    d = p.run(a, b)
    assert d.shape == (m, n) and not d.any()


def test_a_plan_reports_differing_problems() -> None:
    a, wide = np.ones((8, 8), np.float16), np.ones((8, 9), np.float16)
    with pytest.raises(ProblemError, match="align_d 16 and 2"):
        tilewright.plan(8, 8, 8, device="vm").run(a, a, out=wide[:, :8])


@pytest.mark.parametrize(
    "words",
    [{"dtype": "tf32", "precision": "tf32x3"}, {"dtype": "tf32,f16"}, {"dtype": "tf32,tf32,tf32"}],
    ids=str,
)
def test_tf32_must_be_the_type_of_both_inputs(words: dict[str, str]) -> None:
    with pytest.raises(DtypeError, match="tf32"):
        tilewright.plan(4, 4, 4, device="vm", **words)
