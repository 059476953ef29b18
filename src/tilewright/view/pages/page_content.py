"""The contents of a page: the steps of a layout, a TiledMma, an atom or a TiledCopy.

a layout       offset → after the swizzle → line and bank
a TiledMma     of A, B and C: thread and value → register → place in the instruction
a TiledCopy    who reads → who writes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np

from ...errors import LayoutError
from ...layout import ComposedLayout, Layout, Swizzle, Tensor, group_modes
from ...layout.composed_layout import AnyLayout, inside
from ...mma import CopyAtom, Fragment, MmaAtom, MmaInstruction, TiledCopy, TiledMma, make_tiled_mma
from ...mma.tiles.tiled_mma import SIDES
from ..fragment_cells import GRAINS, VALUES
from ..fragment_picture import fragment_grid
from ..layout_planes import Array, Plane, as_layout, plane, size_of
from ..offset_grid import COUNTED, offset_grids, shared
from ..tiled_picture import atom_fragment, copy_fragment, in_shared_memory, mma_fragment
from .page_steps import (
    PageStep,
    PageTile,
    holder_facts,
    holder_step,
    memory_step,
    offset_step,
    on_tile,
    register_step,
    swizzle_facts,
)

ELEMENTS = 1 << 14  # the most elements of a tile
NAMES = {"A": ("m", "k"), "B": ("n", "k"), "C": ("m", "n")}
HELD = "thread {thread} (warp {warp}, lane {lane}) has it as value {value}[, and {others} more]"


@dataclass(frozen=True, slots=True)
class Followed:
    """The title, the summary and the steps of a page."""

    title: str
    about: str
    steps: Sequence[PageStep]


@singledispatch
def followed(given: Any, bits: int = 0) -> Followed:
    """The steps of a layout (composed, of a tensor, a shape, a swizzle), a fragment, an
    instruction, an atom, a TiledMma or a TiledCopy. Raises LayoutError for anything else, and for
    tiles of more than 16384 elements.
    """
    raise LayoutError(f"expected a layout, atom, TiledMma, TiledCopy or Stage, got {given!r}")


# --- layouts -------------------------------------------------------------------------------------


@followed.register(Layout)
@followed.register(ComposedLayout)
@followed.register(Tensor)
@followed.register(Swizzle)
@followed.register(tuple)
@followed.register(int)
def _(given: Any, bits: int = 0) -> Followed:
    layout = as_layout(given)
    title = str(given if isinstance(given, Swizzle) else layout)
    tile = tile_of_layout(layout)
    shown = _flat(layout)
    if shown.counts:
        says = f"{layout} maps it to a coordinate"
        grid = offset_grids(shown, flat=len(layout) == 1)[0]
        step = PageStep("", "coordinates", str(layout), tile, grid, on_tile(tile), says, {})
        return Followed(title, _sizes(tile), [step])
    return Followed(title, _sizes(tile), layout_steps("", layout, tile, bits))


def tile_of_layout(layout: AnyLayout, names: tuple[str, str] = ("i", "j")) -> PageTile:
    """The tile of a layout; modes after the second are grouped with it."""
    planes, rows, columns = size_of(layout)
    if planes * rows * columns > ELEMENTS:
        raise LayoutError(
            f"a page must have at most {ELEMENTS} elements, got {planes * rows * columns}",
            hint="use a tile, for example composition(layout, (128, 64))",
        )
    if len(layout) == 1:
        return PageTile(names[:1], (rows,))
    return PageTile(names, (rows, columns * planes))


def _flat(layout: AnyLayout) -> Plane:
    """The layout as one plane, with further modes grouped with the second."""
    return plane(group_modes(layout, 1, len(layout)) if len(layout) > 2 else layout)


def layout_steps(
    group: str, layout: AnyLayout, tile: PageTile, bits: int, *, before: bool = True
) -> list[PageStep]:
    """The steps of a layout: offsets ``before`` the swizzle, after it, and lines of memory."""
    shown = _flat(layout)
    memory = shared(bits) if bits else COUNTED
    where = ": byte {byte}, bank {bank}" if bits else ""
    crd = ",".join(f"{{{name}}}" for name in tile.names)
    inner = inside(layout)
    steps = []
    if isinstance(layout, ComposedLayout):
        start = f", with the offset {layout.offset}," if layout.offset else ""
        says = f"{inner} maps ({crd}){start} to {{before}}"
        plain = Plane(shown.layout, shown.before, shown.before)
        title = "before the swizzle" if isinstance(layout.outer, Swizzle) else "inner offsets"
        if before:
            steps.append(offset_step(group, title, str(inner), tile, plain, memory, says))
        steps.append(_outer_step(group, layout, tile, shown, memory, where))
    else:
        says = f"{layout} maps ({crd}) to {{offset}}{where}"
        steps.append(offset_step(group, "offsets", str(layout), tile, shown, memory, says))
    offset = shown.offsets[0].ravel(order="F")
    about = "lines of 128 bytes, by address" if bits else "lines of 32 elements, by offset"
    says = "line {line}, element {at} of it"
    return [*steps, memory_step(group, "memory", about, tile, offset, memory, says)]


def _outer_step(
    group: str, layout: ComposedLayout, tile: PageTile, shown: Plane, memory: Any, where: str
) -> PageStep:
    outer = layout.outer
    if not isinstance(outer, Swizzle) or outer.bits == 0:
        says = f"{outer} maps {{before}} to {{offset}}{where}"
        return offset_step(group, "offsets", str(outer), tile, shown, memory, says)
    read, changed = (_bits(mask) for mask in (outer.yyy_msk, outer.zzz_msk))
    says = (
        f"{{before}} has {{read}} in the bits {read}, {{was}} in {changed}; these become their "
        f"XOR, {{becomes}}, and {{before}} becomes {{offset}}{where}"
    )
    step = offset_step(group, "after the swizzle", str(layout), tile, shown, memory, says)
    return replace(step, facts=step.facts | swizzle_facts(outer, step.facts["before"]))


def _bits(mask: int) -> str:
    """``9–7`` of 0b1110000000."""
    low, high = (mask & -mask).bit_length() - 1, mask.bit_length() - 1
    return str(low) if low == high else f"{high}–{low}"


def _sizes(tile: PageTile) -> str:
    return "×".join(map(str, tile.sizes)) + f" elements, named {', '.join(tile.names)}"


# --- products ------------------------------------------------------------------------------------


@followed.register
def _(given: TiledMma, bits: int = 0) -> Followed:
    m, n, k = given.tile_size_mnk
    steps = [step for name in SIDES for step in operand_steps(given, name, sizes_of(given, name))]
    about = f"a tile of {m}×{n}×{k} by {given.size} threads"
    return Followed(str(given.atom.instruction), about, steps)


@followed.register
def _(given: MmaAtom, bits: int = 0) -> Followed:
    return followed(make_tiled_mma(given))


@followed.register
def _(given: MmaInstruction, bits: int = 0) -> Followed:
    return followed(make_tiled_mma(given))


def sizes_of(tiled: TiledMma, name: str) -> tuple[int, int]:
    """Rows and columns of an operand of the TiledMma's own tile; B is N×K."""
    first, second = SIDES[name]
    return tiled.tile_size_mnk[first], tiled.tile_size_mnk[second]


