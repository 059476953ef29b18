"""Access patterns: the address of each lane of each warp in each instruction for a layout.

The layout maps (thread, value) to an element in memory: mode 0 are threads, the other modes values.
One instruction moves a vector of neighbouring values; 32 threads are a warp; each instruction of
each warp is one request to the memory. ``banks`` and ``sectors`` count the cost of requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import LayoutError
from ...target import LANES
from ..algebra.function_properties import layout_of, offsets_of
from ..composed_layout import AnyLayout
from .vectorization import WIDEST, check_bits

Array = NDArray[np.int64]

LINE = 16
"""Bytes at each address of ldmatrix and stmatrix."""
NOBODY = -1
"""The address of an inactive lane."""

_OP = re.compile(r"(ld|st)(?:|matrix\.x([124]))$")


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """``addresses`` in bytes, (warps, instructions, lanes); NOBODY for an inactive lane.

    Each active lane moves ``width`` bytes, and its address is a multiple of them.
    """

    op: str
    width: int
    addresses: Array

    @property
    def loads(self) -> bool:
        return self.op.startswith("ld")

    @property
    def matrix(self) -> bool:
        """Whether the lanes' addresses are those of matrix rows: ldmatrix, stmatrix."""
        return "matrix" in self.op

    def requests(self) -> Array:
        """The addresses as (requests, lanes), one warp's instructions after the other."""
        return self.addresses.reshape(-1, LANES)

    def __str__(self) -> str:
        return f"{self.op} of {self.width} bytes, {count(len(self.requests()), 'request')}"


def count(number: int, thing: str) -> str:
    """``1 request``, ``2 requests``."""
    return f"{number} {thing}{'s' * (number != 1)}"


def access(
    layout: Any, bits: int, vector: int | None = None, op: str = "ld", *, tv: Any = None
) -> Access:
    """The requests of a (thread, values …) layout of elements of ``bits`` bits.

    ``vector`` is in bytes, or None for the widest vector that all threads can access. ``op``: ld,
    st (of each thread's own values), or ldmatrix.x1, .x2, .x4, stmatrix.x1 … (each thread has the
    address of a matrix row of 16 bytes; the first 8, 16 or all 32 threads of a warp). With ``tv``,
    (thread, value) → index of an element of ``layout``, the access is ``layout`` after ``tv``.

    LayoutError if the layout is dynamic, if a vector's elements are not contiguous or not aligned,
    or if offsets are negative.

    >>> access(Layout((32, 4), (4, 1)), bits=32).width
    16
    """
    check_bits(bits)
    matched = _OP.match(str(op))
    if matched is None:
        raise LayoutError(
            f"unknown access {op!r}",
            hint="use ld, st, ldmatrix.x1, .x2, .x4, stmatrix.x1, .x2 or .x4",
        )
    offsets = _thread_offsets(layout, tv)
    if offsets.min() < 0:
        raise LayoutError(f"the offsets must not be negative, got {offsets.min()}")
    if matched[2]:
        vector = _line_width(vector, op)
    width, starts = _vectors(offsets, bits, vector)
    addresses = starts * bits // 8
    return Access(op, width, _by_warp(addresses, 8 * int(matched[2] or 4), op))


def _thread_offsets(layout: Any, tv: Any) -> Array:
    """Offsets in elements, (threads, values)."""
    whole = layout_of(layout)
    picked = whole if tv is None else layout_of(tv)
    offsets = offsets_of(picked, "an access:")
    if tv is not None:
        offsets = _after(whole, offsets, picked)
    threads = picked.size(0) if len(picked) else 1
    return offsets.reshape((threads, -1), order="F")


def _after(layout: AnyLayout, numbers: Array, tv: AnyLayout) -> Array:
    """The offsets of the layout's elements with these indices."""
    offsets = offsets_of(layout, "an access:")
    if numbers.min() < 0 or numbers.max() >= len(offsets):
        raise LayoutError(
            f"tv must map to the {len(offsets)} elements of {layout}, got {numbers.max()} in {tv}"
        )
    picked: Array = offsets[numbers]
    return picked


def _line_width(vector: int | None, op: str) -> int:
    if vector not in (None, LINE):
        raise LayoutError(f"{op} moves rows of {LINE} bytes, got {vector}")
    return LINE


# --- vectors -------------------------------------------------------------------------------------


def _vectors(offsets: Array, bits: int, vector: int | None) -> tuple[int, Array]:
    """(bytes of the vectors, the first offset of each: (threads, instructions))."""
    if vector is not None:
        if vector not in (1, 2, 4, 8, 16) or 8 * vector < bits:
            raise LayoutError(
                f"a vector must consist of whole elements of {bits} bits, got {vector} bytes"
            )
        count = 8 * vector // bits
        starts = _starts(offsets, count)
        if starts is None:
            raise LayoutError(_why_none(offsets, count, vector))
        return vector, starts
    width = WIDEST
    while 8 * width >= bits and width >= 1:
        starts = _starts(offsets, 8 * width // bits)
        if starts is not None:
            return width, starts
        width //= 2
    raise LayoutError(f"elements of {bits} bits must be contiguous in whole bytes")


def _starts(offsets: Array, count: int) -> Array | None:
    """The first offsets of each thread's vectors of ``count`` elements; None if there are none.

    A vector consists of consecutive values, or else of values that are adjacent in thread 0's
    memory.
    """
    values = offsets.shape[1]
    if values % count:
        return None
    for order in (np.arange(values), np.argsort(offsets[0], kind="stable")):
        groups = offsets[:, order].reshape(len(offsets), -1, count)
        starts: Array = groups[:, :, 0]
        if (starts % count == 0).all() and (groups == starts[..., None] + np.arange(count)).all():
            return starts
    return None


def _why_none(offsets: Array, count: int, vector: int) -> str:
    """Why consecutive values do not form vectors."""
    if offsets.shape[1] % count:
        expected = f"a multiple of {count} ({vector} bytes)"
        return f"values of a thread must be {expected}, got {offsets.shape[1]}"
    groups = offsets.reshape(len(offsets), -1, count)
    wrong = (groups[:, :, 0] % count != 0) | (np.diff(groups, axis=2) != 1).any(axis=2)
    thread, group = np.argwhere(wrong)[0].tolist()
    found = ", ".join(map(str, groups[thread, group].tolist()))
    return (
        f"thread {thread}'s values {group * count} to {group * count + count - 1} are at {found}:"
        f" no vector of {count} elements, {vector} bytes"
    )


def _by_warp(addresses: Array, lanes: int, op: str) -> Array:
    """(threads, instructions) as (warps, instructions, 32); lanes beyond ``lanes`` are inactive."""
    threads, instructions = addresses.shape
    warps = -(-threads // LANES)
    padded = np.full((warps * LANES, instructions), NOBODY, np.int64)
    padded[:threads] = addresses
    by_lane = padded.reshape(warps, LANES, instructions).transpose(0, 2, 1).copy()
    if "matrix" in op and (by_lane[:, :, :lanes] == NOBODY).any():
        raise LayoutError(
            f"{op} needs the addresses of {lanes} lanes of each warp, got {threads} threads"
        )
    by_lane[:, :, lanes:] = NOBODY
    return by_lane
