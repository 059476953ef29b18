"""Random arguments for each operation of CuTe's algebra: what ``cute_cases`` takes its cases from.

They lean to what the operation takes, and some are anything at all. A family is a function from a
``Sampler`` to arguments.
"""

from __future__ import annotations

from typing import Any

from cute_reference.cute_sample import (
    Basis,
    Pair,
    Sampler,
    Tiler,
    column,
    flat,
    leaves,
    like,
    modes,
    size,
)

Arguments = tuple[Any, ...]
SMALL = (1, 2, 3, 4, 6)

# --- layouts ---------------------------------------------------------------------------------


def one(s: Sampler) -> Arguments:
    return (s.layout(),)


def positive(s: Sampler) -> Arguments:
    layout = s.layout()
    return (layout._replace(stride=leaves(layout.stride, abs)),)


def by_profile(s: Sampler) -> Arguments:
    layout = s.layout(rank=s.one_of(1, 2, 3))
    return layout, tuple([1] * s.rng.randint(1, len(layout.shape)))


def composed(s: Sampler) -> Arguments:
    a = s.layout()
    if s.often(0.15):
        return a, s.layout()
    return a, s.inside(a.shape)


def composed_by_tiler(s: Sampler) -> Arguments:
    a = s.layout()
    return a, s.tiler(a, keep=True)


def complemented(s: Sampler) -> Arguments:
    layout = s.injective() if s.often(0.8) else positive(s)[0]
    leaf = zip(flat(layout.shape), flat(layout.stride), strict=True)
    span = 1 + sum((n - 1) * d for n, d in leaf)
    kind = s.rng.random()
    if kind < 0.2:
        return (layout,)
    if kind < 0.4:
        return layout, s.shape(depth=1, rank=s.one_of(2, 3))
    return layout, max(span, 1) * s.one_of(1, 1, 2, 3) + s.one_of(0, 0, 1, 5)


def distinct(s: Sampler) -> Arguments:
    """No two modes overlap, some repeat."""
    return (s.injective() if s.often(0.6) else s.repeating(s.injective()),)


def common(s: Sampler) -> Arguments:
    a = s.compact(s.shape())
    if s.often(0.2):
        return a, s.layout()
    if s.often(0.5):
        return a, s.compact(a.shape)
    return a, Pair(a.shape, s.one_of(a.stride, column(a.shape).stride))


def divided(s: Sampler, keep: bool = False) -> Arguments:
    layout = s.layout() if s.often(0.3) else s.injective(rank=s.one_of(None, 2, 3))
    return layout, s.tiler(layout, keep)


def multiplied(s: Sampler, keep: bool = False) -> Arguments:
    block = s.injective(rank=s.one_of(None, 2))
    if type(block.shape) is tuple and s.often(0.3):
        parts = [s.one_of(s.rng.choice(SMALL), s.injective()) for _ in block.shape]
        return block, Tiler(tuple(None if keep and s.often(0.2) else p for p in parts))
    if s.often(0.25):
        return block, s.rng.choice(SMALL)
    return block, s.layout() if s.often(0.3) else s.injective()


def side_by_side(s: Sampler) -> Arguments:
    ranks = s.one_of((1, 2), (2, 2), (2, 1), (2, 2), (2, 3), (3, 3), (None, None))
    return s.injective(rank=ranks[0]), s.injective(rank=ranks[1])


def tiled_to_shape(s: Sampler) -> Arguments:
    block = s.injective(rank=s.one_of(1, 2, 2, 3))
    rank = len(block.shape) + s.one_of(0, 0, 1)
    sizes = [size(n) for n in block.shape] + [1] * (rank - len(block.shape))
    shape = tuple([n * s.rng.choice(SMALL) for n in sizes])
    return (block, shape) if s.often(0.4) else (block, shape, tuple(s.shuffled(range(rank))))


def cast(s: Sampler) -> Arguments:
    n = s.one_of(2, 4, 8)
    layout = s.compact(s.shape(sizes=(2, 2, 3, 4, 4, 5, 8)), (1, 1, 2, 3))
    if s.often(0.8):  # contiguous elements in front
        inner = s.one_of(1, n, 2 * n)
        layout = Pair((inner, layout.shape), (1, leaves(layout.stride, lambda d: d * 2 * n)))
    return layout, n


