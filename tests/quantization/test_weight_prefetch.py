"""CTAs prefetch the first weights to the L2 before they wait for prior grids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from gemm_cases.resident import Resident, registered
from rows import every_row
from tilewright import gemm, target
from tilewright.builder import Builder
from tilewright.gemm.grouping import Grouping
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma import tma_kernel
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.gemm.tma.tma_kernel import _build, build
from tilewright.quantization.weight_format import WeightFormat
from tilewright.quantization.weight_units import prepare_weights
from tilewright.run import VmDevice

PREFETCH, WAIT = "cp.async.bulk.prefetch.L2.global", "griddepcontrol.wait"
FORM = WeightFormat("u4", "bf16", 128, "f16")
PROBLEM = Problem(16, 512, 512, "bf16", "bf16", d="bf16", b_major="k", weights=FORM)
# (M, N, K) with a whole last k-tile, a part of one, and fewer k-blocks than are prefetched
CASES = (
    ((16, 64, 2048), "tma:64x16x128:4:8~"),
    ((16, 300, 384), "tma:64x16x256:1:2~"),
    ((9, 200, 128), "tma:64x16x128:1:2*2c~"),
    ((40, 300, 640), "tma:128x32x128:2:2*2c~"),
    ((40, 300, 640), "tma:128x16x128:2:2/1x2~"),
    ((40, 300, 640), "tma:128x32x128:2:2*3~"),
)


def ptx(config: str, *, static: bool = False) -> str:
    problem = replace(PROBLEM, weights=replace(FORM, static=static))
    return build(problem, TmaConfig.parse(config)).ptx


def touch(k: Any, src: Any, bytes: Any) -> None:
    """Load the first and the last byte of what is prefetched."""
    for at in (src, src + (bytes - 1)):
        k.emit("ld.volatile.global.u8", at.cast("u8"), dtype="u32")


@every_row("size, config", CASES, ids=str, parts=3)
def test_no_byte_is_out_of_bounds(size: tuple[int, int, int], config: str) -> None:
    """The checked machine permits loads before the wait from memory that no kernel can write: here
    the weights, and nothing else.
    """
    m, n, depth = size
    rng, on = np.random.default_rng(n), VmDevice(checked=True)
    packed = tilewright.quantize_weight(rng.standard_normal((n, depth)).astype("f4"), "u4", 128)
    x = rng.standard_normal((m, depth)).astype(np.float16)
    prepared = prepare_weights(packed, "f16")
    exact = x.astype(np.float64) @ packed.dequantize().T.astype(np.float64)
    with registered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Builder, "bulk_prefetch", touch)
        a, out = (Resident.of(array, on) for array in (x, np.empty((m, n), np.float16)))
        units = Resident.of(prepared.units, on)
        address = on._home.upload(prepared.units, read_only=True)
        units = Resident(units.memory._replace(address=address), on)
        _build.cache_clear()
        tilewright.matmul(a, replace(prepared, units=units), out=out, device=on, config=config)
        _build.cache_clear()
        assert np.abs(out.numpy() - exact).max() < 1e-3 * np.abs(exact).max()


def test_weights_are_prefetched_before_any_wait() -> None:
    text = ptx("tma:64x16x128:4:8~")
    assert text.count(PREFETCH) == 1 and text.index(PREFETCH) < text.index(WAIT)
    assert ptx("tma:128x16x128:2:4~").count(PREFETCH) == 2  # blocks of 64 rows


def test_a_work_tile_that_follows_from_memory_is_not_prefetched() -> None:
    assert PREFETCH not in ptx("tma:64x16x128:1:4d~")
    assert PREFETCH not in ptx("tma:64x48x128:1:4~")  # the tensor cores bound it


@pytest.mark.parametrize(
    ("config", "groups"),
    [
        ("tma:64x16x128:1:4d~", None),
        ("tma:64x16x128:1:4+sk2~", None),
        ("tma:64x16x128:1:4~", Grouping("s32", "counts")),
        ("tma:64x16x128:1:4~", Grouping("s64", "offsets")),
    ],
)
def test_nothing_is_prefetched_without_a_first_work_tile(
    config: str, groups: Grouping | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a tile scheduler refuses to name one, so that no kernel prefetches another tile's."""
    problem, made = replace(PROBLEM, batch=2, groups=groups), TmaConfig.parse(config)
    assert PREFETCH not in build(problem, made).ptx
    monkeypatch.setattr(tma_kernel, "is_prefetched", lambda *_: True)
    with pytest.raises(AssertionError, match="has no first work tile before it runs"):
        _build.__wrapped__(tma_kernel.problem_class(problem, made), made)


@given(st.integers(1, 600), st.integers(1, 2000), st.integers(1, 4096), st.sampled_from([1, 1, 3]))
def test_each_cluster_has_a_first_work_tile(m: int, n: int, depth: int, batch: int) -> None:
    problem = replace(PROBLEM, m=m, n=n, k=depth, batch=batch)
    for _, config in gemm.ranked(problem, target.DEFAULT_DEVICE):
        assert isinstance(config, TmaConfig) and config.swap
        (bm, bn, _), (cm, cn) = config.tile, config.cluster
        joined = config.split if config.in_cluster else 1
        shape = gemm.launch_shape(problem, config, target.DEFAULT_DEVICE)
        clusters = shape.grid[0] // (config.ctas * joined)
        tiles = -(-n // (bm * cm)) * -(-m // (bn * cn)) * batch
        assert clusters <= tiles * config.split // joined, config


def test_nothing_but_packed_weights_is_prefetched() -> None:
    config = gemm.choose(Problem(64, 512, 512), target.DEFAULT_DEVICE)
    assert isinstance(config, TmaConfig)
    assert PREFETCH not in build(Problem(64, 512, 512), config).ptx


def test_static_weights_are_loaded_before_the_wait_by_narrow_tiles() -> None:
    """Others load them as weights that a prior kernel may write."""
    narrow, wide = "tma:64x16x128:1:4~", "tma:64x32x128:1:4~"
    load = "cp.async.bulk.shared::cluster.global"
    assert ptx(narrow, static=True).count(load) == 2 and ptx(narrow).count(load) == 1
    assert ptx(wide, static=True) == ptx(wide)
