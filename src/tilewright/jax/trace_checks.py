"""Types and options, checked when a JAX program is traced, by what checks them when it runs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DtypeError
from ..run.arrays import array_view
from ..run.call.alpha_beta import ALPHA, BETA
from ..run.call.epilogue_request import epilogue_arguments, request_with_epilogue
from ..run.call.linear import layer_epilogue
from ..run.call.request import MatmulOptions, check_request, make_request

_SIZE = 16  # M, N and K of the arrays in whose place the check is made
_DIFFERENTIABLE = ("f16", "bf16", "f32", "f64")


@cache
def check_types(
    types: tuple[str, ...], options: MatmulOptions, operands: tuple[str, ...] = (),
    activation: str | None = None, saved: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """Raise DtypeError, EpilogueError or ProblemError for a product or a layer that no kernel
    computes. ``types``: of A, of B and of the ``operands`` of a layer (bias, gate, residual).
    """
    shape = {"bias": (_SIZE,)}
    a, b, *others = (
        np.zeros(shape.get(name, (_SIZE, _SIZE)), dtypes.dtype(type_).numpy)
        for name, type_ in zip(("a", "b", *operands), types, strict=True)
    )
    if not operands and activation is None and not saved:
        views = array_view.view(a), array_view.view(b)
        check_request(make_request(*views, None, None, options.out_dtype, False, *options[1:3]))
        return
    named: dict[str, Any] = dict(zip(operands, others, strict=True))
    gate = named.pop("gate", None)
    function = layer_epilogue(activation, gate is not None, saved)
    arguments = epilogue_arguments(function, None, ALPHA, BETA, named)
    request_with_epilogue(a, b if gate is None else (gate, b), arguments, options, None)


def check_differentiable(**types: str) -> None:
    """Raise DtypeError for an array whose gradient is no product of its type."""
    for name, type_ in types.items():
        if type_ not in _DIFFERENTIABLE:
            raise DtypeError(
                f"{name} must be f16, bf16, f32 or f64 where a gradient is computed, got {type_}",
                hint="jax.lax.stop_gradient",
            )
