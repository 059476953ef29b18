"""Launches of a GEMM: grid, parameter block, kernel.

The problem determines the parameter block once; each call writes addresses, α and β into a copy.
An address is written into a pointer parameter, or into the first eight bytes of a tensor map.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from ..builder import Traced
    from ..target import Limits
    from .problem import Problem

MAX_OPERANDS = 24  # arrays of an epilogue
PAIR_ADDRESS = "b2"  # of the second matrix B of a pair
SCALE_ADDRESSES = ("scale_a", "scale_b", "scale_b2")  # of block scales
METADATA_ADDRESSES = ("metadata", "metadata2")  # of a sparse matrix, and of a pair's second one
GROUP_ADDRESS = "groups"  # of the sizes of groups
# Of the rows of A that are read, of D that are written, and of where the matrices B of a list are.
INDEX_ADDRESSES = ("gather", "scatter", "places")
# A, B, C, D, the workspace, the second B, block scales, metadata, sizes of groups, indices of rows
# and the arrays of an epilogue, as slots number them.
MATRICES = (
    *"abcdw", PAIR_ADDRESS, *SCALE_ADDRESSES, *METADATA_ADDRESSES, GROUP_ADDRESS,
    *INDEX_ADDRESSES,
    *(f"x{i}" for i in range(MAX_OPERANDS)),
)  # fmt: skip
ADDRESS_BYTES = 8
_ADDRESS = struct.Struct("<Q")
_SCALARS = {"f32": struct.Struct("<f"), "f64": struct.Struct("<d")}


SHARED_UNIT = 128  # bytes: allocation granularity of shared memory


class LaunchShape(NamedTuple):
    """Grid, block (threads of a CTA) and cluster of a launch.

    ``programmatic``: programmatic dependent launch, the kernel itself waits for the grids it
    depends on. ``unused``: bytes of shared memory that a CTA gets besides its own, which lowers the
    occupancy.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    programmatic: bool = False
    unused: int = 0


def unused_shared(resident: int, own: int, limits: Limits) -> int:
    """The ``unused`` bytes of shared memory with which at most ``resident`` CTAs, of ``own`` bytes,
    are on an SM.
    """
    share = limits.shared_per_sm // resident - limits.shared_reserved
    return (min(share, limits.shared_per_block) - own) & -SHARED_UNIT


class MatrixStrides(NamedTuple):
    """Strides in elements: the leading dimension, from matrix to matrix of a batch, and (of an
    epilogue's operands) along the contiguous dimension. 0 where an operand does not vary. Of block
    scales: along M or N, along the batch, and from block to block of K.
    """

    leading: int
    batch: int = 0
    inner: int = 1


@dataclass(frozen=True)
class KernelArguments:
    """The parameter block of one kernel, and where a call writes into it.

    ``slots``: (index of 8 bytes in the block, index in ``MATRICES``) of each address. ``scales``:
    byte offsets of α and of its pointer, then of β and its pointer, numbers of type ``factor``.
    """

    block: bytes
    slots: tuple[tuple[int, int], ...]
    scales: tuple[tuple[int, int], ...]
    factor: str

    def pack(self, addresses: Sequence[int], scales: Sequence[tuple[float, int]]) -> bytearray:
        """The block with these addresses of A, B, C, D and the workspace, and with α and β."""
        block = bytearray(self.block)
        for word, which in self.slots:
            _ADDRESS.pack_into(block, word * ADDRESS_BYTES, addresses[which])
        self.scale(block, scales)
        return block

    def scale(self, block: bytearray | memoryview, scales: Sequence[tuple[float, int]]) -> None:
        """Write α and β, each a number and the device address of one (0: use the number)."""
        for (value, address), (number, pointer) in zip(scales, self.scales, strict=False):
            _SCALARS[self.factor].pack_into(block, number, value)
            _ADDRESS.pack_into(block, pointer, address)


@dataclass(frozen=True)
class GemmKernel:
    """A kernel that is traced on demand. Its text (``str``) identifies it in caches."""

    build: Callable[[Problem, Any], Traced]
    problem: Problem  # represents all problems that share the kernel
    config: Any

    def trace(self) -> Traced:
        """Trace the kernel."""
        return self.build(self.problem, self.config)

    def __str__(self) -> str:
        return f"{self.build.__module__}.build({self.problem!r}, {self.config!r})"


class KernelLaunch(NamedTuple):
    """One kernel launch of a GEMM."""

    kernel: GemmKernel
    shape: LaunchShape
    arguments: KernelArguments