@dataclass(frozen=True, slots=True)
class Held:
    """The holders of an operand's tile. For each element: its first ``thread`` and ``value``, its
    index in the instruction's operand (``place``) and the instruction's coordinates (``rest``).
    ``elements`` are the elements by (thread, value).
    """

    thread: Array
    value: Array
    place: Array
    rest: tuple[Array, Array]
    frg_value: Array
    elements: Array


def held(tiled: TiledMma, name: str, sizes: tuple[int, int]) -> Held:
    """The holders of an operand's tile of these sizes; for shared memory, the view of thread 0."""
    parts = getattr(tiled, f"thrfrg_{name}")(Layout(sizes))
    modes = (parts[0][0], *parts[0][1], parts[1][0], *list(parts[1][1])[:2])
    shape = tuple(mode.size() for mode in modes)
    places = parts.indices().reshape(shape, order="F")
    vmnk = tiled.thr_layout_vmnk
    threads = vmnk.indices().reshape([mode.size() for mode in vmnk], order="F")
    first, second = (side + 1 for side in SIDES[name])
    threads = np.moveaxis(threads, (0, first, second), (0, 1, 2))
    if in_shared_memory(tiled, name):
        places, threads = places[:1], threads[:1]
    values = np.arange(np.prod(shape[3:])).reshape(shape[3:], order="F")
    elements = np.full((threads.max() + 1, values.size), -1)
    elements[threads[..., None, None, None], values] = places[:, :, :, None]
    at = np.unravel_index(np.unique(places, return_index=True)[1], places.shape)
    of_atom = getattr(tiled.atom, f"layout_{name}").indices().reshape(shape[0], -1, order="F")
    return Held(
        threads[at[0], at[1], at[2], 0], values[at[3:]], of_atom[at[0], at[3]], at[4:], at[3],
        elements,
    )  # fmt: skip


