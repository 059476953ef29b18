"""The gradients of the operators. All products in them are the operators themselves, so that second
derivatives, compilers and transformations see them, too.

    D = α A B + β C          dA = α dD Bᵀ, dB = α Aᵀ dD, dC = β dD
    P = x wᵀ + bias          dx = dP w, dw = dPᵀ x, dbias = the column sums of dP
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import DtypeError
from ..run.call import linear as layer
from ..run.call import matmul as product
from .activation_gradients import activation_backward
from .registration import wanted

DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SHARED = ("precision", "device")  # options of the forward product that its gradients have, too


def check_type(name: str, tensor: Tensor) -> None:
    """Raise DtypeError for a tensor whose gradient is no product of its type."""
    if tensor.dtype not in DIFFERENTIABLE:
        raise DtypeError(
            f"{name} must be f16, bf16, f32 or f64 where a gradient is recorded, got "
            f"{tensor.dtype}",
            hint="tilewright.torch.Fp8Linear quantizes tensors of these types and trains",
        )


def _product(a: Tensor, b: Tensor, options: Mapping[str, Any], **more: Any) -> Tensor:
    shared = {name: options[name] for name in _SHARED if name in options}
    return product.matmul(a, b, **more, **shared)


# --- matmul ---------------------------------------------------------------------------------------


def save_product(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Save what the gradients of ``matmul`` need."""
    a, b, c = inputs
    check_type("a", a)
    check_type("b", b)
    ctx.save_for_backward(a, b)
    ctx.options = keyword_only_inputs
    ctx.c_type = None if c is None else c.dtype


