"""``matmul`` and ``linear`` for JAX programs, with gradients.

A gradient is again made of products, which are custom calls with transposed operands, and of the
activations' backward functions. Both functions can be differentiated in reverse any number of
times; forward-mode derivatives (``jax.jvp``) do not exist.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .. import dtypes
from ..errors import DtypeError, EpilogueError, ProblemError
from ..gemm.epilogue.functions.activation_table import ACTIVATIONS, DERIVATIVES
from ..run.call.request import MatmulOptions, default_result
from .custom_calls import registered
from .graph_in_jax import evaluate
from .trace_checks import check_differentiable, check_types


class ProductOptions(NamedTuple):
    """The options of ``matmul`` that a custom call passes on; ``out_dtype`` is a name."""

    out_dtype: str
    precision: str
    fast_accum: bool
    device: str | None

    def passed(self) -> dict[str, Any]:
        """As keyword arguments, without the result's type, which its array has."""
        options = self._asdict()
        del options["out_dtype"]
        return options

    def requested(self) -> MatmulOptions:
        """As a call's options, to check them."""
        return MatmulOptions(self.out_dtype, self.precision, self.fast_accum)


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
    d = _product(a, b, (False, False), options)
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


def _types(*arrays: jax.Array) -> tuple[str, ...]:
    return tuple(dtypes.from_numpy(x.dtype).name for x in arrays)


def _call(what: dict[str, Any], results: Any, args: Sequence[jax.Array]) -> Any:
    """The custom call; under ``jax.vmap`` operands without the batch have a dimension of 1."""
    call = jax.ffi.ffi_call(registered(), results, vmap_method="expand_dims")
    return call(*args, call=json.dumps(what))


def _result(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtypes.dtype(dtype).numpy)


# --- products -----------------------------------------------------------------------------------

Transposed = tuple[bool, bool]


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(
    a: jax.Array, b: jax.Array, transposed: Transposed, options: ProductOptions
) -> jax.Array:
    """The product of matrices or stacks of them, of which some are ``transposed`` first."""
    check_types(_types(a, b), options.requested())
    batch = _broadcast(a.shape[:-2], b.shape[:-2])
    m, n = a.shape[-1 if transposed[0] else -2], b.shape[-2 if transposed[1] else -1]
    what = {
        "op": "matmul", "transposed": transposed, "ranks": (a.ndim, b.ndim),
        "options": options.passed(),
    }  # fmt: skip
    made: jax.Array = _call(what, _result((*batch, m, n), options.out_dtype), (a, b))
    return made


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return tuple(jnp.broadcast_shapes(a, b))
    except ValueError:
        raise ProblemError(f"the batch dimensions must broadcast, got {a} and {b}") from None


def _product_forward(a: jax.Array, b: jax.Array, transposed: Transposed, options: Any) -> Any:
    check_differentiable(**dict(zip("ab", _types(a, b), strict=True)))
    return _product(a, b, transposed, options), (a, b)


def _product_backward(
    transposed: Transposed, options: ProductOptions, kept: tuple[jax.Array, jax.Array], d: jax.Array
) -> tuple[jax.Array, jax.Array]:
    a, b = kept
    ta, tb = transposed
    da_factors = (b, d, (tb, True)) if ta else (d, b, (False, not tb))
    db_factors = (d, a, (True, ta)) if tb else (a, d, (not ta, False))
    return _gradient(a, *da_factors, options), _gradient(b, *db_factors, options)


def _gradient(
    like: jax.Array, p: jax.Array, q: jax.Array, transposed: Transposed, options: ProductOptions
) -> jax.Array:
    """The gradient of an operand: a product of its type, summed where it was broadcast."""
    options = options._replace(out_dtype=dtypes.from_numpy(like.dtype).name)
    made = _product(p.astype(like.dtype), q.astype(like.dtype), transposed, options)
    return _summed(made, like.shape)


