"""``moe``: a layer of experts with a gated activation, from the router's choices to the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...builder import Traced
from ...errors import DtypeError, ProblemError
from ...gemm.block_scaling import BLOCK
from ...lazy_imports import calling
from ...quantization.matrix_operators import MatrixOperators
from ...quantization.packed import Packed
from ...quantization.quantizers import quantize
from ...quantization.scaled import Scaled
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..call.grouped.grouped_matmul import grouped_matmul
from ..call.kernel_call import launch
from ..call.linear import ACTIVATIONS
from ..call.scaled.scaled_operands import has_line_scales
from . import routing_kernels as kernels

GATHERED_ROWS = 128  # of an expert on average, at most, that the first product gathers itself
TYPES, WEIGHT_TYPES, INDEX_TYPES = ("f16", "bf16"), ("f32", "f16", "bf16"), ("s32", "s64")


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
    """y[t] = Σ_j weights[t, j] · w_down[e] (act(w_gate[e] x[t]) · w_up[e] x[t]), e = indices[t, j].

    ``x`` (tokens, hidden), f16 or bf16, with contiguous rows of a multiple of 16 bytes; ``w_up``
    and ``w_gate`` (experts, intermediate, hidden), ``w_down`` (experts, hidden, intermediate), at
    most 1,024 experts; ``indices`` (tokens, choices), int32 or int64, and ``weights`` of the
    same shape, f32, f16 or bf16, both row-major and contiguous. A choice that is no expert
    (-1) is left out. The result has the shape and type of ``x``. Weights may be stacks of
    ``Packed``, 2:4 sparse or ``Scaled`` matrices, of the same shapes. Rows that ``Scaled`` matrices
    multiply are quantized to their type, by row, or in blocks of 1×128 where their scales vary
    along K.

    Tokens are sorted by expert on the device; the products are two ``grouped_matmul``, the first
    with ``activation`` (a name that ``linear`` takes) fused. It is two where only one of ``w_up``
    and ``w_gate`` is packed, and the activated gate is rounded, too. Its result and each expert's
    are rounded to ``x``'s type; the sum over j is one of FMAs in f32, in the order of j. The host
    does not wait.

    Raises ProblemError, DtypeError and what ``grouped_matmul`` raises.
    """
    if activation not in tuple(ACTIVATIONS):  # which a list may be compared with
        raise ProblemError(
            f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r:.40}"
        )
    arrays = x, w_up, w_gate, w_down, indices, weights
    if own := array_view.operators(arrays):
        return own.moe(*arrays, activation=activation, device=device)
    views, experts = check(*arrays)
    (tokens, hidden), choices = views["x"].shape, views["indices"].shape[1]
    type_, entries = views["x"].dtype, tokens * choices
    kind = array_view.kind_of(x)
    finish = kind.finish or (lambda like, array: array)
    d = kind.empty(x, (tokens, hidden), type_)
    if not entries or not hidden:
        d[...] = 0
        return finish(x, d)
    positions, tokens_of, ends = (kind.empty(x, (n,), "s32") for n in (entries, entries, experts))
    route = indices, entries, choices, experts, positions, tokens_of, ends
    _launch(kernels.route(views["indices"].dtype), 1, kernels.THREADS, route, device)
    positions, tokens_of, ends = (finish(x, array) for array in (positions, tokens_of, ends))
    if entries <= GATHERED_ROWS * experts:
        rows, gather = x, tokens_of
    else:
        rows, gather = kind.empty(x, (entries, hidden), type_), None
        permute = x, views["x"].strides[0], hidden, choices, positions, rows
        _launch(kernels.permute(type_), tokens, kernels.ROW_THREADS, permute, device)
        rows = finish(x, rows)
    how = {"offsets": ends, "gather": gather, "device": device}
    if isinstance(w_up, Scaled):
        rows, how["out_dtype"] = _quantized(rows, w_up), type_
    if isinstance(w_up, Packed) != isinstance(w_gate, Packed):
        gate = grouped_matmul(rows, _transposed(w_gate), epilogue=ACTIVATIONS[activation], **how)
        inner = grouped_matmul(rows, _transposed(w_up), epilogue=_times, gate=gate, **how)
    else:
        pair = _transposed(w_gate), _transposed(w_up)
        inner = grouped_matmul(rows, pair, epilogue=_gated(activation), **how)
    how = {"offsets": ends, "device": device}
    if isinstance(w_down, Scaled):
        inner, how["out_dtype"] = _quantized(inner, w_down), type_
    outer = grouped_matmul(inner, _transposed(w_down), **how)
    return combine(x, outer, positions, weights, device, d)


# what torch.compile traces in place of ``moe``
moe._torchdynamo_inline = calling("torch_operators", "moe")  # type: ignore[attr-defined]


def combine(
    x: Any, outer: Any, positions: Any, weights: Any, device: Any = None, d: Any = None
) -> Any:
    """For each row of ``x`` the sum of its choices' rows of ``outer``, times their ``weights``.
    ``positions``: the row of each choice, s32, -1 where it is no expert. ``d``: the result, made by
    ``x``'s library.
    """
    view, of_weights, kind = array_view.view(x), array_view.view(weights), array_view.kind_of(x)
    (tokens, hidden), choices = view.shape, of_weights.shape[1]
    d = kind.empty(x, view.shape, view.dtype) if d is None else d
    kernel = kernels.combine(view.dtype, of_weights.dtype)
    arguments = outer, hidden, choices, positions, weights, d
    if tokens and hidden:
        _launch(kernel, tokens, kernels.ROW_THREADS, arguments, device)
    return kind.finish(x, d) if kind.finish else d


def _transposed(weights: Any) -> Any:
    """A matrix B for each expert."""
    is_stored = isinstance(weights, MatrixOperators)
    return weights.T if is_stored else weights.swapaxes(-1, -2)


def _quantized(rows: Any, weights: Scaled) -> Scaled:
    """Rows as the weights (N, K) can multiply them."""
    by_line = has_line_scales(weights, along_k=1)
    return quantize(rows, weights.type, "row" if by_line else (1, BLOCK))


def _times(acc: Any, gate: Any) -> Any:
    return acc * gate


def _gated(activation: str) -> Callable[..., Any]:
    function = ACTIVATIONS[activation]

    def gated(gate: Any, up: Any) -> Any:
        return function(gate) * up

    return gated


def _launch(kernel: Traced, ctas: int, threads: int, arguments: Any, device: Any) -> None:
    grid, block = (ctas, 1, 1), (threads, 1, 1)
    launch(kernel, grid, block, arguments, device=device, programmatic=True)


def check(
    x: Any, w_up: Any, w_gate: Any, w_down: Any, indices: Any, weights: Any
) -> tuple[dict[str, ArrayView], int]:
    """The views of x, indices and weights, and the number of experts of ``moe``'s arguments.

    Raises ProblemError, DtypeError.
    """
    views = {
        name: array_view.view(array)
        for name, array in (("x", x), ("indices", indices), ("weights", weights))
    }
    return views, _check(views, {"w_up": w_up, "w_gate": w_gate, "w_down": w_down})


def _check(views: dict[str, ArrayView], matrices: dict[str, Any]) -> int:
    """The number of experts. Raises ProblemError, DtypeError."""
    x, indices = views["x"], views["indices"]
    stacks: dict[str, Any] = {
        name: w if isinstance(w, MatrixOperators) else array_view.view(w)
        for name, w in matrices.items()
    }
    shapes_of: dict[str, tuple[int, ...]] = {
        name: tuple(w.shape) for name, w in (views | stacks).items()
    }
    up = stacks["w_up"]
    if (len(x.shape), len(up.shape), len(indices.shape)) != (2, 3, 2):
        shapes = f"got {x.shape}, {up.shape}, {indices.shape}"
        raise ProblemError(
            "x must be (tokens, hidden), w_up (experts, intermediate, hidden) and indices "
            f"(tokens, choices), {shapes}"
        )
    (tokens, hidden), (experts, intermediate, _) = x.shape, shapes_of["w_up"]
    expected = {
        "w_up": (experts, intermediate, hidden), "w_gate": (experts, intermediate, hidden),
        "w_down": (experts, hidden, intermediate), "indices": (tokens, indices.shape[1]),
        "weights": (tokens, indices.shape[1]),
    }  # fmt: skip
    for name, shape in expected.items():
        if shapes_of[name] != shape:
            raise ProblemError(f"{name} must have shape {shape}, got {shapes_of[name]}")
    for name in ("indices", "weights"):
        if not array_view.is_contiguous(views[name]):
            what = f"{name} must be contiguous, got strides {views[name].strides}"
            raise ProblemError(
                what, hint="make a copy: torch's x.contiguous(), numpy.ascontiguousarray(x)"
            )
    if not 1 <= experts <= kernels.MAX_EXPERTS:
        raise ProblemError(f"experts must be 1 to {kernels.MAX_EXPERTS}, got {experts}")
    types = {"x": TYPES, "indices": INDEX_TYPES, "weights": WEIGHT_TYPES}
    for name, allowed in types.items():
        if views[name].dtype not in allowed:
            what = f"{name} must be one of {', '.join(allowed)}, got {views[name].dtype}"
            raise DtypeError(what)
    aligned = x.address % 16 == 0 and x.strides[0] % 8 == 0 and hidden % 8 == 0
    if tokens and hidden and not (aligned and x.strides[1] == 1):
        raise ProblemError(
            f"x must have contiguous rows of a multiple of 16 bytes, got shape {x.shape} and "
            f"strides {x.strides}",
            hint="pad hidden to a multiple of 8",
        )
    return experts
