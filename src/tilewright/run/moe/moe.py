"""``moe``: a layer of experts with a gated activation, from the router's choices to the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...builder import Traced
from ...errors import DtypeError, ProblemError
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..call.grouped.grouped_matmul import grouped_matmul
from ..call.kernel_call import launch
from ..call.linear import ACTIVATIONS
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
    (-1) is left out. The result has the shape and type of ``x``.

    Tokens are sorted by expert on the device; the products are two ``grouped_matmul``, the first
    with ``activation`` (a name that ``linear`` takes) fused. Its result and each expert's are
    rounded to ``x``'s type; the sum over j is one of FMAs in f32, in the order of j. The host does
    not wait.

    Raises ProblemError, DtypeError and what ``grouped_matmul`` raises.
    """
    if activation not in tuple(ACTIVATIONS):  # which a list may be compared with
        raise ProblemError(
            f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r:.40}"
        )
    views = {
        name: array_view.view(array)
        for name, array in (
            ("x", x), ("w_up", w_up), ("w_gate", w_gate), ("w_down", w_down),
            ("indices", indices), ("weights", weights),
        )
    }  # fmt: skip
    experts = _check(views)
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
    gates_and_ups = w_gate.swapaxes(-1, -2), w_up.swapaxes(-1, -2)
    inner = grouped_matmul(
        rows, gates_and_ups, offsets=ends, gather=gather, epilogue=_gated(activation),
        device=device,
    )  # fmt: skip
    outer = grouped_matmul(inner, w_down.swapaxes(-1, -2), offsets=ends, device=device)
    combine = outer, hidden, choices, positions, weights, d
    kernel = kernels.combine(type_, views["weights"].dtype)
    _launch(kernel, tokens, kernels.ROW_THREADS, combine, device)
    return finish(x, d)


def _gated(activation: str) -> Callable[..., Any]:
    function = ACTIVATIONS[activation]

    def gated(gate: Any, up: Any) -> Any:
        return function(gate) * up

    return gated


def _launch(kernel: Traced, ctas: int, threads: int, arguments: Any, device: Any) -> None:
    grid, block = (ctas, 1, 1), (threads, 1, 1)
    launch(kernel, grid, block, arguments, device=device, programmatic=True)


def _check(views: dict[str, ArrayView]) -> int:
    """The number of experts. Raises ProblemError, DtypeError."""
    x, up, indices = views["x"], views["w_up"], views["indices"]
    if (len(x.shape), len(up.shape), len(indices.shape)) != (2, 3, 2):
        shapes = f"got {x.shape}, {up.shape}, {indices.shape}"
        raise ProblemError(
            "x must be (tokens, hidden), w_up (experts, intermediate, hidden) and indices "
            f"(tokens, choices), {shapes}"
        )
    (tokens, hidden), (experts, intermediate, _) = x.shape, up.shape
    expected = {
        "w_up": (experts, intermediate, hidden), "w_gate": (experts, intermediate, hidden),
        "w_down": (experts, hidden, intermediate), "indices": (tokens, indices.shape[1]),
        "weights": (tokens, indices.shape[1]),
    }  # fmt: skip
    for name, shape in expected.items():
        if views[name].shape != shape:
            raise ProblemError(f"{name} must have shape {shape}, got {views[name].shape}")
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
