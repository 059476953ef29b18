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
    name, given = ("counts", counts) if offsets is None else ("offsets", offsets)
    sizes = _integers(name, given, a.device)
    named = {"counts": offsets is None, "along": along} | operator_options(**options)
    if gather is None and scatter is None:
        return call("grouped_matmul", a, b, sizes, **named)
    _check_form_of_rows(a, b, sizes, name, along)
    rows = a if gather is None else _integers("gather", gather, a.device)
    numbers = torch.arange(rows.shape[0], device=a.device)
    begin = sizes[0] if sizes.shape[0] > b.shape[0] else 0
    exists = (numbers >= begin) & (numbers < sizes[-1])  # rows of no group may have any index
    if gather is not None:
        a = _gathered(a, torch.where(exists, rows, 0))
    d = call("grouped_matmul", a, b, sizes, **named)
    if scatter is None:
        return d
    there = _integers("scatter", scatter, a.device)
    if there.shape != numbers.shape:
        raise ProblemError(
            f"scatter must have {numbers.shape[0]} elements, the rows of the product, got "
            f"{there.shape[0]}"
        )
    return _scattered(d, torch.where(exists, there, -1))


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


def _check_form_of_rows(a: Tensor, b: Tensor, sizes: Tensor, name: str, along: str) -> None:
    """Raise ProblemError unless rows can be gathered and scattered."""
    if name != "offsets" or along == "k":
        raise ProblemError(
            f"gather and scatter must come with offsets of groups of rows, got {name}, {along=}"
        )
    if a.ndim != 2 or b.ndim != 3 or sizes.shape[0] not in (b.shape[0], b.shape[0] + 1):
        raise ProblemError(
            "a must be (M, K), b (groups, K, N), and offsets must have groups or groups + 1 "
            f"elements, got shapes {tuple(a.shape)}, {tuple(b.shape)} and {tuple(sizes.shape)}"
        )
    if not b.shape[0]:
        raise ProblemError("b must have a matrix for each of 1 or more groups, got none")


def _gathered(a: Tensor, indices: Tensor) -> Tensor:
    """The rows of A that the indices name."""
    try:
        return a.index_select(0, indices)
    except IndexError:
        raise ProblemError(f"gather must name rows of a, which has {a.shape[0]}") from None


def _scattered(d: Tensor, scatter: Tensor) -> Tensor:
    """D with its rows where ``scatter`` says; index -1 leaves a row out."""
    rows = d.shape[0]
    there = torch.where(scatter < 0, rows, scatter).long()
    try:
        return d.new_zeros((rows + 1, d.shape[1])).index_copy(0, there, d)[:rows]
    except IndexError:
        raise ProblemError(f"scatter must name rows of the result, which has {rows}") from None


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
