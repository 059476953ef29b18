"""Stages 1 to 3 of a call, for operands with any number of dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ....errors import ProblemError
from ....lazy_imports import deferred
from ...arrays import array_view
from ...arrays.array_kind import Shape
from ...arrays.array_view import ArrayView
from ...devices.array_placement import device_for_arrays
from ..alpha_beta import ScaleFactors, alpha_and_beta
from ..matrix_layout import OperandViews
from ..operands.accumulated_operand import is_accumulated
from ..operands.output_overlap import check_factors_apart, check_output_overlap, common_device
from ..prepared_call import PreparedCall, prepare_call
from ..request import (
    MatmulArguments,
    MatmulOptions,
    Request,
    make_request,
)
from .batch_dimensions import is_one_product, split_product

if TYPE_CHECKING:
    from ..scaled import block_scale_views
else:
    block_scale_views = deferred("..scaled.block_scale_views", __package__)


class PreparedProducts(NamedTuple):
    """A call before its first launch. ``products``: one, unless batch dimensions do not fold;
    ``d``: the array of the result.
    """

    products: list[tuple[PreparedCall, OperandViews]]
    scales: ScaleFactors
    d: Any


def prepare(
    arguments: MatmulArguments, options: MatmulOptions, *, accumulate: bool = False
) -> PreparedProducts:
    """Stages 1 to 3 and the result array: everything before the first launch. ``accumulate``: the
    kernel may be one that adds to D where C is D, and α and β are 1.
    """
    a, b, c, out, alpha, beta, block_scales = arguments
    kind = array_view.kind_of(a)
    views = {"a": kind.view(a), "b": array_view.view(b)}
    views |= {n: array_view.view(x) for n, x in (("c", c), ("out", out)) if x is not None}
    va, vb, vc, vd = views["a"], views["b"], views.get("c"), views.get("out")
    arrays_on = common_device(va, vb, vc, vd)
    shape: Shape | None = None
    parts: tuple[dict[str, ArrayView], ...] = (views,)
    if block_scales is None and not is_one_product(va.shape, vb.shape):
        shape, parts = split_product(views)
    requests = [_request(x, options, vd is None) for x in parts]
    scale_views = None
    if block_scales is not None:
        requests[0], scale_views = block_scale_views.request_with_scales(requests[0], block_scales)
    request = requests[0]
    scales = alpha_and_beta(alpha, beta, arrays_on, request.scale_dtype)
    reads_c = bool(scales[1].address or scales[1].value)
    if reads_c and vc is None:
        raise ProblemError("c must be given if beta is not 0", hint="c=out accumulates into out")
    on = device_for_arrays(arrays_on, options.device)
    accumulate &= all(x.value == 1.0 and not x.address for x in scales)
    accumulated = "c" if accumulate and is_accumulated(vc, vd) else ""
    requests = [r._replace(reads_c=reads_c, accumulated=accumulated) for r in requests]
    calls = [prepare_call(r, on, options.config) for r in requests]
    calls[0].check_scales(scales)
    if vd is None:
        out = kind.empty(a, request.output_shape if shape is None else shape, request.dtype)
        d = array_view.view(out)
        parts = tuple({**x, "out": _placed(x.get("out"), d)} for x in parts)
    else:
        check_output_overlap(va, vb, vc, vd)
        factors = dict(zip(("alpha", "beta"), scales, strict=True))
        check_factors_apart(factors, request.scale_dtype, arrays_on, vd)
        if scale_views is not None:
            scale_views.check_apart(vd)
    operands = [
        OperandViews(x["a"], x["b"], x["c"] if reads_c else None, x["out"], scales=scale_views)
        for x in parts
    ]
    return PreparedProducts(list(zip(calls, operands, strict=True)), scales, out)


def _request(part: dict[str, ArrayView], options: MatmulOptions, new: bool) -> Request:
    """The request of one product; ``new``: D is a new array."""
    return make_request(
        part["a"], part["b"], part.get("c"), None if new else part["out"],
        options.out_dtype, False, options.precision, options.fast_accum,
    )  # fmt: skip


def _placed(part: ArrayView | None, d: ArrayView) -> ArrayView:
    """A product's part of the new array; its address counts elements from the first. None: all."""
    if part is None:
        return d
    address = d.address + part.address * d.itemsize
    return part._replace(address=address, dtype=d.dtype, owner=d.owner)
