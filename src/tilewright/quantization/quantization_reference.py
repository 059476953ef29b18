"""Quantizing in NumPy: the definition of the scales and of the elements, to the bit.

All steps are f32 operations that a kernel has, rounded to nearest even unless stated:

    amax     the largest |x| of a block; a NaN is ignored, an infinity counts as 3.4028235e38
    scale    max(amax / m, 2⁻¹²⁶), with m the format's largest number: 448 for e4m3, 127 for s8
             bf16 scales: rounded to nearest even
             ue8m0 scales: rounded up to a power of two, so that no element saturates
    inverse  1 / scale
    element  x · inverse, rounded to nearest even into the format; beyond the largest number it
             saturates, as an infinity does; a NaN is the format's NaN, and 0 for integers

A block of zeros has the scale 2⁻¹²⁶ and elements 0. A given scale is used as it is: 0 has the
inverse infinity, so that 0 becomes NaN (0 for integers) and all else saturates.

With zero points, of s8 and u8 from q to q + 255:

    low, high  the least and the largest number of a block and of 0; a NaN is ignored
    scale      max((high − low) / 255, 2⁻¹²⁶)
    zero point q − low · inverse, rounded to nearest even
    element    x · inverse, rounded to nearest even, plus the zero point; saturating; a NaN is 0
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..dtypes import dtype
from ..number_conversion import decode, encode
from .array_access import Array
from .scale_blocks import Block, expand, reduce_blocks
from .weight_types import weight_type

F32 = npt.NDArray[np.float32]
LARGEST_F32 = np.float32(np.finfo(np.float32).max)
SMALLEST_SCALE = np.float32(2.0**-126)
SCALE_TYPES = ("f32", "bf16", "ue8m0")
UE8M0_ONE_LESS = 0x7FFFFF  # added to the bits of an f32, it rounds the exponent up


def largest(type_: str) -> np.float32:
    """The number that amax is mapped to: the format's largest, 127 for s8."""
    return np.float32(weight_type(type_).range[1])


def block_amax(x: F32, block: Block) -> F32:
    """The largest finite magnitude of each block, as defined above. (…, R, C) → a scale grid."""
    magnitude = np.minimum(np.abs(np.where(np.isnan(x), np.float32(0), x)), LARGEST_F32)
    return np.asarray(reduce_blocks(magnitude, block), np.float32)


def scale_of_amax(amax: F32, type_: str) -> F32:
    """max(amax / m, 2⁻¹²⁶) in f32."""
    return np.asarray(np.maximum(amax / largest(type_), SMALLEST_SCALE), np.float32)


def scale_codes(scale: F32, scale_type: str) -> Array:
    """The bits of positive, normal scales in their format."""
    bits = np.ascontiguousarray(scale).view(np.uint32).reshape(scale.shape)
    if scale_type == "f32":
        return bits
    if scale_type == "ue8m0":
        return ((bits + np.uint32(UE8M0_ONE_LESS)) >> np.uint32(23)).astype(np.uint8)
    return encode(scale_type, scale)


def inverse(scale: F32) -> F32:
    """1 / scale in f32."""
    with np.errstate(all="ignore"):
        return np.asarray(np.float32(1) / scale, np.float32)


def quantized_with_zeros(
    x: F32, block: Block, type_: str, scale_type: str
) -> tuple[Array, Array, Array]:
    """The bits of the elements, of the scales and of the zero points, of the elements' type."""
    least, steps = int(dtype(type_).range[0]), np.float32(255)
    low, high = (block_amax(np.maximum(side, 0), block) for side in (-x, x))
    with np.errstate(over="ignore"):
        range_ = np.minimum(low + high, LARGEST_F32)
    codes = scale_codes(np.maximum(range_ / steps, SMALLEST_SCALE), scale_type)
    inverses = inverse(decoded_scales(codes, scale_type))
    zeros = least + np.clip(np.rint(low * inverses), 0, steps)
    with np.errstate(all="ignore"):
        rounded = np.rint(np.nan_to_num(x * expand(inverses, x.shape, block), nan=0.0))
        elements = rounded + expand(zeros, x.shape, block)
    bits = (np.clip(part, least, least + steps) for part in (elements, zeros))
    elements, zeros = (part.astype(np.int16).astype(np.uint8) for part in bits)
    return elements, codes, zeros


def element_codes(x: F32, inverses: F32, block: Block, type_: str) -> Array:
    """The bits of the elements, from a grid of inverse scales."""
    with np.errstate(all="ignore"):
        scaled = x * expand(inverses, x.shape, block)
    return saturated(scaled, type_)


def saturated(x: F32, type_: str) -> Array:
    """The bits of ``encode(type_, x, satfinite=True)`` for formats of up to 8 bits, faster: one
    cast of numbers that are in range. A NaN in a format without NaN is the largest number.
    """
    t = dtype(type_)
    nan = np.isnan(x)
    if t.kind != "float":
        low, high = t.range
        whole = np.clip(np.where(nan, 0, np.rint(x)), low, high).astype(np.int16)
        return (whole & ((1 << t.bits) - 1)).astype(np.uint8)
    most = largest(type_)
    codes = np.clip(x, -most, most).astype(t.numpy).view(np.uint8)
    return np.where(nan, np.uint8(t.nan if t.has_nan else t.max_finite), codes)


def decoded_scales(bits: Array, scale_type: str) -> F32:
    """Scales in f32, exactly."""
    if scale_type == "f32":
        return bits.view(np.float32)
    return decode(scale_type, bits).astype(np.float32)


def quantized(x: F32, block: Block, type_: str, scale_type: str) -> tuple[Array, Array]:
    """The bits of the elements and of the scales of a matrix."""
    codes = scale_codes(scale_of_amax(block_amax(x, block), type_), scale_type)
    return element_codes(x, inverse(decoded_scales(codes, scale_type)), block, type_), codes
