"""Properties of a layout as a function: injective, surjective, bijective, contiguous.

They are decided from the modes, sorted by stride, independent of the number of elements: a mode
whose stride equals the span of the smaller modes continues them, a larger stride leaves a gap, a
smaller one may collide. The whole domain is evaluated only for outer functions other than a
swizzle, and where modes overlap in too many ways. A property that depends on a dynamic number is
"not known", with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import LayoutError
from ..composed_layout import AnyLayout, ComposedLayout
from ..coordinate import idx2crd
from ..int_tuple import flatten, text, unflatten
from ..layout import Layout
from ..scaled_basis import ScaledBasis
from ..swizzle import Swizzle
from ..symbolic import Number
from .collision import Undecided, difference

EVALUATED = 1 << 24
"""The largest domain that is evaluated where the modes do not decide."""

_FARTHEST = 1 << 54


@dataclass(frozen=True, slots=True)
class LayoutProperty:
    """Yes, no, or not known (``None``), and why. ``bool`` raises LayoutError if it is not known."""

    known: bool | None
    why: str = ""

    def __bool__(self) -> bool:
        if self.known is None:
            raise LayoutError(f"not known: {self.why}")
        return self.known

    def __str__(self) -> str:
        word = {True: "yes", False: "no", None: "not known"}[self.known]
        return f"{word}: {self.why}" if self.why else word


def layout_of(x: Any) -> AnyLayout:
    """The layout or composed layout of ``x``, a layout, tensor or shape."""
    x = getattr(x, "layout", x)
    if isinstance(x, (Layout, ComposedLayout)):
        return x
    if isinstance(x, Swizzle):
        raise LayoutError(f"{x} has no domain", hint=f"use composition({x}, layout)")
    return Layout(x)


def offsets_of(layout: AnyLayout, what: str) -> NDArray[np.int64]:
    """The offsets of the whole domain; LayoutError if it is dynamic or too large to evaluate."""
    check_evaluable(layout, what)
    return layout.indices()


def check_evaluable(layout: AnyLayout, what: str) -> None:
    """LayoutError unless the whole domain can be evaluated."""
    if not layout.is_static():
        raise LayoutError(f"{what} {layout} is not static")
    if layout.size() > EVALUATED:
        limit = f"over the maximum of {EVALUATED}"
        raise LayoutError(f"{what} {layout} has {layout.size()} elements, {limit}")
    if _bound(layout) > _FARTHEST:
        raise LayoutError(f"{what} offsets of {layout} may be beyond {_FARTHEST}")


def _bound(layout: AnyLayout) -> int:
    """An upper bound of absolute offsets and intermediate values of a static layout."""
    if isinstance(layout, Layout):
        return int(layout.cosize())
    inside: int = layout.inner.cosize() + abs(layout.offset)
    if isinstance(layout.outer, Swizzle):
        return 2 * inside + layout.outer.size()
    steps: int = sum(map(abs, flatten(layout.outer.stride)))
    return inside * steps


# --- modes ---------------------------------------------------------------------------------------


class _Component(NamedTuple):
    """The modes of one component of an offset: all modes, unless strides are coordinates.
    Components are independent, so a layout is injective or surjective if each of them is.
    """

    name: tuple[int, ...]
    static: list[tuple[int, int, int]]  # (index of the flat mode, size, stride); size > 1
    dynamic: list[tuple[Number, Number]]  # (size, stride), of which one or both are dynamic

    @classmethod
    def all_of(cls, layout: Layout) -> list[_Component]:
        found: dict[tuple[int, ...], _Component] = {}
        modes = zip(flatten(layout.shape), flatten(layout.stride), strict=True)
        for i, (s, d) in enumerate(modes):
            if s.__class__ is int and s == 1:
                continue
            name, d = (d.mode, d.value) if isinstance(d, ScaledBasis) else ((), d)
            component = found.setdefault(name, cls(name, [], []))
            if s.__class__ is d.__class__ is int:
                component.static.append((i, s, d))
            else:
                component.dynamic.append((s, d))
        return list(found.values()) or [cls((), [], [])]

    @property
    def span(self) -> int:
        """The difference of the largest and smallest offset of the static modes, plus one."""
        return 1 + sum((s - 1) * abs(d) for _, s, d in self.static)

    @property
    def lowest(self) -> int:
        return sum((s - 1) * min(d, 0) for _, s, d in self.static)

    def not_known(self) -> LayoutProperty:
        s, d = self.dynamic[0]
        what = f"size {s}" if d.__class__ is int else f"stride {d}"
        return LayoutProperty(None, f"{what} is dynamic")

    def empty(self, offset: int) -> LayoutProperty:
        """No: no coordinate has this offset."""
        at = ScaledBasis(offset, self.name) if self.name else offset
        return LayoutProperty(False, f"nothing is at {at}")


def _all(answers: Iterable[LayoutProperty]) -> LayoutProperty:
    """Yes if all are; else the first no, or the first that is not known."""
    others = [a for a in answers if a.known is not True]
    return next((a for a in others if a.known is False), next(iter(others), LayoutProperty(True)))


def _by_values(
    layout: AnyLayout, decide: Callable[[AnyLayout, Any], LayoutProperty]
) -> LayoutProperty:
    """The property of the evaluated domain, if it can be evaluated."""
    try:
        offsets = offsets_of(layout, "its modes do not decide, and")
    except LayoutError as e:
        return LayoutProperty(None, e.message)
    return decide(layout, offsets)


# --- injective -----------------------------------------------------------------------------------


def injective(layout: Any) -> LayoutProperty:
    """Whether all coordinates have different offsets; else two with the same.
    >>> print(injective(Layout((4, 2), (1, 3))))
    no: (3,0) and (0,1) have the same offset
    """
    layout = layout_of(layout)
    if isinstance(layout, Layout):
        return _all(_injective(layout, place) for place in _Component.all_of(layout))
    inside = injective(layout.inner)
    if isinstance(layout.outer, Swizzle) or inside.known is False:
        return inside  # a swizzle is a bijection
    return _by_values(layout, _no_repeat)


def _injective(layout: Layout, place: _Component) -> LayoutProperty:
    try:
        found = difference([(s, d) for _, s, d in place.static])
    except Undecided as e:
        return LayoutProperty(None, str(e)) if place.name else _by_values(layout, _no_repeat)
    if found is not None:
        return _collision(layout, {i: x for (i, _, _), x in zip(place.static, found, strict=True)})
    if not place.dynamic or (len(place.dynamic) == 1 and _beyond(place.dynamic[0][1], place.span)):
        return LayoutProperty(True)
    return place.not_known()


def _beyond(stride: Number, span: int) -> bool:
    """Whether the stride is static and at least ``span``."""
    return stride.__class__ is int and abs(stride) >= span


def _collision(layout: Layout, digits: dict[int, int]) -> LayoutProperty:
    """No, with the two smallest coordinates that differ by ``digits`` in their flat modes."""
    steps = [digits.get(i, 0) for i in range(len(flatten(layout.shape)))]
    ends = sorted(([max(sign * x, 0) for x in steps] for sign in (1, -1)), key=lambda c: c[::-1])
    first, second = (text(unflatten(end, layout.shape)) for end in ends)
    return LayoutProperty(False, f"{first} and {second} have the same offset")


def _no_repeat(layout: AnyLayout, offsets: NDArray[np.int64]) -> LayoutProperty:
    ordered = np.sort(offsets)
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    if not len(again):
        return LayoutProperty(True)
    both = np.flatnonzero(offsets == ordered[again[0]])[:2].tolist()
    first, second = (text(idx2crd(i, layout.shape)) for i in both)
    return LayoutProperty(False, f"{first} and {second} have the same offset")


# --- contiguous, surjective, bijective -----------------------------------------------------------


def contiguous(layout: Any) -> LayoutProperty:
    """Whether the offsets are a range without gaps; else the first gap.
    >>> print(contiguous(Layout((2, 3), (1, 3))))
    no: nothing is at 2
    """
    layout = layout_of(layout)
    if isinstance(layout, Layout):
        return _all(map(_contiguous, _Component.all_of(layout)))
    if _permutes(layout) and contiguous(layout.inner).known:
        return LayoutProperty(True)
    return _by_values(layout, _no_gap)


def _contiguous(place: _Component) -> LayoutProperty:
    """Modes by ascending stride: each stride is at most the number of offsets covered so far."""
    covered = 1
    for _, s, d in sorted(place.static, key=lambda m: abs(m[2])):
        if abs(d) > covered:
            return place.not_known() if place.dynamic else place.empty(place.lowest + covered)
        covered += (s - 1) * abs(d)
    if all(d.__class__ is int and abs(d) <= covered for _, d in place.dynamic):
        return LayoutProperty(True)
    return place.not_known()


def _permutes(layout: ComposedLayout) -> bool:
    """Whether the outer function is a swizzle of whole periods, which it only permutes."""
    if not (isinstance(layout.outer, Swizzle) and layout.is_static()):
        return False
    component, period = _Component.all_of(layout.inner)[0], layout.outer.size()
    return (layout.offset + component.lowest) % period == 0 and component.span % period == 0


def _no_gap(_: AnyLayout, offsets: NDArray[np.int64]) -> LayoutProperty:
    ordered = np.sort(offsets)
    gaps = np.flatnonzero(np.diff(ordered) > 1)
    return (
        LayoutProperty(False, f"nothing is at {ordered[gaps[0]] + 1}")
        if len(gaps)
        else LayoutProperty(True)
    )


def surjective(layout: Any) -> LayoutProperty:
    """Whether each number of ``range(cosize(layout))`` is an offset; else the first that is not.
    >>> print(surjective(Layout(4, 2)))
    no: nothing is at 1
    """
    layout = layout_of(layout)
    if isinstance(layout, Layout):
        return _all(map(_surjective, _Component.all_of(layout)))
    if _permutes(layout) and layout.offset == 0 and surjective(layout.inner).known:
        return LayoutProperty(True)
    return _by_values(layout, _covers)


def _surjective(place: _Component) -> LayoutProperty:
    if any(d.__class__ is int and d < 0 for _, d in place.dynamic):
        return place.not_known()
    return place.empty(place.lowest + place.span) if place.lowest < 0 else _contiguous(place)


def _covers(layout: AnyLayout, offsets: NDArray[np.int64]) -> LayoutProperty:
    ordered = np.sort(np.append(offsets[offsets >= 0], -1))
    gaps = np.flatnonzero(np.diff(ordered) > 1)
    first = ordered[gaps[0] if len(gaps) else -1] + 1
    return (
        LayoutProperty(True)
        if first == layout.cosize()
        else LayoutProperty(False, f"nothing is at {first}")
    )


def bijective(layout: Any) -> LayoutProperty:
    """Whether each number of ``range(cosize(layout))`` is the offset of exactly one coordinate."""
    return _all((injective(layout), surjective(layout)))
