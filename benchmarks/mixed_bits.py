"""Whether products with packed weights have the virtual machine's bits on this GPU, and are right.

    python benchmarks/mixed_bits.py
"""

from __future__ import annotations

import sys

import ml_dtypes
import numpy as np

import tilewright

CASES = (
    ((16, 9000, 512), "tma:64x16x256:4:8*2~"),
    ((16, 9000, 128), "tma:64x16x128:2:4*2~"),
    ((40, 9000, 640), "tma:128x48x128:2:3*2~"),
    ((40, 9000, 640), "tma:128x64x128:2:3~"),
    ((100, 1000, 1152), "tma:128x96x128:2:4~"),
    ((100, 1000, 1152), "tma:128x112x128:2:4*2~"),
    ((128, 1000, 1024), "tma:128x128x128:2:3*2~"),
    ((30, 300, 256), "tma:128x32x128:2:4*2~"),
    ((300, 300, 384), "tma:256x64x128:2:3*2~"),
)


def main() -> None:
    rng = np.random.default_rng(0)
    for (m, n, k), config in CASES:
        for zeros in (None, "integer"):
            w = rng.standard_normal((n, k)).astype(np.float32)
            packed = tilewright.quantize_weight(w, "u4", 128, zeros)
            x = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
            exact = x.astype(float) @ packed.dequantize().T.astype(float)
            here, there = (
                tilewright.linear(x, packed, out_dtype="f32", device=device, config=config)
                for device in ("cuda", "vm")
            )
            error = np.abs(here - exact).max() / np.abs(exact).max()
            same = "same bits" if np.array_equal(here, there) else "OTHER BITS"
            again = all(
                np.array_equal(here, tilewright.linear(x, packed, out_dtype="f32", device="cuda",
                                                       config=config))
                for _ in range(5)
            )  # fmt: skip
            print(f"{m}×{n}×{k} {config} {zeros}: {same}, error {error:.1e}, again {again}")


if __name__ == "__main__":
    sys.exit(main())
