"""Packed weights reordered once for kernel ``tma``.

A thread loads its elements of a unit in accesses of 16 bytes, in the order of wgmma's fragments of
A in registers. Scales and zero points are stored as pairs of rows r and r + 8, which belong to one
thread.

    thread (warp w, row r, quad q), step of 16 along K: elements (r, 2q), (r, 2q + 1), (r + 8, 2q)
    and (r + 8, 2q + 1), then the same at 2q + 8; a word holds one step of 4-bit elements, half a
    step of 8-bit elements; 16 bytes of all threads lie together

For products with e4m3 and s8, steps are 32 deep, and four elements take the place of two.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np

from ..dtypes import dtype
from ..errors import DtypeError, ProblemError
from ..mma.metadata_blocks import BLOCK_WORDS, FILLER, block_k
from ..number_conversion import decode, encode
from .array_access import Array, codes, info, numbers
from .conversions import CONVERSIONS, fastest
from .packed import Packed
from .sparse_packed import METADATA_FORMAT, SparsePacked
from .weight_format import UNIT_K, UNIT_ROWS, PreparedWeights, WeightFormat, units_along

BLOCK_K = block_k(METADATA_FORMAT)
FILLER_WORD = np.uint32(FILLER * 0x11111111)  # metadata beyond K
OPERAND_TYPES = ("f16", "bf16", "e4m3", "s8")
_SIGN_BITS = 0x88  # of two nibbles
SPARSE_OPERANDS = OPERAND_TYPES[:2]
SPARSE_STEP = 32  # elements along K of wgmma.sp for these
# 6-bit elements are stored as 8-bit ones, which hold them exactly.
STORED_TYPES = {"e2m3": "e4m3", "e3m2": "e4m3"}
# A scale's own type, or one that holds it exactly.
SCALE_TYPES = {"f32": "f32", "f16": "f16", "bf16": "bf16", "ue8m0": "bf16", "e4m3": "bf16"}


def weight_format(packed: Packed, operand: str) -> WeightFormat:
    """The format in which a kernel reads these weights, for products with ``operand``.

    Raises DtypeError for types, ProblemError for groups and shapes that no kernel multiplies.
    """
    if operand not in OPERAND_TYPES:
        allowed = ", ".join(OPERAND_TYPES[:-1])
        raise DtypeError(
            f"a must be {allowed} or {OPERAND_TYPES[-1]} for packed weights, got {operand}"
        )
    packed = _for_operand(packed, operand)
    scale = SCALE_TYPES[info("scales", packed.scales).dtype]
    zeros, zero = packed.zero_kind, 0
    if isinstance(packed.zeros, int):
        zeros, zero = "none", packed.zeros
    elif zeros == "float":
        zeros = info("zeros", packed.zeros).dtype
    type_ = STORED_TYPES.get(packed.type, packed.type)
    _check_conversion(packed, type_, operand)
    made = WeightFormat(type_, operand, UNIT_K, scale, zeros, zero)
    return replace(made, group=_unit_group(packed, made.step))


def _check_conversion(packed: Packed, stored: str, operand: str) -> None:
    """Raise DtypeError where no recipe converts elements, ``stored`` so, to A's type."""
    types = dict.fromkeys(row.source for row in CONVERSIONS if row.dest == operand)
    if stored not in types:
        what = f"weights must be {', '.join(types)} for an a of {operand}, got {packed.type}"
        raise DtypeError(what, hint="packed.dequantize() is the matrix in f32")


