"""TMA: tensor copies by tensor maps, ``cp.async.bulk.tensor`` (sm_90)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...dtypes import DTYPES
from ...layout import Layout, Tensor, product_each
from ...layout.composed_layout import AnyLayout, inside
from ...layout.symbolic import add
from ...mma import TmaTiling
from ...mma.tensor_maps.tma_boxes import ALIGNMENT
from ...ptx import tree
from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.pointer import Pointer, check_start
from ..values.registers import Reg, is_integer, other_trace_error
from .bulk_copy import TX, emit_bulk_copy


class TmaOperations:
    """Tensor copies; a tensor map describes the tensor in global memory."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def tma_load(
        self,
        dst: Pointer | Tensor,
        tensor_map: Any,
        coordinates: Sequence[Any],
        barrier: Any,
        *,
        multicast_mask: Any = None,
        cache_hint: Any = None,
        im2col: Sequence[Any] | None = None,
    ) -> None:
        """Copy the box at ``coordinates`` (innermost first) from global to shared memory. The copy
        completes its bytes as a transaction of ``barrier``.

        ``dst`` must be aligned to 128 bytes, or to the period of the map's swizzle: 256, 512 or
        1024 bytes for a swizzle of 32, 64 or 128. A pointer receives one box. A tensor of known
        alignment receives as many boxes as fill it; the map must be made for its layout.
        ``multicast_mask``: the CTAs of the cluster that receive the box, each at this offset and
        with its own barrier. ``im2col``: the pixel offsets (u16) in W, H, D, for an im2col map.
        """
        first, mode = _coordinates(coordinates), "tile" if im2col is None else "im2col"
        words = ["cp.async.bulk.tensor", f"{len(first)}d", "shared::cluster.global", mode, TX]
        more = () if im2col is None else (im2col,)
        for target, at in _boxes(dst, first):
            source = self.tensor_address(tensor_map, at)
            emit_bulk_copy(
                self._emitter, words, (target, source, barrier, *more), multicast_mask, cache_hint
            )

    def tma_store(self, tensor_map: Any, coordinates: Sequence[Any], src: Pointer | Tensor) -> None:
        """Copy the box, or a tensor's boxes, from shared to global memory, in this thread's current
        bulk group. ``src`` must be aligned as for ``tma_load``.
        """
        first = _coordinates(coordinates)
        opcode = f"cp.async.bulk.tensor.{len(first)}d.global.shared::cta.tile.bulk_group"
        for source, at in _boxes(src, first):
            self._emitter.emit(opcode, self.tensor_address(tensor_map, at), source)

    def tma_reduce(
        self, tensor_map: Any, coordinates: Sequence[Any], src: Pointer, op: str = "add"
    ) -> None:
        """Reduce the box in shared memory into the tensor, element by element, in this thread's
        current bulk group. ``op``: add min max inc dec and or xor, as the map's type supports.
        """
        at = _coordinates(coordinates)
        opcode = f"cp.reduce.async.bulk.tensor.{len(at)}d.global.shared::cta.{op}.tile.bulk_group"
        self._emitter.emit(opcode, self.tensor_address(tensor_map, at), src)

    def tma_prefetch(self, tensor_map: Any, coordinates: Sequence[Any]) -> None:
        """Prefetch the box to the L2 cache."""
        at = _coordinates(coordinates)
        opcode = f"cp.async.bulk.prefetch.tensor.{len(at)}d.L2.global.tile"
        self._emitter.emit(opcode, self.tensor_address(tensor_map, at))

    def tma_prefetch_map(self, tensor_map: Any) -> None:
        """Prefetch the tensor map."""
        self._emitter.emit(
            "prefetch.tensormap", tree.MemoryOperand(self.map_address(tensor_map).operand)
        )

    def tensor_address(self, tensor_map: Any, coordinates: Sequence[Any]) -> tree.MemoryOperand:
        """The operand ``[map, {c0, c1, …}]``; coordinates are registers or numbers, as s32."""
        items = tuple(map(self._coordinate, _coordinates(coordinates)))
        return tree.MemoryOperand(self.map_address(tensor_map).operand, 0, items)

    def _coordinate(self, c: Any) -> Any:
        if not isinstance(c, Reg):
            return self._emitter.immediate(DTYPES["s32"], c)
        if c.dtype.bits != 32 or c.dtype.kind not in ("int", "uint"):
            raise kernel_error(f"a coordinate must be a 32-bit integer, got {c.dtype.name}")
        if c.k is not self._emitter.k:
            raise other_trace_error(c)
        return c.operand

    def map_address(self, tensor_map: Any) -> Reg:
        """The generic address of a map, which is a parameter (``by_value(128)``) or a pointer."""
        if isinstance(tensor_map, Reg):
            return tensor_map
        if not isinstance(tensor_map, Pointer):
            raise kernel_error(
                f"a tensor map must be a parameter or an address, got {tensor_map!r}"
            )
        address = tensor_map.address()
        if not tensor_map.space:
            return address
        return self._emitter.emit_once(
            (address, "generic"), f"cvta.{tensor_map.space}.u64", address
        )


def _coordinates(given: Any) -> tuple[Any, ...]:
    """One to five registers and integers."""
    try:
        coordinates = tuple(given)
    except TypeError:
        raise kernel_error(
            f"coordinates must be a sequence, innermost first, got {given!r}"
        ) from None
    if not 1 <= len(coordinates) <= 5:
        raise kernel_error(f"there must be one to five coordinates, got {len(coordinates)}")
    for c in coordinates:
        if not isinstance(c, Reg) and not is_integer(c):
            raise kernel_error(f"a coordinate must be an integer or a register, got {c!r}")
    return coordinates


def _boxes(
    tile: Pointer | Tensor, coordinates: Sequence[Any]
) -> Iterator[tuple[Pointer, Sequence[Any]]]:
    """The address and the coordinates of each box of a tile."""
    if not isinstance(tile, Tensor):
        yield tile, coordinates
        return
    if not isinstance(tile.engine, Pointer) or not tile.engine.space.startswith("shared"):
        raise kernel_error(f"the tile of a tensor copy must be in shared memory, got {tile}")
    boxes = TmaTiling.of(_whole(tile.layout), tile.layout, tile.dtype.bits)
    check_start(tile.engine, ALIGNMENT, boxes.swizzle, "a tensor copy")
    for box in boxes.parts:
        moved = [add(c, n) for c, n in zip(coordinates, box.coordinates, strict=False)]
        yield tile.engine.add_bytes(box.offset), [*moved, *coordinates[len(moved) :]]


def _whole(shared: AnyLayout) -> Layout:
    """The layout of a tensor with the shape of a tile, contiguous in the tile's contiguous mode."""
    shape = product_each(shared.shape)
    plain = inside(shared)
    first = next((i for i, mode in enumerate(plain) if mode(1) == 1 and mode.size() > 1), 0)
    order = [first, *(i for i in reversed(range(len(shape))) if i != first)]
    strides, step = [0] * len(shape), 1
    for i in order:
        strides[i], step = step, step * shape[i]
    return Layout(shape, tuple(strides))
