"""Pictures of epilogue graphs: every node and output is shown; boxes and edges stay apart."""

from __future__ import annotations

import random
from itertools import combinations, pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

import tilewright
from tilewright.errors import LayoutError
from tilewright.gemm.epilogue.graph import EpilogueGraph, EpilogueInput
from tilewright.gemm.epilogue.tracing import constant
from tilewright.view import draw, draw_epilogue
from tilewright.view.graphs.layered_layout import GAP, LayeredLayout, layered_layout

SVG = "{http://www.w3.org/2000/svg}"


def graph() -> EpilogueGraph:
    def function(gate: Any, up: Any, bias: Any, residual: Any, s: Any) -> dict[str, Any]:
        y = tilewright.silu(gate * s + bias) * up + residual
        return {
            "y": tilewright.cast(y, "e4m3"), "gate": gate, "amax": tilewright.amax(y),
            "column_sum": tilewright.sum(y, axis=-2),
        }  # fmt: skip

    shapes = {"bias": ("bf16", "n"), "residual": ("f16", "mn"), "s": ("f32", "")}
    inputs = tuple(EpilogueInput(name, *shape) for name, shape in shapes.items())
    return tilewright.epilogue(function).trace("f32", inputs, (), "f16", 2)


def texts(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter(SVG + "text")]


def test_every_operation_input_and_output_is_shown() -> None:
    shown = texts(draw_epilogue(graph(), "a gated layer"))
    operations = graph().text().splitlines()[: -len(graph().outputs)]
    assert shown[0] == "a gated layer" and set(operations) < set(shown)
    details = [
        "bf16, row vector [n]", "f16, matrix [m, n]", "f32, scalar", "e4m3, [m, n]", "f16, [m, n]",
        "f32, max over b, m, n", "f32, sum over m: [b, n]",
    ]  # fmt: skip
    names = ["acc", "acc1", "bias", "residual", "s", "y", "gate", "amax", "column_sum"]
    assert not {*details, *names} - set(shown)
    assert shown.count("f32, accumulator") == 2


def test_a_notebook_and_draw_show_the_same_picture() -> None:
    assert graph()._repr_svg_() == draw(graph()) == draw_epilogue(graph())
    with pytest.raises(LayoutError, match="expected an epilogue graph, got 3"):
        draw_epilogue(3)  # type: ignore[arg-type]


def test_an_output_that_is_a_constant() -> None:
    function = tilewright.epilogue(lambda acc: {"d": acc, "one": constant(acc.builder, 1, "f32")})
    shown = texts(draw_epilogue(function.trace("f32", (), (), "f16")))
    assert shown[-2:] == ["one", "1, f16, [m, n]"] and "f16, [m, n]" in shown


def check_layout(layout: LayeredLayout, edges: list[tuple[int, int]]) -> None:
    """Boxes are ``GAP`` apart, edges go down from box to box and touch no other box."""
    boxes = layout.boxes
    assert min([box.x for box in boxes] + [s.x for line in layout.edges for s in line]) == 0
    for one, other in combinations(boxes, 2):
        beside = one.x + one.width + GAP - 1 <= other.x or other.x + other.width + GAP - 1 <= one.x
        assert beside or one.y + one.height < other.y or other.y + other.height < one.y
    for (source, target), segments in zip(edges, layout.edges, strict=True):
        first, last = segments[0], segments[-1]
        above, below = boxes[source], boxes[target]
        assert (first.x, first.y) == (above.x + above.width // 2, above.y + above.height)
        assert (last.to_x, last.to_y) == (below.x + below.width // 2, below.y)
        for one, other in pairwise(segments):
            assert one[2:] == other[:2] and one.y < one.to_y
        for x, y, _, to_y in segments[1::2]:  # through a row
            assert not [
                b for b in boxes if b.x <= x <= b.x + b.width and y < b.y + b.height and b.y < to_y
            ]


@pytest.mark.parametrize("seed", range(20))
def test_layouts_of_random_graphs(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randint(2, 30)
    sizes = [(2 * rng.randint(10, 90), rng.choice((24, 36))) for _ in range(count)]
    pairs = {(a, b) for b in range(1, count) for a in (rng.randrange(b), rng.randrange(b))}
    edges = sorted(pairs - {(0, 1)}) or [(0, 1)]
    layout = layered_layout(sizes, edges)
    assert layout == layered_layout(sizes, edges)
    check_layout(layout, edges)


def test_edges_that_need_not_cross_do_not() -> None:
    """Three chains whose ends are numbered the other way round."""
    edges = [(0, 5), (1, 4), (2, 3)]
    layout = layered_layout([(40, 24)] * 6, edges)
    assert all(segment.x == segment.to_x for (segment,) in layout.edges)
