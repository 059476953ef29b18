"""The pictures of docs/isa: each fragment once, and some whole instructions.

One picture represents all operands with the same fragment, of any type. Of wgmma's widths one is
drawn; of ldmatrix and stmatrix the form with the most matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tilewright.mma import FRAGMENT_MOVES, ROWS, Fragment, FragmentMove, MmaInstruction, find
from tilewright.view import draw_fragment, draw_instruction
from tilewright.view.instruction_text import PUBLISHED

WIDTH = 8  # the N of wgmma that is drawn
ORDER = ("a", "b", "c", "d", "metadata", "scale_a", "scale_b")
NAMES = {"scale_a": "scales of A", "scale_b": "scales of B", "metadata": "metadata",
         "matrices": "matrices"}  # fmt: skip
SHOWN = {
    "half": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "quad-pairs": "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
    "sparse": "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "scaled": "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3",
}


@dataclass(frozen=True)
class Shared:
    """A picture of a fragment: its file, and the first operand with this fragment."""

    file: str
    name: str
    of: str  # the first instruction with it
    fragment: Fragment
    verified: bool

    def svg(self) -> str:
        note = "" if self.verified else f"; {PUBLISHED}"
        title = f"{self.name} of {self.of}, and of all with this fragment{note}"
        return draw_fragment(self.fragment, title, name=self.name, grain="register", hover=False)


def look(f: Fragment) -> tuple[Any, ...]:
    """The key of a fragment's picture: all that it depends on, except the name of the type."""
    return f.shape, f.layout, f.transposed, f.tiles, f.bits, f.dtype.bits, f.low


def drawn(i: MmaInstruction) -> MmaInstruction:
    """The form that is drawn for this one, with one N for all of wgmma."""
    return replace(i, n=WIDTH) if i.asynchronous else i


def fragments_of(i: MmaInstruction) -> dict[str, Fragment]:
    """The fragments in registers; C only if it differs from D."""
    in_shared = "b" if i.asynchronous else ""
    found = {name: drawn(i).fragment(name) for name in i.operands if name != in_shared}
    return {name: f for name, f in found.items() if name != "c" or f != found["d"]}


@cache
def pictures() -> dict[Any, Shared]:
    """look → its picture, which is verified if one of the operands is."""
    made: dict[Any, Shared] = {}
    files: set[str] = set()
    for of, name, fragment, verified in used():
        known = made.get(look(fragment))
        if known is None:
            size = "x".join(map(str, fragment.shape[-2:]))
            stem = f"{name}-{size}-{fragment.type}".replace("_", "-")
            numbered = (f"{stem}{'' if k == 1 else f'-{k}'}.svg" for k in range(1, 99))
            file = next(text for text in numbered if text not in files)
            files.add(file)
            label = NAMES.get(name, name.upper())
            made[look(fragment)] = Shared(file, label, of, fragment, verified)
        elif verified and not known.verified:
            made[look(fragment)] = replace(known, verified=True)
    return made


def used() -> Iterator[tuple[str, str, Fragment, bool]]:
    """Every fragment: its instruction, its operand, and whether it is verified."""
    for i in ROWS:
        for name, fragment in fragments_of(i).items():
            yield f"{i.family} {drawn(i).shape}", name, fragment, i.verified
    for m in FRAGMENT_MOVES:
        if m.instruction is None and most(m) is m:
            yield m.opcode, "matrices", m.fragment, m.verified


def links(group: list[MmaInstruction]) -> str:
    """``[A](…) [B](…) [C, D](…)``; one link for each type if their layouts differ."""
    made = []
    for name in ORDER:
        types: dict[Any, list[str]] = {}
        for f in (found[name] for found in map(fragments_of, group) if name in found):
            types.setdefault(look(f), []).append(f.type)
        label = NAMES.get(name, name.upper())
        if name == "d" and "c" not in fragments_of(group[0]):
            label = "C, D"
        for key, of in types.items():
            which = f" {', '.join(dict.fromkeys(of))}" if len(types) > 1 else ""
            made.append(f"[{label}{which}](isa/{pictures()[key].file})")
    return " ".join(made)


def move_link(m: FragmentMove) -> str:
    """The link to the picture of a move's largest form; none for wmma, whose products have it."""
    if m.instruction:
        return ""
    label = f"{most(m).count} matrices" if most(m).count > 1 else "matrix"
    return f"[{label}](isa/{pictures()[look(most(m).fragment)].file})"


def most(m: FragmentMove) -> FragmentMove:
    """The form like this one that moves the most matrices."""
    return _most()[_kind(m)]


def _kind(m: FragmentMove) -> Any:
    return m.family, m.shape, m.type, m.trans, m.operand, m.layout, m.aligned


@cache
def _most() -> dict[Any, FragmentMove]:
    return {_kind(m): m for m in sorted(FRAGMENT_MOVES, key=lambda m: m.count)}


def all_pictures() -> dict[str, str]:
    """File → SVG."""
    made = {shared.file: shared.svg() for shared in pictures().values()}
    for file, opcode in SHOWN.items():
        found = find(opcode)
        assert found is not None, opcode
        made[f"{file}.svg"] = draw_instruction(found, grain="register", hover=False)
    return made
