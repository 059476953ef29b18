"""The elementwise functions of epilogues as rows: a call, its f64 formula, its operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.gemm.epilogue.functions import activations, exponentials, gradients, selection
from tilewright.gemm.epilogue.graph import SOURCES, EpilogueGraph, EpilogueOutput, GraphBuilder
from tilewright.gemm.epilogue.tracing import TracedValue

Array = npt.NDArray[Any]
Function = Callable[..., Any]


@dataclass(frozen=True)
class FunctionRow:
    """A function of ``arity`` values; ``formula``: the same in f64. ``operations``: how many PTX
    operations an element takes, ``mufu``: how many of them on the multi-function unit. The error in
    the normal range is at most ``ulp`` units in the last place or ``absolute``.
    """

    name: str
    function: Function
    formula: Function | None
    operations: int
    mufu: int = 0
    ulp: float = 0
    absolute: float = 0
    arity: int = 1


def _vectorised(function: Callable[[float], float]) -> Function:
    def evaluate(x: Array) -> Array:
        return np.array([function(v) for v in np.ravel(x)]).reshape(np.shape(x))

    return evaluate


erf, erfc = _vectorised(math.erf), _vectorised(math.erfc)


def sigmoid(x: Array) -> Array:
    e = np.exp(-abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def normal(x: Array) -> Array:
    """The distribution function Φ."""
    tail = erfc(abs(x) / math.sqrt(2)) / 2
    return np.where(x < 0, tail, 1 - tail)


def gelu_tanh(x: Array) -> Array:
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))


def _row(function: Function, *more: Any, **named: Any) -> FunctionRow:
    return FunctionRow(function.__name__, function, *more, **named)


def _variant(name: str, function: Function, *more: Any, **named: Any) -> FunctionRow:
    options = {k: named.pop(k) for k in ("approximate", "negative_slope") if k in named}
    return FunctionRow(name, partial(function, **options), *more, **named)


ex, act, sel, grad = exponentials, activations, selection, gradients
UNARY = [
    _row(ex.exp, np.exp, 8, 1, ulp=3),
    _variant("exp ~", ex.exp, np.exp, 2, 1, approximate=True, ulp=70),
    _row(ex.exp2, np.exp2, 1, 1, ulp=2.5),
    _row(ex.log, np.log, 15, 1, ulp=5),
    _variant("log ~", ex.log, np.log, 2, 1, approximate=True, absolute=2**-16),
    _row(ex.log2, np.log2, 15, 1, ulp=4),
    _variant("log2 ~", ex.log2, np.log2, 1, 1, approximate=True, absolute=2**-16),
    _row(ex.tanh, np.tanh, 15, 2, ulp=2),
    _variant("tanh ~", ex.tanh, np.tanh, 1, 1, approximate=True, ulp=140),
    _row(ex.erf, erf, 19, 1, ulp=3),
    _row(ex.sigmoid, sigmoid, 4, 2, ulp=5, absolute=2**-24),
    _variant("sigmoid ~", ex.sigmoid, sigmoid, 3, 1, approximate=True, absolute=2**-17),
    _row(ex.softplus, softplus, 13, 1, ulp=4, absolute=2**-24),
    _row(act.relu, lambda x: np.maximum(x, 0), 1, ulp=0.5),
    _row(act.relu6, lambda x: np.clip(x, 0, 6), 2, ulp=0.5),
    _row(act.leaky_relu, lambda x: np.where(x > 0, x, x * 0.01), 2, ulp=1),
    _variant("steep leaky_relu", act.leaky_relu, lambda x: np.where(x > 0, x, x * 2), 3,
             negative_slope=2.0, ulp=1),
    _row(act.hardsigmoid, lambda x: np.clip(x + 3, 0, 6) / 6, 4, absolute=2**-23),
    _row(act.hardswish, lambda x: x * (np.clip(x + 3, 0, 6) / 6), 5, ulp=3),
    _row(act.silu, lambda x: x * sigmoid(x), 6, 2, ulp=5, absolute=2**-24),
    _variant("silu ~", act.silu, lambda x: x * sigmoid(x), 4, 1, approximate=True, ulp=140,
             absolute=2**-16),
    _row(act.gelu, lambda x: x * normal(x), 14, 1, ulp=14, absolute=2**-22),
    _variant("gelu tanh", act.gelu, gelu_tanh, 8, 2, approximate="tanh", ulp=3,
             absolute=2**-24),
    _variant("gelu fast_tanh", act.gelu, gelu_tanh, 7, 1, approximate="fast_tanh",
             absolute=2**-17),
    _row(sel.absolute, abs, 1, ulp=0.5),
    _row(sel.sign, np.sign, 4, ulp=0.5),
    _row(sel.sqrt, np.sqrt, 1, ulp=0.5),
    _variant("sqrt ~", sel.sqrt, np.sqrt, 1, 1, approximate=True, ulp=1),
    _row(sel.rsqrt, lambda x: 1 / np.sqrt(x), 1, 1, ulp=1.5),
    _row(sel.reciprocal, lambda x: 1 / x, 1, ulp=0.5),
    _variant("reciprocal ~", sel.reciprocal, lambda x: 1 / x, 1, 1, approximate=True, ulp=1),
]  # fmt: skip
SEVERAL = [
    _row(sel.maximum, np.maximum, 1, arity=2),
    _row(sel.minimum, np.minimum, 1, arity=2),
    _row(sel.copysign, np.copysign, 1, arity=2),
    _row(sel.fma, lambda x, y, z: x * y + z, 1, arity=3),
    _row(sel.clamp, lambda x, y, z: np.minimum(np.maximum(x, y), z), 2, arity=3),
    FunctionRow("prelu", act.leaky_relu, lambda x, y: np.where(x > 0, x, x * y), 3, arity=2),
    _row(act.swiglu, None, 7, 2, arity=2),
    _row(act.geglu, None, 15, 1, arity=2),
    _row(grad.drelu, None, 2, arity=2),
    _row(grad.drelu6, None, 4, arity=2),
    _row(grad.dleaky_relu, None, 3, arity=2),
    _row(grad.dsigmoid, None, 8, 2, arity=2),
    _row(grad.dtanh, None, 8, 2, arity=2),
    _row(grad.dsoftplus, None, 5, 2, arity=2),
    _row(grad.dhardsigmoid, None, 4, arity=2),
    _row(grad.dhardswish, None, 6, arity=2),
    _row(grad.dsilu, None, 10, 2, arity=2),
    _row(grad.dswiglu, None, 12, 2, arity=3),
    _row(grad.dgelu, None, 20, 2, arity=2),
    _variant("dgelu tanh", grad.dgelu, None, 14, 2, approximate="tanh", arity=2),
    _row(grad.dgeglu, None, 24, 2, arity=3),
    _variant("dgeglu tanh", grad.dgeglu, None, 17, 2, approximate="tanh", arity=3),
]


def graph_of(rows: list[FunctionRow]) -> EpilogueGraph:
    """One graph with an output for each result of these functions. The first operand is the
    accumulator, the others are inputs ``x1`` and ``x2``.
    """
    builder = GraphBuilder()
    sources = [("accumulator", ()), *(("load", (f"x{i}", "f32", "mn")) for i in (1, 2))]
    operands = [TracedValue(builder, builder.add(op, "f32", (), a)) for op, a in sources]
    outputs = []
    for row in rows:
        result = row.function(*operands[: row.arity])
        for i, x in enumerate(result if isinstance(result, tuple) else (result,)):
            outputs.append(EpilogueOutput(f"f{len(outputs)}_{i}", x.index, x.dtype))
    return builder.graph(tuple(outputs))


def operation_count(graph: EpilogueGraph) -> tuple[int, int]:
    """The operations of a graph, and those that are approximations."""
    names = [node.op for node in graph.nodes if node.op not in SOURCES]
    return len(names), sum(name.endswith("_approx") for name in names)
