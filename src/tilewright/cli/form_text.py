"""Describes an instruction form as text and JSON: requirements, operands, fragments, arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..mma import Fragment, MmaInstruction, generation
from ..ptx.isa import Form, Row
from ..target import Target, parse_version
from ..view.fragment_picture import held, rule
from ..view.instruction_text import (
    PUBLISHED,
    arithmetic_words,
    metadata_words,
    needs_words,
    selector_words,
    status,
)

VersionAndTarget = tuple[str, str]


def alternatives(form: Form) -> list[list[VersionAndTarget]]:
    """The requirements of a form: every inner list is a requirement, met by any of its entries."""
    result = []
    for versions, targets in dict.fromkeys(form.needs()):
        names = targets.split("|")
        each = versions.split("|")
        each = each * len(names) if len(each) == 1 else each
        result.append(list(zip(each, names, strict=True)))
    return [need for need in result if need != [("1.0", "sm_10")]] or result


def requirements_summary(form: Form, target: str = "") -> tuple[str, str]:
    """The first PTX version and the targets of a form; for one target, its first version."""
    chosen = [n for each in alternatives(form) for n in _on(each, target)]
    first = max((min(_on(e, target))[0] for e in alternatives(form)), key=parse_version)
    names = [target] if target else list(dict.fromkeys(name for _, name in chosen))
    return first + (f", until {form.until}" if form.until else ""), " ".join(names)


def _on(each: list[VersionAndTarget], target: str) -> list[VersionAndTarget]:
    """The alternatives that a target meets, lowest version first."""
    found = [n for n in each if not target or Target.parse(target).runs(n[1])]
    return sorted(found, key=lambda need: parse_version(need[0]))


def description_rows(form: Form) -> Iterator[tuple[str, str]]:
    """Pairs of a label and a text."""
    yield "form", form.opcode
    if isinstance(form.entry, MmaInstruction):
        yield from _instruction(form, form.entry)
        return
    yield "does", row_description(form.row)
    yield "row", form.row.syntax
    yield from _needs(form)
    yield from _operands(form)
    if form.entry is not None:
        yield from _move(form.entry)


def _move(move: Any) -> Iterator[tuple[str, str]]:
    """The rows of a form that loads or stores a fragment."""
    lines, length = move.lines
    yield "memory", f"{lines} lines of {length} {move.type}, at multiples of {move.alignment} bytes"
    yield "fragment", f"{held(move.fragment)}, {rule(move.fragment)}"
    yield "checked", f"verified on {move.arch}" if move.verified else PUBLISHED


def row_description(row: Row) -> str:
    """The description of a row's semantics."""
    return " ".join(row.doc.replace("``", "").split())


def _needs(form: Form) -> Iterator[tuple[str, str]]:
    for each in alternatives(form):
        yield "needs", needs_words(each, form.until)


def _operands(form: Form) -> Iterator[tuple[str, str]]:
    for specs in form.signatures:
        to = ", ".join(str(s) for s in specs if s.dest)
        sources = ", ".join(str(s) for s in specs if not s.dest)
        yield "operands", f"{to} = {sources}" if to else sources


def _instruction(form: Form, i: MmaInstruction) -> Iterator[tuple[str, str]]:
    many = f"{i.tiles} times " if i.tiles > 1 else ""
    yield "computes", f"{many}D = A B + C, {i.m}×{i.n} from {i.k} products each"
    scaled = f", scales {i.stype} ({i.scales} a row of A and column of B)" if i.stype else ""
    yield "types", f"A {i.a}, B {i.b}, C {i.c}, D {i.d}{scaled}"
    yield from _needs(form)
    yield from _operands(form)
    for name, fragment in fragments(i).items():
        text = "in shared memory" if fragment is None else f"{held(fragment)}, {rule(fragment)}"
        yield "fragments", f"{name}: {text}"
    for text in metadata_words(i):
        yield "metadata", text
    for text in selector_words(i):
        yield "selectors", text
    yield "bits", f"{status(i)} ({generation(i.arch).name})"
    for text in arithmetic_words(i):
        yield "arithmetic", text


def fragments(i: MmaInstruction) -> dict[str, Fragment | None]:
    """The fragment of each operand; None for an operand in shared memory (B of wgmma)."""
    return {
        name: None if i.asynchronous and name == "b" else i.fragment(name) for name in i.operands
    }


def facts(form: Form, full: bool = False) -> dict[str, Any]:
    """A form as JSON data; ``full`` adds fragments, selectors and arithmetic."""
    i = form.entry
    result: dict[str, Any] = {"opcode": form.opcode, "needs": alternatives(form)}
    if form.until:
        result["until"] = form.until
    if i is not None:
        result |= {"family": i.family, "arch": i.arch, "verified": i.verified}
    if not isinstance(i, MmaInstruction):
        if i is not None and full:
            result["operands"] = {i.operand or "d": _fragment(i.fragment)}
        return {**result, "row": form.row.syntax, "does": row_description(form.row)}
    result |= {"shape": [i.m, i.n, i.k], "types": {name: getattr(i, name) for name in "abcd"}}
    if full:
        result["operands"] = {
            name: None if f is None else _fragment(f) for name, f in fragments(i).items()
        }
        result["selectors"] = {name: list(v) for name, v in i.selector_values().items()}
        result["arithmetic"] = list(arithmetic_words(i))
    return result


def _fragment(f: Fragment) -> dict[str, Any]:
    return {
        "type": f.type, "shape": list(f.shape), "layout": str(f.layout), "rows": f.rows,
        "transposed": f.transposed, "threads": f.threads, "registers": f.count,
        "register_bits": f.word, "element_bits": f.bits, "copies": f.copies,
    }  # fmt: skip
