"""The two epilogues of a call that records a gradient: one that also stores the accumulators, and
the backward one, which computes the gradients of accumulators and operands from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, Signature
from typing import Any, NamedTuple

from ..functions import reduction_outputs
from ..graph import INDEX
from ..traced_reduction import TracedReduction
from ..tracing import Epilogue, TracedValue, cast, constant, epilogue_key, epilogue_with_key
from ..user_function.function_signature import epilogue_signature
from .reverse_mode import pulled_back

ACCUMULATORS = ("saved_accumulator", "saved_accumulator_2")
"""The names of the outputs that are the accumulators."""
VALUE, GRADIENT, OPERAND = "value_of_", "gradient_of_", "operand_"
"""What begins the names of the backward epilogue's operands: stored accumulators, gradients of
outputs, operands; and of its outputs, which are gradients."""


@dataclass
class TracedOutputs:
    """What is known of a function once it was traced: whether it returns a dict, whether it reads
    an element's index; the dimensions along which each output is a sum, "" for a value of each
    element, None for what has no gradient.
    """

    named: bool = False
    indexed: bool = False
    sums: dict[str, str | None] = field(default_factory=dict)


def with_accumulators(
    function: Epilogue, count: int, type_: str, case: Any
) -> tuple[Epilogue, TracedOutputs]:
    """The function with its ``count`` accumulators as further outputs, stored in a type; and what
    is known of it once this epilogue was traced. ``case``: what else the outputs depend on.
    """
    own = epilogue_key(function)
    key = None if own is None else (own, count, type_, case)
    if key in _SAVING:
        return _SAVING[key]
    traced = TracedOutputs()

    def saving(*accumulators: TracedValue, **operands: Any) -> dict[str, Any]:
        result = function.function(*accumulators, **operands)
        outputs = _outputs(result)
        traced.named = isinstance(result, Mapping)
        traced.indexed = any(node.op == INDEX for node in accumulators[0].builder.nodes)
        traced.sums = {name: _summed(x) for name, x in outputs.items()}
        names = zip(ACCUMULATORS, accumulators, strict=False)
        return outputs | {name: cast(x, type_) for name, x in names}

    parameters = list(epilogue_signature(function.function).values())
    positional = [Parameter(p.name, Parameter.POSITIONAL_OR_KEYWORD) for p in parameters[:count]]
    keywords = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in parameters[count:]]
    made = _made(saving, [*positional, *keywords], key and ("saving", *key)), traced
    if key is not None:
        if len(_SAVING) >= _MOST:
            _SAVING.clear()
        _SAVING[key] = made
    return made


_SAVING: dict[Any, tuple[Epilogue, TracedOutputs]] = {}
_MOST = 256


def _outputs(result: Any) -> dict[str, Any]:
    return dict(result) if isinstance(result, Mapping) else {"d": result}


def _summed(output: Any) -> str | None:
    if not isinstance(output, TracedReduction):
        return ""
    return output.reduced if output.reduction == "sum" else None


class Wanted(NamedTuple):
    """A gradient that the backward epilogue computes: of an operand, or of an accumulator.
    ``type_``: of the stored gradient; ``axis``: along which the operand is broadcast, as of a
    reduction, () for a gradient of D's shape.
    """

    name: str
    type_: str
    axis: tuple[int, ...] = ()


def backward_epilogue(
    function: Epilogue, outputs: tuple[str, ...], operands: tuple[str, ...],
    accumulators: int, wanted: tuple[Wanted, ...],
) -> Epilogue:  # fmt: skip
    """The epilogue of the gradients ``wanted``, which do not depend on its own accumulator.
    ``outputs``: those of ``function`` whose gradients are operands; ``operands``: of ``function``.
    """
    saved = ACCUMULATORS[:accumulators]

    def backward(acc: Any, **given: Any) -> dict[str, Any]:
        own = {name: given[OPERAND + name] for name in operands}
        values_of = {name: given[VALUE + name] for name in saved}
        sources = own | values_of
        values = _outputs(function.function(*values_of.values(), **own))
        found = pulled_back((_value(values[name]), given[GRADIENT + name]) for name in outputs)
        zero = constant(acc.builder, 0.0, acc.dtype)
        return {
            GRADIENT + w.name: _stored(w, found.get(sources[w.name].index, zero)) for w in wanted
        }

    pairs = (VALUE, saved), (GRADIENT, outputs), (OPERAND, operands)
    names = [prefix + name for prefix, group in pairs for name in group]
    parameters = [Parameter("acc", Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    key = epilogue_key(function), "backward", outputs, operands, accumulators, wanted
    return _made(backward, parameters, None if key[0] is None else key)


def _value(output: TracedValue | TracedReduction) -> TracedValue:
    """The value of each element of D. What a sum adds up has the gradient of the sum."""
    return output.value if isinstance(output, TracedReduction) else output


def _stored(wanted: Wanted, gradient: TracedValue) -> Any:
    if wanted.axis:
        return reduction_outputs.sum(gradient, wanted.axis)
    return cast(gradient, wanted.type_)


def _made(function: Callable[..., Any], parameters: Sequence[Parameter], key: Any) -> Epilogue:
    """An epilogue of a function with these parameters."""
    function.__signature__ = Signature(list(parameters))  # type: ignore[attr-defined]
    return epilogue_with_key(function, key)
