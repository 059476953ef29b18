"""The request of a plan that is given by sizes: contiguous matrices on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....errors import DtypeError, ProblemError
from ....mma.metadata_blocks import chunk_size
from ...arrays import array_view
from ..matrix_layout import ArraySignature, contiguous_signature
from ..request import Request, default_result, format_name

LAYOUTS = ("nn", "nt", "tn", "tt")
SPARSE_LAYOUTS = {"a": ("tn", "tt"), "b": ("tn", "nn")}  # a sparse matrix is K-major


def request_of_sizes(
    sizes: list[int], dtype: Any, layout: str | None, c: Any, out: Any, out_dtype: Any,
    batch: int | None, precision: str, fast_accum: bool, sparse: Any = None,
) -> Request:  # fmt: skip
    """The request of ``plan(m, n, k, …)``, with the arguments of ``plan``. Raises DtypeError,
    ProblemError.
    """
    if c is not None and not isinstance(c, bool | np.bool_) and not array_view.is_array(c):
        raise ProblemError(f"c must be True or False if sizes are given, got {c!r:.60}")
    if out is not None or (hasattr(c, "shape") and c.shape):
        hint = "c=True adds a C, out_dtype is D's type"
        raise ProblemError("c and out must not be arrays if sizes are given", hint=hint)
    types = _input_types("f16" if dtype is None else dtype)
    if isinstance(dtype, str) and "tf32" in types:
        if types != ("tf32", "tf32") or precision not in ("ieee", "tf32"):
            what = f"dtype 'tf32' must be that of both inputs, got {dtype!r}, {precision!r}"
            raise DtypeError(what, hint="it is f32 with precision='tf32'")
        types, precision = ("f32", "f32"), "tf32"
    order = layout if layout is not None else "tt" if sparse is None else "tn"
    request = _contiguous_request(sizes, types, order, bool(c), out_dtype, batch)
    request = request._replace(precision=precision, fast_accum=bool(fast_accum))
    return request if sparse is None else _with_sparse(request, sparse, order)


def _with_sparse(request: Request, sparse: Any, layout: str) -> Request:
    """The request with a sparse A or B, of which half of the elements along K are stored."""
    if sparse not in ("a", "b"):
        raise ProblemError(f"sparse must be 'a', 'b' or None, got {sparse!r:.60}")
    if layout.lower() not in SPARSE_LAYOUTS[sparse]:
        allowed = " or ".join(SPARSE_LAYOUTS[sparse])
        raise ProblemError(f"layout must be {allowed} for a sparse {sparse}, got {layout!r}")
    given = request.a if sparse == "a" else request.b
    axis, size = (
        {"a": -1, "b": -2}[sparse],
        chunk_size({"f32": "tf32"}.get(given.dtype, given.dtype)),
    )
    if given.shape[axis] % size:
        raise ProblemError(
            f"K must be a multiple of {size} for sparse {given.dtype}, got {given.shape[axis]}",
            hint="pad K with zeros",
        )
    shape = list(given.shape)
    shape[axis] //= 2
    stored = _signature(tuple(shape), given.dtype, sparse == "a")._replace(sparse_axis=axis)
    return request._replace(a=stored) if sparse == "a" else request._replace(b=stored)


def _input_types(dtype: Any) -> tuple[Any, Any]:
    """A's and B's types, as the caller wrote them."""
    names = [x.strip() for x in dtype.split(",")] if isinstance(dtype, str) else [dtype]
    if len(names) > 2:
        raise DtypeError(f"dtype must be one format, or A's and B's, got {dtype!r}")
    return names[0], names[-1]


def _contiguous_request(
    sizes: list[int],
    types: tuple[Any, Any],
    layout: str,
    with_c: bool,
    out_dtype: Any,
    batch: int | None,
) -> Request:
    m, n, k = sizes
    if min(sizes) < 0:
        raise ProblemError(f"sizes must be at least 0, got {m}×{n}×{k}")
    if not isinstance(batch, int | None):
        raise ProblemError(f"batch must be a number of products or None, got {batch!r}")
    if str(layout).lower() not in LAYOUTS:
        raise ProblemError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    formats = format_name(types[0], "dtype"), format_name(types[1], "dtype")
    result = default_result(formats[0]) if out_dtype is None else format_name(out_dtype)
    stack = () if batch is None else (batch,)
    a, b = (
        _signature((*stack, *shape), dtype, letter.lower() == "t")
        for shape, dtype, letter in zip(((m, k), (k, n)), formats, layout, strict=True)
    )
    d = contiguous_signature((*stack, m, n), result, "cpu")
    return Request(a, b, d if with_c else None, None, result, with_c)


def _signature(shape: tuple[int, ...], dtype: str, row_major: bool) -> ArraySignature:
    if row_major:
        return contiguous_signature(shape, dtype, "cpu")
    transposed = (*shape[:-2], shape[-1], shape[-2])
    strides = contiguous_signature(transposed, dtype, "cpu").strides
    return ArraySignature(shape, (*strides[:-2], strides[-1], strides[-2]), dtype, "cpu", 0)
