"""Layout operations explained step by step, as in a computation by hand.
    >>> print(explain(composition, Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    (6,2):(8,2) o (4,3):(3,1)
      mode 0, 4:3
        6:8  stride 3 leaves 2 of 6, 3·8 = 24 apart: takes 2 of 4 -> 2:24
        2:2  stride 1, 1·2 = 2 apart: takes the remaining 2 -> 2:2
      mode 1, 3:1
        6:8  stride 1 leaves 6 of 6, 1·8 = 8 apart: takes the remaining 3 -> 3:8
    = ((2,2),3):((24,2),8)

The code that computes the operation reports the steps. If the operation fails, the last line has
the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import Any, NamedTuple

from ...errors import LayoutError
from ..composed_layout import AnyLayout, ComposedLayout, inside
from ..int_tuple import IntTuple, ceil_div, normalize, product
from ..layout import Layout, make_layout
from ..modes import flatten
from ..scaled_basis import ScaledBasis, has_basis
from ..swizzle import Swizzle
from ..symbolic import Number, mul
from .composition import Left, coalesce, compose_mode, composition, left_side, mode_at
from .function_properties import layout_of
from .inverse import chain, complement, gaps, left_inverse, right_inverse, rungs
from .tiling import logical_divide

Lines = Iterator[str]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The ``lines`` of a worked operation, and its ``result`` or ``refusal``."""

    lines: tuple[str, ...]
    result: Any = None
    refusal: LayoutError | None = None

    def __str__(self) -> str:
        return "\n".join(self.lines)


def explain(operation: Callable[..., Any], *args: Any) -> Explanation:
    """``operation(*args)`` step by step, for composition, complement, logical_divide, right_inverse
    and left_inverse. LayoutError for another operation, or a wrong number of arguments.
    """
    name = getattr(operation, "__name__", repr(operation))
    worked = next((how for known, how in _WORKED.items() if known is operation), None)
    if worked is None:
        known = ", ".join(f.__name__ for f in _WORKED)
        raise LayoutError(f"explain does not support {name}", hint=f"use one of {known}")
    try:
        signature(operation).bind(*args)
    except TypeError as e:
        raise LayoutError(f"{name} of {len(args)} arguments: {e}") from None
    lines: list[str] = []
    try:
        lines.extend(worked(*args))  # has the lines before a refusal
        result = operation(*args)
    except LayoutError as e:
        return Explanation((*lines, f"refused: {e.message}"), refusal=e)
    return Explanation((*lines, f"= {result}"), result)


def _indented(lines: Lines) -> Lines:
    return (f"  {line}" for line in lines)


# --- composition ---------------------------------------------------------------------------------


def _composition(a: Any, b: Any) -> Lines:
    a = a if isinstance(a, Swizzle) else layout_of(a)
    yield f"{a} o {_tiler(b)}"
    yield from _indented(_composed(a, b))


def _tiler(b: Any) -> str:
    """A tiler as CuTe's documentation writes one: ``<3:4, 8:2>``."""
    if isinstance(b, (tuple, list)):
        return f"<{', '.join(map(_tiler, b))}>"
    return "_" if b is None else str(b)


def _composed(a: Any, b: Any) -> Lines:
    if isinstance(a, Swizzle):
        yield f"{a} stays outside"
    elif isinstance(a, ComposedLayout):
        yield f"{a.outer} stays outside; inside:"
        yield from _composition(a.inner, b)
    elif isinstance(b, (tuple, list)):
        for i, (mode, tile) in enumerate(zip(a, b, strict=False)):
            yield f"mode {i}"
            yield from _indented(_composition(mode, tile))
    elif isinstance(b, Layout) or b.__class__ is int:
        right = b if isinstance(b, Layout) else Layout(b)
        flat = coalesce(a)
        if flat != flatten(a) and not has_basis(right.stride):
            yield f"coalesced, the left side is {flat}"
        yield from _modes(a, right, "", {})


def _modes(a: Layout, b: Layout, name: str, sides: dict[Any, _Side]) -> Lines:
    """The modes of ``b``, each composed with ``a`` or the mode of ``a`` that a basis selects."""
    if b.shape.__class__ is tuple:
        for i, mode in enumerate(b):
            yield from _modes(a, mode, f"{name}.{i}" if name else f"mode {i}", sides)
        return
    basis = isinstance(b.stride, ScaledBasis)
    path, stride = (b.stride.mode, b.stride.value) if basis else ((), b.stride)
    if path not in sides:
        sides[path] = _Side.of(mode_at(a, path))
    if name:
        yield f"{name}, {b}"
    walk = sides[path].walk(b.shape, stride)
    yield from _indented(walk) if name else walk


