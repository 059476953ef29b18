"""``tilewright layout``: properties of a layout, operations step by step, costs of accesses."""

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
Print the properties of a layout: injective, surjective, contiguous, alignment, inverses. Layouts
are written in CuTe's notation or plainly: '((2,2),8):((1,4),16)', 'Sw<3,4,3> o (64,64):(64,1)'. A
composition, '(6,2):(8,2) o (4,3):(3,1)', is computed first, step by step; --divide, --complement
and --inverse show their steps, too. --shared and --global count wavefronts and sectors of a warp's
access: mode 0 of the layout is the thread and the other modes its values, unless --tv is given."""


def add(commands: Any) -> None:
    """Add the subcommand to the parser."""
    command = commands.add_parser(
        "layout",
        help="properties of a layout, worked operations, bank conflicts",
        description=_ABOUT,
    )
    command.add_argument("text", metavar="LAYOUT", help="in CuTe's notation, or with plain numbers")
    command.add_argument(
        "--divide",
        nargs="+",
        metavar="TILER",
        help="logical_divide by one tiler, or by one for each mode",
    )
    command.add_argument("--complement", metavar="SIZE", help="complement within this size")
    command.add_argument(
        "--inverse", choices=("right", "left"), help="right_inverse or left_inverse"
    )
    command.add_argument(
        "--bits", type=int, help="bits per element; shows the widest vector access"
    )
    command.add_argument(
        "--shared", nargs="?", const="ld", metavar="OP",
        help="the wavefronts of an access to shared memory: ld, st, ldmatrix.x4, …",
    )  # fmt: skip
    command.add_argument(
        "--global", nargs="?", const="ld", metavar="OP", dest="to_global",
        help="the sectors of an access to global memory: ld, st",
    )  # fmt: skip
    command.add_argument(
        "--vector", type=int, metavar="BYTES", help="bytes per access (default: the widest)"
    )
    command.add_argument(
        "--tv", metavar="LAYOUT", help="layout (thread, value) to element, for an access"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Analyze, explain or count. Raises LayoutError for invalid layouts and operations."""
    layout = _evaluate(Layout.parse(options.text))
    explanations = list(_operations(options, layout))
    for explanation in explanations:
        _show(explanation)
    if options.shared or options.to_global:
        _accesses(options, layout)
    elif not explanations:
        for name, text in analyze(layout, options.bits).lines():
            console.row(name, text, width=12)
    return 0


def _evaluate(parsed: Any) -> Any:
    """Evaluate a composition and print its steps; unchanged if the result is not a layout."""
    if not isinstance(parsed, ComposedLayout):
        return parsed
    inner = _evaluate(parsed.inner)
    if not isinstance(parsed.outer, Layout) or parsed.offset != 0:
        return ComposedLayout(parsed.outer, parsed.offset, inner)
    explanation = explain(composition, parsed.outer, inner)
    print(explanation, end="\n\n")
    return parsed if explanation.result is None else explanation.result


def _operations(options: argparse.Namespace, layout: Any) -> Any:
    """The explanations of the selected operations."""
    if options.divide:
        tilers = tuple(None if t == "_" else Layout.parse(t) for t in options.divide)
        yield explain(logical_divide, layout, tilers if len(tilers) > 1 else tilers[0])
    if options.complement:
        yield explain(complement, layout, Layout.parse(options.complement))
    if options.inverse:
        yield explain(right_inverse if options.inverse == "right" else left_inverse, layout)


def _show(explanation: Explanation) -> None:
    """Print the steps of an operation, then raise its error if it has one."""
    if explanation.refusal is not None:
        print("\n".join(explanation.lines[:-1]))
        raise explanation.refusal
    print(explanation)


# --- accesses ------------------------------------------------------------------------------------


def _accesses(options: argparse.Namespace, layout: Any) -> None:
    if options.bits is None:
        raise LayoutError("an access requires the bits per element", hint="add --bits 16")
    tv = None if options.tv is None else Layout.parse(options.tv)
    arguments = (layout, options.bits, options.vector)
    if options.shared:
        _banks(bank_conflicts(*arguments, options.shared, tv=tv))
    if options.to_global:
        lines = str(coalescing(*arguments, options.to_global, tv=tv)).splitlines()
        console.row("global", lines[0])
        console.row("", lines[1])


def _banks(found: BankConflicts) -> None:
    """Print the wavefronts of all requests, and the phases of the worst request."""
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
    table(("lanes", "wavefronts", "banks", "lanes with different words"), rows)
