"""Functions for epilogues in JAX programs: their graphs evaluated by operations that XLA fuses.

So a gradient has the formula that a fused kernel computes. Approximate instructions are XLA's own
functions here; the results agree within rounding, not to the bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ..errors import EpilogueError
from ..gemm.epilogue.functions.traced_function import traced_function
from ..gemm.epilogue.graph import CONSTANT, LOAD, Node, constant_value

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide,
    "fma": lambda a, b, c: a * b + c, "sqrt": jnp.sqrt, "rcp": lambda a: 1 / a,
    "neg": jnp.negative, "abs": jnp.abs, "copysign": lambda sign, x: jnp.copysign(x, sign),
    "min_nan": jnp.minimum, "max_nan": jnp.maximum, "min": jnp.fmin, "max": jnp.fmax,
    "exp2_approx": jnp.exp2, "log2_approx": jnp.log2, "tanh_approx": jnp.tanh,
    "rcp_approx": lambda a: 1 / a, "rsqrt_approx": jax.lax.rsqrt, "sqrt_approx": jnp.sqrt,
    "and": jnp.bitwise_and, "or": jnp.bitwise_or, "xor": jnp.bitwise_xor, "not": jnp.bitwise_not,
    "select": jnp.where, "lt": jnp.less, "le": jnp.less_equal, "gt": jnp.greater,
    "ge": jnp.greater_equal, "eq": jnp.equal, "ne": jnp.not_equal,
}  # fmt: skip


def evaluate(function: Callable[..., Any], *arrays: jax.Array) -> Any:
    """``function`` of these arrays, computed in f32 and returned as f32. Raises EpilogueError for
    a function whose operations JAX programs do not have.
    """
    graph, several = traced_function(function, arrays, ["f32"] * len(arrays), {})
    loaded = [x.astype(jnp.float32) for x in arrays]
    values: list[Any] = []
    for node in graph.nodes:
        values.append(_value(node, values, loaded))
    made = tuple(jnp.asarray(values[o.node]) for o in graph.outputs)
    return made if several else made[0]


def _value(node: Node, values: list[Any], loaded: list[Any]) -> Any:
    if node.op == LOAD:
        return loaded[int(node.attributes[0])]
    if node.op == CONSTANT:
        value = constant_value(node)
        return jnp.float32(value) if node.type == "f32" else bool(value)
    if node.op not in _OPERATIONS:
        raise EpilogueError(f"{node.op} is not an operation of JAX programs")
    return _OPERATIONS[node.op](*(values[i] for i in node.args))
