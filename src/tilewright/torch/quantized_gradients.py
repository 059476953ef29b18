"""The gradients of layers with packed and sparse weights: of x and of the bias.

No kernel multiplies by such weights transposed. A product of the identity matrix with them is the
weights themselves, rounded to x's type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import DtypeError
from ..run.call import matmul as product
from .activation_gradients import activation_backward
from .operator_gradients import column_sums
from .registration import call, wanted

Backward = Callable[..., tuple[Any, ...]]


def refuse_gradient(name: str) -> Callable[..., None]:
    """What an operator that records no gradient saves: it raises DtypeError instead."""

    def refuse(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        raise DtypeError(
            f"{name} must not be given a tensor that requires a gradient: it records none",
            hint="tilewright.torch.fp8_linear records gradients; or call it within torch.no_grad()",
        )

    return refuse


def save_weights(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Save x, the arrays of the weights and the bias, which is the last tensor."""
    ctx.save_for_backward(*inputs)
    ctx.options = keyword_only_inputs


def weights_backward(name: str) -> Backward:
    """The gradients of the operator ``name``: of x and of the bias."""

    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights, bias = ctx.saved_tensors
        options, wants = ctx.options, wanted(ctx, len(weights) + 2)
        if any(wants[1:-1]):
            what = f"the weights of {name} must not require a gradient: none is recorded"
            raise DtypeError(what, hint="weights.requires_grad_(False)")
        plain = options | {"activation": None, "out_dtype": None}
        dp, dbias = dy.to(x.dtype), None
        if options["activation"] is not None:
            values = call(name, x, *weights, bias, **plain)
            dp, _, dbias = activation_backward(
                dy, values, activation=options["activation"], bias=wants[-1], out_dtype=x.dtype,
                device=options["device"],
            )  # fmt: skip
        elif wants[-1]:
            dbias = column_sums(dp)
        dx = None
        if wants[0]:
            identity = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
            dense = call(name, identity, *weights, None, **plain)
            dx = product.matmul(dp, dense.mT, device=options["device"])
        dbias = dbias.to(bias.dtype) if wants[-1] and dbias is not None else None
        return dx, *(None for _ in weights), dbias

    return backward
