"""``tilewright layout``: what a layout is, operations worked step by step, what accesses cost."""

from __future__ import annotations

import argparse
from typing import Any

from ...errors import LayoutError
from ...layout import (
    BankConflicts,
    ComposedLayout,
    Explanation,
    Layout,
    analyze,
    bank_conflicts,
    coalescing,
    complement,
    composition,
    explain,
    left_inverse,
    logical_divide,
    right_inverse,
)
from ...layout.memory.banks import ranges
from .. import console
from ..text_table import table

_ABOUT = """\
Says what a layout is: injective, surjective, contiguous, how aligned, how far it can be inverted.
Layouts are written as CuTe prints them or plainly: '((2,2),8):((1,4),16)', 'Sw<3,4,3> o
(64,64):(64,1)'. A composition of layouts, '(6,2):(8,2) o (4,3):(3,1)', is worked first, step by
step, and so is what --divide, --complement and --inverse ask for. --shared and --global count what
a warp pays: mode 0 of the layout counts threads and the others their values, or --tv says which
elements are whose."""


def add(commands: Any) -> None:
    """Add the command to the grammar."""
    command = commands.add_parser(
        "layout", help="what a layout is, worked operations, bank conflicts", description=_ABOUT
    )
    command.add_argument("text", metavar="LAYOUT", help="in CuTe's notation, or with plain numbers")
    command.add_argument("--divide", nargs="+", metavar="TILER", help="by one tiler, or by mode")
    command.add_argument("--complement", metavar="SIZE", help="what it leaves of so many offsets")
    command.add_argument("--inverse", choices=("right", "left"), help="its inverse")
    command.add_argument("--bits", type=int, help="bits of an element: how wide vectors may be")
    command.add_argument(
        "--shared", nargs="?", const="ld", metavar="OP",
        help="the wavefronts of an access to shared memory: ld, st, ldmatrix.x4, …",
    )  # fmt: skip
    command.add_argument(
        "--global", nargs="?", const="ld", metavar="OP", dest="to_global",
        help="the sectors of an access to global memory: ld, st",
    )  # fmt: skip
    command.add_argument("--vector", type=int, metavar="BYTES", help="of an access, else widest")
    command.add_argument("--tv", metavar="LAYOUT", help="(thread, value) to element, for an access")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Analyse, work or count. LayoutError for what is no layout, or is refused."""
    layout = _worked(Layout.parse(given.text))
    asked = list(_operations(given, layout))
    for explanation in asked:
        _show(explanation)
    if given.shared or given.to_global:
        _accesses(given, layout)
    elif not asked:
        for name, text in analyze(layout, given.bits).lines():
            console.row(name, text, width=12)
    return 0


def _worked(parsed: Any) -> Any:
    """What is meant: a composition of layouts is worked, and taken as it is where it is refused."""
    if not isinstance(parsed, ComposedLayout):
        return parsed
    inner = _worked(parsed.inner)
    if not isinstance(parsed.outer, Layout) or parsed.offset != 0:
        return ComposedLayout(parsed.outer, parsed.offset, inner)
    explanation = explain(composition, parsed.outer, inner)
    print(explanation, end="\n\n")
    return parsed if explanation.result is None else explanation.result


def _operations(given: argparse.Namespace, layout: Any) -> Any:
    """The explanations that are asked for."""
    if given.divide:
        tilers = tuple(None if t == "_" else Layout.parse(t) for t in given.divide)
        yield explain(logical_divide, layout, tilers if len(tilers) > 1 else tilers[0])
    if given.complement:
        yield explain(complement, layout, Layout.parse(given.complement))
    if given.inverse:
        yield explain(right_inverse if given.inverse == "right" else left_inverse, layout)


def _show(explanation: Explanation) -> None:
    """The steps; a refusal is an error, after them."""
    if explanation.refusal is not None:
        print("\n".join(explanation.lines[:-1]))
        raise explanation.refusal
    print(explanation)


# --- accesses ------------------------------------------------------------------------------------


def _accesses(given: argparse.Namespace, layout: Any) -> None:
    if given.bits is None:
        raise LayoutError("an access moves elements of so many bits", hint="add --bits 16")
    tv = None if given.tv is None else Layout.parse(given.tv)
    asked = (layout, given.bits, given.vector)
    if given.shared:
        _banks(bank_conflicts(*asked, given.shared, tv=tv))
    if given.to_global:
        lines = str(coalescing(*asked, given.to_global, tv=tv)).splitlines()
        console.row("global", lines[0])
        console.row("", lines[1])


def _banks(found: BankConflicts) -> None:
    """What all requests cost, and the phases of the worst one."""
    console.row("shared", found.lines()[0])
    if not found.conflicts:
        return
    warp, instruction = found.worst
    console.row("worst", f"warp {warp}, instruction {instruction}")
    rows: list[tuple[str, ...]] = []
    for phase in found.phases(warp, instruction):
        first = (ranges(phase.lanes), str(phase.wavefronts))
        for banks, lanes in phase.collisions or [((), ())]:
            rows.append((*first, ranges(banks), " | ".join(map(ranges, lanes))))
            first = ("", "")
    table(("lanes", "wavefronts", "banks", "lanes that want a word each"), rows)
