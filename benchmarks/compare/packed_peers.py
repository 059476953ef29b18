"""Products with 4-bit weights of other projects, built by somebody as a shared library.

`mixed_input.py --peers` takes the paths of such libraries. Their functions in C:

    char const *peer_version();
    int peer_count();                                          of configurations
    char const *peer_name(int i);
    int peer_tokens(int i);                                    M of its tile (N of its wgmma)
    int64_t peer_size(int i, int n, int k, int group);         bytes of prepared weights
    int peer_weights(int i, void *w, void *scales, void *prepared, int n, int k, int group);
    void *peer_prepare(int i, void *x, void *prepared, void *d, int m, int n, int k, int group,
                       int *status);
    int peer_run(void *product, void *stream);
    void peer_release(void *product);

An int that is returned is a status, 0 if all is well. All matrices are in device memory: w N×K of
s4, two in a byte, the lower bits first; scales of bf16, K/group×N; x M×K and d M×N of bf16, all
row-major. d = x (w · scales)ᵀ.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_int64, c_void_p
from typing import Any

import torch

POINTERS, SIZES = 3 * [c_void_p], 3 * [c_int]
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "version": (c_char_p, []),
    "count": (c_int, []),
    "name": (c_char_p, [c_int]),
    "tokens": (c_int, [c_int]),
    "size": (c_int64, [c_int, *SIZES]),
    "weights": (c_int, [c_int, *POINTERS, *SIZES]),
    "prepare": (c_void_p, [c_int, *POINTERS, c_int, *SIZES, ctypes.POINTER(c_int)]),
    "run": (c_int, [c_void_p, c_void_p]),
    "release": (None, [c_void_p]),
}
ERROR = 2.0**-7  # of |x| |w|: bf16's rounding of w · scale and of d


class PeerLibrary:
    """A library's functions, and its configurations."""

    def __init__(self, path: str) -> None:
        loaded = ctypes.CDLL(path)
        for name, (returned, taken) in FUNCTIONS.items():
            function = getattr(loaded, f"peer_{name}")
            function.restype, function.argtypes = returned, taken
            setattr(self, name, function)

    def fitting(self, m: int) -> list[int]:
        """The configurations whose tiles have about as many tokens as the product, up to 256."""
        least, most = min(m, 128) // 2, max(2 * m, 16)
        return [i for i in range(self.count()) if least <= self.tokens(i) <= most]


class PeerWeights:
    """Random weights N×K in groups of K, and what a product with them must be."""

    def __init__(self, n: int, k: int, group: int) -> None:
        self.n, self.k, self.group = n, k, group
        self.packed = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.rand((k // group, n), device="cuda") / 32 + 1 / 64
        self.scales = scales.bfloat16()

    def error(self, x: torch.Tensor, d: torch.Tensor) -> float:
        """The largest |error| / (|x| |w|) in about 128 rows of d."""
        rows = slice(None, None, max(1, x.shape[0] // 128))
        wide = torch.stack((self.packed & 15, self.packed >> 4), -1).reshape(self.n, self.k).float()
        wide = torch.where(wide > 7, wide - 16, wide)
        wide *= self.scales.float().t().repeat_interleave(self.group, dim=1)
        x, d = x[rows].float(), d[rows].float()
        error = (d - x @ wide.t()).abs() / (x.abs() @ wide.t().abs())
        return float(error.nan_to_num(nan=torch.inf, posinf=torch.inf).max())


class PeerProduct:
    """A configuration's products of all sets of operands."""

    def __init__(
        self, library: PeerLibrary, i: int, weights: PeerWeights, x: list[Any], d: list[Any]
    ) -> None:
        self.library, self.x, self.d, self.products = library, x, d, []
        self.source = weights
        sizes = weights.n, weights.k, weights.group
        size = library.size(i, *sizes)
        self.prepared = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in x]
        torch.cuda.synchronize()
        packed, scales = weights.packed.data_ptr(), weights.scales.data_ptr()
        for x_, d_, w in zip(x, d, self.prepared, strict=True):
            checked("weights", library.weights(i, packed, scales, w.data_ptr(), *sizes))
            status = c_int(0)
            of_set = x_.data_ptr(), w.data_ptr(), d_.data_ptr(), x_.shape[0]
            self.products.append(library.prepare(i, *of_set, *sizes, status))
            checked("prepare", status.value)

    def __call__(self, i: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        checked("run", self.library.run(self.products[i % len(self.products)], stream))

    def verify(self) -> None:
        """Raise unless the products of the first and of the last set are right."""
        for i in 0, len(self.x) - 1:
            self.d[i].fill_(torch.nan)
            self(i)
            torch.cuda.synchronize()
            if (error := self.source.error(self.x[i], self.d[i])) > ERROR:
                raise ArithmeticError(f"wrong: the error is {error:.2g} of |x| |w|")

    def release(self) -> None:
        while self.products:
            self.library.release(self.products.pop())


def checked(function: str, status: int) -> None:
    if status:
        raise RuntimeError(f"peer_{function} returned {status}")
