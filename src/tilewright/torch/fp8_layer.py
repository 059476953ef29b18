"""``fp8_linear``: a layer in 8-bit floats that trains.

Forward and both gradients are products of 8-bit floats with f32 accumulation: x and w are e4m3, the
gradient of y is e5m2. The scales are computed from the tensors at hand (dynamic scaling), or given
(delayed scaling), and then the magnitudes for the next ones are returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import ProblemError
from . import quantized_operators as quantized_operators
from .autocast import autocast
from .operator_gradients import column_sums
from .registration import autograd_function, call, define, layer_operations, wanted
from .vmap_rules import vmap_each

GRANULARITIES = "tensor", "row"
FORWARD, BACKWARD = "e4m3", "e5m2"
Operand = tuple[Tensor, Tensor, Tensor | None]  # data, scales, the largest magnitude


def fp8_linear(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    granularity: str = "tensor",
    scales: Tensor | None = None,
    amaxes: Tensor | None = None,
    fast_accum: bool = False,
    device: str | None = None,
) -> tuple[Tensor, Tensor]:
    """x wᵀ + bias in 8-bit floats, in x's type, with gradients; and the largest magnitudes of x and
    w, if ``scales`` are given (else an empty tensor).

    ``x`` (…, K) and ``w`` (N, K): f32, f16 or bf16. ``granularity``: a scale for each tensor, or
    for each row of both operands of each of the three products. ``scales`` (3), f32: those of x, w
    and the gradient of y; the backward pass then writes the gradient's largest magnitude to
    ``amaxes[2]``. Rows of a multiple of 16 bytes need no copies.

    Raises ProblemError for another granularity, or scales per row that are given.
    """
    if granularity not in GRANULARITIES or (scales is not None and granularity != "tensor"):
        raise ProblemError(
            f"granularity must be 'tensor', or 'row' without scales, got {granularity!r:.40}"
        )
    found: tuple[Tensor, Tensor] = call(
        "fp8_linear", x, w, bias, scales, amaxes, granularity=granularity, fast_accum=fast_accum,
        device=device,
    )  # fmt: skip
    return found


def _quantized(x: Tensor, dtype: str, scale: Tensor | None, options: Mapping[str, Any]) -> Operand:
    """A matrix with contiguous rows, quantized."""
    device = options["device"]
    if scale is not None:
        data, amax = call("quantize_with_scale", x, scale, dtype, device=device)
        return data, scale.reshape(1, 1), amax
    on_gpu = device if x.is_cuda else None  # NumPy gives the same bits as the virtual machine
    return *call("quantize", x, dtype, options["granularity"], device=on_gpu), None


def _product(a: Operand, b: Operand, options: Mapping[str, Any], **more: Any) -> Tensor:
    """A Bᵀ."""
    bias = more.pop("bias", None)
    given = {"device": options["device"], **more}
    y: Tensor = call("scaled_linear", *a[:2], *b[:2], bias, **given)
    return y


def _forward(
    x: Tensor, w: Tensor, bias: Tensor | None = None, scales: Tensor | None = None,
    amaxes: Tensor | None = None, **given: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    options = {"granularity": "tensor", "fast_accum": False, "device": None} | given
    *lead, depth = x.shape
    one, two = _scales(scales)
    if 0 in lead:
        found = x.new_empty(0, dtype=torch.float32)
        if scales is not None:
            found = torch.stack([scales.new_zeros(()), w.abs().amax().to(scales.dtype)])
        return x.new_empty((*lead, w.shape[0])), found
    left = _quantized(x.reshape(-1, depth), FORWARD, one, options)
    right = _quantized(w, FORWARD, two, options)
    fast = options["fast_accum"]
    y = _product(left, right, options, bias=bias, out_dtype=x.dtype, fast_accum=fast)
    found = torch.stack([left[2], right[2]]) if left[2] is not None and right[2] is not None else (
        x.new_empty(0, dtype=torch.float32)
    )  # fmt: skip
    return y.reshape(*lead, w.shape[0]), found


def _scales(scales: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if scales is None else (scales[0], scales[1])


def _fake(
    x: Tensor, w: Tensor, bias: Any = None, scales: Any = None, amaxes: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    found = x.new_empty(0 if scales is None else 2, dtype=torch.float32)
    return x.new_empty((*x.shape[:-1], w.shape[0])), found


def _save(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    *saved, amaxes = inputs
    ctx.save_for_backward(*saved)
    ctx.amaxes = amaxes  # which the backward pass writes
    ctx.options = keyword_only_inputs
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor | None, _: Any) -> tuple[Tensor | None, ...]:
    """Both products transpose an operand: with scales per row it is quantized once more."""
    x, w, bias, scales = ctx.saved_tensors
    wants, options = wanted(ctx, 5), ctx.options
    if dy is None:
        return (None,) * 5
    if not dy.numel():
        given = zip((x, w, bias), wants, strict=False)
        return *(torch.zeros_like(t) if want else None for t, want in given), None, None
    rows, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    one, two = _scales(scales)
    per_row = options["granularity"] == "row"
    gradient = _quantized(dy, BACKWARD, None if scales is None else scales[2], options)
    if gradient[2] is not None and ctx.amaxes is not None:
        ctx.amaxes[2].copy_(gradient[2])
    dx = dw = dbias = None
    if wants[0]:
        right = _transposed(w, FORWARD, two, options)
        dx = _product(gradient, right, options, out_dtype=x.dtype).reshape(x.shape)
    if wants[1]:
        left = gradient[0].mT, gradient[1], None
        if per_row:
            left = _transposed(dy, BACKWARD, None, options)
        dw = _product(left, _transposed(rows, FORWARD, one, options), options, out_dtype=w.dtype)
    if wants[2] and bias is not None:
        dbias = column_sums(dy).to(bias.dtype)
    return dx, dw, dbias, None, None


def _transposed(x: Tensor, dtype: str, scale: Tensor | None, options: Mapping[str, Any]) -> Operand:
    """The transposed matrix, quantized; a scale of the whole matrix is that of the transposed."""
    if options["granularity"] == "row":
        return _quantized(x.mT.contiguous(), dtype, scale, options)
    data, scales, amax = _quantized(x, dtype, scale, options)
    return data.mT, scales, amax


define(
    "fp8_linear(Tensor x, Tensor w, Tensor? bias=None, Tensor? scales=None, Tensor? amaxes=None, "
    '*, str granularity="tensor", bool fast_accum=False, str? device=None) -> (Tensor, Tensor)',
    _forward,
    _fake,
    layer_operations,
)
autograd_function("fp8_linear", _save, _backward, vmap_each("fp8_linear"))
autocast("fp8_linear", 1)  # w is quantized from its own type
