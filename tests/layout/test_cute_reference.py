"""CuTe as judge: what its C++ prints for ten thousand inputs, ours prints too.

The table's rows come from ``cute_make``. Its late numbers, ``4`` where CuTe learns them at run
time, are ``Known`` here: to our algebra they are as dynamic as a register, and the answer must have
the same numbers known early and late. Ours may refuse where CuTe answers for what it can't know, or
sees not that a composition is none.
"""

from __future__ import annotations

import gzip
import operator
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from cute_reference.cute_sample import Basis, Composed, Late, Pair, Tiler, Xor, late, read
from rows import every_row
from tilewright import layout as ours
from tilewright.errors import LayoutError
from tilewright.layout import ComposedLayout, Layout, ScaledBasis, Swizzle

TABLE = Path(__file__).parents[1] / "data" / "cute_layouts.txt.gz"
RESULTS = {"slice_and_offset": 2}


class Known:
    """A number that only the test knows: dynamic to the package, and it prints its value."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __str__(self) -> str:
        return str(self.value)

    def __bool__(self) -> bool:
        raise TypeError("a dynamic number has no truth value")


def _enter(name: str, f: Callable[[int, int], int]) -> None:
    def forward(self: Known, other: Any) -> Known:
        return Known(f(self.value, int(str(other))))

    def backward(self: Known, other: int) -> Known:
        return Known(f(other, self.value))

    setattr(Known, f"__{name}__", forward)
    setattr(Known, f"__r{name}__", backward)


for _name in ("add", "mul", "floordiv", "mod", "and", "xor", "rshift", "lshift"):
    _enter(_name, getattr(operator, f"__{_name}__"))


def made(x: Any) -> Any:
    """Of our classes, from what ``cute_sample`` read."""
    match x:
        case Late():
            return Known(int(x))
        case None | int():
            return x
        case Basis():
            return ScaledBasis(*x)
        case Pair():
            return Layout(*map(made, x))
        case Xor():
            return Swizzle(*x)
        case Composed():
            return ComposedLayout(*map(made, x))
        case Tiler(modes):
            return made(modes)
    return tuple(map(made, x))


def written(x: Any) -> str:
    """In CuTe's notation."""
    if isinstance(x, tuple):
        return f"({','.join(map(written, x))})"
    if isinstance(x, (Layout, ComposedLayout)):
        return f"{x:cute}"
    return f"_{int(x)}" if isinstance(x, int) else str(x)


def extension(x: Any) -> dict[str, Any]:
    return {"up_to_rank": x} if isinstance(x, int) else {"elem": x}


OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda f, x: f(x),
    "crd2crd": lambda crd, source, target: ours.crd2crd(crd, target, source),
    "dice": lambda a, crd: Layout(ours.dice(crd, a.shape), ours.dice(crd, a.stride)),
    "append": lambda a, b: ours.append(a, **extension(b)),
    "prepend": lambda a, b: ours.prepend(a, **extension(b)),
    "slice_and_offset": lambda a, crd: ours.slice_and_offset(crd, a),
}
"""Where it is not our function of the same name and arguments."""


def answer(op: str, args: list[str]) -> str:
    f = OPERATIONS.get(op) or getattr(ours, op)
    result = f(*[made(read(a)) for a in args])
    return "|".join(map(written, result if op in RESULTS else (result,)))


@cache
def rows() -> dict[str, list[tuple[list[str], str]]]:
    """Of each operation: (arguments, CuTe's answer)."""
    found: dict[str, list[tuple[list[str], str]]] = {}
    for line in gzip.decompress(TABLE.read_bytes()).decode().splitlines():
        op, *rest = line.split("|")
        place = len(rest) - RESULTS.get(op, 1)
        found.setdefault(op, []).append((rest[:place], "|".join(rest[place:])))
    return found


def alike(got: str, want: str) -> bool:
    """Whether the numbers are the same, and a layout's known early wherever CuTe's are."""
    if got == want or got.replace("_", "") != want.replace("_", ""):
        return got == want
    pairs = zip(*(re.findall(r"_?-?\d+", text) for text in (got, want)), strict=True)
    return ":" not in want or all(g[0] == "_" or w[0] != "_" for g, w in pairs)


REFUSALS = ("is not a layout", "dynamic", "needs static numbers", "elements become one")
"""Errors where CuTe has a result: a composition that is not a layout, dynamic numbers, elements
that are only partly there."""


@every_row("op", sorted(rows()))
def test_prints_as_cute(op: str) -> None:
    wrong, refused = [], 0
    for args, want in rows()[op]:
        try:
            got = answer(op, args)
        except LayoutError as e:
            refused += 1
            if not any(reason in e.message for reason in REFUSALS):
                wrong.append((args, want, e.message))
            continue
        if not alike(got, want):
            wrong.append((args, want, got))
    assert wrong == []
    assert refused <= 0.2 * len(rows()[op])


def test_a_composition_is_rejected_only_where_cute_rejects_it() -> None:
    refused = 0
    for args, want in rows()["composition"]:
        a, b = map(read, args)
        if not isinstance(a, Pair) or not isinstance(b, Pair | int) or late((a, b)):
            continue
        left, right, theirs = made(a), ours.make_layout(made(b)), made(read(want))
        try:
            ours.composition(left, right)
        except LayoutError:
            refused += 1
            assert any(theirs(i) != left(right(i)) for i in range(right.size())), args
    assert refused


def test_both_notations_are_read() -> None:
    for found in rows().values():
        for args, want in found:
            for text in (*args, want):
                x = read(text) if "|" not in text else None
                if isinstance(x, Pair | Composed) and not late(x):
                    layout = Layout.parse(text)
                    assert layout == made(x)
                    assert f"{layout:cute}" == text
                    assert Layout.parse(str(layout)) == layout
