"""Operators registered with torch: schemas, kernels, gradients, transformations.

They are defined by ``Library.define`` and ``impl``: a call through ``custom_op`` costs ten times as
much.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.utils import flop_counter

from ..errors import ProblemError
from ..lazy_imports import deferred
from ..run.arrays import torch_arrays
from ..run.call.request import default_result

sharding = deferred(".sharding", __package__)  # DTensor takes a while to import
LIBRARY = torch.library.Library("tilewright", "DEF")
AUTOCAST = {"cpu": torch._C.DispatchKey.AutocastCPU, "cuda": torch._C.DispatchKey.AutocastCUDA}
_AUTOCAST = torch._C.DispatchKeySet(AUTOCAST["cpu"]) | torch._C.DispatchKeySet(AUTOCAST["cuda"])
FORMATS = torch_arrays.formats(torch)
TYPES = {name: dtype for dtype, name in FORMATS.items()}


def define(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    operations: Callable[..., int] | None = None,
) -> None:
    """Define an operator: its kernel of tensors on the CPU and on a GPU, and its fake kernel, which
    checks shapes and returns empty tensors. ``operations``: the number of its floating-point
    operations from the shapes of its tensors, for torch's flop counter.
    """
    LIBRARY.define(schema)
    name = schema.partition("(")[0]

    def in_memory(*arrays: Any, **options: Any) -> Any:
        """What the kernel calls computes on memory: it records nothing and casts nothing."""
        with torch.no_grad(), torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            if forward_ad._current_level < 0:
                return kernel(*arrays, **options)
            with forward_ad._set_fwd_grad_enabled(False):
                return kernel(*arrays, **options)

    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, in_memory, key)
    torch.library.register_fake(f"tilewright::{name}", fake, lib=LIBRARY)
    if operations is not None:
        flop_counter.register_flop_formula([getattr(torch.ops.tilewright, name)])(operations)


def layer_operations(x: Any, w: Any, *_: Any, **__: Any) -> int:
    """The operations of x wᵀ, from the shapes of x (…, K) and of an array with N rows."""
    return int(2 * prod(x) * w[0])


Tangent = Callable[..., Any]
"""``tangent(ctx, *tangents)``: the tangent of an operator's result, or of each of its results, from
those of its tensors (None where there is none), ``ctx.saved_tensors`` and its options
``ctx.given``."""

FUNCTIONS: dict[str, Any] = {}
"""For each operator the ``torch.autograd.Function`` that torch.func can transform."""


def call(name: str, *arrays: Any, **options: Any) -> Any:
    """Call ``torch.ops.tilewright.<name>``, through its autograd function within torch.func's
    transformations and forward-mode derivatives, which an operator's own autograd does not have.
    """
    operator = getattr(torch.ops.tilewright, name).default
    if torch.compiler.is_compiling():
        return operator(*arrays, **options)
    if "torch.distributed.tensor" in sys.modules:
        sharding.register()
    if torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0:
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
    tangent: Tangent | None = None,
) -> None:
    """Register the gradients of an operator and its rule for vmap, and define its function.

    ``save(ctx, inputs, keyword_only_inputs, output)``; ``backward(ctx, *gradients)`` returns a
    gradient for each tensor of the schema; ``vmap(info, in_dims, *arrays, **options)``;
    ``tangent`` (None: forward mode is a ProblemError).
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
        arrays = [*arrays, *(None,) * (count - len(arrays))]
        save(ctx, tuple(arrays), options, output)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*arrays)
            ctx.given = options
            if tangent is not None:
                ctx.set_materialize_grads(False)  # None where a tensor has no tangent

    members: dict[str, Callable[..., Any]] = {
        "forward": lambda *given: operator(*given[:-1], **given[-1]),
        "setup_context": setup_context,
        "backward": lambda ctx, *gradients: (
            *backward(ctx, *gradients)[: len(ctx.needs_input_grad) - 1], None,
        ),
        "jvp": tangent or refused(name),
        "vmap": lambda info, dims, *given: vmap(info, dims[:-1], *given[:-1], **given[-1]),
    }  # fmt: skip
    static: dict[str, Any] = {key: staticmethod(member) for key, member in members.items()}
    FUNCTIONS[name] = type(f"{name}_function", (torch.autograd.Function,), static)


def refused(name: str) -> Tangent:
    """The tangent of an operator that has none: a ProblemError."""

    def refuse(ctx: Any, *tangents: Any) -> Any:
        raise ProblemError(
            f"{name} has no forward-mode derivative",
            hint="use reverse mode: torch.func.vjp or grad",
        )

    return refuse


def wanted(ctx: Any, count: int) -> tuple[bool, ...]:
    """Which of an operator's ``count`` tensors need a gradient."""
    given = tuple(ctx.needs_input_grad)[:count]
    return given + (False,) * (count - len(given))


def result_type(operand: torch.dtype, out_dtype: torch.dtype | None) -> torch.dtype:
    """D's type for an operand of this type."""
    return out_dtype or TYPES.get(default_result(FORMATS.get(operand, "")), operand)
