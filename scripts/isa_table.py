"""Generates docs/isa.md's tables and docs/isa/*.svg from the rows of the matrix instructions.

    python scripts/isa_table.py           write the files that have changed
    python scripts/isa_table.py --check   print the files that would change; fail if any

A line of a table stands for the product of the types, sizes and modifiers that it lists; its forms
differ in nothing else. ``isa_pictures`` draws.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

from isa_pictures import all_pictures, links, move_link
from made import ROOT, keep

from tilewright.dtypes import dtype
from tilewright.mma import (
    FRAGMENT_MOVES,
    GENERATIONS,
    ROWS,
    FragmentMove,
    MmaInstruction,
    instruction,
)
from tilewright.ptx.isa import ROWS as PTX_ROWS
from tilewright.view import arithmetic_words
from tilewright.view.instruction_text import PUBLISHED, needs_words

PAGE = ROOT / "docs" / "isa.md"
FOLDER = ROOT / "docs" / "isa"

FAMILIES = {
    "mma": "`mma.sync`: a warp's product",
    "mma.sp": "`mma.sp`: A is sparse",
    "wmma": "`wmma.mma`: a warp's product on fragments that `wmma.load` loads",
    "wgmma": "`wgmma.mma_async`: a warpgroup's product",
    "wgmma.sp": "`wgmma.mma_async.sp`: A is sparse",
}
EXAMPLES = (
    ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "sm_80 sm_90 sm_100"),
    ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "sm_89 sm_90 sm_120"),
    ("wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3", "sm_90a"),
    ("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", "sm_90"),
    ("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "sm_80"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "sm_70 sm_75 sm_90"),
    ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16", "sm_75"),
    (
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
        ".f32.e2m1.e2m1.f32.ue4m3",
        "sm_120a",
    ),
)


# --- lines of matrix instructions ---------------------------------------------------------------

Axis = Callable[[Any], Any]

AXES: dict[str, Axis] = {
    "types": lambda i: (i.a, i.b),
    "n": lambda i: i.n,
    "layouts": lambda i: (i.alayout, i.blayout),
    "kind": lambda i: i.kind,
    "satfinite": lambda i: i.satfinite,
    "operation": lambda i: i.operation,
    "rounding": lambda i: i.rounding,
}


def kin(i: MmaInstruction) -> Any:
    """The properties that the forms of a line share."""
    sized = (i.m, i.k) if i.asynchronous else (i.m, i.n, i.k)
    spelled = i.opcode.split(".")[:3]
    own = (i.scale_vec, i.stype, i.ordered, i.verified, *spelled)
    return sized, species(i.a), i.d, i.c, i.needs, i.until, own


def species(type_: str) -> str:
    """Types that share a line: s8 and u8, all floats of eight bits and less."""
    t = dtype(type_)
    if type_[0] in "su":
        return f"{t.bits}-bit integers"
    return "small floats" if type_[0] == "e" else type_


def lines(rows: Iterable[Any], common: Callable[[Any], Any], axes: dict[str, Axis]) -> list[Any]:
    """The rows in groups, each a full product over the axes."""
    groups: dict[Any, list[Any]] = {}
    for row in rows:
        groups.setdefault(common(row), []).append(row)
    return [part for group in groups.values() for part in products(group, axes)]


def products(group: list[Any], axes: dict[str, Axis]) -> Iterator[list[Any]]:
    """The group, split along axes until each part is a full product."""
    values = {name: {axis(row) for row in group} for name, axis in axes.items()}
    if prod(map(len, values.values())) == len(group):
        yield group
        return
    name = min((n for n, v in values.items() if len(v) > 1), key=lambda n: len(values[n]))
    for value in dict.fromkeys(axes[name](row) for row in group):
        yield from products([row for row in group if axes[name](row) == value], axes)


def instruction_table(family: str) -> str:
    head = ("shape", "A", "B", "C → D", "modifiers", "since", "bits", "forms", "fragments")
    rows = [i for i in ROWS if i.family == family]
    return table(head, (instruction_line(group) for group in lines(rows, kin, AXES)))


def instruction_line(group: list[MmaInstruction]) -> tuple[str, ...]:
    i = group[0]
    shape = f"m{i.m}n`N`k{i.k}, N = {numbers([j.n for j in group])}" if i.asynchronous else i.shape
    a, b = types_of(group)
    bits = f"verified on {i.arch}" if i.verified else PUBLISHED
    since = needs_words(i.needs, i.until).removeprefix("PTX ")
    result = f"{i.c} → {i.d}" if i.c != i.d else i.d
    return shape, a, b, result, modifiers(group), since, bits, str(len(group)), links(group)


def numbers(values: Iterable[int]) -> str:
    """``8, 16, … 256``."""
    ordered = sorted(set(values))
    steps = [b - a for a, b in pairwise(ordered)]
    begin = 0
    while begin < len(steps) and len(set(steps[begin:])) > 1:
        begin += 1
    if len(ordered) - begin < 5:
        return ", ".join(map(str, ordered))
    return ", ".join(map(str, ordered[: begin + 2])) + f", … {ordered[-1]}"


def types_of(group: list[MmaInstruction]) -> tuple[str, str]:
    pairs = list(dict.fromkeys((i.a, i.b) for i in group))
    a, b = (list(dict.fromkeys(column)) for column in zip(*pairs, strict=True))
    if all(x == y for x, y in pairs):
        return ", ".join(a), "as A" if len(a) > 1 else b[0]
    partial = len(pairs) < len(a) * len(b)
    if partial and len(pairs) <= 3:
        return "; ".join(f"{x} × {y}" for x, y in pairs), ""
    return ", ".join(a), ", ".join(b) + f" ({len(pairs)} pairs)" * partial


def modifiers(group: list[MmaInstruction]) -> str:
    """``[.satfinite]``, ``.row.col``: the modifiers of the forms, optional ones in brackets."""
    i = group[0]
    words = []
    layouts = {(j.alayout, j.blayout) for j in group}
    if not i.asynchronous:
        words.append(".{row,col}.{row,col}" if len(layouts) == 4 else f".{i.alayout}.{i.blayout}")
    for name, pattern in (
        ("kind", ".kind::{}"), ("scale_vec", ".block_scale.scale_vec::{}"), ("stype", ".{}"),
        ("operation", ".{}.popc"), ("rounding", ".{}"),
    ):  # fmt: skip
        words.append(optional([getattr(j, name) for j in group], pattern))
    words.append(optional(["satfinite" * j.satfinite for j in group], ".{}"))
    if not i.aligned:
        words.append("without .aligned")
    if i.ordered:
        words.append("::ordered_metadata")
    return " ".join(f"`{text}`" for text in words if text)


def optional(words: Iterable[str], pattern: str) -> str:
    """The pattern with the alternatives, in brackets if one of them is empty."""
    known = list(dict.fromkeys(words))
    alternatives = "|".join(filter(None, known))
    text = pattern.format(alternatives) if alternatives else ""
    return f"[{text}]" if text and "" in known else text


# --- the other tables ---------------------------------------------------------------------------

MOVE_AXES: dict[str, Axis] = {
    "layout": lambda m: m.layout,
    "space": lambda m: m.space,
    "operand": lambda m: m.operand,
    "shape": lambda m: m.shape,
    "count": lambda m: m.count,
}


def move_table() -> str:
    plain = {replace(m, needs=(), space=""): m.needs for m in FRAGMENT_MOVES if not m.space}

    def common(m: FragmentMove) -> Any:
        since = plain[replace(m, needs=(), space="")]  # ::cta is later, as the page says
        return m.family, m.type, m.trans, m.formats, m.until, m.aligned, m.verified, since

    head = ("instruction", "shapes", "type", "operands", "modifiers", "since", "checked", "forms",
            "fragment")  # fmt: skip
    return table(head, map(move_line, lines(FRAGMENT_MOVES, common, MOVE_AXES)))


def move_line(group: list[FragmentMove]) -> tuple[str, ...]:
    m = group[0]
    number = optional([f"x{j.count}" for j in group], ".{}")
    words = [] if m.instruction or m.family == "movmatrix" else [number]
    words += [".trans" * m.trans, optional([j.layout for j in group], ".{}")]
    words += [optional([j.space for j in group], ".{}"), "without .aligned" * (not m.aligned)]
    shapes, operands = (
        ", ".join(dict.fromkeys(filter(None, column)))
        for column in ([j.shape for j in group], [j.operand for j in group])
    )
    since = needs_words(m.needs, m.until).removeprefix("PTX ")
    checked = f"verified on {m.arch}" if m.verified else PUBLISHED
    modifiers_ = " ".join(f"`{w}`" for w in words if w)
    pictured = " ".join(dict.fromkeys(map(move_link, group)))
    types = ".".join(m.formats) or m.type
    return m.family, shapes, types, operands, modifiers_, since, checked, str(len(group)), pictured


def row_table(mnemonic: str) -> str:
    lines_ = []
    for row in PTX_ROWS[mnemonic]:
        slots = [s for s in row.slots if not s.literal]
        choices = "; ".join(f"{s.name}: {' '.join(s.choices)}" for s in slots)
        since = f"{row.ptx} for {row.target}".replace("|", " or ")
        does = " ".join(row.doc.replace("``", "`").split())
        lines_.append((f"`{row.syntax}`", choices, since, does))
    return table(("row", "with", "since", "does"), lines_)


def generation_table() -> str:
    fp8 = {"none": "none", "native": "tensor core", "f16": "f16 products"}
    return table(
        ("tensor cores", "from", "bits below the largest exponent", "bits of A's row in a sum",
         "products of f16", "fp8 of mma.sync", "bits of fp8", "source"),
        (
            (g.name, f"sm_{g.first}", str(g.fraction), str(g.width), str(g.width // 16),
             fp8[g.fp8], str(g.fp8_fraction or ""), g.source)
            for g in GENERATIONS
        ),
    )  # fmt: skip


def arithmetic_lines() -> str:
    """The arithmetic of some forms on each architecture, in words."""
    made = []
    for opcode, targets in EXAMPLES:
        made.append(f"`{opcode}`\n")
        for target in targets.split():
            i = instruction(opcode, target)
            state = "verified" if i.verified else PUBLISHED
            made.append(f"- {target} ({state}): {'; '.join(arithmetic_words(i))}.")
        made.append("")
    return "\n".join(made)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    head = list(head)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    made = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in made) + "\n"


# --- the page -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Section:
    """A section of the page between its two markers."""

    name: str
    text: str

    def put(self, page: str) -> str:
        """The page with this section replaced. ValueError if the page has no markers for it."""
        begin, end = (
            f"<!-- begin {self.name}: scripts/isa_table.py -->\n",
            f"<!-- end {self.name} -->",
        )
        pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.S)
        if not pattern.search(page):
            raise ValueError(f"{PAGE} has no markers for {self.name!r}: {begin}{end}")
        return pattern.sub(lambda _: f"{begin}\n{self.text}\n{end}", page)


def sections() -> Iterator[Section]:
    for family, title in FAMILIES.items():
        yield Section(family, f"### {title}\n\n{instruction_table(family)}")
    yield Section("moves", move_table())
    yield Section("cvt", row_table("cvt"))
    yield Section("prmt", row_table("prmt"))
    yield Section("generations", generation_table())
    yield Section("arithmetic", arithmetic_lines())


def made() -> dict[Path, str]:
    """Every file, with its text."""
    page = PAGE.read_text(encoding="utf-8")
    for section in sections():
        page = section.put(page)
    return {PAGE: page, **{FOLDER / name: svg for name, svg in all_pictures().items()}}


if __name__ == "__main__":
    sys.exit(keep(made(), FOLDER, sys.argv[1:]))