def operand_steps(tiled: TiledMma, name: str, sizes: tuple[int, int]) -> list[PageStep]:
    """The steps of an operand: threads, registers, instruction."""
    tile = PageTile(NAMES[name], sizes)
    found = held(tiled, name, sizes)
    if in_shared_memory(tiled, name):
        return [_instruction_step(tiled, name, tile, found, "reads")]
    fragment = mma_fragment(tiled, name, sizes)
    values = f"{found.elements.shape[1]} values of {found.elements.shape[0]} threads"
    return [
        holder_step(name, "who holds what", str(fragment.layout), tile, fragment, HELD),
        _register_step(tiled, name, tile, found, values),
        _instruction_step(tiled, name, tile, found, "has"),
    ]


def _register_step(tiled: TiledMma, name: str, tile: PageTile, found: Held, about: str) -> PageStep:
    """The register and the bits of each value, if the instruction stores every value."""
    stored = tiled.atom.instruction.fragment("d" if name == "C" else name.lower())
    facts = holder_facts(found.thread, found.value)
    says, per = "value {value} of thread {thread}", 1
    if stored.values == getattr(tiled.atom, f"layout_{name}").size(1):
        bit = found.frg_value * stored.bits
        facts |= {
            "register": bit // stored.word,
            "low": bit % stored.word + stored.low,
            "high": bit % stored.word + stored.low + stored.dtype.bits - 1,
        }
        says += ": bits {low}–{high} of register {register} of its instruction"
        per = max(1, stored.word // stored.bits)
    return register_step(name, "in registers", about, tile, found.elements, per, says, facts)


def _instruction_step(
    tiled: TiledMma, name: str, tile: PageTile, found: Held, verb: str
) -> PageStep:
    """The instruction of each element, and the element's coordinates in its operand."""
    one = TiledMma(tiled.atom)
    fragment = mma_fragment(one, name)
    column, row = np.divmod(found.place, fragment.rows)
    crd = (column, row) if fragment.transposed else (row, column)
    facts = {
        "row": crd[0], "column": crd[1], "first": found.rest[0], "second": found.rest[1],
        "warp": found.thread // 32,
    }  # fmt: skip
    whose = " of warp {warp}" * (verb == "has")
    says = f"instruction ({{first}},{{second}}){whose} {verb} it as {name}({{row}},{{column}})"
    grid = fragment_grid(fragment, GRAINS[-1] * (verb == "reads"), VALUES)
    places = (crd[0] * fragment.shape[-1] + crd[1])[:, None]
    opcode = tiled.atom.instruction.opcode
    return PageStep(name, "in the instruction", opcode, tile, grid, places, says, facts)


@followed.register
def _(given: Fragment, bits: int = 0) -> Followed:
    """A (thread, value) layout over its matrix."""
    if given.tiles > 1:
        raise LayoutError(f"a page must have one matrix, got {given.tiles} of {given.layout}")
    tile = PageTile(("i", "j"), (given.rows, given.columns))
    per = max(1, given.word // given.bits)
    first = holder_step("", "who holds what", str(given.layout), tile, given, HELD)
    facts = {name: first.facts[name] for name in ("thread", "value")}
    says = "value {value} of thread {thread}"
    about = f"{given.values} values of {given.threads} threads"
    registers = register_step("", "by thread", about, tile, given.indices(), per, says, facts)
    return Followed(str(given.layout), _sizes(tile), [first, registers])


# --- copies --------------------------------------------------------------------------------------


@followed.register
def _(given: TiledCopy, bits: int = 0) -> Followed:
    sides = {side: copy_fragment(given, side) for side in "SD"}
    tile = PageTile(("i", "j"), (sides["S"].rows, sides["S"].columns))
    about = f"a tile of {'×'.join(map(str, tile.sizes))} {given.atom.dtype} by {given.size} threads"
    return Followed(str(given.atom.op), about, copy_steps("", tile, sides))


def copy_steps(group: str, tile: PageTile, sides: dict[str, Fragment]) -> list[PageStep]:
    """The threads that read and that write each element; one step if they are the same."""
    read = "thread {thread} (warp {warp}, lane {lane}) reads it as its value {value}"
    written = "thread {thread} (warp {warp}, lane {lane}) writes it as its value {value}"
    source, destination = sides["S"], sides["D"]
    both = str(source.layout)
    if source == destination:
        says = "thread {thread} (warp {warp}, lane {lane}) copies it as its value {value}"
        return [holder_step(group, "who copies what", both, tile, source, says)]
    return [
        holder_step(group, "who reads what", both, tile, source, read),
        holder_step(group, "who writes what", str(destination.layout), tile, destination, written),
    ]


@followed.register
def _(given: CopyAtom, bits: int = 0) -> Followed:
    sides = {
        side: atom_fragment(given, layout)
        for side, layout in (("S", given.layout_src), ("D", given.layout_dst))
    }
    tile = PageTile(("i", "j"), (sides["S"].rows, sides["S"].columns))
    about = f"values of {given.dtype}, 16 bytes or all of them a row"
    return Followed(str(given.op), about, copy_steps("", tile, sides))
