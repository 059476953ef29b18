"""Packed weights as B of a call: prepared once, and kept with them.

The weights are reordered on the host, and their units uploaded to where the weights are. A
permutation of K (``order``) is A's: its columns are gathered before the product.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ....dtypes import dtype
from ....errors import DeviceError, ProblemError
from ....lazy_imports import deferred
from ....quantization.packed import Packed
from ....quantization.scaled import Scaled
from ....quantization.weight_format import PreparedWeights
from ...arrays import array_view
from ...devices.device import device

if TYPE_CHECKING:
    from ....quantization import weight_units
else:  # its table of conversions traces kernels
    weight_units = deferred("....quantization.weight_units", __package__)

_OF_UNITS = ("data", "scales", "zeros")  # what units hold, besides metadata


class WeightOperands(NamedTuple):
    """The operands of a product with packed weights. ``factor``: the global scale, or None."""

    a: Any
    b: PreparedWeights
    factor: Any


def weight_operands(
    a: Any, b: Any, *, grouped: bool = False, reorders: bool = True
) -> WeightOperands:
    """A, with its columns in the order of the weights, and B prepared for A's type.

    ``b``: Packed weights K×N (``packed.T`` of a layer's), or prepared ones; ``grouped``: a stack B
    has a matrix for each group of rows of A; unless it ``reorders``, A's columns stay in their
    order. Raises DtypeError and ProblemError for weights that no kernel multiplies.
    """
    found = _operands(a, b, grouped=grouped)
    if reorders and isinstance(b, Packed) and b.order is not None:
        found = found._replace(a=a[..., b.order])
    return found


def check_static(static: Any, b: Any) -> None:
    """Raise ProblemError for a ``static`` that is not ``"b"``, or a B that is an array."""
    if static is None:
        return
    if static != "b":
        raise ProblemError(f"static must be 'b' or None, got {static!r:.60}")
    matrices = b if isinstance(b, tuple | list) else [b]
    if not all(isinstance(x, Packed | PreparedWeights | Scaled) for x in matrices):
        what = "b must be Packed or Scaled where static is 'b'"
        raise ProblemError(f"{what}, got {type(b).__name__}")


def _operands(a: Any, b: Any, *, grouped: bool) -> WeightOperands:
    if isinstance(b, PreparedWeights):
        return WeightOperands(a, b, None)
    given = array_view.view(a)
    if not b.transposed:
        hint = "b.T, or linear(x, b)"
        raise ProblemError(f"b must be packed weights K×N, got {b}, which is N×K", hint=hint)
    if given.sparse:
        hint = "a.decompress() is dense"
        raise ProblemError("a must be dense for packed weights, got a sparse matrix", hint=hint)
    k = b.shape[-2]
    if not given.shape or given.shape[-1] != k:
        shape = "×".join(map(str, given.shape))
        raise ProblemError(f"a must have K = {k} columns, got shape {shape}")
    if b.ndim == 3 and not grouped and given.shape[:-2] != b.shape[:1]:
        shape = "×".join(map(str, given.shape))
        raise ProblemError(f"a must be a stack of {b.shape[0]} matrices, as b is, got {shape}")
    where = array_view.view(b.data).device
    if given.device != where:
        raise DeviceError(f"b must be on {given.device}, where a is, got weights on {where}")
    prepared = b.prepared.get(given.dtype)
    if prepared is None:
        prepared = b.prepared[given.dtype] = prepare(b, given.dtype)
    return WeightOperands(a, prepared, b.global_scale)


def prepare(weights: Packed, operand: str) -> PreparedWeights:
    """The weights in the order in which kernels multiply them by A of type ``operand``.

    ``weights``: N×K or, transposed, K×N, where they are. Raises what ``matmul`` raises for weights
    that no kernel multiplies. Act-order and the global scale stay with ``weights``.
    """
    data = array_view.view(weights.data)
    if data.device == "cpu":
        return weight_units.prepare_weights(weights, operand)
    made = weight_units.prepare_weights(_on_host(weights), operand)
    units = array_view.empty_like_kind(weights.data, made.units.shape, "u8")
    on = device(data.device)
    on.wait(array_view.stream_of(units))  # kernels that used this memory before
    columns = made.units.shape[-1]
    on.upload(array_view.view(units).address, made.units.reshape(-1, columns), columns)
    on.wait()
    return PreparedWeights(units, made.format, made.shape)


def _on_host(weights: Packed) -> Packed:
    """The weights as NumPy arrays."""
    arrays: dict[str, Any] = {"type": weights.type, "group": weights.group}
    arrays["transposed"] = weights.transposed
    if isinstance(weights.zeros, int):
        arrays["zero"] = weights.zeros
    for name in (*_OF_UNITS, *weights.array_names[len(Packed.array_names) :]):
        array = getattr(weights, name)
        if hasattr(array, "shape"):
            arrays[name] = downloaded(array)
            arrays[f"{name}_type"] = array_view.view(array).dtype
    return type(weights).from_arrays(arrays)


def downloaded(array: Any) -> Any:
    """The bits of an array on a GPU."""
    view = array_view.view(array)
    *lead, columns = view.shape
    on = device(view.device)
    on.wait(array_view.stream_of(array))
    step = view.strides[-2]
    outer = zip(view.strides, view.strides[1:], view.shape[1:], strict=False)
    whole = all(stride == size * inner for stride, inner, size in [*outer][:-1])
    if view.strides[-1] != 1 or not whole:
        what = "arrays of packed weights must have contiguous rows"
        raise ProblemError(f"{what}, got strides {view.strides}")
    bits = np.empty((prod(lead), columns), f"u{max(1, dtype(view.dtype).bits // 8)}")
    on.download(bits, view.address, step)
    return bits.reshape(view.shape)
