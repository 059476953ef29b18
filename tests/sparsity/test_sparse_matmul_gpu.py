"""``matmul`` with a ``Sparse24`` on a GPU: the virtual machine's bits; invalid metadata, which
a GPU does not check, do no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparse_products import CASES, WIDE, SparseProduct
from tilewright import Sparse24

pytestmark = pytest.mark.gpu


def on_gpu(array: Any) -> Any:
    torch = pytest.importorskip("torch")
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