def _for_operand(packed: Packed, operand: str) -> Packed:
    """The same weights, as the recipes for e4m3 and s8 convert them. With e4m3 integer zero points
    of groups are floats; with s8 4-bit elements with zero points are u4, but s4 where all are 8.
    """
    zeros, type_ = packed.zeros, packed.type
    if packed.zero_kind != "integer" or type_ not in ("u4", "s4") or operand not in ("e4m3", "s8"):
        return packed
    more: dict[str, Any] = {"group": packed.group, "transposed": packed.transposed}
    one = isinstance(zeros, int)
    if operand == "e4m3":
        if one:
            return packed
        scales = numbers("scales", packed.scales).astype(np.float32)
        floats = -numbers("zeros", zeros).astype(np.float32) * scales
        return Packed(packed.data, packed.scales, type_, zeros=floats, **more)
    points = (zeros if one else numbers("zeros", zeros)) + 8 * (type_ == "s4")
    middle = one and points == 8
    data = codes("data", packed.data)
    data = data ^ _SIGN_BITS if middle == (type_ == "u4") else data
    if middle:
        return Packed(data, packed.scales, "s4", **more)
    points = points if one else points.astype(np.uint8)
    return Packed(data, packed.scales, "u4", zeros=points, **more)


def _unit_group(packed: Packed, least: int) -> int:
    """Elements along K that share a scale in a unit: the group, or what divides it and 128."""
    group, depth = packed.group, packed.shape[-2 if packed.transposed else -1]
    assert group is not None
    if depth in (group, 0):
        return UNIT_K
    found = gcd(group, UNIT_K)
    if found < least:
        raise ProblemError(
            f"group must be a multiple of {least} or K for a product, got {group}",
            hint="packed.dequantize() is the matrix in f32",
        )
    return found


