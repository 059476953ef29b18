"""The gradients of grouped products and of layers of experts, by the operators themselves.

D[rows of g] = A[rows of g] B[g]     dA[rows of g] = dD[rows of g] B[g]ᵀ,
                                     dB[g] = A[rows of g]ᵀ dD[rows of g]
along K                              dA[:, g]ᵀ = B[g] dD[g]ᵀ, dB[g] = A[:, g]ᵀ dD[g]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import DtypeError
from ..run.call import matmul as product
from .activation_gradients import FORMULAS, activation_backward
from .registration import call, wanted

_DIFFERENTIABLE = (torch.float16, torch.bfloat16)


def _check_types(**tensors: Tensor) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in _DIFFERENTIABLE:
            raise DtypeError(
                f"{name} must be f16 or bf16 where a gradient is recorded, got {tensor.dtype}",
                hint="cast it, or call within torch.no_grad()",
            )


# --- grouped_matmul -------------------------------------------------------------------------------


def save_groups(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Save what the gradients of ``grouped_matmul`` need."""
    _check_types(a=inputs[0], b=inputs[1])
    ctx.save_for_backward(*inputs)
    ctx.options = keyword_only_inputs


def groups_backward(ctx: Any, dd: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of a and b; rows of no group have zeros."""
    a, b, sizes, gather, scatter = ctx.saved_tensors
    options, wants = ctx.options, wanted(ctx, 5)
    dd, counts = dd.to(a.dtype), options["counts"]
    own = {"device": options["device"]}
    da = db = None
    if options["along"] == "k":
        if wants[0]:
            da = call("grouped_matmul", b, dd.mT, sizes, zeros=True, **own).mT
        if wants[1]:
            db = call("grouped_matmul", a.mT, dd, sizes, zeros=True, **own)
        return da, db, None, None, None
    if scatter is not None:
        dd = torch.where((scatter >= 0)[:, None], _named(dd, scatter), 0)
    if wants[0]:
        form = {"counts": counts, "expected_rows": options["expected_rows"], "zeros": True}
        da = call("grouped_matmul", dd, b.mT, sizes, **form, **own)
        if gather is not None:
            total = torch.zeros_like(a, dtype=torch.float32)
            da = total.index_add(0, _nearest(gather, a), da.float()).to(a.dtype)
    if wants[1] and counts:
        row = torch.arange(a.shape[1], device=a.device)[None, :, None]
        left, right = (torch.where(row < sizes[:, None, None], t, 0) for t in (a, dd))
        db = product.matmul(left.mT, right, **own)
    elif wants[1]:
        # With the begin of the first group, the rows before it are a group of their own.
        rows = a if gather is None else _named(a, gather)
        made = call("grouped_matmul", rows.mT, dd, sizes, along="k", **own)
        db = made[sizes.shape[0] - b.shape[0] :]
    return da, db, None, None, None


def _nearest(indices: Tensor, rows: Tensor) -> Tensor:
    """Indices of existing rows: those of rows of no group may be any, and -1 leaves a row out."""
    return indices.clamp(0, rows.shape[0] - 1)


def _named(rows: Tensor, indices: Tensor) -> Tensor:
    return rows.index_select(0, _nearest(indices, rows))


# --- moe ------------------------------------------------------------------------------------------


def save_experts(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    """Save what the gradients of ``moe`` (y) and ``moe_saved`` (y, gate, up, order, ends) need."""
    names = "x", "w_up", "w_gate", "w_down"
    _check_types(**dict(zip(names, inputs[:4], strict=True)))
    saved = output[1:] if isinstance(output, tuple) else ()
    if saved:
        ctx.mark_non_differentiable(*saved[2:])
    ctx.save_for_backward(*inputs, *saved)
    ctx.options = keyword_only_inputs
    ctx.set_materialize_grads(False)


def experts_backward(ctx: Any, dy: Tensor | None, *more: Tensor | None) -> tuple[Any, ...]:
    """The gradients of x, of the three stacks of weights and of the router's weights. ``more``: of
    the saved values of ``moe_saved``, of which a second derivative has some.
    """
    x, w_up, w_gate, w_down, indices, weights, *saved = ctx.saved_tensors
    wants = wanted(ctx, 6)
    if not saved:
        arrays = x, w_up, w_gate, w_down, indices, weights
        saved = call("moe_saved", *arrays, **ctx.options)[1:]
    gate, up, order, ends = saved
    own = {"device": ctx.options["device"]}
    rows, of_choice = x[order // indices.shape[1]], weights.reshape(-1)[order].to(x.dtype)[:, None]
    dgate, dup = (*more, None, None)[:2]
    dw_down = dweights = None
    if dy is not None:
        inner = _gated(gate, up, ctx.options["activation"])
        dy_rows = dy[order // indices.shape[1]]
        products = call("grouped_matmul", dy_rows, w_down, ends, zeros=True, **own)
        if wants[3]:
            dw_down = _along_rows(dy_rows * of_choice, inner, ends, own)
        if wants[5]:
            sums = (products.float() * inner.float()).sum(1)
            dweights = _by_entry(sums, order).reshape(weights.shape).to(weights.dtype)
        one, two, _ = activation_backward(
            products * of_choice, up, gate, activation=ctx.options["activation"], **own
        )
        dup = one if dup is None else one + dup
        dgate = two if dgate is None else two + dgate
    if dup is None or dgate is None:
        return None, None, None, dw_down, None, dweights
    dx = None
    if wants[0]:
        parts = (
            call("grouped_matmul", d, w, ends, zeros=True, **own)
            for d, w in ((dgate, w_gate), (dup, w_up))
        )
        shape = (*indices.shape, x.shape[1])
        dx = _by_entry(sum(parts), order).reshape(shape).sum(1)
    dw_up = _along_rows(dup, rows, ends, own) if wants[1] else None
    dw_gate = _along_rows(dgate, rows, ends, own) if wants[2] else None
    return dx, dw_up, dw_gate, dw_down, None, dweights


def _gated(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    return (FORMULAS[activation][0](gate.float()) * up.float()).to(gate.dtype)


def _along_rows(d: Tensor, rows: Tensor, ends: Tensor, options: dict[str, Any]) -> Tensor:
    """d[rows of g]ᵀ rows[rows of g] for each expert g."""
    made: Tensor = call("grouped_matmul", d.mT, rows, ends, along="k", **options)
    return made


def _by_entry(of_position: Tensor, order: Tensor) -> Tensor:
    """What belongs to each entry (token, choice), from what belongs to each position."""
    return torch.empty_like(of_position).index_copy(0, order, of_position)
