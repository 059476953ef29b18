"""Functions of NumPy for arrays on a device: the same bits, with the arrays of the result there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.resident import Resident, registered
from tilewright.quantization import Packed, quantize_weight
from tilewright.quantization import checkpoint_readers as readers
from tilewright.quantization.array_access import codes
from tilewright.sparsity import Sparse24, kept_magnitude, search_permutation, transposable_mask
from tilewright.sparsity.pruning import _mask_bytes

pytestmark = pytest.mark.vm

W = np.random.default_rng(0).standard_normal((12, 64)).astype(np.float16)
WORDS = np.random.default_rng(1).integers(-(2**31), 2**31, (8, 16)).astype(np.int32)
SCALES = np.random.default_rng(2).random((2, 16)).astype(np.float16)

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "u4": (lambda w: quantize_weight(w, "u4", 16, "integer"), (W,)),
    "nvfp4": (lambda w: quantize_weight(w, "nvfp4"), (W,)),
    "gptq": (readers.read_gptq, (WORDS, np.zeros((2, 2), np.int32), SCALES)),
    "nf4": (
        lambda w, absmax, *nested: readers.read_bitsandbytes_nf4(
            w, absmax, (16, 64), 64, (*nested, 0.5)
        ),
        (WORDS.view(np.uint8).reshape(-1), np.arange(16, dtype=np.uint8),
         np.linspace(0, 1, 256, dtype=np.float32), np.ones(1, np.float32)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_packed_weights_of_a_device_are_there(name: str) -> None:
    call, arrays = CALLS[name]
    expected = call(*arrays)
    with registered():
        # every other element of a wider array: the bits are read with their strides
        wide = [np.repeat(x, 2, -1) for x in arrays]
        given = [_every_other(Resident.of(x)) for x in wide]
        found = call(*given)
        assert (found.type, found.group, found.shape) == (
            expected.type, expected.group, expected.shape,
        )  # fmt: skip
        for field in Packed.array_names:
            x, y = getattr(found, field), getattr(expected, field)
            assert isinstance(x, Resident) == hasattr(y, "shape")
            if isinstance(x, Resident):
                assert np.array_equal(x.numpy().view(f"u{y.itemsize}"), codes(field, y))
            else:
                assert x == y


def _every_other(array: Resident) -> Resident:
    *lead, columns = array.shape
    *steps, _ = array.memory.strides
    return array.cut((*lead, columns // 2), (*steps, 2))


def test_sparse_weights_of_a_device() -> None:
    packed = quantize_weight(W, "s4", 32)
    expected = tilewright.compress_24(packed, "magnitude")
    with registered():
        given = Packed(Resident.of(packed.data), Resident.of(packed.scales), "s4", 32)
        sparse = tilewright.compress_24(given, "magnitude")
        assert isinstance(sparse.data, Resident) and isinstance(sparse.metadata, Resident)
        assert np.array_equal(sparse.metadata.numpy(), expected.metadata)
        dense = sparse.dequantize("f16")
        assert np.array_equal(dense.numpy(), expected.dequantize("f16"))
        x = Resident.of(W[:3])
        y = tilewright.linear(x, sparse)
        assert np.array_equal(y.numpy(), tilewright.linear(W[:3], expected, device="vm"))


def test_orders_and_masks_of_a_device() -> None:
    with registered():
        w = Resident.of(W)
        found = search_permutation(w, rounds=4)
        assert np.array_equal(found.order.numpy(), search_permutation(W, rounds=4).order)
        assert np.array_equal(_mask_bytes(w).numpy() != 0, transposable_mask(W))
        on_cpu = tilewright.compress_24(W, "magnitude")
        values, metadata = Resident.of(on_cpu.values), Resident.of(on_cpu.metadata)
        sparse = Sparse24(values, metadata, on_cpu.type)
        assert kept_magnitude(w, sparse) == kept_magnitude(W, on_cpu) < 1
