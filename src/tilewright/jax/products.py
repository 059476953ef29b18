"""``matmul`` and ``linear`` for JAX programs, with derivatives in both modes and of any order.

A derivative is again made of products, which are custom calls with transposed operands, and of the
activations' backward functions, which are linear in the gradient: forward mode multiplies by the
same derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from .. import dtypes
from ..errors import DtypeError, EpilogueError, ProblemError
from ..gemm.epilogue.functions.activation_table import ACTIVATIONS, DERIVATIVES
from ..run.call.request import default_result
from .graph_in_jax import evaluate
from .product_primitive import ProductOptions, custom_call, product, result_of, type_names
from .trace_checks import check_differentiable, check_types


def matmul(
    a: Any, b: Any, *, out_dtype: Any = None, precision: str = "ieee", fast_accum: bool = False,
    device: str | None = None,
) -> jax.Array:  # fmt: skip
    """``a @ b`` by NumPy's rules for batch dimensions and vectors, under ``jax.jit``, ``jax.grad``
    and ``jax.vmap``.

    The types, ``precision`` and ``fast_accum`` are those of ``tilewright.matmul``; ``out_dtype``:
    the result's type. ``device``: where arrays on the CPU are multiplied (``"vm"``, ``"cuda"``).
    Raises ProblemError for shapes that do not fit or that are symbolic, DtypeError.
    """
    a, b = jnp.asarray(a), jnp.asarray(b)
    _check_static(a=a, b=b)
    if not a.ndim or not b.ndim:
        raise ProblemError(f"a and b must have dimensions, got shapes {a.shape} and {b.shape}")
    rows, columns = a.ndim > 1, b.ndim > 1
    a, b = a if rows else a[None], b if columns else b[:, None]
    if a.shape[-1] != b.shape[-2]:
        raise ProblemError(f"K of a and b must be equal, got shapes {a.shape} and {b.shape}")
    options = _options(a, out_dtype, precision, fast_accum, device)
    d = product(a, b, (False, False), options)
    d = d if columns else d[..., 0]
    return d if rows else d[..., 0, :] if columns else d[..., 0]


def _check_static(**arrays: jax.Array) -> None:
    for name, x in arrays.items():
        if not all(isinstance(n, int) for n in x.shape):
            raise ProblemError(
                f"{name} must have a static shape, got {x.shape}: a kernel is chosen by the sizes",
                hint="export the program for each shape, or pad to a few of them",
            )


def _options(
    x: jax.Array, out_dtype: Any, precision: str, fast_accum: bool, device: Any
) -> ProductOptions:
    given = dtypes.from_numpy(x.dtype).name
    name = default_result(given) if out_dtype is None else dtypes.dtype(out_dtype).name
    kept = jax.dtypes.canonicalize_dtype(dtypes.dtype(name).numpy)
    if kept != dtypes.dtype(name).numpy:
        raise DtypeError(f"JAX has {name} disabled", hint="jax.config: jax_enable_x64")
    if not isinstance(fast_accum, bool):
        raise ProblemError(f"fast_accum must be True or False, got {fast_accum!r:.60}")
    return ProductOptions(name, precision, fast_accum, None if device is None else str(device))


# --- layers -------------------------------------------------------------------------------------


class _Layer(NamedTuple):
    """What a layer's custom call is, besides its arrays: the names of those after x and w."""

    activation: str | None
    operands: tuple[str, ...]
    options: ProductOptions


