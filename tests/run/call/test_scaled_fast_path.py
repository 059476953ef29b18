"""Repeated calls of ``Scaled`` matrices take the fast path, and only where they may.

``seen`` is empty if a call took the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import FAST_KIND, Resident, registered, seen
from rows import every_row
from tilewright.quantization import Scaled, quantize

pytestmark = pytest.mark.vm

M, N, K = 40, 48, 304
RNG = np.random.default_rng(0)
KINDS = {"lines": ("row", "row"), "blocks": ((1, 128), (128, 128))}


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered(FAST_KIND):
        yield


def resident(x: Scaled) -> Scaled:
    return Scaled(Resident.of(x.data), Resident.of(x.scales), x.block)


def transposed(x: Scaled) -> Scaled:
    return Scaled(x.data.T, x.scales.T, x.block[::-1])


def operands(kind: str, columns: int = N) -> tuple[Scaled, Scaled]:
    """A (M×K) and the weights N×K of a layer, on the CPU."""
    shapes, blocks = ((M, K), (columns, K)), KINDS[kind]
    values = (RNG.standard_normal(shape).astype(np.float32) for shape in shapes)
    a, w = (quantize(x, "e4m3", b) for x, b in zip(values, blocks, strict=True))
    return a, w


def fast(call: Callable[[], Any], expected: Any) -> bool:
    """Whether a call takes the fast path; its result must be the expected one."""
    seen.clear()
    found = call()
    short = not seen
    assert np.array_equal(found.numpy(), expected)
    return short


def product(a: Any, b: Any, **options: Any) -> Any:
    options.setdefault("out_dtype", None if "out" in options else "f32")
    return tilewright.matmul(a, b, config="tma:64x48x128:1:4", **options)


@every_row("kind", list(KINDS))
def test_products(kind: str) -> None:
    pairs = [operands(kind) for _ in range(3)]
    out = Resident.of(np.zeros((M, N), np.float32))
    for options in ({}, {"out": out}):
        for i, (a, w) in enumerate(pairs):
            expected = product(a, w.T, device="vm")
            x, y = resident(a), transposed(resident(w))
            assert fast(partial(product, x, y, **options), expected) is (i > 0)
    a, w = pairs[0]
    x, y = resident(a), transposed(resident(w))
    once = fast(partial(product, x, y, alpha=2.0), 2 * product(a, w.T, device="vm"))
    assert once is (kind == "blocks")  # there α is a parameter of the kernel
    twice = Resident.of(np.repeat(a.scales, 2, axis=1))
    strided = twice.cut(a.scales.shape, (2 * a.scales.shape[1], 2))
    other = Scaled(x.data, strided, a.block)
    assert not fast(partial(product, other, y), product(a, w.T, device="vm"))
    fast(partial(product, x.data, y.data), product(a.data, w.data.T, device="vm"))


@every_row("kind", list(KINDS))
def test_column_major_results(kind: str) -> None:
    """The kernel computes Dᵀ = Bᵀ Aᵀ: the scales are swapped, too."""
    for i in range(2):
        a, w = operands(kind)
        out = Resident.of(np.zeros((N, M), np.float32)).T
        x, y = resident(a), transposed(resident(w))
        expected = product(a, w.T, device="vm")
        assert fast(partial(product, x, y, out=out), expected) is (i > 0)


@every_row("kind", list(KINDS))
def test_epilogues_and_layers(kind: str) -> None:
    bias = RNG.standard_normal(N).astype(np.float32)
    on_device = Resident.of(bias)
    for i in range(2):
        a, w = operands(kind)
        x, weights = resident(a), resident(w)
        options: dict[str, Any] = {"out_dtype": "f32", "config": "tma:64x48x128:1:4"}
        expected = product(a, w.T, device="vm") + bias

        def layer(x: Any = x, weights: Any = weights, options: Any = options) -> Any:
            y = transposed(weights)
            seen.clear()
            return tilewright.matmul(
                x, y, epilogue=lambda acc, bias: acc + bias, bias=on_device, **options
            )

        assert fast(layer, expected) is (i > 0)


def test_a_block_of_another_size_is_not_repeated() -> None:
    a, w = operands("lines")
    x, y = resident(a), transposed(resident(w))
    expected = product(a, w.T, device="vm")
    product(x, y)
    object.__setattr__(x, "block", (1, K + 1))
    assert not fast(partial(product, x, y), expected)


def test_scales_at_another_alignment_are_not_repeated() -> None:
    """Tensor copies load the scales of the first call; those at multiples of 4 bytes a warp."""
    x, w = (RNG.standard_normal((rows, 512)).astype(np.float32) for rows in (M, N))
    a, b = quantize(x, "e4m3", (1, 128)), quantize(w, "e4m3", (128, 128))
    left, right, expected = resident(a), transposed(resident(b)), product(a, b.T, device="vm")
    product(left, right)
    assert fast(partial(product, left, right), expected)
    moved = Resident.of(np.append(np.zeros(1, np.float32), a.scales)).cut(a.scales.shape, (4, 1), 1)
    assert not fast(partial(product, Scaled(left.data, moved, a.block), right), expected)
