"""Random layouts, coordinates, tilers and swizzles for ``cute_cases``, written as CuTe writes them.

``_4`` is known to CuTe's compiler, ``4`` when its program runs; ``_`` keeps a mode; ``<_4:_1,_8>``
is a tiler of two modes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

SIZES = (1, 2, 2, 2, 3, 4, 4, 4, 5, 6, 8, 8, 12, 16)
STRIDES = (0, 0, 1, 1, 1, 2, 2, 3, 4, 4, 6, 8, 12, 16, 32, 64)


class Late(int):
    """A number that CuTe sees at run time only."""


class Basis(NamedTuple):
    value: int
    mode: tuple[int, ...]


class Pair(NamedTuple):
    """A layout: shape and stride, nested alike."""

    shape: Any
    stride: Any


class Xor(NamedTuple):
    """A swizzle."""

    bits: int
    base: int
    shift: int


class Composed(NamedTuple):
    outer: Any
    offset: Any
    inner: Any


class Tiler(NamedTuple):
    modes: tuple[Any, ...]


def text(x: Any) -> str:
    """As CuTe writes it."""
    match x:
        case None:
            return "_"
        case Basis(value, mode):
            return "@".join(map(str, (text(value), *reversed(mode))))
        case Pair(shape, stride):
            return f"{text(shape)}:{text(stride)}"
        case Xor(bits, base, shift):
            return f"Sw<{bits},{base},{shift}>"
        case Composed():
            return " o ".join(map(text, x))
        case Tiler(modes):
            return f"<{','.join(map(text, modes))}>"
        case tuple():
            return f"({','.join(map(text, x))})"
        case Late():
            return str(int(x))
        case int():
            return f"_{x}"
    raise TypeError(f"CuTe has no notation for {x!r}")


_TOKEN = re.compile(r"Sw<(?P<xor>.*?)>|(?P<number>_?-?\d+(?:@\d+)*)|(?P<mark> o |[_(),:<>])")


def read(written: str) -> Any:
    """What ``text`` wrote."""
    tokens = list(_TOKEN.finditer(written))[::-1]
    parts = [_read_part(tokens)]
    while tokens:
        tokens.pop()
        parts.append(_read_part(tokens))
    return parts[0] if len(parts) == 1 else Composed(*parts)


def _read_part(tokens: list[re.Match[str]]) -> Any:
    """A layout, or an item of one."""
    shape = _read_item(tokens)
    if not tokens or tokens[-1].group() != ":":
        return shape
    tokens.pop()
    return Pair(shape, _read_item(tokens))


def _read_item(tokens: list[re.Match[str]]) -> Any:
    token = tokens.pop()
    if token["xor"]:
        return Xor(*map(int, token["xor"].split(",")))
    if token["number"]:
        value, *places = token["number"].split("@")
        number = int(value[1:]) if value[0] == "_" else Late(value)
        return Basis(number, tuple(map(int, places[::-1]))) if places else number
    if token["mark"] == "_":
        return None
    items = []
    while tokens[-1].group() not in ")>":
        items.append(_read_part(tokens))
        if tokens[-1].group() == ",":
            tokens.pop()
    tokens.pop()
    return Tiler(tuple(items)) if token["mark"] == "<" else tuple(items)


def late(x: Any) -> bool:
    """Whether any number in it is."""
    return isinstance(x, Late) or (isinstance(x, tuple) and any(map(late, x)))


def flat(t: Any) -> list[Any]:
    return [leaf for x in t for leaf in flat(x)] if type(t) is tuple else [t]


def size(t: Any) -> int:
    return prod(flat(t))


def like(shape: Any, leaves: Iterator[Any]) -> Any:
    return tuple([like(s, leaves) for s in shape]) if type(shape) is tuple else next(leaves)


def leaves(t: Any, f: Callable[[int], Any]) -> Any:
    return tuple([leaves(x, f) for x in t]) if type(t) is tuple else f(t)


def modes(layout: Pair) -> list[Pair]:
    if type(layout.shape) is not tuple:
        return [layout]
    return [Pair(*m) for m in zip(layout.shape, layout.stride, strict=True)]


def column(shape: Any, start: int = 1) -> Pair:
    """Compact, the first mode fastest."""
    strides = []
    for s in flat(shape):
        strides.append(start)
        start *= s
    return Pair(shape, like(shape, iter(strides)))


def primes(n: int) -> list[int]:
    for p in range(2, n + 1):
        if n % p == 0:
            return [p, *primes(n // p)]
    return []


class Sampler:
    """Random shapes, layouts, coordinates and tilers."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def one_of(self, *options: Any) -> Any:
        return self.rng.choice(options)

    def often(self, chance: float) -> bool:
        return self.rng.random() < chance

    def shuffled(self, items: Any) -> list[Any]:
        return self.rng.sample(list(items), len(items))

    # --- shapes and layouts ---

    def shape(self, depth: int = 2, rank: int | None = None, sizes: tuple[int, ...] = SIZES) -> Any:
        """At most five leaves; a tuple of ``rank`` modes where one is asked for."""
        while True:
            shape = self._shape(depth, rank, sizes)
            if len(flat(shape)) <= 5 and size(shape) <= 4096:
                return shape

    def _shape(self, depth: int, rank: int | None, sizes: tuple[int, ...]) -> Any:
        if rank is None and (depth == 0 or self.often(0.35)):
            return self.rng.choice(sizes)
        count = rank or self.rng.randint(1, 3)
        return tuple([self._shape(depth - 1, None, sizes) for _ in range(count)])

    def compact(self, shape: Any, gaps: tuple[int, ...] = (1,)) -> Pair:
        """Injective: modes packed in a random order, at times a gap apart."""
        sizes = flat(shape)
        strides, place = [0] * len(sizes), self.one_of(1, 1, *gaps)
        for i in self.shuffled(range(len(sizes))):
            strides[i] = place
            place *= sizes[i] * self.one_of(*gaps)
        return Pair(shape, like(shape, iter(strides)))

    def layout(self, rank: int | None = None) -> Pair:
        """Any at all."""
        shape = self.shape(rank=rank)
        kind = self.rng.random()
        if kind < 0.3:
            return column(shape)
        if kind < 0.55:
            return self.compact(shape)
        if kind < 0.7:
            return self.compact(shape, (1, 1, 2, 3))
        if kind < 0.8:
            return self.repeating(self.compact(shape))
        strides = STRIDES if kind < 0.96 else (-1, -2, -4, 1, 3, 8)
        return Pair(shape, leaves(shape, lambda _: self.rng.choice(strides)))

    def repeating(self, layout: Pair, chance: float = 0.35) -> Pair:
        """Some of its modes at stride 0."""
        return layout._replace(
            stride=leaves(layout.stride, lambda d: 0 if self.often(chance) else d)
        )

    def injective(self, rank: int | None = None) -> Pair:
        shape = self.shape(rank=rank, sizes=(1, 2, 2, 3, 4, 4, 5, 8))
        return self.compact(shape, self.one_of((1,), (1, 1, 2), (1, 2, 3)))

    def powers(self, rank: int | None = 2) -> Pair:
        """Compact, of powers of two alone."""
        while True:
            shape = self.shape(rank=rank, sizes=(2, 2, 4, 4, 8, 8, 16, 32, 64))
            if 16 <= size(shape) <= 4096:
                return self.compact(shape)

    def late(self, t: Any, chance: float = 0.5) -> Any:
        """Some of its numbers known late."""
        if isinstance(t, Pair | Tiler):
            return type(t)(*[self.late(x, chance) for x in t])
        if type(t) is tuple:
            return tuple([self.late(x, chance) for x in t])
        return Late(t) if type(t) is int and t >= 0 and self.often(chance) else t

    # --- what fits a layout ---

    def inside(self, shape: Any, gaps: bool = True) -> Pair:
        """A right side for a layout of this shape: digits of its domain, in a random order."""
        digits, place = [], 1
        for s in flat(shape):
            for p in primes(s):
                digits.append((p, place))
                place *= p
        joined: list[tuple[int, int]] = []
        for p, place in digits:
            if joined and self.often(0.5) and prod(joined[-1]) == place:
                joined[-1] = (joined[-1][0] * p, joined[-1][1])
            elif not gaps or self.often(0.8):
                joined.append((p, place))
        joined = (self.shuffled(joined) if self.often(0.7) else joined)[:5]
        if self.often(0.15):
            joined.insert(self.rng.randint(0, len(joined)), (self.one_of(2, 3), 0))
        return self.nested([Pair(*m) for m in joined] or [Pair(1, self.one_of(0, 1))])

    def nested(self, parts: list[Pair]) -> Pair:
        """Flat modes, some of them grouped."""
        if len(parts) == 1 and self.often(0.6):
            return parts[0]
        out: list[Pair] = []
        while parts:
            count = self.rng.randint(1, len(parts)) if self.often(0.4) else 1
            group, parts = parts[:count], parts[count:]
            together = Pair(tuple(m.shape for m in group), tuple(m.stride for m in group))
            out.append(group[0] if count == 1 and self.often(0.9) else together)
        return Pair(tuple(m.shape for m in out), tuple(m.stride for m in out))

    def tile(self, shape: Any) -> Any:
        """A tiler of one mode: a number or a layout."""
        n = size(shape)
        if self.often(0.15):
            return self.rng.choice(SIZES)
        if self.often(0.5):
            return self.rng.choice([k for k in range(1, n + 1) if n % k == 0])
        return self.inside(shape)

    def tiler(self, layout: Pair, keep: bool = False, deep: bool = True) -> Any:
        """Of any kind: for all of the layout, or mode by mode; ``keep``: with ``_`` too."""
        if type(layout.shape) is not tuple or self.often(0.35):
            return self.tile(layout.shape)
        parts = []
        for mode in layout.shape[: self.rng.randint(1, len(layout.shape))]:
            if keep and self.often(0.2):
                parts.append(None)
            elif deep and type(mode) is tuple and self.often(0.25):
                parts.append(self.tiler(Pair(mode, mode), keep, deep=False))
            else:
                parts.append(self.tile(mode))
        return Tiler(tuple(parts))

    def coordinate(self, shape: Any) -> Any:
        if type(shape) is tuple and self.often(0.75):
            return tuple([self.coordinate(s) for s in shape])
        return self.rng.randrange(size(shape))

    def slicing(self, shape: Any, top: bool = True) -> Any:
        """A coordinate with at least one ``_``."""
        if type(shape) is tuple and (top or self.often(0.5)):
            parts = [self.slicing(s, False) for s in shape]
            if top and None not in flat(tuple(parts)):
                parts[self.rng.randrange(len(parts))] = None
            return tuple(parts)
        return None if top or self.often(0.5) else self.rng.randrange(size(shape))

    # --- swizzles ---

    def swizzle(self) -> Xor:
        bits = self.one_of(1, 2, 3)
        shift = self.rng.randint(bits, 4) * self.one_of(1, 1, 1, -1)
        return Xor(bits, self.rng.randint(0, 4), shift)

    def swizzled(self, offset: bool = False) -> Composed:
        start = self.rng.randrange(256) if offset and self.often(0.5) else 0
        return Composed(self.swizzle(), start, self.powers())

    def permuted(self) -> Composed:
        """Swizzled, all bits of the swizzle within the layout's size."""
        while True:
            found = self.swizzled()
            xor = found.outer
            if 1 << (xor.bits + xor.base + abs(xor.shift)) <= size(found.inner.shape):
                return found
