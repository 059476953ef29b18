"""The picture of an epilogue graph: inputs, operations and outputs, from top to bottom.

Constants are written into the operations that use them.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import LayoutError
from ...gemm.epilogue.graph import ACCUMULATOR, CONSTANT, INDEX, LOAD, TENSOR, EpilogueGraph
from ..palette import LANES
from ..svg import FAINT, LINE, SHADE, Picture, text_width
from .layered_layout import Box, EdgeSegment, layered_layout

BOLD, SMALL, PADDING = 12, 10, 9  # text sizes and the space beside text, in pixels
BLUE, GREEN, ORANGE = LANES[1], LANES[9], LANES[5]
COLORS = {ACCUMULATOR: ORANGE, LOAD: BLUE, INDEX: BLUE}
HEAD = 34  # height of the title
KINDS = {"": "scalar", "n": "row vector", "m": "column vector", "mn": "matrix", "bmn": "matrices"}


class NodeLabel(NamedTuple):
    """The text of a box: a bold line, and a small one or none."""

    name: str
    detail: str
    fill: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height, even numbers."""
        width = max(text_width(self.name, BOLD), text_width(self.detail, SMALL))
        return (width + 2 * PADDING + 1) // 2 * 2, 36 if self.detail else 24


def draw_epilogue(graph: EpilogueGraph, title: str = "") -> str:
    """The SVG of an epilogue graph, ``plan.problem.epilogue.graph``. Inputs and outputs say their
    types and shapes, operations are written as in ``plan.explain()``.

    Raises LayoutError for another object.
    """
    if not isinstance(graph, EpilogueGraph):
        raise LayoutError(f"expected an epilogue graph, got {graph!r:.60}")
    drawn = [i for i, node in enumerate(graph.nodes) if node.op != CONSTANT]
    numbers = {index: number for number, index in enumerate(drawn)}
    labels = [_node_label(graph, i) for i in drawn]
    labels += [_output_label(graph, i) for i in range(len(graph.outputs))]
    edges = [(a, i) for i in drawn for a in dict.fromkeys(graph.nodes[i].args) if a in numbers]
    pairs = [(numbers[source], numbers[target]) for source, target in edges]
    outputs = enumerate(graph.outputs, len(drawn))
    pairs += [(numbers[o.node], i) for i, o in outputs if o.node in numbers]
    layout = layered_layout([label.size for label in labels], pairs, HEAD)
    operations = sum(bool(node.args) for node in graph.nodes)
    to = Picture(title or "epilogue")
    to.text(0, 12, title or "epilogue", 14, bold=True)
    to.text(0, 27, f"{operations} operations per element", SMALL, ink=FAINT)
    for segment in dict.fromkeys(s for segments in layout.edges for s in segments):
        _paint_segment(to, segment)
    for *_, last in layout.edges:
        to.paint([f'<path d="M{last.to_x} {last.to_y}l-3 -6h6z" fill="{LINE}"/>'])
    for label, box in zip(labels, layout.boxes, strict=True):
        _paint_box(to, label, box)
    return to.render()


def _node_label(graph: EpilogueGraph, index: int) -> NodeLabel:
    node = graph.nodes[index]
    fill = COLORS.get(node.op, SHADE)
    if node.op == LOAD:
        name, type_, varies = node.attributes
        kind = KINDS.get(varies, "array")
        shape = f", {kind} [{', '.join(varies)}]" if varies else f", {kind}"
        return NodeLabel(name, f"{type_}{shape}", fill)
    name = graph.node_name(index)
    if node.op in (ACCUMULATOR, INDEX):
        return NodeLabel(name, f"{node.type}, {node.op}", fill)
    return NodeLabel(f"{name} = {graph.formula(index)}", "", fill)


def _output_label(graph: EpilogueGraph, number: int) -> NodeLabel:
    """An output's name, type and shape; its value if that is a constant."""
    output = graph.outputs[number]
    kept = "".join(d for d in "bmn" if d not in output.reduced)
    what = "[m, n]"
    if output.reduction != TENSOR:
        what = f"{output.reduction} over {', '.join(output.reduced)}"
        what += f": [{', '.join(kept)}]" if kept else ""
    value = graph.nodes[output.node]
    constant = f"{graph.node_name(output.node)}, " if value.op == CONSTANT else ""
    return NodeLabel(output.name, f"{constant}{output.type}, {what}", GREEN)


def _paint_segment(to: Picture, segment: EdgeSegment) -> None:
    x, y, to_x, to_y = segment
    middle = (y + to_y) // 2
    curve = f"V{to_y}" if x == to_x else f"C{x} {middle} {to_x} {middle} {to_x} {to_y}"
    to.paint([f'<path d="M{x} {y}{curve}" fill="none" stroke="{LINE}"/>'])


def _paint_box(to: Picture, label: NodeLabel, box: Box) -> None:
    x, y = box.x, box.y
    to.rect(x, y, box.width, box.height, label.fill)
    middle = x + box.width / 2
    to.text(middle, y + 16, label.name, BOLD, anchor="middle", bold=bool(label.detail))
    if label.detail:
        to.text(middle, y + 29, label.detail, SMALL, anchor="middle", ink=FAINT)
