"""torch's ``SparseSemiStructuredTensor``: both layouts read and written, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import compress_24
from tilewright.sparsity import from_torch, to_cutlass, to_torch

pytestmark = pytest.mark.gpu


def semi_structured(dtype: str, rows: int, columns: int, force_cutlass: bool) -> tuple[Any, Any]:
    """(torch's sparse tensor, the dense one), with two elements in every chunk."""
    torch = pytest.importorskip("torch")
    chunks = torch.randint(1, 100, (rows, columns // 4, 4), device="cuda")
    order = torch.rand(chunks.shape, device="cuda").argsort(-1)
    dense = chunks.masked_fill(order < 2, 0).reshape(rows, columns).to(getattr(torch, dtype))
    name = "CUTLASS" if force_cutlass else "CUSPARSELT"
    own = getattr(torch.sparse, f"SparseSemiStructuredTensor{name}")
    own._PROTOTYPE_WARNING_SHOWN = True
    own._load_dispatch_table()  # what the first warning does besides
    return own.from_dense(dense), dense


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_the_cutlass_layout(dtype: str) -> None:
    sparse, dense = semi_structured(dtype, 128, 512, force_cutlass=True)
    assert (from_torch(sparse).decompress() == dense.cpu()).all()
    values, metadata = to_cutlass(compress_24(dense.cpu()))
    assert (values == sparse.packed.cpu()).all() and (metadata == sparse.meta.cpu()).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_cusparselt_layout(dtype: str) -> None:
    sparse, dense = semi_structured(dtype, 128, 512, force_cutlass=False)
    assert (from_torch(sparse).decompress() == dense.cpu()).all()


@pytest.mark.parametrize("name", ["CUTLASS", "CUSPARSELT"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_matrix_of_ours_in_torch(dtype: str, name: str) -> None:
    """The same matrix, the same product, and read back the same values and metadata."""
    import torch

    kind = type(semi_structured(dtype, 128, 256, force_cutlass=name == "CUTLASS")[0])
    w = torch.randint(-4, 5, (128, 256)).to(getattr(torch, dtype))
    ours = compress_24(w, "magnitude")
    theirs = to_torch(ours, kind)
    assert (theirs.to_dense().cpu() == ours.decompress()).all()
    if name == "CUSPARSELT" or torch.cuda.get_device_capability()[0] == 8:  # CUTLASS needs sm_8x
        x = torch.randint(-4, 5, (64, 256), device="cuda").to(w.dtype)
        expected = (x.double() @ ours.decompress().cuda().double().T).to(w.dtype)
        assert (torch.nn.functional.linear(x, theirs) == expected).all()
    again = from_torch(theirs)
    assert (again.decompress() == ours.decompress()).all()
    if name == "CUTLASS":
        assert (again.values == ours.values).all() and (again.metadata == ours.metadata).all()
