"""The gradients of an operation's operands, from that of its result: the rule of each operation of
epilogue graphs, and of each function for epilogues whose derivative is better known than that of
its operations.

Ties of extremes share the gradient, as torch's do. A rounding passes it on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..functions import exponentials, gradients, selection
from ..graph import ROUND
from ..tracing import TracedValue, apply

LN_2 = 0.6931471805599453
_TWO_OVER_ROOT_PI = 1.1283791670955126
where = selection.where

Gradients = tuple[Any, ...]
OperationRule = Callable[..., Gradients]
"""``rule(gradient, result, *operands)``: the gradient of each operand, None for none."""


def _extreme(above: str) -> OperationRule:
    def rule(g: Any, _: Any, a: Any, b: Any) -> Gradients:
        half = where(apply("eq", a, b), g * 0.5, 0.0)
        return (
            where(apply(above, a, b), g, half),
            where(apply(above, b, a), g, half),
        )

    return rule


def _copysign(g: Any, _: Any, sign: Any, x: Any) -> Gradients:
    g = where(x < 0, -g, g)
    return None, where(sign < 0, -g, g)


OPERATION_RULES: dict[str, OperationRule] = {
    "add": lambda g, y, a, b: (g, g),
    "sub": lambda g, y, a, b: (g, -g),
    "mul": lambda g, y, a, b: (g * b, g * a),
    "fma": lambda g, y, a, b, c: (g * b, g * a, g),
    "div": lambda g, y, a, b: (g / b, -(g * y) / b),
    "sqrt": lambda g, y, x: (g * 0.5 / y,),
    "rcp": lambda g, y, x: (-(g * y) * y,),
    "neg": lambda g, y, x: (-g,),
    "abs": lambda g, y, x: (where(x > 0, g, where(x < 0, -g, 0.0)),),
    "copysign": _copysign,
    "min": _extreme("lt"),
    "min_nan": _extreme("lt"),
    "max": _extreme("gt"),
    "max_nan": _extreme("gt"),
    "exp2_approx": lambda g, y, x: (g * (y * LN_2),),
    "log2_approx": lambda g, y, x: (g * (1 / LN_2) * _inverse(x),),
    "tanh_approx": lambda g, y, x: (g * (1.0 - y * y),),
    "rcp_approx": lambda g, y, x: (-(g * y) * y,),
    "rsqrt_approx": lambda g, y, x: (g * y * y * y * -0.5,),
    "sqrt_approx": lambda g, y, x: (g * 0.5 * _inverse(y),),
    "select": lambda g, y, condition, a, b: (
        None, where(condition, g, 0.0), where(condition, 0.0, g),
    ),
    "to_f64": lambda g, y, x: (apply("round_f32", g),),
    "round_f32": lambda g, y, x: (apply("to_f64", g),),
    ROUND: lambda g, y, x: (g,),
}  # fmt: skip


def _inverse(x: Any) -> Any:
    return selection.reciprocal(x, approximate=True)


FunctionRule = Callable[[TracedValue, TracedValue, Mapping[str, Any]], dict[str, Any]]
"""``rule(gradient, result, arguments)``: the gradients of arguments, by name."""


def _gelu_form(arguments: Mapping[str, Any]) -> str:
    """Of the derivative: that of tanh by its approximation is that of the tanh form."""
    return "none" if arguments["approximate"] == "none" else "tanh"


def _leaky(g: Any, _: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    x, slope = arguments["x"], arguments["negative_slope"]
    found = {"x": where(x > 0, g, g * slope)}
    return found | ({"negative_slope": where(x > 0, 0.0, g * x)} if _traced(slope) else {})


def _clamp(g: Any, _: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Within the limits, and at them, x has the gradient."""
    x, found = arguments["x"], {}
    for name, beyond in (("min", "lt"), ("max", "gt")):
        limit = arguments[name]
        if limit is not None:
            outside = apply(beyond, x, limit)
            if _traced(limit):
                found[name] = where(outside, g, 0.0)
            g = where(outside, 0.0, g)
    return {"x": g, **found}


def _pair(function: Callable[..., Any]) -> FunctionRule:
    def rule(g: Any, _: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        form = {"approximate": _gelu_form(arguments)} if function is gradients.dgeglu else {}
        found = function(g, arguments["gate"], arguments["up"], **form)
        return dict(zip(("gate", "up"), found, strict=True))

    return rule


def _of_x(derivative: Callable[..., Any]) -> FunctionRule:
    return lambda g, y, arguments: {"x": derivative(g, y, arguments["x"])}


FUNCTION_RULES: dict[str, FunctionRule] = {
    "relu": _of_x(lambda g, y, x: where(x <= 0, 0.0, g)),
    "relu6": _of_x(lambda g, y, x: where((x > 0) & (x < 6), g, 0.0)),
    "leaky_relu": _leaky,
    "clamp": _clamp,
    "hardsigmoid": _of_x(lambda g, y, x: gradients.dhardsigmoid(g, x)),
    "hardswish": _of_x(lambda g, y, x: gradients.dhardswish(g, x)),
    "sign": lambda g, y, arguments: {},
    "sigmoid": _of_x(lambda g, y, x: gradients.dsigmoid(g, x)),
    "tanh": _of_x(lambda g, y, x: gradients.dtanh(g, x)),
    "softplus": lambda g, y, a: {"x": gradients.dsoftplus(g, a["x"], a["beta"])},
    "silu": _of_x(lambda g, y, x: gradients.dsilu(g, x)),
    "gelu": lambda g, y, a: {"x": gradients.dgelu(g, a["x"], _gelu_form(a))},
    "swiglu": _pair(gradients.dswiglu),
    "geglu": _pair(gradients.dgeglu),
    "exp": _of_x(lambda g, y, x: g * y),
    "exp2": _of_x(lambda g, y, x: g * (y * LN_2)),
    "log": _of_x(lambda g, y, x: g * selection.reciprocal(x)),
    "log2": _of_x(lambda g, y, x: g * (1 / LN_2) * selection.reciprocal(x)),
    "erf": _of_x(lambda g, y, x: g * (exponentials.exp(-(x * x)) * _TWO_OVER_ROOT_PI)),
}


def _traced(x: Any) -> bool:
    return isinstance(x, TracedValue)
