"""``tilewright.grouped_matmul`` and ``moe`` as calls of the operators: the arguments, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import EpilogueError, ProblemError
from ..gemm.epilogue.functions.activation_table import ACTIVATIONS
from ..run.call.grouped import grouped_matmul as grouped
from .call_options import NO_GRADIENT, RECORDED, check_out, operator_options
from .registration import call


def grouped_matmul(
    a: Any,
    b: Any,
    *,
    offsets: Any = None,
    counts: Any = None,
    along: str = "m",
    gather: Any = None,
    scatter: Any = None,
    out: Any = None,
    epilogue: Any = None,
    **options: Any,
) -> Any:
    """``tilewright.grouped_matmul`` through ``torch.ops.tilewright.grouped_matmul``. Rows that
    ``scatter`` does not name are zeros.

    Raises ProblemError for ``out``, matrices that are no tensors and sizes that are not one array,
    EpilogueError for an epilogue or a pair of matrices.
    """
    form = {"offsets": offsets, "counts": counts, "along": along}
    if torch.compiler.is_compiling() and (epilogue is not None or out is not None):
        indices = {"gather": gather, "scatter": scatter}
        return _untraced(a, b, out=out, epilogue=epilogue, **form, **indices, **options)
    if epilogue is not None or isinstance(b, tuple | list):
        raise EpilogueError(
            f"epilogue must be None and b one array where {RECORDED}",
            hint=f"call grouped_matmul for each matrix; {NO_GRADIENT}",
        )
    check_out(out)
    _check_tensors(a=a, b=b)
    if (offsets is None) == (counts is None) or along not in ("m", "k"):
        raise ProblemError(
            "offsets or counts must be given, and along must be 'm' or 'k', got "
            f"{', '.join(name for name, value in form.items() if value is not None)}, {along!r:.20}"
        )
    sizes = torch.as_tensor(counts if offsets is None else offsets, device=a.device)
    named = {"counts": offsets is None, "along": along} | operator_options(**options)
    if gather is not None:
        a = a[gather]
    d = call("grouped_matmul", a, b, sizes, **named)
    return d if scatter is None else _scattered(d, scatter)


def _check_tensors(**arrays: Any) -> None:
    for name, value in arrays.items():
        if not isinstance(value, Tensor):
            raise ProblemError(
                f"{name} must be a tensor where {RECORDED}, got {type(value).__name__}",
                hint=NO_GRADIENT,
            )


def _scattered(d: Tensor, scatter: Any) -> Tensor:
    """D with its rows where ``scatter`` says; index -1 leaves a row out."""
    rows = d.shape[0]
    there = torch.where(scatter < 0, rows, scatter).long()
    return d.new_zeros((rows + 1, d.shape[1])).index_copy(0, there, d)[:rows]


@torch.compiler.disable
def _untraced(*arrays: Any, **options: Any) -> Any:
    """What a compiler calls between two graphs."""
    return grouped.grouped_matmul(*arrays, **options)


def moe(
    x: Any,
    w_up: Any,
    w_gate: Any,
    w_down: Any,
    indices: Any,
    weights: Any,
    *,
    activation: str = "silu",
    device: Any = None,
) -> Any:
    """``tilewright.moe`` through ``torch.ops.tilewright.moe``.

    Raises EpilogueError for an unknown activation.
    """
    if activation not in tuple(ACTIVATIONS):
        allowed = ", ".join(ACTIVATIONS)
        raise EpilogueError(f"activation must be one of {allowed}, got {activation!r:.40}")
    _check_tensors(w_up=w_up, w_gate=w_gate, w_down=w_down)
    arrays = x, w_up, w_gate, w_down, indices, weights
    named: Mapping[str, Any] = {
        "activation": activation, "device": None if device is None else str(device),
    }  # fmt: skip
    if torch.is_grad_enabled() and any(t.requires_grad for t in arrays):
        return call("moe_saved", *arrays, **named)[0]
    return call("moe", *arrays, **named)
