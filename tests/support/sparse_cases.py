"""Products of a 2:4 sparse matrix: every type, schedule and side, on sizes that fill no tile."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from tilewright import Sparse24, compress_24, matmul, quantize_weight
from tilewright.mma.metadata_blocks import chunk_size, pack_metadata, positions_table

Array = np.ndarray[Any, Any]

NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip


class SparseProduct(NamedTuple):
    """W (M×K, sparse) times X (K×N), or with ``~`` in ``config`` Xᵀ times Wᵀ. ``x_type``: of X, the
    type of W by default; ``major``: X's contiguous dimension; ``options`` of ``matmul``.
    """

    type: str
    shape: tuple[int, int, int]
    config: str
    x_type: str = ""
    major: str = "k"
    batch: int = 0
    options: dict[str, Any] = {}  # noqa: RUF012

    def __str__(self) -> str:
        shape, more = "x".join(map(str, self.shape)), f"{self.x_type}{self.major}{self.batch or ''}"
        return f"{self.type}-{shape}-{self.config}-{more}" + "-".join(map(str, self.options))

    def operands(self, seed: int = 0) -> tuple[Sparse24, Array]:
        """Random W, with every valid metadata, and X."""
        rng = np.random.default_rng(seed)
        m, n, k = self.shape
        lead = (self.batch,) if self.batch else ()
        valid = np.flatnonzero(positions_table(self.type)[1]).astype(np.uint8)
        chunks = rng.choice(valid, (*lead, m, k // chunk_size(self.type)))
        values = elements(rng, self.type, (*lead, m, k // 2))
        w = Sparse24(values, pack_metadata(self.type, chunks), self.type)
        x = elements(rng, self.x_type or self.type, (*lead, n, k))
        x = x if self.major == "k" else np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)
        return (w.T, x) if "~" in self.config else (w, x.swapaxes(-1, -2))

    def matmul(self, w: Sparse24, x: Any, **options: Any) -> Any:
        """The product in the order of the operands."""
        left, right = (x, w) if w.transposed else (w, x)
        return matmul(left, right, config=self.config, **self.options, **options)

    @property
    def vm(self) -> str:
        """The virtual machine of a GPU with mma.sp of these types."""
        return "vm:RTX 4090" if self.type in ("e4m3", "e5m2") else "vm:A100"

    @property
    def tolerance(self) -> float:
        """The error relative to the product of the magnitudes: D's rounding, and sums'."""
        return {"s8": 0.0, "u8": 0.0, "f16": 2**-10, "tf32": 2**-9}.get(self.type, 2**-7)

    def reference(self, w: Sparse24, x: Array) -> tuple[Array, Array]:
        """The product in f64, and that of the magnitudes."""
        left, right = (np.asarray(y).astype(np.float64) for y in (w.decompress(), x))
        if w.transposed:
            left, right = right, left
        return left @ right, np.abs(left) @ np.abs(right)


def every_pattern(type_: str) -> tuple[Sparse24, Array]:
    """A matrix of 64 rows with every valid metadata in each position along K, in some row, and
    whole numbers from 1 to 7; and an identity matrix, column-major.
    """
    k = 512 // np.dtype(NUMPY[type_]).itemsize
    valid, size = np.flatnonzero(positions_table(type_)[1]), chunk_size(type_)
    pattern = (np.arange(64)[:, None] + np.arange(k // size)) % len(valid)
    values = np.random.default_rng(0).integers(1, 8, (64, k // 2)).astype(NUMPY[type_])
    w = Sparse24(values, pack_metadata(type_, valid[pattern].astype(np.uint8)), type_)
    return w, np.eye(k).astype(NUMPY[type_]).T


def elements(rng: Any, type_: str, shape: tuple[int, ...]) -> Array:
    if type_ in ("s8", "u8"):
        low = -128 if type_ == "s8" else 0
        return np.asarray(rng.integers(low, low + 256, shape).astype(NUMPY[type_]))
    return np.asarray(rng.standard_normal(shape).astype(NUMPY[type_]))


def on_gpu(array: Any) -> Any:
    """The array as a torch tensor, with rows or columns contiguous as they are."""
    import torch

    if array.ndim > 1 and array.strides[-1] != array.itemsize == array.strides[-2]:
        return on_gpu(array.swapaxes(-1, -2)).mT
    bits = np.ascontiguousarray(array).view(f"i{array.itemsize}")
    types = {"float8_e4m3fn": torch.float8_e4m3fn, "float8_e5m2": torch.float8_e5m2}
    name = array.dtype.name
    own = types.get(name) or getattr(torch, name)
    return torch.from_numpy(bits).cuda().view(own)


def same_bits(tensor: Any, array: Any) -> bool:
    """Whether a tensor on a GPU has the bits of a NumPy array."""
    import torch

    bits = np.ascontiguousarray(np.asarray(array)).view(f"i{array.itemsize}")
    own = tensor.cpu().view(getattr(torch, f"int{8 * bits.itemsize}")).numpy()
    return own.shape == bits.shape and bool((own == bits).all())


FAST = {"fast_accum": True}
CASES = [
    SparseProduct("f16", (72, 40, 328), "tma:64x32x64:1:3"),
    SparseProduct("f16", (200, 72, 328), "tma:128x64x128:2:2", major="n"),
    SparseProduct("f16", (136, 40, 200), "tma:64x32x64:2p:3~"),
    SparseProduct("f16", (100, 40, 1000), "tma:64x32x64:1:4*3"),
    SparseProduct("f16", (140, 40, 136), "tma:64x32x64:1:3/2x1"),
    SparseProduct("f16", (140, 130, 136), "tma:64x64x64:1:3/1x2~", major="m"),
    SparseProduct("f16", (70, 40, 136), "tma:64x32x64:1:3", batch=3),
    SparseProduct("bf16", (72, 136, 328), "tma:64x64x64:1:3", major="n"),
    SparseProduct("tf32", (200, 40, 132), "tma:128x32x32:2:3"),
    SparseProduct("tf32", (72, 24, 68), "tma:64x32x64:1:3~"),
    SparseProduct("e4m3", (100, 40, 656), "tma:64x32x128:1:3"),
    SparseProduct("e4m3", (140, 40, 656), "tma:128x32x256:2:2", options=FAST),
    SparseProduct("e5m2", (72, 40, 656), "tma:64x32x128:2p:3~", x_type="e4m3"),
    SparseProduct("s8", (72, 40, 656), "tma:64x32x128:1:3", x_type="u8"),
    SparseProduct("u8", (136, 48, 272), "tma:64x48x256:1:3~", x_type="s8"),
]
# Wide tiles, whose wgmmas of several k-blocks are in flight together.
WIDE = [
    SparseProduct("f16", (700, 520, 1096), "tma:128x128x64:2:4"),
    SparseProduct("f16", (700, 520, 1096), "tma:128x256x64:2:4"),
    SparseProduct("f16", (700, 520, 1096), "tma:128x256x64:2:4/2x1~"),
    SparseProduct("f16", (700, 520, 1096), "tma:128x192x64:2p:4/1x2", major="n"),
    SparseProduct("bf16", (700, 520, 1096), "tma:128x256x128:2:2~"),
    SparseProduct("tf32", (300, 264, 1028), "tma:128x256x32:2:4"),
    SparseProduct("e4m3", (300, 264, 2064), "tma:128x128x128:2:4", x_type="e5m2"),
    SparseProduct("e4m3", (300, 264, 2064), "tma:128x256x128:2:4d", options=FAST),
    SparseProduct("s8", (300, 264, 2064), "tma:128x256x256:2:2"),
]

# Of kernel ``multistage``, with the device that each runs on.
MULTISTAGE = [
    SparseProduct("f16", (100, 72, 328), "64x32x64:2x1:3"),
    SparseProduct("f16", (128, 128, 512), "64x64x64:2x2:3p"),
    SparseProduct("f16", (256, 192, 512), "32x64x128:1x2:4*3"),
    SparseProduct("f16", (70, 40, 136), "16x32x64:1x2:3", batch=3),
    SparseProduct("bf16", (130, 140, 200), "32x64x64:1x2:1", major="n"),
    SparseProduct("tf32", (100, 72, 132), "64x32x32:2x1:3"),
    SparseProduct("s8", (130, 140, 200), "32x64x256:1x2:2*2", x_type="u8"),
    SparseProduct("u8", (100, 72, 656), "64x32x128:2x2:2"),
    SparseProduct("e4m3", (100, 72, 656), "32x64x128:1x2:3"),
    SparseProduct("e5m2", (70, 40, 512), "64x64x128:1x2:2", x_type="e4m3", options=FAST),
]

# Sparse weights of 4 to 8 bits: (type, group, zero points), A's type, (M, N, K), configuration
PACKED = [
    (("u4", 128, "integer"), "f16", (5, 200, 640), "tma:64x16x256:1:2~"),
    (("s4", 64, None), "bf16", (5, 128, 768), "tma:64x8x512:1:2~"),
    (("u4", 64, "float"), "f16", (40, 130, 512), "tma:128x40x256:2:3~"),
    (("u4", 128, None), "bf16", (16, 128, 2048), "tma:64x16x256:1:3*2~"),
    (("u4", 128, "integer"), "bf16", (16, 70, 1152), "tma:64x16x256:3:6~"),
    (("s8", None, None), "bf16", (70, 256, 196), "tma:256x96x256:2:2~"),
    (("u8", 128, "integer"), "bf16", (130, 192, 384), "tma:64x64x256:2p:3~"),
    (("e4m3", 32, None), "f16", (24, 130, 256), "tma:64x32x256:1:3/2x1~"),
    (("mxfp4", None, None), "bf16", (16, 128, 384), "tma:128x16x256:2:3/1x2~"),
]
# Those whose wgmmas take longer than the conversion.
WIDE_PACKED = [
    (("u4", 128, "integer"), "f16", (300, 200, 2048), "tma:128x64x256:2:3~"),
    (("u4", 128, None), "bf16", (300, 200, 2048), "tma:128x96x256:2:2/2x1~"),
    (("s8", 64, None), "f16", (300, 500, 2048), "tma:256x64x256:2:2~"),
    (("u4", 32, "float"), "bf16", (100, 500, 2048), "tma:64x64x512:1:2~"),
]


def packed_operands(form: Any, type_: str, size: tuple[int, int, int]) -> tuple[Any, Array]:
    """Sparse packed weights N×K, pruned by magnitude, and X (M, K)."""
    rng, (m, n, k) = np.random.default_rng(sum(size)), size
    w = rng.standard_normal((n, k)).astype(np.float32)
    return compress_24(quantize_weight(w, *form), "magnitude"), elements(rng, type_, (m, k))


# (configuration, type, blocks of the weights' scales and of the others')
SCALED = [
    ("tma:64x32x128:1:3~", "e4m3", ("row", "row")),
    ("tma:64x32x128:1:3", "s8", ("tensor", "row")),
    ("tma:64x32x128:1:3~", "e4m3", ((128, 128), (1, 128))),
    ("tma:128x128x128:2:3/2x1", "e4m3", ((128, 128), (1, 128))),
    ("tma:128x64x128:2p:3", "e4m3", ((128, 128), (128, 128))),
    ("tma:256x64x128:2:2~", "e4m3", ((128, 128), (1, 128))),
]
