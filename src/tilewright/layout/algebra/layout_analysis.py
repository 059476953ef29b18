"""Analysis of a layout: its properties as a function and in memory, and its inverses.
>>> print(analyze(Layout((8, 6), (8, 1)), bits=16))
layout      (8,6):(8,1)
size        48, over 62 offsets
injective   yes
surjective  no: nothing is at 6
contiguous  no: nothing is at 6
runs        1, 6 elements in a row, by mode
alignment   offsets are multiples of 1
vector      4 bytes, 2 elements of 16 bits: 6 elements are contiguous
inverses    right (6:8) of offsets below 6, left ((8,8):(8,1)) of offsets below 64
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import LayoutError
from ..composed_layout import AnyLayout, ComposedLayout, inside
from ..int_tuple import flatten, is_static, text
from ..memory.vectorization import WidestVector, alignment, contiguous_run, widest_vector
from ..scaled_basis import has_basis
from ..symbolic import Number
from .function_properties import (
    LayoutProperty,
    bijective,
    check_evaluable,
    contiguous,
    injective,
    layout_of,
    surjective,
)
from .inverse import left_inverse, right_inverse


@dataclass(frozen=True, slots=True)
class Inverse:
    """An inverse and its domain, the offsets below ``size``; or why there is none."""

    layout: Any
    size: Number
    refusal: str = ""

    @classmethod
    def of(cls, inverse: Callable[[Any], Any], layout: AnyLayout) -> Inverse:
        try:
            found = inverse(layout)
        except LayoutError as e:
            return cls(None, 0, e.message)
        return cls(found, found.size())

    def __str__(self) -> str:
        if self.refusal:
            return f"none: {self.refusal}"
        return f"({self.layout}) of offsets below {self.size}"


def _span(layout: AnyLayout) -> str:
    """The span of a layout's offsets, if it is cheap to compute."""
    if not layout.is_static():
        return ""
    if isinstance(layout, ComposedLayout):
        try:
            check_evaluable(layout, "the cosize:")
        except LayoutError:
            return ""
        return f", over {layout.cosize()} offsets"
    spanned = layout.coshape()
    return f", over {text(spanned)} {'coordinates' if isinstance(spanned, tuple) else 'offsets'}"


def _aligned(layout: AnyLayout, multiple: int) -> str:
    strides = flatten(inside(layout).stride)
    dynamic = next((d for d in strides if not is_static(d)), None)
    if multiple == 1 and dynamic is not None:
        return f"not known: stride {dynamic} is dynamic"
    return f"offsets are multiples of {multiple}" if multiple else "all offsets are 0"


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of ``analyze``. ``runs`` are by mode; ``vector`` is None without ``bits``, or if
    offsets are coordinates.
    """

    layout: AnyLayout
    injective: LayoutProperty
    surjective: LayoutProperty
    bijective: LayoutProperty
    contiguous: LayoutProperty
    right: Inverse
    left: Inverse
    runs: tuple[Number, ...] = ()
    alignment: int = 1
    vector: WidestVector | None = None

    def lines(self) -> Iterator[tuple[str, str]]:
        """(name, text) of each property."""
        yield "layout", str(self.layout)
        yield "size", f"{self.layout.size()}{_span(self.layout)}"
        yield "injective", str(self.injective)
        yield "surjective", str(self.surjective)
        yield "contiguous", str(self.contiguous)
        if self.runs:
            yield "runs", f"{', '.join(map(str, self.runs))} elements in a row, by mode"
            yield "alignment", _aligned(self.layout, self.alignment)
        if self.vector:
            yield "vector", str(self.vector)
        if self.runs:
            alike, none = self.right == self.left, bool(self.right.refusal)
            which = "right" if not alike else "" if none else "right and left"
            others = "" if alike else f", left {self.left}"
            yield "inverses", f"{which} {self.right}{others}".lstrip()

    def __str__(self) -> str:
        return "\n".join(f"{name:<12}{text}" for name, text in self.lines())


def analyze(layout: Any, bits: int | None = None) -> Analysis:
    """Analyze a layout, a composed layout or a tensor's layout; with the elements' ``bits``, also
    the widest vector.
    """
    layout = layout_of(layout)
    in_memory = not has_basis(inside(layout).stride)
    modes = [layout[i] for i in range(len(layout))] if in_memory else []
    return Analysis(
        layout,
        injective(layout),
        surjective(layout),
        bijective(layout),
        contiguous(layout),
        Inverse.of(right_inverse, layout),
        Inverse.of(left_inverse, layout),
        tuple(map(contiguous_run, modes)),
        alignment(layout) if in_memory else 1,
        widest_vector(layout, bits) if in_memory and bits is not None else None,
    )
