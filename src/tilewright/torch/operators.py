"""The operators ``tilewright::matmul`` and ``linear``.

CPU tensors are multiplied where ``device`` says, by default on a GPU if there is one, else on the
virtual machine.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from ..errors import ProblemError
from ..run.call import linear as layer
from ..run.call import matmul as product
from .autocast import autocast
from .forward_mode import layer_tangent, product_tangent, saved_layer_tangent
from .operator_gradients import layer_backward, product_backward, save_layer, save_product
from .registration import autograd_function, define, layer_operations, result_type
from .vmap_rules import vmap_layer, vmap_matmul, vmap_saved

_OPTIONS = (
    'ScalarType? out_dtype=None, str precision="ieee", bool fast_accum=False, '
    "str? device=None, str? config=None"
)
_LAYER = (
    "Tensor x, Tensor w, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, *, "
    f"str? activation=None, {_OPTIONS}"
)

# --- kernels --------------------------------------------------------------------------------------


def _matmul(a: Tensor, b: Tensor, c: Tensor | None = None, **options: Any) -> Any:
    return product.matmul(a, b, c=c, **options)


def _linear(
    x: Tensor, w: Tensor, bias: Any = None, gate: Any = None, residual: Any = None, **options: Any
) -> Any:
    return layer.linear(x, w, bias, gate=gate, residual=residual, **options)


def _linear_saved(
    x: Tensor, w: Tensor, bias: Any = None, gate: Any = None, residual: Any = None, **options: Any
) -> Any:
    save = layer.SAVED[: 1 if gate is None else 2]
    values = _linear(x, w, bias, gate, residual, save=save, **options)
    absent = x.new_empty(0, dtype=values["y"].dtype)
    return values["y"], values["preactivation"], values.get("gate", absent)


# --- fake kernels ---------------------------------------------------------------------------------


def _fake_matmul(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, out_dtype: Any = None, **_: Any
) -> Tensor:
    if a.ndim == 0 or b.ndim == 0:
        raise ProblemError(
            f"a and b must have at least one dimension, got {a.ndim}-D and {b.ndim}-D"
        )
    torch._check(
        a.shape[-1] == b.shape[-2 if b.ndim > 1 else 0],
        lambda: f"a must have as many columns as b has rows, got {a.shape} and {b.shape}",
    )
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1] if a.ndim > 1 else ()
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return a.new_empty((*batch, *rows, *columns), dtype=result_type(a.dtype, out_dtype))


def _fake_linear(x: Tensor, w: Tensor, *_: Any, out_dtype: Any = None, **__: Any) -> Tensor:
    if x.ndim == 0 or w.ndim != 2:
        raise ProblemError(
            f"x must be at least 1-D and w 2-D, got shapes {tuple(x.shape)} and {tuple(w.shape)}"
        )
    torch._check(
        x.shape[-1] == w.shape[1],
        lambda: f"w must have as many columns as x, got x {x.shape} and w {w.shape}",
    )
    return x.new_empty((*x.shape[:-1], w.shape[0]), dtype=result_type(x.dtype, out_dtype))


def _fake_linear_saved(
    x: Tensor, w: Tensor, bias: Any = None, gate: Any = None, residual: Any = None, **options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    y = _fake_linear(x, w, out_dtype=options.get("out_dtype"))
    absent = y.new_empty(0)
    return y, torch.empty_like(y), absent if gate is None else torch.empty_like(y)


def _operations(x: Any, w: Any, bias: Any = None, gate: Any = None, *_: Any, **__: Any) -> int:
    return layer_operations(x, w) * (1 if gate is None else 2)


define(
    f"matmul(Tensor a, Tensor b, Tensor? c=None, *, float alpha=1, float beta=0, {_OPTIONS}) "
    "-> Tensor",
    _matmul,
    _fake_matmul,
    lambda a, *_, out_shape, **__: int(2 * prod(out_shape) * a[-1]),
)
define(f"linear({_LAYER}) -> Tensor", _linear, _fake_linear, _operations)
define(
    f"linear_saved({_LAYER}) -> (Tensor, Tensor, Tensor)",
    _linear_saved,
    _fake_linear_saved,
    _operations,
)

autograd_function("matmul", save_product, product_backward, vmap_matmul, product_tangent)
autograd_function("linear", save_layer, layer_backward, vmap_layer, layer_tangent)
autograd_function("linear_saved", save_layer, layer_backward, vmap_saved, saved_layer_tangent)
for _name in ("matmul", "linear", "linear_saved"):
    autocast(_name)
