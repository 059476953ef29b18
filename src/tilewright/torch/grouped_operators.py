"""The operators ``tilewright::grouped_matmul``, ``moe`` and ``moe_saved``, which also returns what
the gradients of ``moe`` need.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from ..errors import ProblemError
from ..gemm.epilogue.functions.activation_table import ACTIVATIONS
from ..run.call.grouped import grouped_matmul as grouped
from ..run.moe import moe as experts
from .autocast import autocast
from .forward_mode import groups_tangent
from .grouped_gradients import (
    experts_backward,
    groups_backward,
    save_experts,
    save_groups,
)
from .registration import autograd_function, define, result_type
from .vmap_rules import vmap_each

# --- kernels --------------------------------------------------------------------------------------


def _grouped(
    a: Tensor, b: Tensor, sizes: Tensor, gather: Tensor | None = None,
    scatter: Tensor | None = None, *, counts: bool = False, zeros: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """Rows that ``scatter`` does not name are zeros; with ``zeros`` those of no group are, too."""
    out = None
    if zeros or scatter is not None:
        out = _fake_grouped(a, b, sizes, gather, counts=counts, **options).zero_()
    form = {"counts" if counts else "offsets": sizes, "gather": gather, "scatter": scatter}
    return grouped.grouped_matmul(a, b, out=out, **form, **options)


def _moe(*arrays: Tensor, **options: Any) -> Any:
    return experts.moe(*arrays, **options)


def _moe_saved(
    x: Tensor, w_up: Tensor, w_gate: Tensor, w_down: Tensor, indices: Tensor, weights: Tensor, *,
    activation: str = "silu", device: str | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """As ``moe``, but an expert's entries are in the order of their tokens, so that the gradients
    of the weights, sums over them, have the same bits in each run.
    """
    experts.check(x, w_up, w_gate, w_down, indices, weights)
    groups, choices = w_up.shape[0], indices.shape[1]
    order, ends = _sorted_entries(indices, groups)
    rows = x[order // choices]
    function = ACTIVATIONS[activation]

    def gated(gate: Any, up: Any) -> dict[str, Any]:
        return {"inner": function(gate) * up, "gate": gate, "up": up}

    shape = order.shape[0], w_up.shape[1]  # the rows of no expert stay zeros
    made = {name: x.new_zeros(shape) for name in ("inner", "gate", "up")}
    grouped.grouped_matmul(
        rows, (w_gate.mT, w_up.mT), offsets=ends, epilogue=gated, out=made, device=device
    )
    outer = grouped.grouped_matmul(made["inner"], w_down.mT, offsets=ends, device=device)
    exists = torch.arange(order.shape[0], device=order.device) < ends[-1]
    positions = torch.empty_like(order).scatter_(0, order, _numbers(order))
    positions = torch.where(exists[positions], positions, -1).to(torch.int32)
    y = experts.combine(x, outer, positions, weights, device)
    return y, made["gate"], made["up"], order, ends


def _numbers(order: Tensor) -> Tensor:
    return torch.arange(order.shape[0], device=order.device)


def _sorted_entries(indices: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The entries (token, choice) sorted by expert, those of no expert last, and the end of each
    expert's.
    """
    flat = indices.reshape(-1).long()
    flat = torch.where((flat >= 0) & (flat < groups), flat, groups)
    found, order = torch.sort(flat, stable=True)
    numbers = torch.arange(groups, device=flat.device)
    return order, torch.searchsorted(found, numbers, right=True).to(torch.int32)


# --- fake kernels ---------------------------------------------------------------------------------


def _fake_grouped(
    a: Tensor, b: Tensor, sizes: Tensor, gather: Tensor | None = None, *_: Any,
    counts: bool = False, along: str = "m", out_dtype: Any = None, **__: Any,
) -> Tensor:  # fmt: skip
    if (a.ndim, b.ndim) != ((3 if counts else 2), (2 if along == "k" else 3)):
        raise ProblemError(
            "a and b must be matrices, (groups, capacity, K) where there are counts, and b "
            f"(groups, K, N) where groups are along m, got shapes {tuple(a.shape)} and "
            f"{tuple(b.shape)}"
        )
    torch._check(
        a.shape[-1] == b.shape[-2],
        lambda: f"a must have as many columns as b has rows, got {a.shape} and {b.shape}",
    )
    lead = (sizes.shape[0],) if along == "k" else ()
    rows = a.shape[:-1] if gather is None else gather.shape
    shape = (*lead, *rows, b.shape[-1])
    return a.new_empty(shape, dtype=result_type(a.dtype, out_dtype))


def _fake_moe(x: Tensor, *_: Tensor, **__: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_moe_saved(
    x: Tensor, w_up: Tensor, w_gate: Tensor, w_down: Tensor, indices: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, ...]:
    entries, (groups, intermediate) = indices.numel(), w_up.shape[:2]
    gate, up = (x.new_empty((entries, intermediate)) for _ in range(2))
    order = indices.new_empty((entries,), dtype=torch.int64)
    return x.new_empty(x.shape), gate, up, order, order.new_empty((groups,), dtype=torch.int32)


def _grouped_operations(a: Any, b: Any, _: Any, gather: Any = None, *__: Any, **___: Any) -> int:
    """Those of all rows, whatever the sizes are."""
    rows = prod(a[:-1]) if gather is None else gather[0]
    return int(2 * rows * a[-1] * b[-1])


def _layer_operations(
    x: Any, w_up: Any, w_gate: Any, w_down: Any, indices: Any, *_: Any, **__: Any
) -> int:
    return int(6 * indices[0] * indices[1] * w_up[1] * w_up[2])


_LAYER = (
    "Tensor x, Tensor w_up, Tensor w_gate, Tensor w_down, Tensor indices, Tensor weights, *, "
    'str activation="silu", str? device=None'
)
define(
    "grouped_matmul(Tensor a, Tensor b, Tensor sizes, Tensor? gather=None, Tensor? scatter=None, "
    '*, bool counts=False, str along="m", bool zeros=False, int? expected_rows=None, '
    'ScalarType? out_dtype=None, str precision="ieee", bool fast_accum=False, str? device=None, '
    "str? config=None) -> Tensor",
    _grouped,
    _fake_grouped,
    _grouped_operations,
)
define(f"moe({_LAYER}) -> Tensor", _moe, _fake_moe, _layer_operations)
define(
    f"moe_saved({_LAYER}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _moe_saved,
    _fake_moe_saved,
    _layer_operations,
)
autograd_function(
    "grouped_matmul", save_groups, groups_backward, vmap_each("grouped_matmul"), groups_tangent
)
for _name in ("moe", "moe_saved"):
    autograd_function(_name, save_experts, experts_backward, vmap_each(_name))
    autocast(_name, 4)  # not the router's weights, which may be f32
autocast("grouped_matmul", 2)
