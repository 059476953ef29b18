"""Random products of a sparse matrix: types, sizes, sides, layouts, stacks, α, β and C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparse_cases import FAST, NUMPY, SparseProduct, elements
from tilewright import Sparse24, matmul

FP8 = ("e4m3", "e5m2")
INTEGERS = ("s8", "u8")
# Products of W, the sparse matrix, with these configurations; of Wᵀ on the right with ``~``.
CONFIGS = {
    "f16": ("tma:64x32x64:1:3", "tma:128x64x128:2:2", "tma:128x48x64:2p:3", "tma:64x32x64:1:3*3"),
    "tf32": ("tma:64x32x32:1:3", "tma:128x64x64:2:2"),
    "e4m3": ("tma:64x32x128:1:3", "tma:128x64x128:2:2", "tma:128x32x128:2p:3"),
    "s8": ("tma:64x32x128:1:3", "tma:128x64x256:2:2/2x1"),
}
CONFIGS |= {"bf16": CONFIGS["f16"], "e5m2": CONFIGS["e4m3"], "u8": CONFIGS["s8"]}


@dataclass
class RandomProduct:
    """W, X and C of a product, and its options."""

    case: SparseProduct
    w: Sparse24
    x: Any
    options: dict[str, Any]

    def run(self, place: Any, device: str | None) -> Any:
        """The product of the operands that ``place`` has put on the device; None: on that of the
        arrays. On other virtual machines than the H200 the configuration is chosen.
        """
        w = Sparse24(place(self.w.values), place(self.w.metadata), self.w.type, self.w.transposed)
        options = dict(self.options)
        if "c" in options:
            options["c"] = place(options["c"])
        config = {"config": self.case.config or None} if device in (None, "vm") else {}
        x = place(self.x)
        left, right = (x, w) if w.transposed else (w, x)
        return matmul(left, right, device=device, **config, **options)

    def check(self, d: Any) -> None:
        """Compare with the product in f64."""
        expected, magnitude = self.case.reference(self.w, self.x)
        alpha, beta = self.options.get("alpha", 1.0), self.options.get("beta", 0.0)
        expected, magnitude = alpha * expected, abs(alpha) * magnitude
        if "c" in self.options:
            c = self.options["c"].astype(np.float64)
            expected, magnitude = expected + beta * c, magnitude + abs(beta * c)
        error = np.abs(np.asarray(d).astype(np.float64) - expected)
        assert (error <= self.case.tolerance * magnitude).all(), self


def random_product(seed: int) -> RandomProduct:
    """The product of this number."""
    rng = np.random.default_rng([24, seed])
    type_ = str(rng.choice(list(NUMPY)))
    unit = {"f16": 8, "bf16": 8, "tf32": 4}.get(type_, 16)
    m, n = (int(2 ** rng.uniform(0, 8.2)) for _ in "mn")
    k = int(2 ** rng.uniform(2, 9.5)) // unit * unit if rng.random() < 0.8 else 4 * int(seed % 60)
    side, major = rng.choice(["", "~"]), rng.choice(["k", "n"])
    batch = int(rng.choice([0, 0, 0, 1, 3]))
    other = rng.choice({FP8: FP8, INTEGERS: INTEGERS}.get(
        next((group for group in (FP8, INTEGERS) if type_ in group), ()), (type_,)
    ))  # fmt: skip
    configs = ["", *(config for config in CONFIGS[type_])]
    config = str(rng.choice(configs))
    if (batch and "*" in config) or 1 in (m, n):  # of a vector D either order is one of rows
        config = ""
    options: dict[str, Any] = FAST if type_ in FP8 and rng.random() < 0.3 else {}
    case = SparseProduct(type_, (m, n, k), side, str(other), str(major), batch, options)
    w, x = case.operands(seed)
    options = dict(options)
    rows, columns = (n, m) if side else (m, n)
    shape = (batch, rows, columns) if batch else (rows, columns)
    if type_ not in INTEGERS and rng.random() < 0.4:
        options["alpha"] = float(rng.choice([0.5, -2.0, 0.0]))
    if rng.random() < 0.3:
        result = {"tf32": "tf32", **dict.fromkeys(FP8, "bf16")}.get(type_, type_)
        c = elements(rng, "f16", shape) if type_ not in INTEGERS else rng.integers(-9, 9, shape)
        options["c"] = c.astype(np.int32 if type_ in INTEGERS else NUMPY[result])
        options["beta"] = 1.0 if type_ in INTEGERS else float(rng.choice([1.0, 2.0, -0.5]))
    return RandomProduct(case._replace(config=config and config + side), w, x, options)
