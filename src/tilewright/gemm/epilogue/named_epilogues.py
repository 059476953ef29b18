"""CUTLASS's named epilogues, as functions that return an ``Epilogue``.

Their operands are called ``alpha``, ``beta``, ``c`` and ``bias``, as in ``matmul``: a number or one
element is a scalar, (N,) a value for each column, (M, 1) a value for each row. CUTLASS reads a bias
for each row or column by the layout of the problem; here the shape of the operand says it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from ...dtypes import DType
from ...errors import EpilogueError
from .functions import activations, exponentials, selection
from .tracing import Epilogue, apply, cast

Activation = Callable[..., Any]
OutputType = str | DType | None


class ScaleType(Enum):
    """CUTLASS's ``epilogue::thread::ScaleType``: which of α, β and C a linear combination has."""

    DEFAULT = "Default"  # α acc + β C
    NO_BETA_SCALING = "NoBetaScaling"  # α acc + C
    ONLY_ALPHA_SCALING = "OnlyAlphaScaling"  # α acc
    PER_CHANNEL_SCALING = "PerChannelScaling"  # as Default, α and β vectors
    ONLY_ALPHA_PER_CHANNEL_SCALING = "OnlyAlphaPerChannelScaling"  # α acc, α a vector
    NOTHING = "Nothing"  # acc


def _identity(x: Any) -> Any:
    return x


def gelu_taylor(x: Any) -> Any:
    """CUTLASS's GELU_taylor: ``gelu`` by ``tanh.approx``."""
    return activations.gelu(x, "fast_tanh")


ACTIVATIONS: dict[str, Activation] = {
    "Identity": _identity,
    "ReLu": activations.relu,
    "LeakyReLU": activations.leaky_relu,
    "Tanh": exponentials.tanh,
    "Sigmoid": exponentials.sigmoid,
    "SiLu": activations.silu,
    "HardSwish": activations.hardswish,
    "GELU": activations.gelu,
    "GELU_taylor": gelu_taylor,
}

BINARY_OPERATIONS: dict[str, Activation] = {
    "plus": lambda x, y: x + y,
    "minus": lambda x, y: x - y,
    "multiplies": lambda x, y: x * y,
    "divides": lambda x, y: x / y,
    "maximum": selection.maximum,
    "minimum": selection.minimum,
}


def linear_combination(
    scale: ScaleType | str = ScaleType.DEFAULT,
    activation: Activation | str = "Identity",
    dtype: OutputType = None,
) -> Epilogue:
    """CUTLASS's LinearCombination and, with an activation, LinearCombinationRelu, …Gelu, …SiLU,
    …Sigmoid, …HardSwish, …Generic: D = activation(α acc + β C).

    The scale decides the operands: ``alpha``, ``beta`` and ``c`` for Default and PerChannelScaling
    (β C is one FMA's product), ``alpha`` and ``c`` for NoBetaScaling, ``alpha`` for the two
    OnlyAlpha…, none for Nothing. ``activation``: a function, or a name of ``ACTIVATIONS``.
    ``dtype``: the type to which D is cast. Raises EpilogueError for an unknown name.
    """
    combine = _COMBINATIONS[_scale_type(scale)]
    function = _activation(activation)
    scaled = _with_result(combine, lambda x: _result(function(x), dtype))
    return _named(scaled, "linear_combination")


def linear_combination_bias(
    activation: Activation | str = "Identity", dtype: OutputType = None
) -> Epilogue:
    """CUTLASS's LinearCombinationBias: D = activation(α acc + β C + bias)."""
    function = _activation(activation)

    def epilogue(acc: Any, c: Any, bias: Any, alpha: Any = 1.0, beta: Any = 1.0) -> Any:
        return _result(function(_default(acc, c, alpha, beta) + bias), dtype)

    return _named(epilogue, "linear_combination_bias")


def linear_combination_bias_relu(dtype: OutputType = None) -> Epilogue:
    """CUTLASS's LinearCombinationBiasRelu: D = max(α acc + β C + bias, 0)."""
    return linear_combination_bias("ReLu", dtype)