def recast(s: Sampler) -> Arguments:
    return cast(s)[0], s.one_of(4, 8, 16, 32), s.one_of(4, 8, 16, 32, 64, 128)


def reshaped(s: Sampler) -> Arguments:
    layout = s.layout()
    shape = s.shape() if s.often(0.2) else s.inside(layout.shape, gaps=False).shape
    return layout, shape


def ranged(s: Sampler) -> Arguments:
    layout = s.layout(rank=s.one_of(2, 3, 3))
    begin = s.rng.randrange(len(layout.shape))
    return layout, begin, s.rng.randint(begin + 1, len(layout.shape))


def selected(s: Sampler) -> Arguments:
    layout = s.layout(rank=3)
    return layout, tuple(s.rng.sample(range(3), s.rng.randint(1, 3)))


def extended(s: Sampler) -> Arguments:
    return s.layout(rank=s.one_of(1, 2)), s.layout()


def filled_up(s: Sampler) -> Arguments:
    return s.layout(rank=s.one_of(1, 2)), s.rng.randint(2, 4)


def called(s: Sampler) -> Arguments:
    layout = s.layout()
    return layout, s.coordinate(layout.shape)


def sliced(s: Sampler) -> Arguments:
    layout = s.layout(rank=s.one_of(2, 3))
    return layout, s.slicing(layout.shape)


# --- int tuples ------------------------------------------------------------------------------


def shaped(s: Sampler) -> Arguments:
    return (s.shape(),)


def at_coordinate(s: Sampler) -> Arguments:
    shape = s.shape()
    crd = s.coordinate(shape)
    return (crd, shape) if s.often(0.5) else (crd, shape, s.compact(shape).stride)


def at_index(s: Sampler) -> Arguments:
    shape = s.shape()
    if type(shape) is tuple and s.often(0.25):
        return tuple([s.rng.randrange(size(n)) for n in shape]), shape
    index = s.rng.randrange(size(shape) + (7 if s.often(0.1) else 0))
    return (index, shape) if s.often(0.6) else (index, shape, s.compact(shape).stride)


def from_shape_to_shape(s: Sampler) -> Arguments:
    source = s.shape()
    if type(source) is not tuple or s.often(0.3):
        return s.coordinate(source), source, s.inside(source, gaps=False).shape
    target = [
        s.one_of(mode, size(mode)) if type(mode) is tuple else s.inside(mode, gaps=False).shape
        for mode in source
    ]
    return tuple([s.coordinate(mode) for mode in source]), source, tuple(target)


def dividing(s: Sampler) -> Arguments:
    shape = s.shape()
    if s.often(0.3):
        return shape, leaves(shape, lambda n: s.one_of(1, n, 2 * n, 2))
    return shape, s.one_of(1, 2, 3, 4, 6, 8, 12, 24, size(shape))


def two_shapes(s: Sampler) -> Arguments:
    shape = s.shape()
    other = s.one_of(s.shape, lambda: s.inside(shape, gaps=False).shape, lambda: shape)()
    return shape, leaves(other, lambda n: s.one_of(n, n, n + 1)) if s.often(0.3) else other


def alike(s: Sampler) -> Arguments:
    shape = s.shape()
    return shape, leaves(shape, lambda n: s.one_of(n, n + 1, max(n - 1, 0)))


def ordered(s: Sampler) -> Arguments:
    shape = s.shape(rank=s.one_of(2, 3))
    if s.often(0.5):
        return shape, tuple(s.shuffled(range(len(shape))))
    order = iter(s.shuffled(range(len(flat(shape)))))
    return shape, like(shape, order)


def distributed(s: Sampler) -> Arguments:
    return s.shape(rank=2), s.one_of(2, 4, 6, 12, 16, 64)


# --- coordinates as values -------------------------------------------------------------------


def basis_like(shape: Any, mode: tuple[int, ...] = ()) -> Any:
    if type(shape) is tuple:
        return tuple([basis_like(n, (*mode, i)) for i, n in enumerate(shape)])
    return Basis(1, mode)


def identity(s: Sampler, rank: int | None = 2) -> Pair:
    """The identity of a shape, at times scaled or with its modes in another order."""
    shape = s.shape(rank=rank, sizes=(2, 3, 4, 8))
    found = Pair(shape, basis_like(shape))
    if s.often(0.3):
        return found._replace(stride=leaves_of_basis(found.stride, s))
    parts = modes(found)
    if s.often(0.3):
        parts = s.shuffled(parts)
    return Pair(tuple(m.shape for m in parts), tuple(m.stride for m in parts))


