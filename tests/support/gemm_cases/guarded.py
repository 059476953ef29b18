"""Products in device memory of which every byte is known.

A, B, C and D lie as asked among random bytes; their elements are small integers, so that D is exact
in whatever order sums are made. ``check`` multiplies in place: D must be what it is, and nothing
beside it may have changed. What a factor of 0 makes unread is NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright
from gemm_cases.resident import Resident
from tilewright.dtypes import dtype
from tilewright.run.devices.device_protocol import ExecutionDevice

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Lie:
    """Row-major (``t``) or column-major (``n``), lines ``pad`` elements longer than need be,
    ``before`` elements before the first, ``gap`` more between the matrices of a stack.
    """

    major: str = "t"
    pad: int = 0
    before: int = 0
    gap: int = 0

    def place(self, elements: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """(all memory, the view that is the elements)."""
        lines = elements if self.major == "t" else elements.swapaxes(-1, -2)
        leading, size = lines.shape[-1] + self.pad, elements.itemsize
        apart = lines.shape[-2] * leading + self.gap
        count = self.before + max(1, int(np.prod(lines.shape[:-2]))) * apart + 16
        memory = rng.integers(0, 256, count * size, np.uint8).view(f"u{size}")
        strides = (apart * size, leading * size, size)[-lines.ndim :]
        view = np.lib.stride_tricks.as_strided(memory[self.before :], lines.shape, strides)
        view[...] = lines.view(f"u{size}")
        return memory, view if self.major == "t" else view.swapaxes(-1, -2)


@dataclass(frozen=True)
class Asked:
    """M, N, K; formats of A, B and D; how A, B, C and D lie; a stack of ``batch_shape``."""

    sizes: tuple[int, int, int]
    types: tuple[str, str, str]
    lies: tuple[Lie, Lie, Lie, Lie] = (Lie(),) * 4
    alpha: float = 1.0
    beta: float = 0.0
    batch: int | None = None
    fast: bool = False
    precision: str = "tf32"

    def numbers(self, rng: np.random.Generator) -> list[Array]:
        """A, B, C."""
        m, n, k = self.sizes
        stack = () if self.batch is None else (self.batch,)
        shapes = zip(((m, k), (k, n), (m, n)), self.types, strict=True)
        made = []
        for shape, name in shapes:
            low = 0 if name == "u8" else -3
            made.append(rng.integers(low, 4, (*stack, *shape)).astype(dtype(name).numpy))
        return made


def check(asked: Asked, on: ExecutionDevice, config: Any, seed: int = 0) -> None:
    """Multiply, and compare all of the memory in which D lies. ``config`` may be a function of the
    problem that the arrays pose.
    """
    rng = np.random.default_rng(seed)
    given = asked.numbers(rng)
    a, b, c = (x.astype(np.float64) for x in given)
    want = asked.alpha * (a @ b) if asked.alpha else np.zeros(c.shape)
    want = (want + asked.beta * c).astype(given[2].dtype)
    for i, factor in enumerate((asked.alpha, asked.alpha, asked.beta)):
        if not factor and given[i].dtype.kind not in "iu":
            given[i] = np.full_like(given[i], np.nan)
    placed = [lie.place(x, rng) for lie, x in zip(asked.lies, (*given, want), strict=True)]
    memory, view = placed[3]
    view[...] = rng.integers(0, 256, view.nbytes, np.uint8).view(view.dtype).reshape(view.shape)
    x, y, z, out = (_resident(whole, part, name, on) for (whole, part), name in zip(
        placed, (*asked.types, asked.types[2]), strict=True))  # fmt: skip
    how: dict[str, Any] = {
        "out": out, "device": on, "precision": asked.precision, "fast_accum": asked.fast,
    }  # fmt: skip
    if callable(config):
        config = config(tilewright.plan(x, y, c=z if asked.beta else None, **how).problem)
    tilewright.matmul(x, y, c=z, alpha=asked.alpha, beta=asked.beta, config=config, **how)
    got = out.numpy().astype(np.float64)
    assert np.array_equal(got, want.astype(np.float64))
    view[...] = out.numpy().view(view.dtype)
    start = out.memory.address - (view.ctypes.data - memory.ctypes.data)
    after = np.empty((1, memory.size), memory.dtype)
    on.download(after, start, memory.size)
    assert np.array_equal(after[0], memory), "bytes beside D were written"


def _resident(memory: Array, view: Array, name: str, on: ExecutionDevice) -> Resident:
    """The same part of the same memory on the device."""
    numbers = dtype(name).numpy
    whole = Resident.of(memory.view(numbers), on)
    steps = tuple(step // view.itemsize for step in view.strides)
    return whole.cut(view.shape, steps, (view.ctypes.data - memory.ctypes.data) // view.itemsize)