def bias_activation(
    activation: Activation | str = "ReLu", dtype: OutputType = None, *, store_t: bool = False
) -> Epilogue:
    """CUTLASS 3's LinCombPerRowBiasEltAct and …PerColBiasEltAct without C: D = activation(α acc +
    bias). ``store_t``: the sum before the activation is an output ``t``, too (…BiasEltActAux).
    """
    function = _activation(activation)

    def epilogue(acc: Any, bias: Any, alpha: Any = 1.0) -> Any:
        t = apply("fma", alpha, acc, bias)
        d = _result(function(t), dtype)
        return {"d": d, "t": t} if store_t else d

    return _named(epilogue, "bias_activation")


def linear_combination_bias_elementwise(
    activation: Activation | str = "Identity",
    binary: Activation | str = "plus",
    dtype: OutputType = None,
    *,
    store_t: bool = False,
) -> Epilogue:
    """CUTLASS's LinearCombinationBiasElementwise: D = activation(binary(α acc + β C, bias)).

    ``binary``: a function of two values, or a name of ``BINARY_OPERATIONS``. ``store_t``: the
    argument of the activation is an output ``t``, too. Raises EpilogueError for an unknown name.
    """
    function, combine = (
        _activation(activation),
        _named_function("binary", binary, BINARY_OPERATIONS),
    )

    def epilogue(acc: Any, c: Any, bias: Any, alpha: Any = 1.0, beta: Any = 1.0) -> Any:
        t = combine(_default(acc, c, alpha, beta), bias)
        d = _result(function(t), dtype)
        return {"d": d, "t": t} if store_t else d

    return _named(epilogue, "linear_combination_bias_elementwise")


def per_row_linear_combination(
    activation: Activation | str = "Identity", dtype: OutputType = None
) -> Epilogue:
    """CUTLASS's PerRowLinCombPerRowBiasEltAct: D = activation(α acc + β C + bias), where α, β and
    the bias are arrays of shape (M, 1). Arrays of shape (N,) make it PerColLinComb….
    """
    epilogue = linear_combination_bias(activation, dtype)
    return _named(epilogue.function, "per_row_linear_combination")


# --- the combinations ---------------------------------------------------------------------------


def _default(acc: Any, c: Any, alpha: Any = 1.0, beta: Any = 1.0) -> Any:
    return apply("fma", alpha, acc, beta * c)


def _no_beta(acc: Any, c: Any, alpha: Any = 1.0) -> Any:
    return apply("fma", alpha, acc, c)


def _only_alpha(acc: Any, alpha: Any = 1.0) -> Any:
    return alpha * acc


_COMBINATIONS: dict[ScaleType, Callable[..., Any]] = {
    ScaleType.DEFAULT: _default,
    ScaleType.NO_BETA_SCALING: _no_beta,
    ScaleType.ONLY_ALPHA_SCALING: _only_alpha,
    ScaleType.PER_CHANNEL_SCALING: _default,
    ScaleType.ONLY_ALPHA_PER_CHANNEL_SCALING: _only_alpha,
    ScaleType.NOTHING: _identity,
}


def _with_result(combine: Callable[..., Any], result: Activation) -> Callable[..., Any]:
    """A function with the parameters of ``combine``, whose value goes through ``result``."""

    def epilogue(acc: Any, **operands: Any) -> Any:
        return result(combine(acc, **operands))

    epilogue.__wrapped__ = combine  # type: ignore[attr-defined]  # whose signature it has
    return epilogue


def _named(function: Callable[..., Any], name: str) -> Epilogue:
    function.__name__ = name
    return Epilogue(function)


def _result(x: Any, dtype: OutputType) -> Any:
    return x if dtype is None else cast(x, dtype)


def _scale_type(scale: ScaleType | str) -> ScaleType:
    if isinstance(scale, ScaleType):
        return scale
    for one in ScaleType:
        if scale == one.value:
            return one
    known = ", ".join(one.value for one in ScaleType)
    raise EpilogueError(f"scale must be one of {known}, got {scale!r:.60}")


def _activation(activation: Activation | str) -> Activation:
    return _named_function("activation", activation, ACTIVATIONS)


def _named_function(what: str, given: Activation | str, named: dict[str, Activation]) -> Activation:
    if callable(given):
        return given
    if given not in named:
        known = ", ".join(named)
        raise EpilogueError(f"{what} must be a function or one of {known}, got {given!r:.60}")
    return named[given]
