"""Repeated calls with ``Packed`` weights take the fast path, and only where they may.

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
from tilewright.quantization import Packed, quantize_weight

pytestmark = pytest.mark.vm

M, N, K = 8, 72, 128
CONFIG = "tma:64x8x128:1:2~"
RNG = np.random.default_rng(0)
FORMS: dict[str, tuple[Any, ...]] = {"u4": ("u4", 128, "integer"), "nvfp4": ("nvfp4",)}


@pytest.fixture(autouse=True, scope="module")
def known() -> Iterator[None]:
    with registered(FAST_KIND):
        yield


def weights(form: str) -> Packed:
    return quantize_weight(RNG.standard_normal((N, K)).astype(np.float32), *FORMS[form])


def resident(w: Packed, **changed: Any) -> Packed:
    """The weights in the device's memory."""
    names = ("data", "scales", "zeros", "order", "global_scale")
    arrays = {name: getattr(w, name) for name in names} | changed
    moved = {name: x if x is None else Resident.of(x) for name, x in arrays.items()}
    return Packed(**moved, type=w.type, group=w.group)


def fast(call: Callable[[], Any], expected: Any) -> bool:
    """Whether a call takes the fast path; its result must be the expected one."""
    seen.clear()
    found = call()
    short = not seen
    assert np.array_equal(found.numpy(), expected)
    return short


def activations() -> Any:
    return RNG.standard_normal((M, K)).astype(np.float16)


@every_row("form", list(FORMS))
def test_products_and_layers(form: str) -> None:
    options: dict[str, Any] = {"out_dtype": "f32", "config": CONFIG}
    for i in range(2):
        w, x = weights(form), activations()
        expected = tilewright.matmul(x, w.T, device="vm", **options)
        there, y = resident(w), Resident.of(x)
        product = partial(tilewright.matmul, y, there.T, **options)
        layer = partial(tilewright.linear, y, there, **options)
        assert not fast(product, expected)  # prepares the weights
        assert fast(product, expected)
        assert fast(layer, expected) is (i > 0)
        assert fast(layer, expected)


@pytest.mark.slow
@every_row("form", list(FORMS))
def test_gated_layers(form: str) -> None:
    """One kernel for both matrices is repeated; two products are not."""
    for config, repeats in (("tma:128x8x128:2:2~", True), (CONFIG, False)):
        options: dict[str, Any] = {"activation": "silu", "out_dtype": "f32", "config": config}
        for i in range(2):
            w, gate, x = weights(form), weights(form), activations()
            expected = tilewright.linear(x, w, gate=gate, device="vm", **options)
            there, other, y = resident(w), resident(gate), Resident.of(x)
            layer = partial(tilewright.linear, y, there, gate=other, **options)
            assert not fast(layer, expected) or i > 0  # prepares the weights
            assert fast(layer, expected) is repeats


def test_other_weights_are_not_repeated() -> None:
    options: dict[str, Any] = {"out_dtype": "f32", "config": CONFIG}
    w, x = weights("u4"), activations()
    call = partial(tilewright.matmul, Resident.of(x), **options)
    there, signed = resident(w), resident(Packed(w.data, w.scales, "s4", 128))
    for _ in range(2):
        call(there.T)
    of_signed = tilewright.matmul(x, Packed(w.data, w.scales, "s4", 128).T, device="vm", **options)
    assert not fast(partial(call, signed.T), of_signed)
    assert fast(partial(call, signed.T), of_signed)
    assert fast(partial(call, there.T), tilewright.matmul(x, w.T, device="vm", **options))
    gathered = resident(w, order=RNG.permutation(K).astype(np.int32))
    gathered.prepared.update(there.prepared)
    with pytest.raises(TypeError):  # the slow path gathers columns, which these arrays lack
        call(gathered.T)


def test_the_transposed_matrix_is_made_once() -> None:
    w = weights("u4")
    assert w.T is w.T and w.T.T is w and w.T.shape == (K, N)
