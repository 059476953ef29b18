"""Layered layout of a directed acyclic graph: nodes in rows, edges from each row to a lower one.

A node is one row below its lowest predecessor. Within the rows, nodes are ordered by the mean
position of their neighbours, which leaves few crossings (Sugiyama), and then moved as close to
their neighbours as the gaps permit. Equal graphs have equal layouts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise
from statistics import fmean
from typing import NamedTuple

Edge = tuple[int, int]
GAP, ROW_GAP = 18, 26  # pixels between the nodes of a row, and between rows
SWEEPS = 12  # down and up, of the order and of the coordinates


class Box(NamedTuple):
    """A node's rectangle, in pixels."""

    x: int
    y: int
    width: int
    height: int


class EdgeSegment(NamedTuple):
    """A part of an edge: from the lower side of a row to the upper side of the next, or straight
    down through a row.
    """

    x: int
    y: int
    to_x: int
    to_y: int


class LayeredLayout(NamedTuple):
    """The box of each node and the segments of each edge."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[EdgeSegment, ...], ...]


def layered_layout(
    sizes: Sequence[tuple[int, int]], edges: Sequence[Edge], top: int = 0
) -> LayeredLayout:
    """The layout of nodes with these widths and heights. Each edge is (source, target), of which
    the source has the lower number. ``top``: the upper side of the first row.
    """
    graph = _Layers(sizes, edges)
    graph.order()
    centres = graph.centres()
    tops, y = [], top
    for row in graph.rows:
        tops.append(y)
        y += max(graph.heights[v] for v in row) + ROW_GAP
    bottoms = [upper - ROW_GAP for upper in [*tops[1:], y]]
    boxes = []
    for v, (width, height) in enumerate(sizes):
        middle = (tops[graph.levels[v]] + bottoms[graph.levels[v]]) // 2
        boxes.append(Box(centres[v] - width // 2, middle - height // 2, width, height))
    lines = []
    for chain in graph.chains:
        ends = [
            (tops[graph.levels[v]], bottoms[graph.levels[v]])
            if v >= len(sizes)
            else (boxes[v].y, boxes[v].y + boxes[v].height)
            for v in chain
        ]
        lines.append(tuple(_segments([centres[v] for v in chain], ends)))
    return LayeredLayout(tuple(boxes), tuple(lines))


def _segments(xs: Sequence[int], ends: Sequence[tuple[int, int]]) -> Iterator[EdgeSegment]:
    """The segments of an edge through vertices with these centres and (upper, lower) sides."""
    for i, ((x, to_x), (upper, lower)) in enumerate(zip(pairwise(xs), pairwise(ends), strict=True)):
        if i:
            yield EdgeSegment(x, upper[0], x, upper[1])
        yield EdgeSegment(x, upper[1], to_x, lower[0])


class _Layers:
    """Vertices in rows: the nodes, and after them one for each row that edges of a source pass.

    ``chains``: the vertices of each edge, in neighbouring rows.
    """

    def __init__(self, sizes: Sequence[tuple[int, int]], edges: Sequence[Edge]) -> None:
        self.levels = _levels(len(sizes), edges)
        self.widths, self.heights = ([size[i] for size in sizes] for i in (0, 1))
        self._passes: dict[tuple[int, int], int] = {}  # (source, row) → vertex
        self.chains = [self._chain(*edge) for edge in edges]
        self.rows: list[list[int]] = [[] for _ in range(max(self.levels, default=-1) + 1)]
        for v, level in enumerate(self.levels):
            self.rows[level].append(v)
        self.above, self.below = (
            defaultdict[int, list[int]](list),
            defaultdict[int, list[int]](list),
        )
        for chain in self.chains:
            for one, other in pairwise(chain):
                self.above[other].append(one)
                self.below[one].append(other)

    def _chain(self, source: int, target: int) -> list[int]:
        """The vertices of an edge. The edges of one source pass through rows together."""
        chain = [source]
        for level in range(self.levels[source] + 1, self.levels[target]):
            if (source, level) not in self._passes:
                self._passes[source, level] = len(self.levels)
                self.levels.append(level)
                self.widths.append(0)
                self.heights.append(0)
            chain.append(self._passes[source, level])
        return [*chain, target]

    def order(self) -> None:
        """Order the rows so that few edges cross."""
        best = self.crossings(), [list(row) for row in self.rows]
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            neighbours = self.above if down else self.below
            for row in self.rows if down else self.rows[::-1]:
                position = {v: i for one in self.rows for i, v in enumerate(one)}
                means = {
                    v: fmean(position[u] for u in neighbours[v]) if neighbours[v] else position[v]
                    for v in row
                }
                row.sort(key=means.__getitem__)
            best = min(best, (self.crossings(), [list(row) for row in self.rows]))
        self.rows = best[1]

    def crossings(self) -> int:
        """Number of pairs of edges between neighbouring rows that cross."""
        position = {v: i for row in self.rows for i, v in enumerate(row)}
        count = 0
        for row in self.rows:
            lines = [(position[v], position[u]) for v in row for u in self.below[v]]
            count += sum((a - c) * (b - d) < 0 for (a, b), (c, d) in combinations(lines, 2))
        return count

    def centres(self) -> list[int]:
        """The horizontal centre of each vertex; the leftmost box begins at 0."""
        centres = [0.0] * len(self.levels)
        for row in self.rows:
            self._place(row, centres, [0.0] * len(row))
        for sweep in range(SWEEPS):
            for row in self.rows if sweep % 2 == 0 else self.rows[::-1]:
                desired = [
                    fmean(centres[u] for u in near)
                    if (near := self._near(v, sweep))
                    else centres[v]
                    for v in row
                ]
                self._place(row, centres, desired)
        left = min((c - w / 2 for c, w in zip(centres, self.widths, strict=True)), default=0.0)
        return [round(c - left) for c in centres]

    def _near(self, v: int, sweep: int) -> list[int]:
        """The neighbours that a vertex moves to: above, below, at last both."""
        above, below = self.above[v], self.below[v]
        if sweep >= SWEEPS - 2:
            return above + below
        return (above if sweep % 2 == 0 else below) or above + below

    def _place(self, row: Sequence[int], centres: list[float], desired: Sequence[float]) -> None:
        """Move a row's vertices as near to the wanted centres as their widths permit, in the sense
        of least squares: neighbours that would overlap are moved as a block.
        """
        offsets = [0.0]
        for one, other in pairwise(row):
            offsets.append(offsets[-1] + (self.widths[one] + self.widths[other]) / 2 + GAP)
        blocks: list[list[float]] = []  # wanted positions of the blocks' first vertices
        for position, offset in zip(desired, offsets, strict=True):
            blocks.append([position - offset])
            while len(blocks) > 1 and fmean(blocks[-2]) > fmean(blocks[-1]):
                last = blocks.pop()
                blocks[-1] += last
        starts = [fmean(block) for block in blocks for _ in block]
        for v, start, offset in zip(row, starts, offsets, strict=True):
            centres[v] = start + offset


def _levels(count: int, edges: Sequence[Edge]) -> list[int]:
    """The row of each node. A node without predecessors is right above its first successor."""
    levels, successors = [0] * count, defaultdict[int, list[int]](list)
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        levels[target] = max(levels[target], levels[source] + 1)
        successors[source].append(target)
    targets = {target for _, target in edges}
    for v in range(count):
        if v not in targets and successors[v]:
            levels[v] = min(levels[u] for u in successors[v]) - 1
    return levels
