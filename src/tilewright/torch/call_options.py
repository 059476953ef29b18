"""Arguments that calls of the operators share."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import ProblemError
from ..run.call.request import format_name
from .registration import TYPES

RECORDED = "a gradient is recorded or a call is traced"
NO_GRADIENT = "within torch.no_grad(), or of detached tensors, it is a computation on memory"


def check_out(out: Any) -> None:
    """Raise ProblemError for a result that the caller made."""
    if out is not None:
        raise ProblemError(f"out must be None where {RECORDED}", hint=NO_GRADIENT)


def operator_options(
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: Any = None,
    static: Any = None,
) -> dict[str, Any]:
    """The options as the operators take them."""
    if static is not None:
        raise ProblemError(
            f"static must be None where {RECORDED}, got {static!r:.60}",
            hint=NO_GRADIENT,
        )
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = TYPES[format_name(out_dtype)]
    return {
        "out_dtype": out_dtype,
        "precision": precision,
        "fast_accum": fast_accum,
        "device": None if device is None else str(device),
        "config": None if config is None else str(config),
    }
