"""Forward-mode derivatives (``torch.func.jvp``, dual tensors): the tangents of the operators.

    D = α A B + β C               D' = α (A' B + A B') + β C'
    p = x wᵀ + bias, y = f(p)     p' = x' wᵀ + x w'ᵀ + bias', y' = f'(p) p'

All products are the operators themselves, so that Hessians (forward over reverse mode) work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .activation_gradients import FORMULAS
from .registration import Tangent, call, refused, result_type


def product_tangent(ctx: Any, da: Any, db: Any, dc: Any = None, *_: Any) -> Tensor | None:
    """That of ``matmul``."""
    a, b, *_c = ctx.saved_tensors
    options = {**ctx.given, "beta": 0.0}
    scaled = None if dc is None else dc * ctx.given["beta"]
    total = _sum(
        None if da is None else call("matmul", da, b, None, **options),
        None if db is None else call("matmul", a, db, None, **options),
        scaled,
    )
    return None if total is None else total.to(_result_type(ctx))


def groups_tangent(ctx: Any, da: Any, db: Any, dsizes: Any = None, *_: Any) -> Tensor | None:
    """That of ``grouped_matmul``."""
    a, b, *indices = ctx.saved_tensors
    return _sum(
        None if da is None else call("grouped_matmul", da, b, *indices, **ctx.given),
        None if db is None else call("grouped_matmul", a, db, *indices, **ctx.given),
    )


def layer_tangent(ctx: Any, *tangents: Any) -> Tensor | None:
    """That of ``linear``."""
    return _layer_tangents(ctx, *tangents)[0]


def saved_layer_tangent(ctx: Any, *tangents: Any) -> tuple[Tensor, ...]:
    """Those of ``linear_saved``: of y, the preactivation and the gate's value, all present, since
    torch takes None for the tangent of one result alone.
    """
    x, w, *_, gate, _ = _padded(ctx.saved_tensors, 5)
    zeros = x.new_zeros((*x.shape[:-1], w.shape[0]), dtype=_result_type(ctx))
    none = zeros if gate is not None else zeros.new_zeros(0)
    absent = zeros, zeros, none
    found = _layer_tangents(ctx, *tangents)
    return tuple(a if t is None else t for t, a in zip(found, absent, strict=True))


def _layer_tangents(ctx: Any, *tangents: Any) -> tuple[Tensor | None, ...]:
    x, w, bias, gate, _ = _padded(ctx.saved_tensors, 5)
    dx, dw, dbias, dgate, dresidual = _padded(tangents[:-1], 5)
    plain = {**ctx.given, "activation": None}
    dp = _affine(x, w, dx, dw, dbias, plain)
    dg = None if gate is None else _affine(x, gate, dx, dgate, None, plain)
    activation = ctx.given["activation"]
    if activation is None and gate is None:
        dy = dp
    else:
        p = call("linear", x, w, bias, None, None, **plain)
        g = None if gate is None else call("linear", x, gate, None, None, None, **plain)
        dy = _activated(activation, p, g, dp, dg)
    dtype = _result_type(ctx)  # a bias or a residual may have another
    found = _sum(dy, dresidual), dp, dg
    return tuple(None if t is None else t.to(dtype) for t in found)


def _affine(
    x: Tensor, w: Tensor, dx: Any, dw: Any, dbias: Any, options: Mapping[str, Any]
) -> Tensor | None:
    """The tangent of x wᵀ + bias."""
    products = (
        None if dx is None else call("linear", dx, w, None, None, None, **options),
        None if dw is None else call("linear", x, dw, None, None, None, **options),
    )
    total = _sum(*products)
    if dbias is None:
        return total
    if total is None:
        return dbias.expand(*x.shape[:-1], w.shape[0])
    return total + dbias


def _activated(
    activation: str | None, p: Tensor, g: Tensor | None, dp: Any, dg: Any
) -> Tensor | None:
    """The tangent of f(p), or of f(g) · p."""
    function, derivative = FORMULAS[activation]
    if g is None:
        return None if dp is None else derivative(dp, p)
    return _sum(
        None if dp is None else dp * function(g), None if dg is None else derivative(dg * p, g)
    )


def weights_tangent(name: str) -> Tangent:
    """That of a layer with packed or sparse weights: of x and of the bias, the last tensor."""

    def tangent(ctx: Any, dx: Any, *rest: Any) -> Tensor | None:
        x, *weights, bias = ctx.saved_tensors
        *dweights, dbias = rest[: len(weights) + 1]
        if any(t is not None for t in dweights):
            return refused(f"{name} of weights")(ctx)
        activation, plain = ctx.given["activation"], {**ctx.given, "activation": None}
        dp = None if dx is None else call(name, dx, *weights, None, **plain)
        if dbias is not None:
            shape = *x.shape[:-1], weights[0].shape[0]
            dp = dbias.expand(shape) if dp is None else dp + dbias
        dp = None if dp is None else dp.to(_result_type(ctx))
        if activation is None or dp is None:
            return dp
        return _activated(activation, call(name, x, *weights, bias, **plain), None, dp, None)

    return tangent


def _result_type(ctx: Any) -> torch.dtype:
    """The type of the operator's result, which its tangent has, too."""
    return result_type(ctx.saved_tensors[0].dtype, ctx.given["out_dtype"])


def _sum(*terms: Any) -> Tensor | None:
    present = [t for t in terms if t is not None]
    return sum(present[1:], present[0]) if present else None


def _padded(tensors: Any, count: int) -> tuple[Any, ...]:
    return (*tensors, *(None,) * (count - len(tensors)))[:count]
