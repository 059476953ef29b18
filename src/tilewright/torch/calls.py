"""``tilewright.matmul`` and ``linear`` as calls of the operators: the arguments, checked.

``run`` calls these two where a call of torch tensors is more than a computation on memory; Dynamo
traces them in place of the functions of ``run``.
"""

from __future__ import annotations

from typing import Any

import torch

from ..errors import EpilogueError, ProblemError
from ..run.call import linear as layer
from ..run.call import matmul as product
from ..run.call.alpha_beta import ALPHA, BETA
from ..run.call.request import format_name
from .operators import TYPES, call

_NO_GRADIENT = "within torch.no_grad(), or of detached tensors, it is a computation on memory"


def matmul(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    alpha: Any = ALPHA,
    beta: Any = BETA,
    out: Any = None,
    epilogue: Any = None,
    **options: Any,
) -> Any:
    """``tilewright.matmul`` through ``torch.ops.tilewright.matmul``.

    Raises ProblemError for ``out``, EpilogueError for an epilogue, ProblemError for α and β that
    are tensors.
    """
    names = "out_dtype", "precision", "fast_accum", "device", "config"
    if torch.compiler.is_compiling() and (epilogue is not None or out is not None):
        factors = {"c": c, "alpha": alpha, "beta": beta}
        return _untraced_matmul(a, b, out=out, epilogue=epilogue, **factors, **options)
    own = {name: options.pop(name) for name in names if name in options}
    if epilogue is not None or options:
        raise EpilogueError(
            "epilogue must be None where a gradient is recorded or a call is traced",
            hint=f"tilewright.linear has activations and their gradients; {_NO_GRADIENT}",
        )
    _check_out(out)
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, int | float):
            raise ProblemError(
                f"{name} must be a number where a gradient is recorded or a call is traced, got "
                f"{type(value).__name__}",
                hint="multiply the result",
            )
    return call("matmul", a, b, c, alpha=alpha, beta=beta, **_options(**own))


def linear(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    activation: Any = None,
    gate: Any = None,
    residual: Any = None,
    save: tuple[str, ...] = (),
    out: Any = None,
    **options: Any,
) -> Any:
    """``tilewright.linear`` through ``torch.ops.tilewright.linear``.

    Raises ProblemError for ``out``, EpilogueError for an activation that is a function.
    """
    by_name = activation is None or isinstance(activation, str)
    if torch.compiler.is_compiling() and not (by_name and out is None):
        more = {"gate": gate, "residual": residual, "save": save, "out": out}
        return _untraced_linear(x, w, bias, activation=activation, **more, **options)
    _check_out(out)
    if activation is not None and activation not in layer.ACTIVATIONS:
        allowed = ", ".join(layer.ACTIVATIONS)
        raise EpilogueError(
            f"activation must be one of {allowed} where a gradient is recorded or a call is "
            f"traced, got {activation!r:.60}",
            hint=_NO_GRADIENT,
        )
    arrays = x, w, bias, gate, residual
    own = {"activation": activation} | _options(**options)
    fused = activation is not None or gate is not None
    if save:
        names = ("y", *layer.SAVED)
        values = dict(zip(names, call("linear_saved", *arrays, **own), strict=True))
        return {name: values[name] for name in ("y", *layer.check_saved(save, gate is not None))}
    if fused and torch.is_grad_enabled():
        if any(t is not None and t.requires_grad for t in arrays):
            return call("linear_saved", *arrays, **own)[0]
    return call("linear", *arrays, **own)


@torch.compiler.disable
def _untraced_matmul(*arrays: Any, **options: Any) -> Any:
    """What a compiler calls between two graphs."""
    return product.matmul(*arrays, **options)


@torch.compiler.disable
def _untraced_linear(*arrays: Any, **options: Any) -> Any:
    """What a compiler calls between two graphs."""
    return layer.linear(*arrays, **options)


def _run_untraced(*functions: Any) -> None:
    """Let Dynamo compile neither the code of these functions nor what it calls."""
    dynamo = torch._C._dynamo.eval_frame
    skip = getattr(dynamo, "_FrameAction", None) and dynamo._FrameAction.SKIP
    for function in functions:
        if skip is None:  # before torch 2.7
            dynamo.skip_code(function.__code__)
        else:
            strategy = dynamo._FrameExecStrategy(skip, skip)
            dynamo.set_code_exec_strategy(function.__code__, strategy)


_run_untraced(product.matmul, layer.linear)


def _check_out(out: Any) -> None:
    if out is not None:
        raise ProblemError(
            "out must be None where a gradient is recorded or a call is traced",
            hint=_NO_GRADIENT,
        )


def _options(
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: Any = None,
) -> dict[str, Any]:
    """The options as the operators take them."""
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        out_dtype = TYPES[format_name(out_dtype)]
    return {
        "out_dtype": out_dtype,
        "precision": precision,
        "fast_accum": fast_accum,
        "device": None if device is None else str(device),
        "config": None if config is None else str(config),
    }