def linear(
    x: Any, w: Any, bias: Any = None, *, activation: str | None = None, gate: Any = None,
    residual: Any = None, out_dtype: Any = None, precision: str = "ieee", fast_accum: bool = False,
    device: str | None = None,
) -> jax.Array:  # fmt: skip
    """activation(x wᵀ + bias) + residual, or activation(x gateᵀ) · (x wᵀ + bias) + residual, in one
    kernel, under ``jax.jit``, ``jax.grad`` and ``jax.vmap``.

    ``x`` (…, K), ``w`` and ``gate`` (N, K), ``bias`` (N,), ``residual`` (…, N); ``activation``: a
    name that ``tilewright.linear`` takes. The other arguments are those of ``matmul``. Raises
    ProblemError for shapes that do not fit or that are symbolic, EpilogueError, DtypeError.
    """
    if activation is not None and activation not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise EpilogueError(f"activation must be one of {allowed}, got {activation!r:.60}")
    x, w = jnp.asarray(x), jnp.asarray(w)
    optional = {"bias": bias, "gate": gate, "residual": residual}
    arrays = {name: jnp.asarray(y) for name, y in optional.items() if y is not None}
    _check_static(x=x, w=w, **arrays)
    if w.ndim != 2 or not x.ndim or x.shape[-1] != w.shape[1]:
        raise ProblemError(f"x and w must be (…, K) and (N, K), got {x.shape} and {w.shape}")
    shape = *x.shape[:-1], w.shape[0]
    expected = {"bias": shape[-1:], "gate": w.shape, "residual": shape}
    for name, y in arrays.items():
        if y.shape != expected[name]:
            raise ProblemError(f"{name} must have shape {expected[name]}, got {y.shape}")
    options = _options(x, out_dtype, precision, fast_accum, device)
    layer = _Layer(activation, tuple(arrays), options)
    made: jax.Array = _layer(layer, (), x, w, *arrays.values())[0]
    return made


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _layer(
    layer: _Layer, saved: tuple[str, ...], x: jax.Array, w: jax.Array, *arrays: jax.Array
) -> list[jax.Array]:
    """The layer's output and the values of ``saved``."""
    types, options = type_names(x, w, *arrays), layer.options.requested()
    check_types(types, options, layer.operands, layer.activation, saved)
    shape = result_of((*x.shape[:-1], w.shape[0]), layer.options.out_dtype)
    what = {
        "op": "linear", "activation": layer.activation, "saved": saved,
        "operands": ("x", "w", *layer.operands), "options": layer.options.passed(),
    }  # fmt: skip
    return list(custom_call(what, [shape] * (1 + len(saved)), (x, w, *arrays)))


@partial(_layer.defjvp, symbolic_zeros=True)
def _layer_tangents(
    layer: _Layer, saved: tuple[str, ...], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[jax.Array], list[jax.Array]]:
    names = "x", "w", *layer.operands
    check_differentiable(**dict(zip("xw", type_names(*primals[:2]), strict=True)))
    gated = "gate" in layer.operands
    kept: tuple[str, ...] = ()
    if layer.activation is not None or gated:
        kept = ("preactivation", "gate") if gated else ("preactivation",)
    y, *values = _layer(layer, kept, *primals)
    given = dict(zip(names, primals, strict=True))
    moved = {n: t for n, t in zip(names, tangents, strict=True) if not isinstance(t, SymbolicZero)}
    named = {"y": y, **dict(zip(kept, values, strict=True))}
    found = _tangents(layer, given, moved, named)
    results = ("y", *saved)
    return [named[name] for name in results], [
        found[name].astype(y.dtype) if name in found else jnp.zeros_like(y) for name in results
    ]


def _tangents(
    layer: _Layer, given: dict[str, Any], moved: dict[str, Any], values: dict[str, jax.Array]
) -> dict[str, jax.Array]:
    """The tangents of the layer's values that are not 0, in f32."""
    dz = _affine(layer, given["x"], given["w"], moved.get("x"), moved.get("w"), moved.get("bias"))
    gate, dgate = values.get("gate"), None
    if gate is not None:
        dgate = _affine(layer, given["x"], given["gate"], moved.get("x"), moved.get("gate"), None)
    parts = _activated(layer.activation, values.get("preactivation"), gate, dz, dgate)
    if "residual" in moved:
        parts.append(moved["residual"].astype(jnp.float32))
    found = {"preactivation": dz, "gate": dgate, "y": sum(parts[1:], parts[0]) if parts else None}
    return {name: tangent for name, tangent in found.items() if tangent is not None}


def _affine(
    layer: _Layer, x: jax.Array, w: jax.Array, dx: Any, dw: Any, dbias: Any
) -> jax.Array | None:
    """The tangent of x wᵀ + bias."""
    shape = *x.shape[:-1], w.shape[0]
    pairs = [pair for pair in ((dx, w), (x, dw)) if pair[0] is not None and pair[1] is not None]
    parts = [
        product(rows.reshape(-1, rows.shape[-1]), of, (False, True), layer.options)
        .reshape(shape)
        .astype(jnp.float32)
        for rows, of in pairs
    ]
    if dbias is not None:
        parts.append(jnp.broadcast_to(dbias.astype(jnp.float32), shape))
    return sum(parts[1:], parts[0]) if parts else None


def _activated(activation: str | None, z: Any, gate: Any, dz: Any, dgate: Any) -> list[jax.Array]:
    """The terms of the tangent of f(z), or of f(gate) · z."""
    function = None if activation is None else ACTIVATIONS[activation]

    def derivative(d: jax.Array, at: jax.Array) -> jax.Array:
        made: jax.Array = d if activation is None else evaluate(DERIVATIVES[activation], d, at)
        return made

    if gate is None:
        return [] if dz is None else [derivative(dz, z) if activation is not None else dz]
    terms = []
    if dz is not None:
        terms.append(dz * (gate if function is None else evaluate(function, gate)))
    if dgate is not None:
        terms.append(derivative(dgate * z, gate))
    return terms