def leaves_of_basis(stride: Any, s: Sampler) -> Any:
    if isinstance(stride, Basis):
        return stride._replace(value=s.one_of(1, 2, 3))
    return tuple([leaves_of_basis(d, s) for d in stride])


def identity_called(s: Sampler) -> Arguments:
    layout = identity(s)
    crd = s.coordinate(layout.shape)
    return layout, crd if s.often(0.7) else s.slicing(layout.shape)


def identity_alone(s: Sampler) -> Arguments:
    return (identity(s),)


def identity_tiled(s: Sampler) -> Arguments:
    layout = identity(s)
    return layout, s.inside(layout.shape) if s.often(0.2) else s.tiler(layout)


def through_basis(s: Sampler) -> Arguments:
    """A layout after one onto its coordinates: modes picked and cut."""
    layout = s.injective(rank=2)
    parts = []
    for i in s.shuffled(range(2)):
        inside = s.inside(layout.shape[i])
        parts.append(inside._replace(stride=scaled(inside.stride, i)))
    return layout, Pair(tuple(p.shape for p in parts), tuple(p.stride for p in parts))


def scaled(stride: Any, i: int) -> Any:
    if type(stride) is tuple:
        return tuple([scaled(d, i) for d in stride])
    return Basis(stride, (i,)) if stride else 0


# --- swizzles --------------------------------------------------------------------------------


def swizzle_called(s: Sampler) -> Arguments:
    return s.swizzle(), s.rng.randrange(4096)


def swizzle_of_layout(s: Sampler) -> Arguments:
    return s.swizzle(), s.powers()


def layout_of_swizzle(s: Sampler) -> Arguments:
    found = s.permuted()
    return found.inner, found.outer


def permuted_alone(s: Sampler) -> Arguments:
    return (s.permuted(),)


def swizzled_alone(s: Sampler) -> Arguments:
    return (s.swizzled(offset=True),)


def swizzled_called(s: Sampler) -> Arguments:
    layout = s.swizzled(offset=True)
    return layout, s.coordinate(layout.inner.shape)


def swizzled_sliced(s: Sampler) -> Arguments:
    layout = s.swizzled()
    return layout, s.slicing(layout.inner.shape)


def swizzled_tiled(s: Sampler) -> Arguments:
    layout = s.swizzled(offset=True)
    return layout, s.tiler(layout.inner)


def swizzled_product(s: Sampler) -> Arguments:
    layout = s.swizzled()
    return layout, s.injective()


def swizzled_to_shape(s: Sampler) -> Arguments:
    layout = s.swizzled()
    shape = tuple([size(n) * s.rng.choice((1, 2, 4)) for n in layout.inner.shape])
    return (layout, shape) if s.often(0.5) else (layout, shape, tuple(s.shuffled(range(2))))


def swizzled_cast(s: Sampler) -> Arguments:
    return s.swizzled(), s.one_of(2, 4, 8)


def swizzled_recast(s: Sampler) -> Arguments:
    return s.swizzled(), s.one_of(4, 8, 16, 32), s.one_of(4, 8, 16, 32, 64, 128)


def swizzled_common(s: Sampler) -> Arguments:
    a = s.swizzled()
    kind = s.rng.random()
    if kind < 0.4:
        return a, s.one_of(a.inner, column(a.inner.shape), s.compact(a.inner.shape))
    if kind < 0.6:
        return s.one_of(a.inner, s.compact(a.inner.shape)), a
    return a, s.one_of(a._replace(outer=s.swizzle()), a, a._replace(inner=s.compact(a.inner.shape)))


def layout_of_swizzled(s: Sampler) -> Arguments:
    b = s.permuted()
    a = s.powers()
    while size(a.shape) < size(b.inner.shape):
        a = s.powers()
    return a, b


def product_with_swizzled(s: Sampler) -> Arguments:
    """The tiler column-major: CuTe looks up the swizzle's bits in it twice."""
    tiler = s.permuted()
    return s.powers(rank=None), tiler._replace(inner=column(tiler.inner.shape))
