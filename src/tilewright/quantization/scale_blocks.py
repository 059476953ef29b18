"""Scale blocks: which elements of a matrix share a scale.

A block is (rows, columns) in elements. The scales of an R×C matrix form a matrix of ⌈R / rows⌉ ×
⌈C / columns⌉: the last blocks may be partial. One scale for each row is a block of 1×C, and so on:

    "tensor"   R×C        "row", "token"   1×C        "column"   R×1        128   1×128

An axis without elements has one scale if a block is all of it, whose side then is 0, else none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ProblemError
from .array_access import Array, sizes

Block = tuple[int, int]
NAMED = ("tensor", "row", "token", "column")


def block_shape(block: Any, shape: tuple[int, ...]) -> Block:
    """The block that ``block`` names, for a matrix (or a stack of matrices) of this shape.

    ``block``: None or "tensor", "row" or "token", "column", a number of elements along the last
    axis, or (rows, columns). Raises ProblemError for anything else.
    """
    rows, columns = shape[-2:]
    named = {"tensor": (rows, columns), "row": (1, columns), "column": (rows, 1)}
    named["token"] = named["row"]
    if block is None or isinstance(block, str):
        if (block or "tensor") in named:
            return named[block or "tensor"]
    elif isinstance(block, int | np.integer) and block > 0:
        return 1, int(block)
    elif isinstance(block, tuple | list) and len(block) == 2:
        pairs = list(zip(block, shape[-2:], strict=True))
        if all(_is_side(side, size) for side, size in pairs):
            down, across = (min(int(side), size or int(side)) for side, size in pairs)
            return down, across
    allowed = ", ".join(map(repr, NAMED))
    raise ProblemError(
        f"block must be {allowed}, a group size or (rows, columns), got {block!r:.60}"
    )


def _is_side(side: Any, size: int) -> bool:
    """Whether a block may have this side along an axis of ``size`` elements."""
    return isinstance(side, int | np.integer) and (int(side) > 0 or int(side) == size == 0)


def grid_shape(shape: tuple[int, ...], block: Block) -> tuple[int, ...]:
    """The shape of the scales of a matrix."""
    rows, columns = (-(-size // b) if b else 1 for size, b in zip(shape[-2:], block, strict=True))
    return (*shape[:-2], rows, columns)


def inferred_block(shape: tuple[int, ...], scales: tuple[int, ...]) -> Block:
    """The block that follows from the scales' shape, if it divides the matrix.

    Raises ProblemError if it does not follow.
    """
    if len(scales) == len(shape):
        pairs = list(zip(shape[-2:], scales[-2:], strict=True))
        if all(s and not size % s for size, s in pairs):
            rows, columns = (size // s for size, s in pairs)
            return rows, columns
    raise ProblemError(
        f"block must be given: scales of {sizes(scales)} do not divide data of {sizes(shape)}",
        hint='for example block="row" or block=(128, 128)',
    )


def block_text(block: Block, shape: tuple[int, ...]) -> str:
    """``tensor``, ``row``, ``column``, or a block as ``1×128``."""
    for name in ("tensor", "row", "column"):
        if block == block_shape(name, shape):
            return name
    return sizes(block)


def expand(scales: Array, shape: tuple[int, ...], block: Block) -> Array:
    """The scale of each element: an array that broadcasts to ``shape``."""
    if scales.size == 1:
        return scales.reshape((1,) * len(shape))
    for axis, size, step in zip((-2, -1), shape[-2:], block, strict=True):
        if scales.shape[axis] > 1 and step > 1:
            index = np.arange(size) // step
            scales = np.take(scales, index, axis)
    return scales


def reduce_blocks(x: Array, block: Block) -> Array:
    """The largest element of each block; ``x`` is not negative, blocks at the end may be partial.

    (…, R, C) → (…, ⌈R / rows⌉, ⌈C / columns⌉). That of a block without elements is 0.
    """
    for axis, step in zip((-2, -1), block, strict=True):
        if not step:
            x = np.zeros_like(x, shape=(*x.shape[:axis], 1, *x.shape[axis:][1:]))
            continue
        starts = np.arange(0, x.shape[axis], step)
        x = np.maximum.reduceat(x, starts, axis) if starts.size else x
    return x
