"""The configurations that are chosen for packed weights, beside what was measured."""

from __future__ import annotations

from rows import every_row
from tilewright import gemm
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma.mixed_input.mixed_input_cost import HELD
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.quantization.weight_format import WeightFormat
from tilewright.target import DEFAULT_DEVICE

K = 8192
# µs of 4096×8192×8192, bf16, on a busy H200.
MEASURED = {
    "tma:128x160x128:2:4~": 811.0, "tma:128x160x128:2:4/2x1~": 794.1,
    "tma:128x160x128:2:4/1x2~": 804.5, "tma:256x128x128:2:3~": 843.4,
    "tma:256x128x128:2:3/2x1~": 819.8,
}  # fmt: skip

TWO_MATRICES = {  # the same of 2·8192×8192, a gated layer; in two products 1595
    "tma:128x128x128:2:4/2x1~": 1625.9, "tma:256x128x128:2:3/2x1~": 1541.0,
}  # fmt: skip
FLOAT_ZEROS = {  # µs of 256×8192×8192, before row blocks shared the sums of X
    "tma:128x128x128:2:4~": 111.1, "tma:128x88x128:2:7~": 123.3,
}  # fmt: skip


def problem(m: int, n: int, zeros: str = "none", *, pair: bool = False) -> Problem:
    form = WeightFormat("u4", "bf16", 128, "f16", zeros)
    columns = n * (1 + pair)
    return Problem(m, columns, K, "bf16", "bf16", "bf16", b_major="k", weights=form, pair=pair)


def chosen(x: Problem) -> TmaConfig:
    config = gemm.choose(x, DEFAULT_DEVICE)
    assert isinstance(config, TmaConfig)
    return config


def test_estimates_beside_measurements() -> None:
    compare(problem(4096, 8192), MEASURED, 0.03)


def test_two_matrices_beside_measurements() -> None:
    """Of 128 rows, each warpgroup has rows of one matrix, and hands its accumulators over."""
    pair = problem(4096, 8192, pair=True)
    compare(pair, TWO_MATRICES, 0.05)
    assert str(chosen(pair)) == str(TmaConfig.parse("tma:256x128x128:2:3/2x1~"))
    assert gemm.is_faster_together(pair, DEFAULT_DEVICE)


def test_float_zero_points_beside_measurements() -> None:
    """The sums of X are as many products again. Row blocks that share them are faster."""
    few = problem(256, 8192, "f16")
    compare(few, FLOAT_ZEROS, 0.13)
    seconds = gemm.ranked(few, DEFAULT_DEVICE)[0][0]
    assert chosen(few).tile[0] == 256 and seconds < 99.9e-6


def compare(x: Problem, measured: dict[str, float], within: float) -> None:
    """The estimates are within a fraction of the measurements, and the fastest is first."""
    seconds = {str(TmaConfig.parse(text)): us * 1e-6 for text, us in measured.items()}
    found = [y for y in gemm.ranked(x, DEFAULT_DEVICE) if str(y[1]) in seconds]
    assert len(found) == len(seconds)
    for estimated, config in found:
        assert abs(estimated / seconds[str(config)] - 1) < within, config
    assert str(found[0][1]) == min(seconds, key=lambda text: seconds[text])


@every_row("m, n", [(4096, 8192), (2048, 14336), (8192, 5120)])
def test_large_products_share_activations(m: int, n: int) -> None:
    assert chosen(problem(m, n)).cluster == (2, 1)


@every_row("m, n", [(1, 28672), (16, 8192), (16, 28672), (64, 8192), (128, 8192), (256, 8192)])
def test_small_ones_are_not_in_clusters(m: int, n: int) -> None:
    """Of one wave, or with sliced-K: clusters were slower."""
    assert chosen(problem(m, n)).cluster == (1, 1)


@every_row("m", [1, 16, 64, 128, 256, 512, 4096])
def test_two_matrices_with_float_zero_points_do_not_spill(m: int) -> None:
    pair = problem(m, 8192, "f16", pair=True)
    assert pair.weights is not None
    assert chosen(pair).weight_registers(pair.weights) <= HELD