def product_backward(ctx: Any, dd: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of a, b and c from that of D."""
    a, b = ctx.saved_tensors
    wants_a, wants_b, wants_c = wanted(ctx, 3)
    options, scale = ctx.options, {"alpha": ctx.options["alpha"]}
    dc = dd * options["beta"] if wants_c and ctx.c_type is not None else None
    dd = _with_vectors(dd.to(a.dtype), a, b)
    left = a[None] if a.ndim == 1 else a
    right = b[:, None] if b.ndim == 1 else b
    da = db = None
    if wants_a:
        da = left_gradient(dd, right, left.shape, options, **scale).reshape(a.shape)
    if wants_b:
        db = right_gradient(left, dd, right.shape, options, **scale).reshape(b.shape)
    return da, db, dc


def left_gradient(
    dd: Tensor, right: Tensor, shape: torch.Size, options: Mapping[str, Any], **scale: Any
) -> Tensor:
    """That of A, of this shape: dD Bᵀ."""
    return _sum_to(_product(dd, right.mT, options, **scale), shape)


def right_gradient(
    left: Tensor, dd: Tensor, shape: torch.Size, options: Mapping[str, Any], **scale: Any
) -> Tensor:
    """That of B, of this shape: Aᵀ dD; one product of all rows for one matrix B."""
    if len(shape) == 2:
        left, dd = matrix_of(left), matrix_of(dd)
    return _sum_to(_product(left.mT, dd, options, **scale), shape)


def _with_vectors(dd: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """dD with the dimensions of a row a and a column b."""
    dd = dd[..., None] if b.ndim == 1 else dd
    return dd[..., None, :] if a.ndim == 1 else dd


def _sum_to(gradient: Tensor, shape: torch.Size) -> Tensor:
    """The sum over the batch dimensions along which an operand of this shape was broadcast."""
    return gradient if gradient.shape == shape else gradient.sum_to_size(shape)


# --- linear ---------------------------------------------------------------------------------------


class _Saved(NamedTuple):
    """What is saved for the gradients of a layer, as far as they need it; ``bias`` to recompute the
    two values.
    """

    x: Tensor | None
    w: Tensor | None
    gate: Tensor | None
    bias: Tensor | None
    preactivation: Tensor | None
    value: Tensor | None


def save_layer(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Save what the gradients of ``linear`` (output y) and ``linear_saved`` (y, preactivation and
    gate value) need.
    """
    x, w, bias, gate, residual = inputs
    check_type("x", x)
    check_type("w", w)
    values: tuple[Tensor | None, ...] = (None, None)
    needs_values = keyword_only_inputs["activation"] is not None or gate is not None
    if needs_values and isinstance(output, tuple):
        values = output[1], output[2] if gate is not None else None
    wants, recomputes = wanted(ctx, 5), needs_values and values[0] is None
    needs_x = recomputes or wants[1] or wants[3]
    ctx.save_for_backward(
        x if needs_x else None,
        w if recomputes or wants[0] else None,
        gate if recomputes or wants[0] else None,
        bias if recomputes else None,
        *values,
    )
    ctx.options, ctx.gated = keyword_only_inputs, gate is not None
    ctx.shape, ctx.dtype = x.shape, x.dtype
    ctx.types = [None if t is None else t.dtype for t in (bias, residual)]
    ctx.set_materialize_grads(False)


def layer_backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
    """The gradients of x, w, bias, gate and residual from those of the outputs."""
    saved = _Saved(*ctx.saved_tensors)
    dresidual, dp, dg, dbias = _epilogue_backward(ctx, saved, *gradients)
    if dp is None and dg is None:
        return (None,) * 4 + (dresidual,)
    dx, dw, dgate = _layer_products(ctx, saved.x, (saved.w, dp), (saved.gate, dg))
    if dbias is not None:
        dbias = dbias.to(ctx.types[0])
    return dx, dw, dbias, dgate, dresidual


def _layer_products(
    ctx: Any, x: Tensor | None, *pairs: tuple[Tensor | None, Tensor | None]
) -> tuple[Tensor | None, ...]:
    """dx, and the gradient of each matrix of weights; ``pairs``: it, and that of its product."""
    options, wants = ctx.options, wanted(ctx, 5)
    dx: Tensor | None = None
    found: list[Tensor | None] = []
    rows = None if x is None else matrix_of(x)
    for (weights, dp), needed in zip(pairs, (wants[1], wants[3]), strict=True):
        dp = None if dp is None else matrix_of(dp)
        found.append(None)
        if needed and dp is not None and rows is not None:
            found[-1] = _product(dp.mT, rows, options)
        if wants[0] and dp is not None and weights is not None:
            more: dict[str, Any] = {} if dx is None else {"c": dx, "beta": 1.0}
            dx = _product(dp, weights, options, **more)
    return None if dx is None else dx.reshape(ctx.shape), *found


def _epilogue_backward(
    ctx: Any,
    saved: _Saved,
    dy: Tensor | None,
    dpreactivation: Tensor | None = None,
    dvalue: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """The gradients of residual, of both accumulators and of bias. ``dpreactivation`` and
    ``dvalue``: of the saved values, if these are outputs of which a gradient is known.
    """
    preactivation, value = saved.preactivation, saved.value
    options, wants = ctx.options, wanted(ctx, 5)
    dresidual = dy.to(ctx.types[1]) if dy is not None and wants[4] else None
    dp, dg, dbias = dpreactivation, dvalue if ctx.gated else None, None
    if dy is not None:
        activation = options["activation"]
        if activation is None and not ctx.gated:
            dp = dy if dp is None else dp + dy
        else:
            if preactivation is None:
                preactivation, value = _recomputed(saved, options)
            fused = bool(wants[2]) and dp is None
            one, two, sums = activation_backward(
                dy, preactivation, value, activation=activation, bias=fused, out_dtype=ctx.dtype,
                device=options["device"],
            )  # fmt: skip
            dp = one if dp is None else dp + one
            dg = None if not ctx.gated else two if dg is None else dg + two
            dbias = sums if fused else None
    dp, dg = (None if t is None else t.to(ctx.dtype) for t in (dp, dg))
    if wants[2] and dbias is None and dp is not None:
        dbias = column_sums(dp)
    return dresidual, dp, dg, dbias


def _recomputed(saved: _Saved, options: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """The preactivation and the gate value of a call of ``linear``, which saves neither."""
    x, w, gate, bias = saved[:4]
    options = options | {"activation": None, "out_dtype": None}
    value = None if gate is None else layer.linear(x, gate, **options)
    return layer.linear(x, w, bias, **options), value


def matrix_of(x: Tensor) -> Tensor:
    """An array (…, n) as a matrix of rows; n may be 0."""
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def column_sums(dp: Tensor) -> Tensor:
    """The sums over all rows, accumulated in f32 (f64 for f64)."""
    sums: Tensor = matrix_of(dp).sum(0)
    return sums
