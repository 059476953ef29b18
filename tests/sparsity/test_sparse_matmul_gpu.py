"""``matmul`` with a ``Sparse24`` on a GPU: the virtual machine's bits; invalid metadata, which
a GPU does not check, do no harm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparse_cases import (
    CASES,
    MULTISTAGE,
    NUMPY,
    PACKED,
    SCALED,
    WIDE,
    WIDE_PACKED,
    SparseProduct,
    every_pattern,
    on_gpu,
    packed_operands,
    same_bits,
)
from tilewright import Scaled, Sparse24, compress_24, linear, matmul, quantize
from tilewright.errors import MetadataError, ProblemError
from tilewright.quantization import SparsePacked
from tilewright.run.call import matmul as matmul_stages

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", CASES + WIDE, ids=str)
def test_bits_of_the_virtual_machine(case: SparseProduct) -> None:
    w, x = case.operands()
    expected = case.matmul(w, x, device="vm")
    own = Sparse24(on_gpu(w.values), on_gpu(w.metadata), w.type, w.transposed)
    d = case.matmul(own, on_gpu(x))
    assert same_bits(d, expected)


@pytest.mark.parametrize("case", MULTISTAGE, ids=str)
@pytest.mark.parametrize("side", "ab")
def test_multistage_has_the_bits_of_the_virtual_machine(case: SparseProduct, side: str) -> None:
    """mma.sp, which sm_90 has too."""
    w, x = case.operands()
    if side == "b":
        w, x = w.T, x.swapaxes(-1, -2)
    own = Sparse24(on_gpu(w.values), on_gpu(w.metadata), w.type, w.transposed)
    assert same_bits(case.matmul(own, on_gpu(x)), case.matmul(w, x, device="vm"))


@pytest.mark.parametrize(("form", "type_", "size", "config"), [*PACKED, *WIDE_PACKED])
def test_sparse_weights_in_registers(form: Any, type_: str, size: Any, config: str) -> None:
    """Packed to 4 to 8 bits: the virtual machine's bits, on the fast path from the second call."""
    w, x = packed_operands(form, type_, size)
    expected = matmul(x, w.T, config=config, device="vm")
    arrays = {name: getattr(w, name) for name in w.array_names}
    arrays = {name: on_gpu(a) if hasattr(a, "shape") else a for name, a in arrays.items()}
    own = SparsePacked(**arrays, type=w.type, group=w.group)
    for _ in range(3):
        assert same_bits(matmul(on_gpu(x), own.T, config=config), expected)


@pytest.mark.parametrize(("config", "type_", "blocks"), SCALED)
def test_scales(config: str, type_: str, blocks: tuple[Any, Any]) -> None:
    """The virtual machine's bits; the second call takes the fast path."""
    rng = np.random.default_rng(3)
    w, x = (rng.standard_normal((rows, 656)).astype(np.float32) for rows in (200, 72))
    w, x = compress_24(quantize(w, type_, blocks[0]), "magnitude"), quantize(x, type_, blocks[1])

    def product(w: Scaled, x: Scaled, **options: Any) -> Any:
        if "~" in config:
            return linear(x, w, config=config, **options)
        return matmul(w, x.T, config=config, **options)

    expected = product(w, x, device="vm")
    data = Sparse24(on_gpu(w.data.values), on_gpu(w.data.metadata), type_)
    own = Scaled(data, on_gpu(w.scales), w.block)
    others = Scaled(on_gpu(x.data), on_gpu(x.scales), x.block)
    for _ in range(3):
        assert same_bits(product(own, others), expected)


@pytest.mark.parametrize("type_", NUMPY)
@pytest.mark.parametrize("kernel", ["tma", "multistage"])
def test_every_pattern_in_each_position_of_a_row(type_: str, kernel: str) -> None:
    w, identity = every_pattern(type_)
    own = Sparse24(on_gpu(w.values), on_gpu(w.metadata), type_)
    config = None if kernel == "tma" else f"64x32x{128 // w.values.itemsize}:2x1:3"
    d = matmul(own, on_gpu(identity), config=config).float().cpu().numpy()
    assert (d == w.decompress().astype(np.float32)).all()


def test_a_gate() -> None:
    """Two sparse matrices, on the fast path from the second call on."""
    rng = np.random.default_rng(4)
    for config in (None, "tma:128x64x64:1:3~", "tma:256x128x64:2:3/2x1~"):
        x = rng.standard_normal((136, 520)).astype(np.float16)
        gate, up = (
            compress_24(rng.standard_normal((392, 520)).astype(np.float16), "magnitude")
            for _ in range(2)
        )
        options = {"activation": "relu", "config": config}
        expected = linear(x, up, gate=gate, device="vm", **options)
        gate, up = (Sparse24(on_gpu(w.values), on_gpu(w.metadata)) for w in (gate, up))
        for _ in range(3):
            assert same_bits(linear(on_gpu(x), up, gate=gate, **options), expected)


@pytest.mark.parametrize(
    "case",
    [
        SparseProduct("f16", (200, 136, 512), "tma:128x128x64:2:3"),
        SparseProduct("tf32", (200, 136, 256), "tma:128x128x32:2:3"),
        SparseProduct("e4m3", (200, 136, 1024), "tma:128x128x128:2:3"),
        SparseProduct("s8", (200, 136, 1024), "tma:128x128x128:2:3"),
        SparseProduct("bf16", (200, 136, 512), "64x64x64:2x2:3"),
        SparseProduct("u8", (200, 136, 512), "64x64x128:2x2:3"),
    ],
    ids=str,
)
def test_invalid_metadata_do_no_harm(case: SparseProduct) -> None:
    """D of the rows that have them is unspecified; all others are right."""
    torch = pytest.importorskip("torch")
    w, x = case.operands()
    expected, magnitude = case.reference(w, x)
    metadata = w.metadata.copy()
    metadata[1] = np.random.default_rng(1).integers(-(2**31), 2**31, metadata[1].shape)
    own = Sparse24(on_gpu(w.values), on_gpu(metadata), case.type)
    d = case.matmul(own, on_gpu(x))
    torch.cuda.synchronize()
    found = d.double().cpu().numpy() if d.is_floating_point() else d.cpu().numpy()
    right = np.abs(found - expected) <= case.tolerance * magnitude
    assert right[:64].all() and right[128:].all() and not right[64:128].all()


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
    mask = (torch.rand((200, 128, 4), device="cuda").argsort(-1) < 2).reshape(w.shape)
    masked, expected = compress_24(w, mask), compress_24(w.cpu(), mask.cpu().numpy())
    assert (masked.values.cpu() == expected.values).all()
    assert (masked.metadata.cpu() == expected.metadata).all()
    x = torch.randn((40, 512), device="cuda", dtype=torch.bfloat16)
    expected = torch.nn.functional.linear(x, by_numpy.decompress().cuda())
    assert torch.allclose(linear(x, by_kernel), expected, atol=0.5, rtol=0.02)
    with pytest.raises(MetadataError, match="row 0, columns 0 to 3: more than 2 of 4"):
        compress_24(w)
