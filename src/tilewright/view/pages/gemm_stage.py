"""A stage of a GEMM on a page: the path of A and B from global memory to the instruction, and C.

global memory → copying thread → shared memory: before and after the swizzle, lines and banks
→ loading thread → register → operand of the instruction
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...dtypes import DType
from ...errors import LayoutError
from ...layout import Layout, bank_conflicts, coalescing, make_layout
from ...layout.composed_layout import AnyLayout
from ...mma import Fragment, FragmentMove, TiledCopy, TiledMma
from ...notebook_display import Drawable
from ..cell_runs import cut
from ..grid import Axis, Grid
from ..layout_planes import as_layout, plane, size_of
from ..offset_grid import global_memory
from ..palette import EIGHT
from ..tiled_picture import tv_fragment
from .page_content import (
    HELD,
    NAMES,
    Followed,
    copy_steps,
    followed,
    held,
    layout_steps,
    operand_steps,
)
from .page_steps import PageStep, PageTile, holder_facts, holder_step, offset_step, on_tile


@dataclass(frozen=True, slots=True)
class OperandPath:
    """The path of an operand's tile to the tensor cores.

    ``gmem`` and ``smem`` are its layouts in global and shared memory, (M, K) or (N, K), in
    elements. ``copy`` copies from global to shared memory, ``load`` from shared memory to registers
    (None if the instruction reads shared memory).
    """

    gmem: AnyLayout
    copy: TiledCopy
    smem: AnyLayout
    load: TiledCopy | None = None

    def __post_init__(self) -> None:
        sizes = [size_of(as_layout(layout)) for layout in (self.gmem, self.smem)]
        if sizes[0] != sizes[1] or sizes[0][0] != 1:
            raise LayoutError(
                "gmem and smem must be layouts of the same two-dimensional tile, got "
                f"{self.gmem} and {self.smem}",
                hint="use a local_tile of global memory, and one stage: smem(None, None, 0)",
            )

    @property
    def sizes(self) -> tuple[int, int]:
        return size_of(self.smem)[1:]

    @property
    def dtype(self) -> DType:
        return self.copy.atom.dtype


@dataclass(frozen=True, slots=True)
class Stage(Drawable):
    """One k-tile of a GEMM: its instructions, and the paths of A and B.

    Raises LayoutError if A and B have different K extents.
    """

    mma: TiledMma
    a: OperandPath
    b: OperandPath

    def __post_init__(self) -> None:
        if self.a.sizes[1] != self.b.sizes[1]:
            raise LayoutError(
                f"A (M×K) and B (N×K) must have the same K, got {self.a.sizes} and {self.b.sizes}"
            )


@followed.register
def _(given: Stage, bits: int = 0) -> Followed:
    (m, k), (n, _) = given.a.sizes, given.b.sizes
    steps = [*_path_steps(given, "A", given.a), *_path_steps(given, "B", given.b)]
    about = f"one stage, {m}×{n}×{k}, by {given.mma.size} threads"
    return Followed(str(given.mma.atom.instruction), about, [*steps, _result(given.mma, m, n)])


def _path_steps(stage: Stage, name: str, path: OperandPath) -> list[PageStep]:
    tile, bits = PageTile(NAMES[name], path.sizes), path.dtype.bits
    crd = ",".join(f"{{{x}}}" for x in tile.names)
    says = f"{path.gmem} maps ({crd}) to {{offset}}: byte {{byte}}, in sector {{piece}} of 32 bytes"
    sides = {side: _whole(path.copy, side, path.sizes) for side in "SD"}
    vector = path.copy.atom.op.bits // 8
    first = offset_step(
        name, "in global memory", _cost(coalescing, path.gmem, bits, vector, "ld", sides["S"]),
        tile, plane(path.gmem), global_memory(bits), says,
    )  # fmt: skip
    copied = copy_steps(name, tile, sides)
    copied[-1] = replace(
        copied[-1], about=_cost(bank_conflicts, path.smem, bits, vector, "st", sides["D"])
    )
    shared = layout_steps(name, path.smem, tile, bits, before=False)
    steps = [first, *copied, *shared, *_load_steps(name, tile, path)]
    return [*steps, *operand_steps(stage.mma, name, path.sizes)]


def _load_steps(name: str, tile: PageTile, path: OperandPath) -> list[PageStep]:
    """The threads that read shared memory; for ldmatrix, those that give the row addresses."""
    if path.load is None:
        return []
    source, op = _whole(path.load, "S", path.sizes), path.load.atom.op
    says = "thread {thread} (warp {warp}, lane {lane}) reads it as its value {value}"
    access_kind: tuple[int | None, str]
    if isinstance(op, FragmentMove):
        says = "lane {lane} of warp {warp} gives the address of the line that it is in"
        access_kind = (None, f"{op.family}.x{op.count}")
    else:
        access_kind = (op.bits // 8, "ld")
    cost = _cost(bank_conflicts, path.smem, path.dtype.bits, *access_kind, source)
    return [holder_step(name, "who loads what", f"{op}: {cost}", tile, source, says)]


def _cost(
    count: Any, layout: AnyLayout, bits: int, vector: int | None, op: str, who: Fragment
) -> str:
    """The cost of an access in one line, or the error if it is not supported."""
    try:
        return str(count(layout, bits, vector, op, tv=who.layout)).splitlines()[0]
    except LayoutError as error:
        return error.message


def _whole(copy: TiledCopy, side: str, sizes: tuple[int, int]) -> Fragment:
    """A side of a copy, repeated over a larger tile, by thread and value."""
    parts = getattr(copy, f"tidfrg_{side}")(Layout(sizes))
    layout = make_layout(parts[0], make_layout(parts[1], parts[2]))
    return tv_fragment(layout, sizes, copy.atom.dtype.name)


def _result(tiled: TiledMma, m: int, n: int) -> PageStep:
    """C: a colour for each warp, lines around the tile of an instruction."""
    tile = PageTile(NAMES["C"], (m, n))
    found = held(tiled, "C", tile.sizes)
    facts = holder_facts(found.thread, found.value) | {
        "first": found.rest[0], "second": found.rest[1], "others": found.thread * 0,
    }  # fmt: skip
    warp = facts["warp"].reshape(tile.sizes, order="F")
    made = cut((np.diff(warp, axis=1) == 0)[None])
    colours = [EIGHT[w % len(EIGHT)] for w in warp[made.row, made.column].tolist()]
    sides = [
        Axis(size, (one, size // one))
        for size, one in zip(tile.sizes, tiled.atom.shape_mnk, strict=False)
    ]
    grid = Grid(1, *sides, made, colours, (), list)
    says = HELD + ", of instruction ({first},{second})"
    about = "a colour for each warp; what is marked is what the element contributes to"
    return PageStep("C", "who accumulates what", about, tile, grid, on_tile(tile), says, facts)
