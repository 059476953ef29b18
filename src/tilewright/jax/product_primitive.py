"""The product of matrices as a primitive of JAX: bilinear, so that its derivatives, in both modes
and of any order, are products again, custom calls with transposed operands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .. import dtypes
from ..errors import ProblemError
from ..run.call.request import MatmulOptions
from .custom_calls import registered
from .trace_checks import check_differentiable, check_types

Transposed = tuple[bool, bool]


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


def product(a: Any, b: Any, transposed: Transposed, options: ProductOptions) -> jax.Array:
    """The product of matrices or stacks of them, of which some are ``transposed`` first."""
    made: jax.Array = _product.bind(a, b, transposed=transposed, options=options)
    return made


def custom_call(what: dict[str, Any], results: Any, args: Sequence[jax.Array]) -> Any:
    """The custom call; under ``jax.vmap`` operands without the batch have a dimension of 1."""
    call = jax.ffi.ffi_call(registered(), results, vmap_method="expand_dims")
    return call(*args, call=json.dumps(what))


def type_names(*arrays: Any) -> tuple[str, ...]:
    """The names of the arrays' types."""
    return tuple(dtypes.from_numpy(x.dtype).name for x in arrays)


def result_of(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    """A result of a custom call."""
    return jax.ShapeDtypeStruct(shape, dtypes.dtype(dtype).numpy)


def _shape(a: Any, b: Any, transposed: Transposed) -> tuple[int, ...]:
    m, n = a.shape[-1 if transposed[0] else -2], b.shape[-2 if transposed[1] else -1]
    try:
        return (*jnp.broadcast_shapes(a.shape[:-2], b.shape[:-2]), m, n)
    except ValueError:
        what = f"the batch dimensions must broadcast, got {a.shape[:-2]} and {b.shape[:-2]}"
        raise ProblemError(what) from None


def _abstract(a: Any, b: Any, *, transposed: Transposed, options: ProductOptions) -> Any:
    check_types(type_names(a, b), options.requested())
    dtype = dtypes.dtype(options.out_dtype).numpy
    return jax.core.ShapedArray(_shape(a, b, transposed), dtype)


def _call(a: Any, b: Any, *, transposed: Transposed, options: ProductOptions) -> Any:
    what = {"op": "matmul", "transposed": transposed, "options": options.passed()}
    return custom_call(what, result_of(_shape(a, b, transposed), options.out_dtype), (a, b))


def _tangent(
    primals: Any, tangents: Any, *, transposed: Transposed, options: ProductOptions
) -> tuple[Any, Any]:
    check_differentiable(**dict(zip("ab", type_names(*primals), strict=True)))
    bind = partial(product, transposed=transposed, options=options)
    (a, b), (da, db) = primals, tangents
    parts = [
        bind(*pair)
        for tangent, pair in ((da, (da, b)), (db, (a, db)))
        if not isinstance(tangent, ad.Zero)
    ]
    return bind(a, b), parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _cotangents(
    d: Any, a: Any, b: Any, *, transposed: Transposed, options: ProductOptions
) -> list[Any]:
    """The gradient of the operand in which the product is linear."""
    ta, tb = transposed
    if isinstance(d, ad.Zero):
        return [None, None]
    if ad.is_undefined_primal(a):
        factors = (b, d, (tb, True)) if ta else (d, b, (False, not tb))
        return [_gradient(a.aval, *factors, options), None]
    factors = (d, a, (True, ta)) if tb else (a, d, (not ta, False))
    return [None, _gradient(b.aval, *factors, options)]


def _gradient(
    like: Any, p: jax.Array, q: jax.Array, transposed: Transposed, options: ProductOptions
) -> jax.Array:
    """The gradient of an operand: a product of its type, summed where it was broadcast."""
    options = options._replace(out_dtype=dtypes.from_numpy(like.dtype).name)
    made = product(p.astype(like.dtype), q.astype(like.dtype), transposed, options)
    return _summed(made, like.shape)


def _summed(x: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    extra = x.ndim - len(shape)
    axes = [*range(extra)]
    axes += [i + extra for i, n in enumerate(shape) if n == 1 != x.shape[i + extra]]
    return x.sum(axis=tuple(axes)).reshape(shape) if axes else x


def _batched(args: Sequence[Any], axes: Sequence[Any], **params: Any) -> tuple[jax.Array, int]:
    """``jax.vmap``'s dimension becomes the first batch dimension: NumPy's rules pair dimensions
    from the last one.
    """
    ranks = [x.ndim - (axis is not None) for x, axis in zip(args, axes, strict=True)]
    operands = []
    for x, axis, rank in zip(args, axes, ranks, strict=True):
        if axis is not None:
            x = jnp.moveaxis(x, axis, 0)
            x = x.reshape(x.shape[0], *(1,) * (max(ranks) - rank), *x.shape[1:])
        operands.append(x)
    return product(*operands, **params), 0


_product = Primitive("tilewright_product")
_product.def_impl(jax.jit(_call, static_argnames=("transposed", "options")))
_product.def_abstract_eval(_abstract)
mlir.register_lowering(_product, mlir.lower_fun(_call, multiple_results=False))
ad.primitive_jvps[_product] = _tangent
ad.primitive_transposes[_product] = _cotangents
batching.primitive_batchers[_product] = _batched
