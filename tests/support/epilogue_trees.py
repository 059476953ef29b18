"""Random epilogue trees: recipes of numbers that any epilogue function can be built from.

A recipe is a list of steps; a step is four numbers that choose an operation of ``OPERATIONS`` (or a
cast, an index) and its operands among the values so far, the newest first. Every list of numbers is
a valid recipe, so hypothesis can shrink it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilewright.gemm.epilogue import tracing
from tilewright.gemm.epilogue.graph import GraphBuilder
from tilewright.gemm.epilogue.operations import OPERATIONS
from tilewright.gemm.epilogue.tracing import TracedReduction, TracedValue, apply, cast, constant

Step = tuple[int, int, int, int]
CASTS = ("f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f32", "s32")
STORED = (*CASTS, "")  # types of tensor outputs; "": the default of D
INDICES = ("row", "column", "batch")
UNMODELLED = [("copysign", "f64")]  # the sign of a NaN of f64
NODES = [(n, t) for n, row in OPERATIONS.items() for t in row.opcodes if (n, t) not in UNMODELLED]
NODES += [("cast", t) for t in CASTS] * 3 + [("index", d) for d in INDICES] * 2
CONSTANTS: dict[str, tuple[Any, ...]] = {
    "f32": (0.0, 1.0, -0.0, -1.5, 0.1, 448.0, 1e-40, 3e38, float("inf"), float("nan")),
    "s32": (0, 1, -1, 7, 127, -(2**31), 2**31 - 1),
    "u32": (0, 1, 3, 255, 0x80000000, 0xFFFFFFFF),
    "f64": (0.0, 1.0, -0.5, 1e300, 1e-310, float("inf")),
    "pred": (True, False),
}
DIMENSIONS = ("n", "m", "mn", "b", "bn", "bm", "bmn")


class OutputChoice(NamedTuple):
    """Which value is an output (the newest is 0), its storage type; ``reduced``: the dimensions of
    a reduction, empty for a tensor.
    """

    value: int
    type: str
    reduced: str = ""
    reduction: str = "max"


@dataclass(frozen=True)
class Recipe:
    """An epilogue function of ``accumulators`` and ``inputs`` operands, x0, x1, …"""

    steps: tuple[Step, ...]
    outputs: tuple[OutputChoice, ...]
    inputs: int
    accumulators: int = 1

    def function(self) -> Any:
        """A Python function that builds the tree."""

        def built(*accs: TracedValue, **operands: TracedValue) -> dict[str, Any]:
            ordered = [operands[f"x{i}"] for i in range(self.inputs)]
            values = grown([*accs, *ordered], self.steps)
            return {f"y{i}": _output(values, choice) for i, choice in enumerate(self.outputs)}

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        names = [f"acc{i}" for i in range(self.accumulators)]
        names += [f"x{i}" for i in range(self.inputs)]
        parameters = [inspect.Parameter(name, kind) for name in names]
        built.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return built


def grown(sources: Sequence[TracedValue], steps: Sequence[Step]) -> list[TracedValue]:
    """The sources and the value of each step."""
    values = list(sources)
    for step in steps:
        values.append(_step(values, step))
    return values


def _step(values: list[TracedValue], step: Step) -> TracedValue:
    choice, *picks = step
    name, type_ = NODES[choice % len(NODES)]
    if name == "index":
        return tracing.index(values[0], type_)
    if name == "cast":
        return stored_as(_picked(values, picks[0]), type_)
    row = OPERATIONS[name]
    operands: list[Any] = []
    if row.condition:
        operands.append(as_type(_picked(values, picks[2]), "pred"))
    for i in range(row.arity - row.condition):
        operands.append(_operand(values, picks[i], type_, i > 0))
    return _rounded(*operands) if name == "round_f32" else apply(name, *operands)


def _operand(values: list[TracedValue], pick: int, type_: str, may_be_constant: bool) -> Any:
    if may_be_constant and pick % 5 == 4:
        choices = CONSTANTS[type_]
        number = choices[pick // 5 % len(choices)]
        return constant(values[0].builder, number, type_)
    return as_type(_picked(values, pick), type_)


def _picked(values: list[TracedValue], pick: int) -> TracedValue:
    """The newest value is picked most often."""
    return values[-1 - pick // 2 % len(values)] if pick % 2 else values[-1]


def as_type(x: TracedValue, type_: str) -> TracedValue:
    """A value as another compute type, by the nodes that convert."""
    if x.dtype == type_:
        return x
    if type_ == "pred":
        return apply("gt", x, 0)
    if x.dtype == "pred":
        return as_type(apply("select", x, 1.0, 0.0), type_)
    if type_ == "f32":
        return _rounded(x) if x.dtype == "f64" else apply("to_f32", x)
    if type_ == "u32":
        return apply("bits", x if x.dtype == "s32" else as_type(x, "f32"))
    return apply(f"to_{type_}", as_type(x, "f32") if x.dtype == "u32" else x)


def _rounded(x: TracedValue) -> TracedValue:
    """A value of f64 as f32, a NaN as the canonical one, since those of f64 are not modelled."""
    return apply("min_nan", apply("round_f32", x), float("inf"))


def _output(values: list[TracedValue], choice: OutputChoice) -> Any:
    x = values[-1 - choice.value % len(values)]
    if choice.reduced:
        return TracedReduction(as_type(x, "f32"), choice.reduction, choice.reduced)
    if choice.type:
        return stored_as(x, choice.type)
    return as_type(x, "f32") if x.dtype in ("pred", "f64") else x


def stored_as(x: TracedValue, type_: str) -> TracedValue:
    """A value rounded to a storage type."""
    kept = x.dtype == "s32" or (x.dtype == "f64" and type_ == "s32")
    return cast(x if kept else as_type(x, "f32"), type_)


def one_graph(recipes: Sequence[Sequence[Step]], types: Sequence[str]) -> Any:
    """(builder, outputs as traced values) of many recipes of the same accumulator and inputs of
    ``types``, f32 accumulator first.
    """
    builder = GraphBuilder()
    sources = [TracedValue(builder, builder.add("accumulator", types[0]))]
    for i, type_ in enumerate(types[1:]):
        node = builder.add("load", type_, (), (f"x{i}", type_, "mn"))
        sources.append(TracedValue(builder, node))
    return builder, [grown(sources, steps)[-1] for steps in recipes]