def _summed(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    extra = x.ndim - len(shape)
    axes = [*range(extra)]
    axes += [i + extra for i, n in enumerate(shape) if n == 1 != x.shape[i + extra]]
    return x.sum(axis=tuple(axes)).reshape(shape) if axes else x


_product.defvjp(_product_forward, _product_backward)


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
    return _layer(_Layer(activation, tuple(arrays), options), x, w, *arrays.values())


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _layer(layer: _Layer, x: jax.Array, w: jax.Array, *arrays: jax.Array) -> jax.Array:
    (y,) = _layer_call(layer, (), x, w, *arrays)
    return y


def _layer_call(
    layer: _Layer, saved: tuple[str, ...], x: jax.Array, w: jax.Array, *arrays: jax.Array
) -> list[jax.Array]:
    """The layer's output and the values of ``saved``."""
    types, options = _types(x, w, *arrays), layer.options.requested()
    check_types(types, options, layer.operands, layer.activation, saved)
    shape = _result((*x.shape[:-1], w.shape[0]), layer.options.out_dtype)
    what = {
        "op": "linear", "activation": layer.activation, "saved": saved,
        "operands": ("x", "w", *layer.operands), "options": layer.options.passed(),
    }  # fmt: skip
    made: list[jax.Array] = _call(what, [shape] * (1 + len(saved)), (x, w, *arrays))
    return list(made)


def _layer_forward(layer: _Layer, x: jax.Array, w: jax.Array, *arrays: jax.Array) -> Any:
    check_differentiable(**dict(zip(("x", "w"), _types(x, w), strict=True)))
    gated = "gate" in layer.operands
    saved: tuple[str, ...] = ()
    if layer.activation is not None or gated:
        saved = ("preactivation", "gate") if gated else ("preactivation",)
    y, *values = _layer_call(layer, saved, x, w, *arrays)
    named = dict(zip(layer.operands, arrays, strict=True))
    return y, (x, w, named, dict(zip(saved, values, strict=True)))


def _layer_backward(layer: _Layer, kept: Any, dy: jax.Array) -> tuple[jax.Array, ...]:
    x, w, named, values = kept
    dz, dgate = _activation_gradients(layer.activation, dy, values)
    gradients = {"residual": dy}
    dx, dw = _weight_gradients(layer, x, w, dz.astype(x.dtype))
    if "bias" in named:
        gradients["bias"] = dz.astype(jnp.float32).reshape(-1, dz.shape[-1]).sum(0)
    if dgate is not None:
        more, gradients["gate"] = _weight_gradients(layer, x, named["gate"], dgate.astype(x.dtype))
        dx = dx + more
    return dx, dw, *(gradients[name].astype(y.dtype) for name, y in named.items())


def _activation_gradients(
    activation: str | None, dy: jax.Array, values: dict[str, jax.Array]
) -> tuple[jax.Array, jax.Array | None]:
    """The gradients of x wᵀ + bias and of x gateᵀ."""
    derivative = None if activation is None else DERIVATIVES[activation]
    if "gate" not in values:
        return (
            dy if derivative is None else evaluate(derivative, dy, values["preactivation"])
        ), None
    gate, z = values["gate"], values["preactivation"]
    activated = gate if activation is None else evaluate(ACTIVATIONS[activation], gate)
    dactivated = dy.astype(jnp.float32) * z
    dgate = dactivated if derivative is None else evaluate(derivative, dactivated, gate)
    return dy * activated, dgate


def _weight_gradients(
    layer: _Layer, x: jax.Array, w: jax.Array, dz: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The gradients of x and w of x wᵀ."""
    rows = x.reshape(-1, x.shape[-1])
    flat = dz.reshape(-1, dz.shape[-1])
    dx = _gradient(rows, flat, w, (False, False), layer.options)
    dw = _gradient(w, flat, rows, (True, False), layer.options)
    return dx.reshape(x.shape), dw


_layer.defvjp(_layer_forward, _layer_backward)
