"""Functions of each element: of traced values in an epilogue, of arrays and numbers outside of one.

``elementwise`` decorates a function that composes graph operations. Called with traced values it
adds nodes. Called with arrays or numbers it is traced once to a graph of its own, which NumPy
evaluates: the bits are those of a kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from numbers import Real
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt

from ....dtypes import from_numpy
from ....errors import EpilogueError
from ..graph import LOAD, ROUND, EpilogueOutput, FunctionCall, GraphBuilder
from ..reference import compute_type, evaluate
from ..traced_reduction import TracedReduction
from ..tracing import TracedValue, apply, convert

Array = npt.NDArray[Any]
P = ParamSpec("P")
_UNCHANGED = ("float32", "int32", "uint32", "bool")


def elementwise(function: Callable[P, Any]) -> Callable[P, Any]:
    """Let a function of traced values take arrays and numbers, too.

    Parameters without a default are values; any other is a value if it is an array. Arrays
    broadcast. Floats are computed in f32, and so are integers other than s32 and u32.
    """
    return static()(function)


def static(*names: str) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    """``elementwise`` for a function whose parameters of these names are values only if they are
    arrays.
    """

    def decorate(function: Callable[P, Any]) -> Callable[P, Any]:
        signature = inspect.signature(function)
        parameters = signature.parameters.values()
        values = {p.name for p in parameters if p.default is p.empty}.difference(names)

        @wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> Any:
            traced = [x for x in (*args, *options.values()) if isinstance(x, TracedValue)]
            if not traced:
                return _evaluated(function, signature.bind(*args, **options).arguments, values)
            made = function(*args, **options)
            if isinstance(made, TracedValue) and all(x.index != made.index for x in traced):
                bound = signature.bind(*args, **options)
                bound.apply_defaults()
                called = FunctionCall(function.__name__, bound.arguments)
                made.builder.calls[made.index] = called
            return made

        return call

    return decorate


def _is_value(x: Any, required: bool) -> bool:
    return hasattr(x, "__array__") or (required and isinstance(x, Real))


def _evaluated(function: Callable[..., Any], arguments: dict[str, Any], values: set[str]) -> Any:
    """The function of these arguments by NumPy: an array, or a tuple of arrays."""
    for name, x in arguments.items():
        if name not in values and isinstance(x, np.generic):
            arguments[name] = x.item()
    operands = {n: x for n, x in arguments.items() if _is_value(x, n in values)}
    if not operands:
        return function(**arguments)
    builder = GraphBuilder()
    arrays = {name: _operand(x) for name, x in operands.items()}
    for name, array in arrays.items():
        type_ = from_numpy(array.dtype).name
        node = builder.add(LOAD, compute_type(type_), (), (name, type_, "bmn"))
        arguments[name] = TracedValue(builder, node)
    result = function(**arguments)
    results = result if isinstance(result, tuple) else (result,)
    outputs = tuple(_output(builder, str(i), x) for i, x in enumerate(results))
    shape = np.broadcast_shapes(*(a.shape for a in arrays.values()))
    accumulator = np.broadcast_to(np.float32(0), shape or (1,))
    named = evaluate(builder.graph(outputs), accumulator, arrays)
    got = [np.array(named[o.name]) for o in outputs]
    if not shape:
        got = [array.reshape(())[()] for array in got]
    return tuple(got) if isinstance(result, tuple) else got[0]


def _operand(x: Any) -> Array:
    """An array of a type that inputs of epilogues have; f64 and other integers become f32."""
    array = np.asarray(x)
    if array.dtype.name in _UNCHANGED:
        return array
    if array.dtype.kind in "fiu" and array.dtype.name not in ("float16", "int8", "uint8"):
        return array.astype(np.float32)
    return array


def _output(builder: GraphBuilder, name: str, x: Any) -> EpilogueOutput:
    if isinstance(x, TracedReduction):
        return EpilogueOutput(name, x.value.index, x.value.dtype, x.reduction, x.reduced)
    node = builder.nodes[x.index]
    type_ = str(node.attributes[0]) if node.op == ROUND else node.type
    return EpilogueOutput(name, x.index, type_)


def single(x: Any, function: str) -> Any:
    """A value as f32, for functions that are computed in f32: integers are converted.

    Raises EpilogueError for an f64 value and for a condition.
    """
    if not isinstance(x, TracedValue) or x.dtype == "f32":
        return x
    if x.dtype in ("s32", "u32"):
        return convert(x.builder, x, "f32")
    hint = "cast(x, 'f32') rounds it" if x.dtype == "f64" else "where(x, 1.0, 0.0) is a number"
    raise EpilogueError(f"{function} is computed in f32, got a value of {x.dtype}", hint=hint)


def polynomial(x: TracedValue, coefficients: tuple[float, ...]) -> TracedValue:
    """c₀ + x (c₁ + x (c₂ + …)), an FMA for each coefficient but one."""
    value = apply("fma", coefficients[-1], x, coefficients[-2])
    for coefficient in coefficients[-3::-1]:
        value = apply("fma", value, x, coefficient)
    return value
