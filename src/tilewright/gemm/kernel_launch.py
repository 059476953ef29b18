"""A kernel's parameter block: what a problem decides is written once, what a call decides into it.

``MatrixStrides`` holds the strides of a matrix in elements. An address is written where a pointer
parameter is, or into the first eight bytes of a tensor map.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import builder

if TYPE_CHECKING:
    from ..builder import Traced
    from .problem import Problem

_ADDRESS = struct.Struct("<Q")
_FACTORS = {"f32": struct.Struct("<f"), "f64": struct.Struct("<d")}


class LaunchShape(NamedTuple):
    """A launch: CTAs, threads of each, CTAs of a cluster; ``programmatic``: the kernel itself waits
    for those ahead of it; ``unused``: bytes of shared memory that a CTA gets besides its own, so
    that fewer share an SM.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int] | None = None
    programmatic: bool = False
    unused: int = 0


class MatrixStrides(NamedTuple):
    """Elements from line to line of a matrix, and from matrix to matrix of a batch."""

    leading: int
    apart: int = 0


@dataclass(frozen=True)
class KernelArguments:
    """The parameter block of one kernel. ``slots`` are the places where the addresses of A, B, C, D
    and a workspace W are written: (which 8 bytes of the block, which of the five). ``scales`` are
    the offsets of α and of its address, then those of β, numbers of type ``factor``.
    """

    block: bytes
    slots: tuple[tuple[int, int], ...]
    scales: tuple[tuple[int, int], ...]
    factor: str

    @classmethod
    def of(
        cls,
        types: Mapping[str, str],
        values: Mapping[str, Any],
        places: Mapping[str, tuple[str, ...]],
    ) -> KernelArguments:
        """Parameters of these types and values, by name; ``places`` names the parameters that take
        the address of ``a``, ``b``, ``c``, ``d`` or ``w``.
        """
        layout = builder.kernel_parameters.block(types)
        offsets = {n: p.offset for n, p in zip(types, layout.parameters, strict=True)}
        named = [(n, i) for i, x in enumerate("abcdw") for n in places.get(x, ())]
        return cls(
            layout.pack([values.get(name, 0) for name in types]),
            tuple((offsets[n] // _ADDRESS.size, i) for n, i in named),
            tuple((offsets[n], offsets[f"{n}_ptr"]) for n in ("alpha", "beta") if n in offsets),
            types.get("alpha", "f32"),
        )

    def pack(self, addresses: tuple[int, int, int, int, int], scales: Any) -> bytearray:
        """The block for A, B, C, D and W at these addresses, and these factors."""
        block = bytearray(self.block)
        for word, which in self.slots:
            _ADDRESS.pack_into(block, word * _ADDRESS.size, addresses[which])
        self.scale(block, scales)
        return block

    def scale(self, block: bytearray | memoryview, scales: Any) -> None:
        """Write (α, β), each a number and the address of one (0: the number counts)."""
        for (value, address), (number, pointer) in zip(scales, self.scales, strict=False):
            _FACTORS[self.factor].pack_into(block, number, value)
            _ADDRESS.pack_into(block, pointer, address)


@dataclass(frozen=True)
class GemmKernel:
    """A kernel that is traced when somebody has to see it. Its text is all that decides it."""

    build: Callable[[Problem, Any], Traced]
    problem: Problem  # the one that stands for all with this kernel
    config: Any

    def trace(self) -> Traced:
        """The kernel."""
        return self.build(self.problem, self.config)

    def __str__(self) -> str:
        return f"{self.build.__module__}.build({self.problem!r}, {self.config!r})"


class KernelLaunch(NamedTuple):
    """One kernel of a GEMM."""

    kernel: GemmKernel
    shape: LaunchShape
    arguments: KernelArguments