def prepare_weights(packed: Packed, operand: str) -> PreparedWeights:
    """The weights, on the CPU, for products with A of type ``operand``.

    Without ``order``, which is A's, and ``global_scale``. Raises what ``weight_format`` raises.
    """
    stored = packed.T if packed.transposed else packed
    if isinstance(stored, SparsePacked):
        return _prepare_sparse(stored, operand)
    form = weight_format(stored, operand)
    *stack, rows, depth = stored.shape
    blocks, along = -(-rows // UNIT_ROWS), units_along(depth)
    if stack:
        every = np.empty((*stack, blocks, along * form.unit_bytes), np.uint8)
        for i, units in enumerate(every):
            units[:] = prepare_weights(_matrix(stored, i), operand).units
        return PreparedWeights(every, form, (*stack, depth, rows))
    stored = _for_operand(stored, operand)
    units = np.zeros((blocks, along, form.unit_bytes), np.uint8)
    elements = _stored_codes(stored)
    for block in range(blocks):
        part = elements[block * UNIT_ROWS : (block + 1) * UNIT_ROWS]
        units[block, :, : form.scale_offset] = _element_bytes(form, _padded(part, along * UNIT_K))
    for name, type_, begin in (
        ("scales", form.scale, form.scale_offset),
        ("zeros", form.zero_type, form.zero_offset),
    ):
        if name == "scales" or form.zeros != "none":
            part = _row_pairs(form, _per_unit_group(form, stored, name, type_), blocks)
            units[:, :, begin : begin + part.shape[-1]] = part
    return PreparedWeights(units.reshape(blocks, along * form.unit_bytes), form, (depth, rows))


def _prepare_sparse(weights: SparsePacked, operand: str) -> PreparedWeights:
    """The stored elements as other weights are prepared, and behind each unit its metadata."""
    if operand not in SPARSE_OPERANDS:
        allowed = " or ".join(SPARSE_OPERANDS)
        raise DtypeError(f"a must be {allowed} for sparse packed weights, got {operand}")
    group, whole = weights.group, weights.shape[-1]
    assert group is not None
    if group % SPARSE_STEP and group != whole:
        raise ProblemError(
            f"group of sparse weights must be a multiple of {SPARSE_STEP} or K for a product, got "
            f"{group}",
            hint="packed.dequantize() is the matrix in f32",
        )
    dense = prepare_weights(weights.stored, operand)
    form = replace(dense.format, sparse=True)
    *stack, rows, depth = weights.shape
    along = units_along(depth, form.unit_k)
    shape = (*stack, -(-rows // UNIT_ROWS), along)
    words = codes("metadata", weights.metadata).view(np.uint32)
    units = np.empty((*shape, form.unit_bytes), np.uint8)
    units[..., : form.metadata_offset] = dense.units.reshape(*shape, form.metadata_offset)
    each = form.unit_k // BLOCK_K * BLOCK_WORDS
    blocks = np.full((*shape[:-1], along * each // BLOCK_WORDS, BLOCK_WORDS), FILLER_WORD)
    blocks[..., : words.shape[-2], :] = words
    units[..., form.metadata_offset :] = blocks.reshape(*shape, each).view(np.uint8)
    units = units.reshape(*shape[:-1], along * form.unit_bytes)
    return PreparedWeights(units, form, (*stack, depth, rows))


def _matrix(stack: Packed, index: int) -> Packed:
    """A matrix of a stack, without ``order`` and ``global_scale``."""
    zeros = stack.zeros
    zeros = zeros if zeros is None or isinstance(zeros, int) else zeros[index]
    return Packed(stack.data[index], stack.scales[index], stack.type, stack.group, zeros)


def _stored_codes(stored: Packed) -> Array:
    """The elements' bits in the type in which a unit stores them."""
    codes_, type_ = stored.element_codes(), STORED_TYPES.get(stored.type)
    if type_ is None:
        return codes_
    all_codes = np.arange(1 << dtype(stored.type).bits)
    return np.asarray(encode(type_, decode(stored.type, all_codes)), np.uint8)[codes_]


def _padded(matrix: Array, columns: int) -> Array:
    """64 rows and ``columns``, with zeros."""
    result = np.zeros((UNIT_ROWS, columns), matrix.dtype)
    result[: matrix.shape[0], : matrix.shape[1]] = matrix
    return result


def _element_bytes(form: WeightFormat, elements: Array) -> Array:
    """Codes (64, K) as bytes (units, bytes of a unit's elements)."""
    # warp, half, row of 8, unit, step, half of the step, quad, pair (or four)
    split = elements.reshape(4, 2, 8, -1, UNIT_K // form.step, 2, 4, form.step // 8)
    ordered = split.transpose(3, 0, 2, 6, 4, 5, 1, 7)
    words = fastest(form.type, form.operand, form.zero).pack_codes(
        ordered.reshape(ordered.shape[0], 128, -1)
    )
    vectors = words.reshape(len(words), 128, form.vectors, 4).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(vectors).view(np.uint8).reshape(len(words), -1)


def _per_unit_group(form: WeightFormat, stored: Packed, name: str, type_: str) -> Array:
    """The bits of the scales or zero points, one for each row and group of a unit."""
    array = getattr(stored, name)
    bits = codes(name, array)
    if info(name, array).dtype != type_:
        bits = np.asarray(encode(type_, numbers(name, array)))
    rows, depth = stored.shape
    first = np.arange(0, depth, form.group)
    result = np.zeros((rows, units_along(depth) * form.groups), f"u{dtype(type_).bits // 8}")
    assert stored.group is not None
    result[:, : len(first)] = bits[:, first // stored.group]
    return result


def _row_pairs(form: WeightFormat, bits: Array, blocks: int) -> Array:
    """Numbers (N, groups) as bytes (row blocks, units, …): by group, then pairs of rows."""
    padded = np.zeros((blocks * UNIT_ROWS, bits.shape[1]), bits.dtype)
    padded[: len(bits)] = bits
    units = bits.shape[1] // form.groups
    # row block, warp, half, row of 8, unit, group
    split = padded.reshape(blocks, 4, 2, 8, units, form.groups)
    ordered = np.ascontiguousarray(split.transpose(0, 4, 5, 1, 3, 2))
    return ordered.view(np.uint8).reshape(blocks, units, form.groups * UNIT_ROWS * bits.itemsize)