class _Side(NamedTuple):
    """A left side that records the steps of a composition."""

    left: Left
    steps: list[tuple[int, int, int, int]]

    @classmethod
    def of(cls, a: Layout) -> _Side:
        steps: list[tuple[int, int, int, int]] = []
        return cls(left_side(a, lambda *step: steps.append(step)), steps)

    def walk(self, size: Number, stride: Number) -> Lines:
        """The steps of composing with size:stride; raises the LayoutError of a refusal last."""
        self.steps.clear()
        refusal = None
        try:
            compose_mode(self.left, size, stride)
        except LayoutError as e:
            refusal = e
        if not self.steps and refusal is None:
            yield self._trivial(size, stride)
        shown = [step for step in self.steps if self._is_shown(*step)]
        yield from _columns((self._mode(step[0]), self._step(*step)) for step in shown)
        if refusal is not None:
            raise refusal

    def _mode(self, i: int) -> str:
        return f"{self.left[0][i]}:{self.left[1][i]}"

    def _trivial(self, size: Number, stride: Number) -> str:
        if stride.__class__ is int and stride == 0:
            return f"stride 0 stays at the first element -> {size}:0"
        apart, to = _apart(stride, self.left[1][0])
        return f"{self._mode(0)}  stride {stride}, {apart} apart: takes {size} -> {size}:{to}"

    def _is_shown(self, i: int, step: int, rest: int, taken: int) -> bool:
        """Whether a step takes elements, or is the last."""
        return rest > 1 or i == len(self.left[0]) - 1

    def _step(self, i: int, step: int, rest: int, taken: int) -> str:
        size, last = self.left[0][i], i == len(self.left[0]) - 1
        if taken == 1 and not last:
            return f"stride {step} passes over all {size}: stride {step // size} is left"
        apart, to = _apart(step, self.left[1][i])
        leaves = "" if last else f" leaves {-(-size // step)} of {size}"
        takes = f"takes {taken} of {rest}" if taken < rest else f"takes the remaining {rest}"
        return f"stride {step}{leaves}, {apart} apart: {takes} -> {taken}:{to}"


def _apart(step: Number, stride: Number) -> tuple[str, str]:
    """The product of two strides: as it is computed, and its value."""
    if step.__class__ is stride.__class__ is int:
        return f"{step}·{stride} = {step * stride}", str(step * stride)
    return f"{step}·{stride}", f"{step}·{stride}"


def _columns(rows: Iterable[tuple[str, str]]) -> Lines:
    """Names padded to one width, followed by texts."""
    named = list(rows)
    width = max((len(name) for name, _ in named), default=0)
    return (f"{name:<{width}}  {text}" for name, text in named)


# --- complement, divide, inverses ----------------------------------------------------------------


def _complement(layout: Any, max_idx: Any = 1) -> Lines:
    bound = normalize(getattr(max_idx, "shape", max_idx), "bound")
    yield f"complement of {layout} in {product(bound)}"
    inner = layout_of(layout)
    yield from _indented(_gaps(inside(inner), bound))


def _gaps(layout: Layout, bound: IntTuple) -> Lines:
    """The gap below each mode, and how often the layout fits into the bound."""
    span: Number = 1
    for s, d, below in gaps(layout):
        gap, span = d // below, mul(s, d)
        filled = "no gap" if gap.__class__ is int and gap == 1 else f"{gap} fit -> {gap}:{below}"
        yield f"{s}:{d}  stride {d} over a span of {below}: {filled}; {span} are spanned"
    times = product(ceil_div(bound, span))
    once = times.__class__ is int and times == 1
    fits = "fit once" if once else f"fit {times} times -> {times}:{span}"
    yield f"{span} in {product(bound)} {fits}"


def _divide(a: Any, tiler: Any) -> Lines:
    yield f"{a} / {_tiler(tiler)}"
    if tiler is not None:
        yield from _indented(_divided(layout_of(a), tiler))


def _divided(a: AnyLayout, tiler: Any) -> Lines:
    if isinstance(tiler, tuple):
        for i, tile in enumerate(tiler[: len(a)]):
            yield f"mode {i}"
            yield from _indented(_divide(a[i], tile))
        return
    tile = layout_of(tiler)
    yield f"B = {tile} picks a tile, B* the tiles:"
    yield from _indented(_complement(tile, a))
    tiles = complement(tile, a)
    yield f"B* = {tiles}, and so (B, B*) = {make_layout(tile, tiles)}"
    yield from _composition(a, make_layout(tile, tiles))


def _right_inverse(layout: Any) -> Lines:
    yield f"right_inverse of {layout}"
    plain = layout_of(layout)
    if isinstance(plain, Layout):
        rows = [
            (f"{s}:{d}", f"goes on at {d}; it counts coordinates by {place} -> {s}:{place}")
            for s, d, place in chain(plain)
        ]
        yield from _indented(_columns(rows))


def _left_inverse(layout: Any) -> Lines:
    yield f"left_inverse of {layout}"
    plain = layout_of(layout)
    if isinstance(plain, Layout):
        yield from _indented(_rungs(plain))


def _rungs(layout: Layout) -> Lines:
    place, last = 0, 1
    for s, d, own, below in rungs(layout):
        times = d // below
        yield f"{s}:{d}  stride {d} is {times} times the one below, {below} -> {times}:{place}"
        place, last = own, s
    yield f"and its last mode -> {last}:{place}"


_WORKED: dict[Callable[..., Any], Callable[..., Lines]] = {
    composition: _composition,
    complement: _complement,
    logical_divide: _divide,
    right_inverse: _right_inverse,
    left_inverse: _left_inverse,
}
