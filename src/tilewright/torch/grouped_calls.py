"""``tilewright.grouped_matmul`` and ``moe`` as calls of the operators: the arguments, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..errors import DtypeError, EpilogueError, ProblemError
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
    expected_rows: int | None = None,
    out: Any = None,
    epilogue: Any = None,
    **options: Any,
) -> Any:
    """``tilewright.grouped_matmul`` through ``torch.ops.tilewright.grouped_matmul``.

    Raises ProblemError for ``out``, matrices that are no tensors and sizes that are not one array,
    EpilogueError for an epilogue or a pair of matrices.
    """
    form = {"offsets": offsets, "counts": counts, "along": along}
    if torch.compiler.is_compiling() and (epilogue is not None or out is not None):
        indices = {"gather": gather, "scatter": scatter, "expected_rows": expected_rows}
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
    name, given = ("counts", counts) if offsets is None else ("offsets", offsets)
    arrays = (given, gather, scatter)
    sizes, rows, there = (
        None if x is None else _integers(n, x, a.device)
        for n, x in zip((name, "gather", "scatter"), arrays, strict=True)
    )
    named = {"counts": offsets is None, "along": along, "expected_rows": expected_rows}
    named |= operator_options(**options)
    return call("grouped_matmul", a, b, sizes, rows, there, **named)


def _check_tensors(**arrays: Any) -> None:
    for name, value in arrays.items():
        if not isinstance(value, Tensor):
            raise ProblemError(
                f"{name} must be a tensor where {RECORDED}, got {type(value).__name__}",
                hint=NO_GRADIENT,
            )


def _integers(name: str, value: Any, device: torch.device) -> Tensor:
    """Indices or sizes as a tensor on the device of the matrices."""
    try:
        tensor = torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ProblemError(f"{name} must be integers, got {value!r:.60}") from None
    if tensor.dtype not in (torch.int32, torch.int64):
        raise DtypeError(f"{name} must be one of s32, s64, got {tensor.dtype}")
    if tensor.ndim != 1:
        raise ProblemError(f"{name} must have one dimension, got shape {tuple(tensor.shape)}")
    return tensor


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
    arrays = x, w_up, w_gate, w_down, indices, weights
    names = "x", "w_up", "w_gate", "w_down", "indices", "weights"
    _check_tensors(**dict(zip(names, arrays, strict=True)))
    named: Mapping[str, Any] = {
        "activation": activation, "device": None if device is None else str(device),
    }  # fmt: skip
    if torch.is_grad_enabled() and any(t.requires_grad for t in arrays):
        return call("moe_saved", *arrays, **named)[0]
    return call("moe", *arrays, **named)
