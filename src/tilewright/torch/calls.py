"""``tilewright.matmul`` and ``linear`` as calls of the operators: the arguments, checked.

``run`` calls these two where a call of torch tensors is more than a computation on memory; Dynamo
traces them in place of the functions of ``run``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..errors import EpilogueError, ProblemError
from ..lazy_imports import UNTRACED
from ..quantization import Packed
from ..run.call import linear as layer
from ..run.call import matmul as product
from ..run.call.alpha_beta import ALPHA, BETA
from ..run.call.request import MatmulOptions
from ..sparsity import Sparse24
from . import recorded_epilogue
from .call_options import RECORDED, check_out, operator_options
from .grouped_calls import grouped_matmul as grouped_matmul
from .grouped_calls import moe as moe
from .quantized_operators import packed_arrays
from .recorded_layer import RecordedCall, recorded_call
from .registration import call

_DEFAULTS = MatmulOptions()._asdict()


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

    Raises ProblemError for ``out``, and for α and β that are tensors without an epilogue.
    """
    names = "out_dtype", "precision", "fast_accum", "device", "config", "static"
    if torch.compiler.is_compiling() and (epilogue is not None or out is not None):
        factors = {"c": c, "alpha": alpha, "beta": beta}
        return _untraced_matmul(a, b, out=out, epilogue=epilogue, **factors, **options)
    own = {name: options.pop(name) for name in names if name in options}
    if epilogue is not None:
        factors = {"c": (c, None), "alpha": (alpha, ALPHA), "beta": (beta, BETA)}
        operands = options | {n: x for n, (x, default) in factors.items() if x is not default}
        return recorded_epilogue.matmul(a, b, epilogue, operands, out, {**_DEFAULTS, **own})
    if options:
        raise TypeError(f"matmul() got unexpected arguments {', '.join(options)}")
    check_out(out)
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        scaled = None if (alpha, beta) == (ALPHA, BETA) else (alpha, beta)
        _check_absent("packed and sparse matrices", c=c, alpha_and_beta=scaled)
        if isinstance(a, torch.Tensor):
            return _with_weights(a, b.T, None, own)
        d = _with_weights(b if b.ndim == 1 else b.mT, a, None, own)
        return d if b.ndim == 1 else d.mT
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, int | float):
            raise ProblemError(
                f"{name} must be a number where {RECORDED}, got {type(value).__name__}",
                hint="multiply the result",
            )
    return call("matmul", a, b, c, alpha=alpha, beta=beta, **operator_options(**own))


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

    Raises ProblemError for ``out``, EpilogueError for an unknown activation.
    """
    by_name = activation is None or isinstance(activation, str)
    if torch.compiler.is_compiling() and not (by_name and out is None):
        more = {"gate": gate, "residual": residual, "save": save, "out": out}
        return _untraced_linear(x, w, bias, activation=activation, **more, **options)
    check_out(out)
    if not isinstance(w, torch.Tensor):
        _check_absent("packed and sparse weights", gate=gate, residual=residual, save=save or None)
        return _with_weights(x, w, bias, {"activation": activation, **options})
    arrays = x, w, bias, gate, residual
    if callable(activation):
        return recorded_epilogue.layer(*arrays, activation, save, {**_DEFAULTS, **options})
    if activation is not None and activation not in layer.ACTIVATIONS:
        allowed = ", ".join(layer.ACTIVATIONS)
        raise EpilogueError(
            f"activation must be a function or one of {allowed}, got {activation!r:.60}"
        )
    own = {"activation": activation} | operator_options(**options)
    fused = activation is not None or gate is not None
    if save:
        names = ("y", *layer.SAVED)
        values = dict(zip(names, call("linear_saved", *arrays, **own), strict=True))
        return {name: values[name] for name in ("y", *layer.check_saved(save, gate is not None))}
    if fused and torch.is_grad_enabled():
        if any(t is not None and t.requires_grad for t in arrays):
            return call("linear_saved", *arrays, **own)[0]
    return call("linear", *arrays, **own)


def _with_weights(x: Any, w: Any, bias: Any, given: Mapping[str, Any]) -> Any:
    """A layer with Packed or Sparse24 weights N×K."""
    options = dict(given)
    for name in ("precision", "fast_accum", "config", "static"):
        if options.pop(name, None) not in (None, False, "ieee"):
            _check_absent("packed and sparse weights", **{name: True})
    if options.get("out_dtype") is not None:
        options["out_dtype"] = operator_options(options["out_dtype"])["out_dtype"]
    if isinstance(w, Packed) and not w.transposed:
        arrays, of_weights = packed_arrays(w)
        return call("packed_linear", x, *arrays, bias, **options, **of_weights)
    if isinstance(w, Sparse24) and not w.transposed:
        return call("sparse_linear", x, w.values, w.metadata, bias, type=w.type, **options)
    raise ProblemError(
        f"weights must be a tensor, Packed or Sparse24 where {RECORDED}, got {w}",
        hint="tilewright.torch.fp8_linear quantizes tensors and records gradients",
    )


def _check_absent(what: str, **arguments: Any) -> None:
    for name, value in arguments.items():
        if value is not None:
            raise ProblemError(f"{name} must be left out with {what} where {RECORDED}")


def repeated_linear(
    arrays: Sequence[Any], activation: Any, save: Any, options: Mapping[str, Any]
) -> RecordedCall | None:
    """What repeats a call that ``linear`` has made and whose gradient was recorded; None if the
    operator must. ``arrays``: x, w, bias, gate, residual, out.
    """
    if (
        save
        or arrays[5] is not None
        or not isinstance(arrays[1], torch.Tensor)
        or not (activation is None or isinstance(activation, str))
    ):
        return None
    return recorded_call(arrays[:5], {"activation": activation, **options})


@torch.compiler.disable
def _untraced_matmul(*arrays: Any, **options: Any) -> Any:
    """What a compiler calls between two graphs."""
    return product.matmul(*arrays, **options)


@torch.compiler.disable
def _untraced_linear(*arrays: Any, **options: Any) -> Any:
    """What a compiler calls between two graphs."""
    return layer.linear(*arrays, **options)


@torch.compiler.disable
def call_untraced(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What a compiler calls between two graphs in place of a function that computes on memory."""
    return function(*arguments, **named)


def run_untraced(*functions: Any) -> None:
    """Let Dynamo compile neither the code of these functions nor what it calls."""
    dynamo = torch._C._dynamo.eval_frame
    skip = getattr(dynamo, "_FrameAction", None) and dynamo._FrameAction.SKIP
    for function in functions:
        if skip is None:  # before torch 2.7
            dynamo.skip_code(function.__code__)
        else:
            strategy = dynamo._FrameExecStrategy(skip, skip)
            dynamo.set_code_exec_strategy(function.__code__, strategy)


run_untraced(product.matmul, layer.linear, *UNTRACED)
