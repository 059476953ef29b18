"""What a call launches, as a record that can be kept on disk.

``CallRecord`` holds all that a call needs besides addresses and factors: the layout of each matrix,
grids, parameter blocks, and the kernels by name. A call that finds its record chooses no
configuration and imports neither ``gemm``'s kernels nor the builder.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ...gemm.kernel_launch import KernelArguments, LaunchShape


class OperandLayout(NamedTuple):
    """One matrix as the kernel sees it, or a stack. ``rows``: rows are its lines, else columns;
    ``leading``: elements from line to line; ``copied``: it lies otherwise, and is copied to be so;
    ``apart``: elements from matrix to matrix; ``times``: how often K is laid out in a line.
    """

    rows: bool
    leading: int
    copied: bool
    apart: int = 0
    times: int = 1

    def lines(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Number and length of a matrix' lines."""
        return (shape[-2], shape[-1]) if self.rows else (shape[-1], shape[-2])

    def elements(self, shape: tuple[int, ...]) -> int:
        """Elements of memory from its first to its last."""
        count, length = self.lines(shape)
        stack = shape[0] if len(shape) == 3 else 1
        last = (stack - 1) * self.apart + (count - 1) * self.leading
        return max(last + length * self.times, 0)

    @property
    def strides(self) -> tuple[int, int]:
        """Of a matrix."""
        return (self.leading, 1) if self.rows else (1, self.leading)


@dataclass(frozen=True)
class KernelRecord:
    """One kernel of a call: ``kernel`` is its text (``str`` of a ``gemm.GemmKernel``)."""

    kernel: str
    shape: LaunchShape
    arguments: KernelArguments


@dataclass(frozen=True)
class CallRecord:
    """All kernels of a call, one after another. ``swapped``: they compute Dᵀ = Bᵀ Aᵀ;
    ``accumulator`` is the accumulator's type, ``workspace`` the bytes of device memory that the
    call takes besides its matrices.
    """

    swapped: bool
    accumulator: str
    workspace: int
    parts: dict[str, OperandLayout]
    kernels: tuple[KernelRecord, ...]

    def pack(self) -> bytes:
        """The record as bytes; ``CallRecord.unpack`` is the inverse."""
        return json.dumps(asdict(self), default=_hex).encode()

    @classmethod
    def unpack(cls, data: bytes) -> CallRecord:
        given = json.loads(data)
        given["parts"] = {name: OperandLayout(*part) for name, part in given["parts"].items()}
        given["kernels"] = tuple(_launch(k) for k in given["kernels"])
        return cls(**given)


def _hex(value: bytes) -> str:
    return value.hex()


def _launch(given: dict[str, Any]) -> KernelRecord:
    grid, block, cluster, *others = given["shape"]
    shape = LaunchShape(tuple(grid), tuple(block), cluster and tuple(cluster), *others)
    of = given["arguments"]
    slots, scales = (tuple(map(tuple, of[name])) for name in ("slots", "scales"))
    arguments = KernelArguments(bytes.fromhex(of["block"]), slots, scales, of["factor"])
    return KernelRecord(given["kernel"], shape, arguments)
