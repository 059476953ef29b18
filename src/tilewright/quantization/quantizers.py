"""``quantize`` and ``quantize_weight``: arrays of f32, f16 or bf16 as ``Scaled`` and ``Packed``.

``quantization_reference`` defines every bit of the results.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..errors import DeviceError, DtypeError, ProblemError
from ..lazy_imports import untraced
from ..number_conversion import encode
from . import given_scales, scale_blocks, weight_types, zero_point_kernel
from . import quantization_reference as reference
from .array_access import Array, ArrayInfo, dense_info, info, new_array, numbers, sizes
from .host_arrays import through_host
from .packed import Packed
from .quantization_reference import F32
from .quantize_kernels import GROUP, QuantizeForm, launch
from .scaled import Scaled
from .weight_types import FORMATS, WeightType, weight_type

INPUT_TYPES = ("f32", "f16", "bf16")
DATA_TYPES = ("e4m3", "e5m2", "s8")
WEIGHT_SCALES = ("f32", "f16", "bf16")
ZEROS = (None, "integer", "float")


@untraced
def quantize(
    x: Any,
    dtype: str = "e4m3",
    block: Any = None,
    scale: Any = None,
    *,
    scale_dtype: str = "f32",
    zeros: bool = False,
    device: Any = None,
) -> Scaled:
    """An array R×C (or a stack) of f32, f16 or bf16 as 8-bit elements with scales.

    ``dtype``: e4m3, e5m2, s8, or u8 with zero points. ``block``: None or "tensor" (one scale for a
    matrix), "row" (one for each row: per token), "column", (1, 128), (128, 128), or any (rows,
    columns); partial blocks at the end are allowed, and no rows or columns. ``scale``: None
    computes each scale from the largest magnitude of its block; a number or an f32 array of the
    scales' shape is used as it is. ``scale_dtype`` of computed scales: f32, bf16, or ue8m0 (powers
    of two). ``zeros``: with zero points, of s8 and u8 (asymmetric). ``quantization_reference``
    documents each step.

    Arrays on a GPU are quantized by a kernel, arrays on the CPU by NumPy, or by the kernel on
    ``device`` (``"vm"``, ``"cuda"``), with the same bits. There are kernels for given scales of any
    blocks, and for computed ones per tensor, row, 1×128 and 128×128, with zeros by rows, of
    contiguous arrays with rows of a multiple of 16 bytes. Given scales on a GPU are read by the
    kernel: the host does not wait.

    >>> quantize(x, "e4m3", (1, 128))
    Scaled(e4m3 4096×7168, f32 scales per 1×128)

    Raises ProblemError for shapes and blocks that do not fit, DtypeError for other types.
    """
    if not isinstance(zeros, bool):
        raise ProblemError(f"zeros must be True or False, got {zeros!r:.60}")
    given = _checked_input("x", x, ("s8", "u8") if zeros else DATA_TYPES, dtype)
    _check_type("scale_dtype", scale_dtype, reference.SCALE_TYPES)
    size = scale_blocks.block_shape(block, given.shape)
    if zeros:
        if scale is not None:
            raise ProblemError(f"scale must be None with zeros, got {scale!r:.60}")
        return _with_zeros(x, given, size, (dtype, scale_dtype), device)
    if device is not None or given.device != "cpu":
        form = QuantizeForm(given.dtype, dtype, scale_dtype)
        if scale is not None:
            scales = _placed_scales(x, given, scale, size)
            return Scaled(given_scales.launch(x, given, form, size, scales, device), scales, size)
        data, scales = launch(x, given, form, _kernel_block(given, size), device)
        return Scaled(data, scales, size)
    values = np.asarray(numbers("x", x), np.float32)
    if scale is not None:
        scale_dtype, scales = "f32", _given_scales(scale, given.shape, size)
        codes = scales.view(np.uint32)
        elements = reference.element_codes(values, reference.inverse(scales), size, dtype)
    else:
        elements, codes = reference.quantized(values, size, dtype, scale_dtype)
    arrays = new_array(x, elements, dtype), new_array(x, codes, scale_dtype)
    return Scaled(*arrays, size)


def _with_zeros(
    x: Any, given: ArrayInfo, block: scale_blocks.Block, types: tuple[str, str], device: Any
) -> Scaled:
    """``quantize`` with zero points; ``types``: of the elements and of the scales."""
    dtype, scale_dtype = types
    if device is not None or given.device != "cpu":
        if block[0] != 1 or block[1] < given.shape[-1]:
            name = scale_blocks.block_text(block, given.shape)
            raise ProblemError(
                f"a kernel computes zero points by rows, got blocks per {name}",
                hint="arrays on the CPU are quantized in any blocks if device is None",
            )
        form = QuantizeForm(given.dtype, dtype, scale_dtype)
        data, scales, points = zero_point_kernel.launch(x, given, form, device)
        return Scaled(data, scales, block, points)
    values = np.asarray(numbers("x", x), np.float32)
    found = reference.quantized_with_zeros(values, block, dtype, scale_dtype)
    pairs = zip(found, (dtype, scale_dtype, dtype), strict=True)
    data, scales, points = (new_array(x, bits, type_) for bits, type_ in pairs)
    return Scaled(data, scales, block, points)


def _kernel_block(given: ArrayInfo, block: scale_blocks.Block) -> str:
    """The blocks of a kernel: "tensor", "row", "group" or "block"."""
    name = scale_blocks.block_text(block, given.shape)
    if block == (1, GROUP):
        name = "group"
    rows, columns = given.shape[-2:]
    square = min(rows or GROUP, GROUP), min(columns or GROUP, GROUP)
    if name not in ("tensor", "row") and block == square:
        name = "block"
    if name not in ("tensor", "row", "group", "block"):
        raise ProblemError(
            "a kernel quantizes with computed scales per tensor, row, "
            f"1×{GROUP} or {GROUP}×{GROUP}, got blocks per {name}",
            hint="arrays on the CPU are quantized with any scales if device is None",
        )
    return name


def _checked_input(name: str, x: Any, types: tuple[str, ...], dtype: object) -> Any:
    given = dense_info(name, x)
    if given.dtype not in INPUT_TYPES:
        raise DtypeError(f"{name} must be one of {', '.join(INPUT_TYPES)}, got {given.dtype}")
    if len(given.shape) not in (2, 3) or (name == "w" and 0 in given.shape):
        what = "a matrix or a stack of matrices" + " with elements" * (name == "w")
        raise ProblemError(f"{name} must be {what}, got shape {given.shape}")
    _check_type("dtype", dtype, types)
    return given


def _check_type(name: str, given: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(given, str) or given not in allowed:
        raise DtypeError(f"{name} must be one of {', '.join(allowed)}, got {given!r:.60}")


def _placed_scales(x: Any, given: ArrayInfo, scale: Any, block: scale_blocks.Block) -> Any:
    """Given scales where ``x`` is: an f32 array that is there, or a copy. Raises ProblemError for
    an array on a GPU of another shape, DtypeError, DeviceError.
    """
    where = info("scale", scale).device if hasattr(scale, "shape") else "cpu"
    if where == "cpu":
        return new_array(x, _given_scales(scale, given.shape, block).view(np.uint32), "f32")
    there = info("scale", scale)
    if there.device != given.device:
        raise DeviceError(f"scale must be on {given.device}, where x is, got {there.device}")
    if there.dtype != "f32":
        raise DtypeError(f"scale on a GPU must be f32, got {there.dtype}")
    expected = scale_blocks.grid_shape(given.shape, block)
    if prod(there.shape) != prod(expected):
        shown = sizes(expected)
        raise ProblemError(f"scale on a GPU must have shape {shown}, got {sizes(there.shape)}")
    return scale if there.shape == expected else scale.reshape(expected)


def _given_scales(scale: Any, shape: tuple[int, ...], block: scale_blocks.Block) -> F32:
    expected = scale_blocks.grid_shape(shape, block)
    values = numbers("scale", scale) if hasattr(scale, "shape") else np.asarray(scale)
    if values.dtype.kind not in "fiub":
        raise ProblemError(f"scale must be a number or an array of numbers, got {scale!r:.60}")
    values = np.array(values, np.float32)
    if values.size != 1 and prod(values.shape) != prod(expected):
        raise ProblemError(
            f"scale must be a number or have shape {sizes(expected)}, got {sizes(values.shape)}"
        )
    return np.ascontiguousarray(
        np.broadcast_to(values.reshape(-1, 1)[:, 0], prod(expected))
    ).reshape(expected)


@through_host
def smoothing_factors(amax: Any, w: Any, alpha: float = 0.5) -> Any:
    """SmoothQuant's factors (K): amax^α / (largest |w| of column k)^(1 − α), in f32.

    ``amax`` (K): the largest magnitude of each column of the activations, measured beforehand.
    ``w`` (N, K): a linear layer's weights. Activations divided by the factors and weights
    multiplied by them have the same product and smaller outliers; then ``quantize(x / factors,
    "s8", "row")`` and ``quantize(w * factors, "s8", "row")``. A column without weights or without
    activations has the factor 1. Raises ProblemError if the sizes differ (Xiao et al. 2023, eq. 4).
    """
    activations = np.asarray(numbers("amax", amax), np.float32)
    weights = np.abs(np.asarray(numbers("w", w), np.float32)).max(axis=0)
    if activations.shape != weights.shape:
        raise ProblemError(
            f"amax must have one element for each column of w, got {sizes(activations.shape)} and "
            f"w {sizes(info('w', w).shape)}"
        )
    powers = activations.astype(float) ** alpha, weights.astype(float) ** (1 - alpha)
    usable = (powers[0] > 0) & (powers[1] > 0)
    factors = np.divide(powers[0], powers[1], out=np.ones(weights.shape), where=usable)
    return new_array(amax, factors.astype(np.float32).view(np.uint32), "f32")


# --- weights ------------------------------------------------------------------------------------


@untraced
@through_host
def quantize_weight(
    w: Any,
    type: str = "u4",
    group: int | None = 128,
    zeros: str | None = None,
    *,
    scale_dtype: str = "f32",
) -> Packed:
    """Weights N×K (or a stack) of f32, f16 or bf16, as a linear layer has them, as ``Packed``.

    ``type``: u4, s4, u8, s8, e2m1, e4m3, e5m2, e2m3, e3m2, or a block-scaled format: mxfp8,
    mxfp8_e5m2, mxfp6, mxfp6_e3m2, mxfp4, nvfp4, which set ``group`` and the scales' type.
    ``group``: elements of K for each scale; None is all of K. ``zeros`` for u4 and u8: None (the
    middle, 8 or 128, is 0), "integer" or "float". ``scale_dtype``: f32, f16 or bf16.

    With a the largest magnitude of a group, lo ≤ 0 ≤ hi its ends, q the rounded element:

        s4, floats    s = a / m (m: 7 for s4, the largest number of a float); q = w · (1 / s)
        u4, u8        s = a / 7 (127); q = w · (1 / s) + 8 (128)
        integer       s = (hi − lo) / 15 (255); z = round(−lo · (1 / s)); q = w · (1 / s) + z
        float         lo and hi are the group's own; z = lo; q = (w − z) · (1 / s)

    Steps are f32 operations, rounded to nearest even; s is rounded into its type, and then used;
    q is rounded to nearest even and clamped; an infinity counts as 3.4028235e38. NVFP4 has a global
    scale, amax / (448 · 6), of each matrix.

    Raises ProblemError for shapes and groups that do not fit and for a NaN in types without one,
    DtypeError for other types.
    """
    if str(type) in FORMATS:
        return _block_scaled(w, type)
    if str(type) == "nf4":
        raise DtypeError("nf4 can be read (read_bitsandbytes_nf4) and not quantized to")
    t = weight_type(type)
    given = _checked_input("w", w, (t.name,), t.name)
    if str(zeros) not in map(str, ZEROS) or (zeros and t.name[0] != "u"):
        raise ProblemError(
            f'zeros must be None, or "integer" or "float" for u4 and u8, got {zeros!r:.60}',
            hint="Packed(data, scales, type, group, zeros) takes zero points that exist",
        )
    _check_type("scale_dtype", scale_dtype, WEIGHT_SCALES)
    groups = _grouped(w, t, group)
    quantizer = {None: _symmetric, "integer": _integer_zeros, "float": _float_zeros}[zeros]
    codes, scales, zero = quantizer(groups, t, scale_dtype)
    data = weight_types.pack_elements(t, codes.reshape(given.shape))
    found: Any = zero
    if isinstance(zero, np.ndarray):
        zero_type = "u8" if zeros == "integer" else scale_dtype
        found = new_array(w, zero, zero_type)
    return Packed(
        new_array(w, data, "u8"), new_array(w, scales, scale_dtype), t.name, groups.shape[-1], found
    )


def _grouped(w: Any, t: WeightType, group: int | None) -> F32:
    """(…, K) → (…, K / group, group), in f32. Raises ProblemError for a NaN that ``t`` has not."""
    values = np.asarray(numbers("w", w), np.float32)
    depth = values.shape[-1]
    size = depth if group is None else group
    if not isinstance(size, int) or isinstance(size, bool) or size < 1 or depth % size:
        raise ProblemError(f"group must divide K = {depth}, got {group!r}", hint="pad K with zeros")
    if not dtypes.dtype(t.name).has_nan and (nan := np.isnan(values)).any():
        at = tuple(int(i) for i in np.argwhere(nan)[0])
        raise ProblemError(f"w must have no NaN, which {t.name} has not, got one at {at}")
    return values.reshape(*values.shape[:-1], depth // size, size)


Quantized = tuple[Array, Array, Any]  # element codes, bits of the scales, zero points


def _rounded_scale(scale: F32, scale_type: str) -> tuple[Array, F32]:
    """The bits of scales, not below 2⁻¹²⁶ (2⁻¹⁴ for f16), and their inverses."""
    least = 2.0**-14 if scale_type == "f16" else reference.SMALLEST_SCALE
    bits = encode(scale_type, np.maximum(scale, np.float32(least)), satfinite=True)
    return bits, reference.inverse(reference.decoded_scales(bits, scale_type))[..., None]


def _symmetric(groups: F32, t: WeightType, scale_type: str) -> Quantized:
    amax = reference.block_amax(groups, (1, groups.shape[-1]))[..., 0]
    unsigned = t.name[0] == "u"
    middle = 1 << (t.bits - 1) if unsigned else 0
    highest = np.float32(middle - 1 if unsigned else t.range[1])
    bits, inverse = _rounded_scale(amax / highest, scale_type)
    if not t.zeros:
        return reference.saturated(groups * inverse, t.name), bits, None
    return _clamped(np.rint(groups * inverse) + middle, t), bits, middle or None


def _integer_zeros(groups: F32, t: WeightType, scale_type: str) -> Quantized:
    low, high = _ends(groups)
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    steps = np.float32(t.range[1])
    bits, inverse = _rounded_scale((high - low) / steps, scale_type)
    zero = np.clip(np.rint(-low * inverse[..., 0]), 0, steps)
    return _clamped(np.rint(groups * inverse) + zero[..., None], t), bits, zero.astype(np.uint8)


def _float_zeros(groups: F32, t: WeightType, scale_type: str) -> Quantized:
    low, high = _ends(groups)
    bits, inverse = _rounded_scale((high - low) / np.float32(t.range[1]), scale_type)
    zero_bits = encode(scale_type, low, satfinite=True)
    zero = reference.decoded_scales(zero_bits, scale_type)
    return _clamped(np.rint((groups - zero[..., None]) * inverse), t), bits, zero_bits


def _ends(groups: F32) -> tuple[F32, F32]:
    """The lowest and the highest element of each group; infinities count as 3.4028235e38."""
    finite = np.nan_to_num(groups)
    return finite.min(axis=-1), finite.max(axis=-1)


def _clamped(values: Array, t: WeightType) -> Array:
    return reference.saturated(values, t.name)


def _block_scaled(w: Any, name: str) -> Packed:
    """MX formats and NVFP4."""
    row = FORMATS[name]
    t = weight_type(row.element)
    given = _checked_input("w", w, (name,), name)
    groups = _grouped(w, t, row.group)
    amax = reference.block_amax(groups, (1, row.group))[..., 0]
    if row.scale == "ue8m0":
        bits, factor = reference.scale_codes(reference.scale_of_amax(amax, t.name), "ue8m0"), None
        scale = reference.decoded_scales(bits, "ue8m0")
    else:
        most = amax.max((-2, -1), keepdims=True)  # of a matrix
        most = most / (reference.largest(row.scale) * reference.largest(t.name))
        factor = np.maximum(np.asarray(most, np.float32), reference.SMALLEST_SCALE)
        ratio = amax / reference.largest(t.name) * reference.inverse(factor)
        bits = np.maximum(encode(row.scale, ratio, satfinite=True), np.uint8(1))  # not 0
        scale = reference.decoded_scales(bits, row.scale) * factor
    codes = reference.saturated(groups * reference.inverse(scale)[..., None], t.name)
    data = weight_types.pack_elements(t, codes.reshape(given.shape))
    arrays = new_array(w, data, "u8"), new_array(w, bits, row.scale)
    if factor is None:
        return Packed(*arrays, row.element, row.group)
    factor = factor.reshape(1) if factor.size == 1 else factor
    one = new_array(w, np.ascontiguousarray(factor).view(np.uint32), "f32")
    return Packed(*arrays, row.element, row.group, global_scale=one)
