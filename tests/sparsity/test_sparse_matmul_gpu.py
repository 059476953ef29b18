"""``matmul`` with a ``Sparse24`` on a GPU: the virtual machine's bits; invalid metadata, which
a GPU does not check, do no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparse_cases import CASES, WIDE, SparseProduct
from tilewright import Sparse24, compress_24, linear, matmul
from tilewright.errors import MetadataError, ProblemError
from tilewright.run.call import matmul as matmul_stages

pytestmark = pytest.mark.gpu


def on_gpu(array: Any) -> Any:
    """The array as a tensor, with rows or columns contiguous as they are."""
    torch = pytest.importorskip("torch")
    if array.ndim > 1 and array.strides[-1] != array.itemsize:
        return on_gpu(array.swapaxes(-1, -2)).mT
    bits = np.ascontiguousarray(array).view(f"i{array.itemsize}")
    types = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
    name = array.dtype.name
    own = types.get(name) or getattr(torch, name)
    return torch.from_numpy(bits).cuda().view(own)


@pytest.mark.parametrize("case", CASES + WIDE, ids=str)
def test_bits_of_the_virtual_machine(case: SparseProduct) -> None:
    w, x = case.operands()
    expected = case.matmul(w, x, device="vm")
    own = Sparse24(on_gpu(w.values), on_gpu(w.metadata), w.type, w.transposed)
    d = case.matmul(own, on_gpu(x))
    bits = np.ascontiguousarray(np.asarray(expected)).view(f"u{expected.itemsize}")
    import torch

    assert (
        d.cpu().view(getattr(torch, f"int{8 * bits.itemsize}")).numpy().view(bits.dtype) == bits
    ).all()


def test_invalid_metadata_do_no_harm() -> None:
    """D of the rows that have them is unspecified; all others are right."""
    torch = pytest.importorskip("torch")
    case = SparseProduct("f16", (200, 136, 512), "tma:128x128x64:2:3")
    w, x = case.operands()
    expected, magnitude = case.reference(w, x)
    metadata = w.metadata.copy()
    metadata[1] = np.random.default_rng(1).integers(-(2**31), 2**31, metadata[1].shape)
    own = Sparse24(on_gpu(w.values), on_gpu(metadata), "f16")
    d = case.matmul(own, on_gpu(x))
    torch.cuda.synchronize()
    error = np.abs(d.cpu().numpy().astype(np.float64) - expected) <= 2**-10 * magnitude
    assert error[:64].all() and error[128:].all() and not error[64:128].all()


@pytest.mark.parametrize("transposed", [False, True])
def test_repeated_calls(transposed: bool) -> None:
    """The fast path reads each call's matrix, and is not taken for one of the other order."""
    case = SparseProduct("f16", (256, 256, 256), "tma:128x128x64:2:3" + "~" * transposed)
    found = []
    for seed in range(4):
        w, x = case.operands(seed)
        own = Sparse24(on_gpu(w.values), on_gpu(w.metadata), "f16", transposed)
        expected, magnitude = case.reference(w, x)
        d = case.matmul(own, on_gpu(x)).cpu().numpy().astype(np.float64)
        found.append(bool((np.abs(d - expected) <= 2**-10 * magnitude).all()))
    assert found == [True] * 4
    with pytest.raises(ProblemError, match="sparse along K"):
        left, right = (on_gpu(x), own.T) if transposed else (own.T, on_gpu(x))
        matmul(left, right)
    assert transposed or any(key[0] is Sparse24 for key in matmul_stages._fast_calls.by_key)


def test_a_compressed_array_stays_on_the_gpu() -> None:
    torch = pytest.importorskip("torch")
    w = torch.randn((200, 512), device="cuda", dtype=torch.bfloat16)
    by_kernel, by_numpy = compress_24(w, "magnitude"), compress_24(w.cpu(), "magnitude")
    assert by_kernel.values.is_cuda and by_kernel.metadata.is_cuda
    assert (by_kernel.values.cpu() == by_numpy.values).all()
    assert (by_kernel.metadata.cpu() == by_numpy.metadata).all()
    x = torch.randn((40, 512), device="cuda", dtype=torch.bfloat16)
    expected = torch.nn.functional.linear(x, by_numpy.decompress().cuda())
    assert torch.allclose(linear(x, by_kernel), expected, atol=0.5, rtol=0.02)
    with pytest.raises(MetadataError, match="row 0, columns 0 to 3: more than 2 of 4"):
        compress_24(w)
