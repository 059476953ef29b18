"""Products on a GPU and on the virtual machine: operands as they come, results bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright
from references.hostile import Source, Stream
from tilewright.dtypes import dtype


def numbers(type_: str, *shape: int, hostile: float = 0.0) -> Any:
    """Normal numbers, some of them replaced by random bits."""
    t, rng = dtype(type_), Stream(*shape)
    source = Source(rng, t)
    bits, odd = (np.asarray(make(shape), t.storage) for make in (source.normal, source.uniform))
    return np.where(rng.random(shape) < hostile, odd, bits).view(t.numpy)


def laid(a: Any, b: Any, layout: str) -> Any:
    """Both row-major (``t``) or column-major (``n``)."""
    return (x if m == "t" else x.T.copy().T for x, m in zip((a, b), layout, strict=True))


def same_bits(a: Any, b: Any, **options: Any) -> bool:
    """Whether both devices give the same, of A's type."""
    here, there = (tilewright.matmul(a, b, device=d, **options) for d in ("cuda", "vm"))
    return bool(here.dtype == there.dtype == a.dtype and here.tobytes() == there.tobytes())
