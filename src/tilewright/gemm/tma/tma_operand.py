"""A and B of kernel ``tma``: where a tile lies in shared memory, the copies that bring it there,
the descriptors by which wgmma reads it.

A tile of ``extent`` rows (M of A, N of B) by ``depth`` of K stands in columns of swizzled lines: a
line is up to 128 bytes along the contiguous index, a column is all lines at one place of it, and
one copy brings a column, or a CTA's share of it.

    K-major, 128 × 64 bf16      Sw<3,3,3> o (128,64):(64,1)            one column of 128 lines
    M-major, 128 × 64 bf16      Sw<3,3,3> o ((64,2),64):((1,4096),64)  two columns of 64 lines
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...builder import Builder, Pointer
from ...dtypes import dtype
from ...layout import ComposedLayout, local_tile
from ...mma import TensorMap, make_descriptor, make_smem_layout

WGMMA_K = 32  # bytes of K that an instruction multiplies
PROMOTION = 128  # bytes that a miss brings to the L2; 256 costs where lines straddle


@dataclass(frozen=True)
class GlobalMatrix:
    """A matrix in global memory: lines ``leading`` elements apart, ``length`` long; ``batches`` of
    them, ``apart`` elements from one to the next.
    """

    address: int
    count: int
    length: int
    leading: int
    batches: int = 0
    apart: int = 0

    def map(self, type_: str, box: tuple[int, ...], swizzle: int) -> TensorMap:
        """What copies boxes (along a line, lines) of it."""
        size = dtype(type_).bits // 8
        shape: tuple[int, ...] = (self.length, self.count)
        strides: tuple[int, ...] = (self.leading * size,)
        if self.batches:
            shape, strides, box = (*shape, self.batches), (*strides, self.apart * size), (*box, 1)
        return TensorMap.tiled(
            self.address, type_, shape, strides, box, swizzle=swizzle, l2_promotion=PROMOTION
        )


@dataclass(frozen=True)
class TmaOperand:
    """``contiguous``: ``k`` or ``mn``. ``sharers``: CTAs of a cluster that want the same tile; each
    brings its part to all.
    """

    type: str
    extent: int
    depth: int
    contiguous: str
    sharers: int = 1

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return dtype(self.type).bits // 8

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return self.extent * self.depth * self.size

    @property
    def major(self) -> str:
        return "K" if self.contiguous == "k" else "MN"

    @cached_property
    def layout(self) -> ComposedLayout:
        """The tile in shared memory: (row, k) → element."""
        order = (0, 1) if self.major == "K" else (1, 0)
        made = make_smem_layout(self.type, self.major, (self.extent, self.depth), order=order)
        assert isinstance(made, ComposedLayout)
        return made

    @property
    def swizzle(self) -> int:
        """Bytes of a line."""
        return 16 << self.layout.outer.bits

    @property
    def line(self) -> int:
        """Elements of a line."""
        return self.swizzle // self.size

    @property
    def lines(self) -> int:
        """Lines that a copy brings."""
        return self.extent // self.sharers if self.major == "K" else self.depth

    def map(self, matrix: GlobalMatrix) -> TensorMap:
        """The map with which ``load`` copies."""
        return matrix.map(self.type, (self.line, self.lines), self.swizzle)

    @property
    def narrows(self) -> bool:
        """Whether the last tile has a map of its own, which brings only the rows that there are:
        copies write zeros for those beyond at a third of their pace, and D shows nothing of them.
        """
        return self.major == "K" and self.sharers == 1

    def edge(self, matrix: GlobalMatrix) -> TensorMap:
        """The last tile's map, where it has one."""
        return matrix.map(self.type, (self.line, self.last(max(1, matrix.count))), self.swizzle)

    def last(self, rows: Any) -> Any:
        """Of so many rows, those of the last tile."""
        return (rows - 1) % self.extent + 1

    # --- copies ---

    def source(self, k: Builder, maps: tuple[Any, Any], row: Any, rows: Any) -> tuple[Any, Any]:
        """The map for the tile from ``row`` of all ``rows`` on, and the bytes that it brings."""
        if not self.narrows:
            return maps[0], self.bytes
        at_edge = row + self.extent > rows
        count = k.select(at_edge, self.last(rows), self.extent)
        whole, edge = (k.map_address(map_) for map_ in maps)
        return k.select(at_edge, edge, whole), count * (self.depth * self.size)

    def load(
        self, k: Builder, there: Any, map_: Any, place: tuple[Any, Any, Any], barrier: Pointer,
        share: Any = 0, ctas: Any = None,
    ) -> None:  # fmt: skip
        """Bring this CTA's share of the tile at ``place`` (row, k, batch) to ``there``."""
        row, first_k, batch = place
        more = () if batch is None else (batch,)
        column = self.swizzle * (self.extent if self.major == "K" else self.depth)
        shared = self.sharers > 1
        if self.major == "K":
            count, own, rows = self.depth // self.line, self.lines * self.swizzle, self.lines
        else:
            count = self.extent // self.line // self.sharers
            own, rows = count * column, count * self.line
        if shared:
            there, row = there + share * own, row + share * rows
        for i in range(count):
            along = i * self.line
            at = (_plus(first_k, along), row) if self.major == "K" else (_plus(row, along), first_k)
            target = k.pointer("shared", "b8", there) + i * column
            k.tma_load(target, map_, (*at, *more), barrier, multicast_mask=ctas)

    # --- descriptors ---

    def start(self, row: int, k: int) -> int:
        """Bytes from the tile's beginning to (row, k), before the swizzle."""
        offset: int = self.layout.inner((row, k))
        return offset * self.size

    def bits(self, rows: int) -> int:
        """The descriptor's word of so many rows by an instruction's K, its start left out."""
        part = local_tile(self.layout, (rows, WGMMA_K // self.size), (0, 0))
        return make_descriptor(part, self.type, self.major).bits

    @property
    def steps(self) -> int:
        """Instructions along a stage's K."""
        return self.depth * self.size // WGMMA_K


def _plus(x: Any, n: int) -> Any:
    return x + n if n else x
