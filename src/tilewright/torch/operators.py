"""The operators ``tilewright::matmul`` and ``linear``: schemas, kernels, fake kernels.

They are defined by ``Library.define`` and ``impl``: a call through ``custom_op`` costs ten times as
much. CPU tensors are multiplied where ``device`` says, by default on a GPU if there is one, else on
the virtual machine. A fake kernel checks shapes and returns an empty tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import ProblemError
from ..run.arrays import torch_arrays
from ..run.call import linear as layer
from ..run.call import matmul as product
from ..run.call.request import default_result

LIBRARY = torch.library.Library("tilewright", "DEF")
_OPTIONS = (
    'ScalarType? out_dtype=None, str precision="ieee", bool fast_accum=False, '
    "str? device=None, str? config=None"
)
_LAYER = (
    "Tensor x, Tensor w, Tensor? bias=None, Tensor? gate=None, Tensor? residual=None, *, "
    f"str? activation=None, {_OPTIONS}"
)
LIBRARY.define(
    f"matmul(Tensor a, Tensor b, Tensor? c=None, *, float alpha=1, float beta=0, {_OPTIONS}) "
    "-> Tensor"
)
LIBRARY.define(f"linear({_LAYER}) -> Tensor")
LIBRARY.define(f"linear_saved({_LAYER}) -> (Tensor, Tensor, Tensor)")

FORMATS = torch_arrays.formats(torch)
TYPES = {name: dtype for dtype, name in FORMATS.items()}


FUNCTIONS: dict[str, Any] = {}
"""For each operator the ``torch.autograd.Function`` that torch.func can transform."""


def call(name: str, *arrays: Any, **options: Any) -> Any:
    """Call ``torch.ops.tilewright.<name>``, through its autograd function within torch.func's
    transformations: an operator's own autograd is no autograd function that they know.
    """
    operator = getattr(torch.ops.tilewright, name).default
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        given = {
            argument.name: options.get(argument.name, argument.default_value)
            for argument in operator._schema.arguments
            if argument.kwarg_only
        }
        return FUNCTIONS[name].apply(*arrays, given)
    return operator(*arrays, **options)


def autograd_function(
    name: str,
    save: Callable[..., None],
    backward: Callable[..., tuple[Any, ...]],
    vmap: Callable[..., Any],
) -> None:
    """Register the gradients of an operator and its rule for vmap, and define its function.

    ``save(ctx, inputs, keyword_only_inputs, output)``; ``backward(ctx, *gradients)`` returns a
    gradient for each tensor of the schema; ``vmap(info, in_dims, *arrays, **options)``.
    """

    def backward_of_given(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        # The dispatcher leaves out trailing arguments that have their default.
        return backward(ctx, *gradients)[: len(ctx.needs_input_grad)]

    qualified = f"tilewright::{name}"
    torch.library.register_autograd(qualified, backward_of_given, setup_context=save, lib=LIBRARY)
    torch.library.register_vmap(qualified, vmap, lib=LIBRARY)
    operator = getattr(torch.ops.tilewright, name).default
    count = sum(not argument.kwarg_only for argument in operator._schema.arguments)

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *arrays, options = inputs
        save(ctx, (*arrays, *(None,) * (count - len(arrays))), options, output)

    members: dict[str, Callable[..., Any]] = {
        "forward": lambda *given: operator(*given[:-1], **given[-1]),
        "setup_context": setup_context,
        "backward": lambda ctx, *gradients: (
            *backward(ctx, *gradients)[: len(ctx.needs_input_grad) - 1], None,
        ),
        "vmap": lambda info, dims, *given: vmap(info, dims[:-1], *given[:-1], **given[-1]),
    }  # fmt: skip
    static: dict[str, Any] = {key: staticmethod(member) for key, member in members.items()}
    FUNCTIONS[name] = type(f"{name}_function", (torch.autograd.Function,), static)


def wanted(ctx: Any, count: int) -> tuple[bool, ...]:
    """Which of an operator's ``count`` tensors need a gradient."""
    given = tuple(ctx.needs_input_grad)[:count]
    return given + (False,) * (count - len(given))


def result_type(operand: torch.dtype, out_dtype: torch.dtype | None) -> torch.dtype:
    """D's type for an operand of this type."""
    return out_dtype or TYPES.get(default_result(FORMATS.get(operand, "")), operand)


# --- kernels --------------------------------------------------------------------------------------


def _matmul(a: Tensor, b: Tensor, c: Tensor | None = None, **options: Any) -> Any:
    with torch.no_grad():
        return product.matmul(a, b, c=c, **options)


def _linear(
    x: Tensor, w: Tensor, bias: Any = None, gate: Any = None, residual: Any = None, **options: Any
) -> Any:
    with torch.no_grad():
        return layer.linear(x, w, bias, gate=gate, residual=residual, **options)


def _linear_saved(
    x: Tensor, w: Tensor, bias: Any = None, gate: Any = None, residual: Any = None, **options: Any
) -> Any:
    save = layer.SAVED[: 1 if gate is None else 2]
    values = _linear(x, w, bias, gate, residual, save=save, **options)
    absent = x.new_empty(0, dtype=values["y"].dtype)
    return values["y"], values["preactivation"], values.get("gate", absent)


for _name, _kernel in (
    ("matmul", _matmul), ("linear", _linear), ("linear_saved", _linear_saved),
):  # fmt: skip
    for _key in ("CPU", "CUDA"):
        LIBRARY.impl(_name, _kernel, _key)


# --- fake kernels ---------------------------------------------------------------------------------


@torch.library.register_fake("tilewright::matmul", lib=LIBRARY)
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


@torch.library.register_fake("tilewright::linear", lib=LIBRARY)
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


@torch.library.register_fake("tilewright::linear_saved", lib=LIBRARY)
def _fake_linear_saved(
    x: Tensor, w: Tensor, bias: Any = None, gate: Any = None, residual: Any = None, **options: Any
) -> tuple[Tensor, Tensor, Tensor]:
    y = _fake_linear(x, w, out_dtype=options.get("out_dtype"))
    absent = y.new_empty(0)
    return y, torch.empty_like(y), absent if gate is None else torch.empty_like(y)
