"""The fast path of calls with an epilogue: how their operands become arrays and scalars of one.

The key of a call holds the function's key (``function_key``), so a lambda that is created at each
call takes the fast path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...gemm.epilogue.graph import TENSOR, EpilogueGraph
from ..arrays.array_kind import Shape
from .alpha_beta import ScaleFactor, scale_factor
from .epilogue_request import RequestedEpilogue, is_scalar
from .fast_path import CallForm, D, FastCall, RepeatableCall, fast_call_for, scalar_name
from .prepared_call import PreparedCall
from .scaled.fast_scaled_call import is_gathered, unpacked

FACTORS = "c", "alpha", "beta"  # arguments of ``matmul`` that may be operands


class LaunchedEpilogue(NamedTuple):
    """A call with an epilogue that was launched. ``outputs``: all results, in the graph's order;
    ``in_place``: its arrays are in device memory.
    """

    requested: RequestedEpilogue
    prepared: PreparedCall
    outputs: Mapping[str, Any]
    in_place: bool

    @property
    def result(self) -> Any:
        """What ``matmul`` returns: D, or a dict."""
        graph = self.requested.graph
        return dict(self.outputs) if graph.named else self.outputs[graph.d.name]


def fast_matmul(
    call: LaunchedEpilogue, arguments: Sequence[Any], static: Any = None
) -> FastCall | None:
    """The fast path of ``matmul`` for calls like this one, with its ``arguments`` and ``static``:
    ``fast_call(a, b, c, out, alpha, beta, operands)``.
    """
    a, b, c, out, alpha, beta, operands = arguments
    if not call.in_place or is_gathered(*(b if isinstance(b, tuple | list) else (b,))):
        return None
    statements = ["if operands.keys() != names:", "    return None"]
    matrices = {"a": a, "b": b}
    if call.requested.b2 is not None:
        statements += ["if type(b) not in pair or len(b) != 2:", "    return None", "b, b2 = b"]
        matrices["b"], matrices["b2"] = b
    scaled = unpacked(matrices, call.requested.request.scales is not None, static=static)
    statements += scaled.statements
    matrices = scaled.data
    if out is not None:
        matrices[D] = out
    factors = dict(zip(FACTORS, (c, alpha, beta), strict=True))
    sources = {name: (f"operands[{name!r}]", x) for name, x in operands.items()}
    sources |= scaled.operands
    sources |= {name: (name, x) for name, x in factors.items() if name in call.requested.given}
    others = {name: x for name, x in factors.items() if name not in sources}
    constants = {f"default_{name}": x for name, x in others.items()}
    form = CallForm(
        f"a, b, c, {D}, alpha, beta, operands",
        tuple(statements),
        tuple(f"{name} is default_{name}" for name in others),
        constants | scaled.constants | {"names": frozenset(operands), "pair": (tuple, list)},
    )
    return fast_call_with_epilogue(call, form, matrices, sources)


def fast_call_with_epilogue(
    call: LaunchedEpilogue,
    form: CallForm,
    matrices: Mapping[str, Any],
    sources: Mapping[str, tuple[str, Any]],
    shape: Shape | None = None,
) -> FastCall | None:
    """The fast path for calls like this one, by the arguments of any function that makes them.

    ``form`` assigns A, B and D, which are ``matrices``, if the caller passed them; ``sources``: the
    expression and the value of each operand. The outputs have D's ``shape``, unless they are
    reductions. None for a function with an operand that it does not use or that is a default.
    """
    requested = call.requested
    graph, operands = requested.graph, requested.operands
    inputs = {source.name: f"x{i}" for i, source in enumerate(graph.inputs)}
    scalars = [source.name for source in graph.inputs if not source.varies]
    known = {*operands.static, *operands.scalars, *operands.arrays}
    if (
        not call.in_place
        or not known <= sources.keys()
        or not operands.scalars.keys() <= {*scalars}
    ):
        return None
    names = {name: inputs.get(name, f"unread_{name}") for name in operands.arrays}
    names |= {name: scalar_name(2 + scalars.index(name)) for name in operands.scalars}
    form = _with_static(form, operands.static, sources)
    in_memory = {*operands.arrays, *(n for n, x in operands.scalars.items() if x.address)}
    by_value = {names[name]: name for name in names if name not in in_memory}
    outputs = _outputs(requested, shape)
    arrays = {**matrices, **{names[name]: sources[name][1] for name in in_memory}}
    if D not in arrays:
        form = form._replace(conditions=(*form.conditions, f"{D} is None"))
    repeatable = RepeatableCall(
        call.prepared, arrays, outputs, frozenset(names[name] for name in operands.arrays),
        requested.scales, tuple(by_value), _factors(requested, by_value),
    )  # fmt: skip
    assigned = [f"{names[name]} = {sources[name][0]}" for name in names]
    form = form._replace(statements=(*form.statements, *assigned), result=_result(graph, outputs))
    return fast_call_for(repeatable, form)


def _with_static(
    form: CallForm, static: Mapping[str, Any], sources: Mapping[str, tuple[str, Any]]
) -> CallForm:
    """The form with a condition on each operand that is part of the kernel."""
    conditions, constants = [], {}
    for name, value in static.items():
        expression, constant = sources[name][0], f"static_{name}"
        constants[constant] = value
        same = f"{expression} is {constant}"
        if isinstance(value, str):
            same = f"type({expression}) is str and {expression} == {constant}"
        conditions.append(same)
    return form._replace(
        conditions=(*form.conditions, *conditions), constants={**form.constants, **constants}
    )


def _outputs(requested: RequestedEpilogue, shape: Shape | None) -> dict[str, tuple[Shape, str]]:
    """Shape and type of each output by the name of its address: D, the tensors, the reductions."""
    graph = requested.graph
    first = len(graph.inputs)
    others = [*graph.tensors[1:], *graph.reductions]
    outputs = {D: graph.d} | {f"x{i}": output for i, output in enumerate(others, first)}
    return {
        name: (shape if shape and o.reduction == TENSOR else requested.output_shape(o), o.type)
        for name, o in outputs.items()
    }


def _result(graph: EpilogueGraph, outputs: Mapping[str, Any]) -> str:
    """The source text of the result."""
    if not graph.named:
        return str(D)
    ordered = [*graph.tensors, *graph.reductions]
    names = {o.name: name for o, name in zip(ordered, outputs, strict=True)}
    return "{" + ", ".join(f"{o.name!r}: {names[o.name]}" for o in graph.outputs) + "}"


def _factors(
    requested: RequestedEpilogue, by_value: Mapping[str, str]
) -> Callable[..., Sequence[ScaleFactor] | None]:
    """All factors from the values of the scalars ``by_value``, which maps their names to the
    function's; None for other values than numbers and one-element arrays on the CPU.
    """
    recorded, where = requested.scales, requested.device
    dtype = requested.request.scale_dtype
    positions = [int(name[1:]) for name in by_value]

    def factors(*values: Any) -> Sequence[ScaleFactor] | None:
        scales = list(recorded)
        for position, name, value in zip(positions, by_value.values(), values, strict=True):
            if not is_scalar(value, dtype):
                return None
            scales[position] = scale_factor(name, value, where, dtype)
            if scales[position].address:
                return None
        return scales

    return factors
