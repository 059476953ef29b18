"""CTAs prefetch the first weights to the L2 before they wait for prior grids."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain
from pathlib import Path
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
from tilewright.compile_cache import Cache
from tilewright.gemm.grouping import Grouping
from tilewright.gemm.problem import Problem
from tilewright.gemm.tma import tma_kernel
from tilewright.gemm.tma.tma_config import TmaConfig
from tilewright.gemm.tma.tma_kernel import _build, build
from tilewright.quantization.weight_format import PreparedWeights, WeightFormat
from tilewright.quantization.weight_units import prepare_weights
from tilewright.run import VmDevice
from tilewright.run.devices import vm_device

PREFETCH, WAIT = "cp.async.bulk.prefetch.L2.global", "griddepcontrol.wait"
FORM = WeightFormat("u4", "bf16", 128, "f16")
PROBLEM = Problem(16, 512, 512, "bf16", "bf16", d="bf16", b_major="k", weights=FORM)
# ((M, N, K), configuration, weights) with a whole last k-tile, a part of one, and fewer k-blocks
# than are prefetched; the first part has CTAs that share weights, CTAs without a k-block, and
# one that has more k-blocks than it prefetches.
CASES = (
    ((40, 300, 640), "tma:128x16x128:2:2/1x2~", "u4"),
    ((20, 190, 640), "tma:64x32x128:2p:2*2~", "s4"),
    ((16, 300, 384), "tma:64x16x256:1:2~", "u4"),
    ((9, 72, 640), "tma:128x16x128:2:2~", "u4 pair"),
    ((40, 300, 640), "tma:128x32x128:2:2*3~", "u4 stack"),
    ((16, 200, 1152), "tma:64x16x128:1:4~", "s8"),
    ((9, 200, 128), "tma:64x16x128:1:2*2c~", "u4"),
    ((40, 300, 640), "tma:128x32x128:2:2*2c~", "u4"),
    ((9, 200, 640), "tma:128x16x128:2:2/1x2~", "s8 pair"),
    ((9, 200, 640), "tma:64x16x256:1:2~", "s8 stack"),
    ((9, 72, 384), "tma:128x16x128:2:2~", "s4 pair stack"),
    ((16, 300, 384), "tma:64x32x128:1:4+2~", "e4m3"),
    ((16, 64, 2048), "tma:64x16x128:4:8~", "u4"),
)
PARTS = 6


def ptx(config: str) -> str:
    return build(PROBLEM, TmaConfig.parse(config)).ptx


class Recorder:
    """Kernels print which bytes of weights their CTAs prefetch and load, and read the first and the
    last byte of what is prefetched.
    """

    def __init__(self, patch: pytest.MonkeyPatch, folder: Path) -> None:
        def prefetch(k: Any, src: Any, bytes: Any) -> None:
            for at in (src, src + (bytes - 1)):
                k.emit("ld.volatile.global.u8", at.cast("u8"), dtype="u32")
            k.print("prefetch %u %p %u", k.ctaid.x, src, bytes)

        def recorded(k: Any, dst: Any, src: Any, bytes: Any, *more: Any, **named: Any) -> None:
            k._parts["BulkCopies"].bulk_load(dst, src, bytes, *more, **named)
            k.print("load %u %p %u", k.ctaid.x, src, bytes)

        kept = Cache(folder)  # of these kernels alone, and none that other tests have kept
        patch.setattr(vm_device, "store", lambda: kept)
        patch.setattr(Builder, "bulk_prefetch", prefetch)
        patch.setattr(Builder, "bulk_load", recorded)

    @staticmethod
    def check(printed: str) -> None:
        """What a CTA prefetches, at most 34 KB or a k-block, is what it loads first."""
        found = defaultdict(lambda: {"prefetch": [], "load": []})
        for line in printed.splitlines():
            what, cta, address, size = line.split()
            found[cta][what].append(range(int(address, 16), int(address, 16) + int(size)))
        assert found
        for cta, copies in found.items():
            ahead, loads = copies["prefetch"], iter(copies["load"])
            assert sum(map(len, ahead)) <= 34 << 10, cta
            first = []
            while sum(map(len, first)) < sum(map(len, ahead)):
                first.append(next(loads))
            assert covered(ahead) == covered(first), cta
        assert any(copies["prefetch"] for copies in found.values())


def covered(ranges: list[range]) -> list[int]:
    """The bytes of these ranges, which are disjoint."""
    return sorted(chain.from_iterable(ranges))


def read_only(packed: Any, on: VmDevice) -> PreparedWeights:
    """Prepared weights in memory that no kernel can write."""
    prepared = prepare_weights(packed, "f16")
    units = Resident.of(prepared.units, on)
    address = on._home.upload(prepared.units, read_only=True)
    return replace(prepared, units=Resident(units.memory._replace(address=address), on))


def second(first: Any, acc: Any) -> Any:
    return first + 2 * acc


@every_row("size, config, kind", CASES, ids=str, parts=PARTS)
def test_what_is_prefetched_is_what_is_loaded_first(
    size: tuple[int, int, int], config: str, kind: str, capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:  # fmt: skip
    """The checked machine permits loads before the wait from memory that no kernel can write: here
    the weights, and nothing else.
    """
    (m, n, depth), (type_, *more) = size, kind.split()
    rng, on = np.random.default_rng(n), VmDevice(checked=True)
    batch = (2,) if "stack" in more else ()
    packed = [
        tilewright.quantize_weight(rng.standard_normal((*batch, n, depth)).astype("f4"), type_, 128)
        for _ in range(1 + ("pair" in more))
    ]
    x = rng.standard_normal((*batch, m, depth)).astype(np.float16)
    products = [x.astype(float) @ w.dequantize().astype(float).swapaxes(-1, -2) for w in packed]
    exact = products[0] if len(products) == 1 else products[0] + 2 * products[1]
    with registered(), pytest.MonkeyPatch.context() as patch:
        recorder = Recorder(patch, tmp_path)
        a, out = (Resident.of(array, on) for array in (x, np.empty((*batch, m, n), np.float16)))
        weights = tuple(read_only(w, on) for w in packed)
        options = {"epilogue": second} if len(weights) == 2 else {}
        b = weights if len(weights) == 2 else weights[0]
        _build.cache_clear()
        tilewright.matmul(a, b, out=out, device=on, config=config, **options)
        _build.cache_clear()
        assert np.abs(out.numpy() - exact).max() < 1e-3 * np.abs(exact).max()
    recorder.check(capsys.readouterr().out)


def test_weights_are_prefetched_before_any_wait() -> None:
    text = ptx("tma:64x16x128:4:8~")
    assert text.count(PREFETCH) == 1 and text.index(PREFETCH) < text.index(WAIT)
    assert ptx("tma:128x16x128:2:4~").count(PREFETCH) == 2  # blocks of 64 rows


def test_a_work_tile_that_follows_from_memory_is_not_prefetched() -> None:
    assert PREFETCH not in ptx("tma:64x16x128:1:4d~")


def test_tiles_that_the_tensor_cores_bound_prefetch_nothing() -> None:
    assert PREFETCH in ptx("tma:64x32x128:1:4~")
    assert PREFETCH not in ptx("tma:64x40x128:1:4~")


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
    monkeypatch.setattr(tma_kernel, "prefetched_k_blocks", lambda *_: 1)
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


@every_row(
    "config, k_blocks",
    [
        ("tma:64x16x128:2:8~", "first 8 k-blocks to the L2"),
        ("tma:64x32x256:1:3~", "first 4 k-blocks to the L2"),
        ("tma:256x16x256:2:2~", "first k-block to the L2"),
        ("tma:64x40x128:1:4~", ""),
        ("tma:64x16x128:1:4d~", ""),
    ],
)
def test_the_report_says_what_is_prefetched(config: str, k_blocks: str) -> None:
    packed = tilewright.quantize_weight(np.ones((64, 512), np.float32), "u4", 128)
    x = np.ones((8, 512), np.float16)
    plan = tilewright.plan(x, packed.T, device="vm", config=config)
    found = [line for line in plan.explain().splitlines() if "weights: " in line]
    assert len(found) == bool(k_blocks) and all(k_blocks in line for line in found)
