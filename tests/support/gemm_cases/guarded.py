"""GEMMs in device memory whose every byte is known.

A, B, C and D have the layouts of the case, surrounded by random bytes. Their elements are small
integers, so D is exact in any order of accumulation. ``check`` multiplies in place: D must be exact
and no other byte may change. Operands that a factor of 0 leaves unread are NaN.
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
class OperandLayout:
    """Row-major (``t``) or column-major (``n``), a leading dimension with ``pad`` extra elements,
    ``before`` elements before the first, ``gap`` extra elements between the matrices of a batch.
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
class GemmCase:
    """M, N, K; number formats of A, B and D; layouts of A, B, C and D; the batch size."""

    sizes: tuple[int, int, int]
    types: tuple[str, str, str]
    layouts: tuple[OperandLayout, OperandLayout, OperandLayout, OperandLayout] = (
        OperandLayout(),
    ) * 4
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


def check(gemm_case: GemmCase, on: ExecutionDevice, config: Any, seed: int = 0) -> None:
    """Multiply, and compare all of the memory in which D lies. ``config`` may be a function of the
    problem that the arrays pose.
    """
    rng = np.random.default_rng(seed)
    given = gemm_case.numbers(rng)
    a, b, c = (x.astype(np.float64) for x in given)
    want = gemm_case.alpha * (a @ b) if gemm_case.alpha else np.zeros(c.shape)
    want = (want + gemm_case.beta * c).astype(given[2].dtype)
    for i, factor in enumerate((gemm_case.alpha, gemm_case.alpha, gemm_case.beta)):
        if not factor and given[i].dtype.kind not in "iu":
            given[i] = np.full_like(given[i], np.nan)
    placed = [lie.place(x, rng) for lie, x in zip(gemm_case.layouts, (*given, want), strict=True)]
    memory, view = placed[3]
    view[...] = rng.integers(0, 256, view.nbytes, np.uint8).view(view.dtype).reshape(view.shape)
    x, y, z, out = (_resident(whole, part, name, on) for (whole, part), name in zip(
        placed, (*gemm_case.types, gemm_case.types[2]), strict=True))  # fmt: skip
    how: dict[str, Any] = {
        "out": out, "device": on, "precision": gemm_case.precision, "fast_accum": gemm_case.fast,
    }  # fmt: skip
    if callable(config):
        config = config(tilewright.plan(x, y, c=z if gemm_case.beta else None, **how).problem)
    tilewright.matmul(x, y, c=z, alpha=gemm_case.alpha, beta=gemm_case.beta, config=config, **how)
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
