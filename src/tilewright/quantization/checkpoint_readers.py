"""Readers of others' packed weights: GPTQ, AWQ, bitsandbytes, compressed-tensors, torchao.

Each takes the arrays of a linear layer as a checkpoint names them, of NumPy or torch on the CPU,
and returns weights N×K. Elements are repacked along K; scales stay where they are, as views. The
sources of the layouts are the packing functions of AutoGPTQ, AutoAWQ, bitsandbytes,
compressed-tensors, torchao and PyTorch's tinygemm. Marlin's layout is in ``marlin_layout``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DtypeError, ProblemError
from ..mma.array_inputs import is_integer
from ..number_conversion import encode
from . import weight_types
from .array_access import Array, codes, info, new_array, numbers, sizes
from .host_arrays import through_host
from .packed import Packed
from .scaled import Scaled
from .weight_types import weight_type

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column of a word's nibbles, from the lowest
WORD_BITS = 32


def words(name: str, array: Any) -> Array:
    """An s32 array as unsigned words. Raises DtypeError for another type, or without elements."""
    given = info(name, array)
    if given.dtype != "s32" or len(given.shape) != 2 or 0 in given.shape:
        raise DtypeError(f"{name} must be a matrix of s32 with elements, got {given}")
    return codes(name, array)


def fields(packed: Array, bits: int, axis: int) -> Array:
    """The fields of words along an axis, the lowest first: n words → n · 32 / bits fields."""
    shifts = np.arange(0, WORD_BITS, bits, dtype=np.uint32)
    split = np.moveaxis(packed, axis, -1)[..., None] >> shifts & np.uint32((1 << bits) - 1)
    return np.moveaxis(split.reshape(*split.shape[:-2], -1), -1, axis).astype(np.uint8)


def unsigned_type(bits: Any) -> str:
    """``u4`` or ``u8``. Raises DtypeError for other widths."""
    if not is_integer(bits) or bits not in (4, 8):
        raise DtypeError(f"bits must be 4 or 8, got {bits!r:.60}")
    return f"u{bits}"


def weights(like: Any, q: Array, type_: str) -> Any:
    """Codes (N, K) as packed bytes, in an array of the library of ``like``."""
    return new_array(like, weight_types.pack_elements(weight_type(type_), q), "u8")


def common_zero(like: Any, zeros: Array) -> Any:
    """Zero points (N, K / group): one number if all are equal, else an array."""
    if zeros.size and (zeros == zeros.flat[0]).all():
        return int(zeros.flat[0])
    return new_array(like, np.ascontiguousarray(zeros), "u8")


def group_of(depth: int, scales: Any, axis: int) -> int:
    """The elements for each scale. Raises ProblemError if the groups do not divide K."""
    shape = info("scales", scales).shape
    groups = shape[axis] if len(shape) > 1 else 0
    if not groups or depth % groups:
        raise ProblemError(f"scales must divide K = {depth}, got {groups} groups")
    return depth // groups


def order_of(like: Any, g_idx: Any, depth: int, group: int) -> tuple[Array | None, Any]:
    """The permutation that sorts rows by group, and the same as ``Packed.order``; None if they are
    sorted already. Raises ProblemError if a group does not have ``group`` rows.
    """
    if g_idx is None:
        return None, None
    index = numbers("g_idx", g_idx).reshape(-1)
    expected = np.arange(depth) // group
    if index.shape != expected.shape or not np.array_equal(np.sort(index), expected):
        raise ProblemError(f"g_idx must assign {group} of {depth} rows to each group")
    if np.array_equal(index, expected):
        return None, None
    order = np.argsort(index, kind="stable")
    return order, new_array(like, order.astype(np.uint32), "s32")


@through_host
def read_gptq(
    qweight: Any, qzeros: Any, scales: Any, g_idx: Any = None, bits: int = 4, zero_offset: int = 1
) -> Packed:
    """GPTQ's weights, act-order too.

    ``qweight``: s32 (K · bits / 32, N), row k in field k mod (32 / bits). ``qzeros``: s32
    (K / group, N · bits / 32), of zero points less ``zero_offset`` (1; 0 in version 2). ``scales``:
    (K / group, N). ``g_idx``: s32 (K), each row's group. An element is (q − z) · s. Rows are
    reordered by group if ``g_idx`` is not sorted; ``Packed.order`` then says how.

    Raises DtypeError and ProblemError for arrays that do not fit.
    """
    type_ = unsigned_type(bits)
    if not is_integer(zero_offset) or zero_offset not in (0, 1):
        raise ProblemError(f"zero_offset must be 1 or 0, got {zero_offset!r:.60}")
    q = fields(words("qweight", qweight), bits, 0).T
    zeros = fields(words("qzeros", qzeros), bits, 1).T + np.uint8(zero_offset)
    group = group_of(q.shape[1], scales, 0)
    permutation, order = order_of(qweight, g_idx, q.shape[1], group)
    q = q if permutation is None else q[:, permutation]
    zero = common_zero(qweight, _fitting("qzeros", zeros, q.shape[0], scales))
    return Packed(weights(qweight, q, type_), scales.T, type_, group, zero, order)


def _fitting(name: str, zeros: Array, rows: int, scales: Any) -> Array:
    """Zero points (N, groups) if they fit the scales (groups, N)."""
    expected = rows, int(scales.shape[0])
    if zeros.shape != expected:
        raise ProblemError(
            f"{name} must hold {sizes(expected)} zero points, got {sizes(zeros.shape)}"
        )
    return zeros


@through_host
def read_awq(qweight: Any, qzeros: Any, scales: Any) -> Packed:
    """AWQ's 4-bit weights.

    ``qweight``: s32 (K, N / 8), ``qzeros``: s32 (K / group, N / 8); the nibbles of a word are
    columns 0, 2, 4, 6, 1, 3, 5, 7. ``scales``: (K / group, N). An element is (q − z) · s.

    Raises DtypeError and ProblemError for arrays that do not fit.
    """
    q, zeros = (
        _awq_columns(words(name, array)).T
        for name, array in (("qweight", qweight), ("qzeros", qzeros))
    )
    group = group_of(q.shape[1], scales, 0)
    zero = common_zero(qweight, _fitting("qzeros", zeros, q.shape[0], scales))
    return Packed(weights(qweight, q, "u4"), scales.T, "u4", group, zero)


def _awq_columns(packed: Array) -> Array:
    nibbles = fields(packed, 4, 1).reshape(packed.shape[0], -1, 8)
    columns = np.empty_like(nibbles)
    columns[..., list(AWQ_ORDER)] = nibbles
    return columns.reshape(packed.shape[0], -1)


@through_host
def read_bitsandbytes_nf4(
    weight: Any,
    absmax: Any,
    shape: tuple[int, int],
    blocksize: int = 64,
    nested: tuple[Any, Any, float] | None = None,
) -> Packed:
    """bitsandbytes' NF4 weights.

    ``weight``: u8, the N·K elements in order, two a byte, the first in the upper nibble.
    ``absmax``: f32, one for each ``blocksize`` elements, or u8 with ``nested`` = (code, absmax,
    offset) for double quantization: code[absmax] · nested absmax of each 256 + offset, in f32.
    ``shape``: N, K.

    Raises ProblemError if blocks do not divide K or arrays do not fit.
    """
    if not _is_tuple(shape, 2) or not all(map(_is_size, shape)):
        raise ProblemError(f"shape must be N and K, got {shape!r:.60}")
    if nested is not None and not _is_tuple(nested, 3):
        raise ProblemError(f"nested must be (code, absmax, offset), got {nested!r:.60}")
    rows, depth = shape
    given = info("weight", weight)
    if given.dtype != "u8" or int(np.prod(given.shape)) * 2 != rows * depth:
        raise ProblemError(f"weight must have {rows * depth // 2} bytes (u8), got {given}")
    if not _is_size(blocksize) or depth % blocksize:
        raise ProblemError(f"blocksize must divide K = {depth}, got {blocksize!r:.60}")
    data = codes("weight", weight).reshape(rows, depth // 2)
    scales = absmax if nested is None else _nested_absmax(absmax, *nested)
    blocks = rows * (depth // blocksize)
    if int(np.prod(info("absmax", scales).shape)) != blocks:
        raise ProblemError(f"absmax must have {blocks} numbers, got {info('absmax', scales)}")
    scales = scales.reshape(rows, depth // blocksize)
    return Packed(new_array(weight, data >> 4 | data << 4, "u8"), scales, "nf4", blocksize)


def _is_tuple(given: Any, length: int) -> bool:
    return isinstance(given, tuple | list) and len(given) == length


def _is_size(number: Any) -> bool:
    return is_integer(number) and number > 0


def _nested_absmax(absmax: Any, code: Any, nested: Any, offset: Any) -> Any:
    given, table = info("absmax", absmax), info("code", code)
    if given.dtype != "u8" or table.shape != (256,):
        raise ProblemError(f"absmax must be u8 and code have 256 numbers, got {given} and {table}")
    indices = codes("absmax", absmax).reshape(-1)
    factors = np.repeat(numbers("nested absmax", nested).reshape(-1), 256)[: indices.size]
    offsets = np.asarray(numbers("offset", offset) if hasattr(offset, "shape") else offset)
    if factors.size != indices.size or offsets.size != 1 or offsets.dtype.kind not in "fiu":
        raise ProblemError(
            f"nested must have an absmax for each 256 of {indices.size}, and one offset, got "
            f"{info('nested absmax', nested)} and {offset!r:.60}"
        )
    values = numbers("code", code)[indices] * factors + np.float32(offsets.reshape(())[()])
    return new_array(code, values.astype(np.float32).view(np.uint32), "f32")


def read_compressed_tensors(
    arrays: dict[str, Any], bits: int = 4, prefix: str = "weight"
) -> Packed | Scaled:
    """A linear layer of compressed-tensors, by the names of its arrays.

    ``pack-quantized``: ``weight_packed`` s32 (N, K · bits / 32), fields q + 2^(bits − 1), the
    lowest first; ``weight_scale`` (N, K / group); ``weight_shape``; ``weight_zero_point`` s32
    (N · bits / 32, K / group), optional, packed alike along N; ``weight_g_idx``, optional.
    ``nvfp4-pack-quantized``: ``weight_packed`` u8, ``weight_scale`` e4m3 (N, K / 16),
    ``weight_global_scale`` f32, by which scales are divided: the global scale of the result is its
    inverse in f32. ``float-quantized`` and ``int-quantized``: ``weight`` (N, K) of e4m3 or s8 with
    ``weight_scale`` of one element, (N, 1) or (N, K / group): a ``Scaled``.

    Raises DtypeError and ProblemError for arrays that do not fit.
    """
    given: Any = arrays
    if not isinstance(given, Mapping) or any(not isinstance(key, str) for key in (prefix, *given)):
        raise ProblemError(f"arrays must be a dict of arrays by name, got {given!r:.60}")
    found = {key.removeprefix(prefix).lstrip("_"): value for key, value in arrays.items()}
    if "scale" not in found or ("packed" not in found and "" not in found):
        names = ", ".join(arrays)
        raise ProblemError(f"arrays must include {prefix}_scale and {prefix}_packed, got {names}")
    packed, scale = found.get("packed"), found["scale"]
    if packed is None:
        return Scaled(found[""], scale)
    if "global_scale" in found:
        factor = _inverse(found["global_scale"])
        return Packed(packed, scale, "e2m1", 16, global_scale=factor)
    return _pack_quantized(found, unsigned_type(bits), bits)


@through_host
def _inverse(global_scale: Any) -> Any:
    inverse = 1 / numbers("global_scale", global_scale).astype(np.float32)
    return new_array(global_scale, np.atleast_1d(inverse).view(np.uint32), "f32")


@through_host
def _pack_quantized(found: dict[str, Any], type_: str, bits: int) -> Packed:
    packed, scale = found["packed"], found["scale"]
    rows, depth = (
        info("packed", packed).shape[0],
        info("packed", packed).shape[1] * WORD_BITS // bits,
    )
    if "shape" in found:
        rows, depth = (int(size) for size in numbers("shape", found["shape"]))
    q = fields(words("packed", packed), bits, 1)[:, :depth]
    group = group_of(depth, scale, 1)
    zero: Any = 1 << (bits - 1)
    if "zero_point" in found:
        zeros = fields(words("zero_point", found["zero_point"]), bits, 0)[:rows]
        zero = common_zero(packed, zeros)
    permutation, order = order_of(packed, found.get("g_idx"), depth, group)
    q = q if permutation is None else q[:, permutation]
    return Packed(weights(packed, q, type_), scale, type_, group, zero, order)


@through_host
def read_torchao_int4(qdata: Any, scale: Any, zero_point: Any) -> Packed:
    """torchao's plain 4-bit weights (``Int4Tensor``).

    ``qdata``: (N, K / 2) bytes of s4, the first in the lower nibble; ``scale`` and ``zero_point``:
    (K / group, N) floats. An element is q · s + z. Raises DtypeError and ProblemError for arrays
    that do not fit.
    """
    given, zeros = info("qdata", qdata), info("zero_point", zero_point)
    if len(given.shape) != 2 or len(zeros.shape) != 2:
        raise ProblemError(f"qdata and zero_point must be matrices, got {given} and {zeros}")
    if given.dtype == "s8":
        qdata = new_array(qdata, codes("qdata", qdata), "u8")
    group = group_of(given.shape[-1] * 2, scale, 0)
    return Packed(qdata, scale.T, "s4", group, zero_point.T)


@through_host
def read_torchao_tile_packed(qdata: Any, scale_and_zero: Any) -> Packed:
    """torchao's 4-bit weights for tinygemm (``Int4TilePackedTo4dTensor``).

    ``qdata``: s32 (N / 8, K / (16 · t), 32, t / 2) with t of 2, 4 or 8: lane l of the third axis
    has row l / 4 of the tile, a word has two k-tiles of 16, and its nibbles from the lowest are
    elements 0, 2, 4, 6, 1, 3, 5, 7 of k = 2 (l mod 4) + {0, 1, 8, 9, 16, 17, 24, 25}.
    ``scale_and_zero``: bf16 (K / group, N, 2). An element is (q − 8) · s + z. Padding of N and K
    stays. Raises DtypeError and ProblemError for arrays that do not fit.
    """
    given = info("qdata", qdata)
    if given.dtype != "s32" or len(given.shape) != 4 or given.shape[2] != 32:
        raise DtypeError(f"qdata must be s32 (N / 8, K / (16 · t), 32, t / 2), got {given}")
    n_tiles, k_tiles, _, halves = given.shape
    both = info("scale_and_zero", scale_and_zero)
    if 0 in given.shape or len(both.shape) != 3 or both.shape[2] != 2:
        raise ProblemError(f"scale_and_zero must be (K / group, N, 2), got {both} for {given}")
    nibbles = fields(codes("qdata", qdata), 4, 3).reshape(n_tiles, k_tiles, 8, 4, halves, 8)
    elements = np.empty_like(nibbles)
    elements[..., list(AWQ_ORDER)] = nibbles
    # (n tile, k tile, row, lane pair, half, (k-tile, 8s, element)) → k from the highest digit
    split = elements.reshape(n_tiles, k_tiles, 8, 4, halves, 2, 2, 2)
    q = split.transpose(0, 2, 1, 4, 5, 6, 3, 7).reshape(n_tiles * 8, -1)
    group = group_of(q.shape[1], scale_and_zero, 0)
    scales, zeros = scale_and_zero[..., 0].T, scale_and_zero[..., 1].T
    signed = np.asarray(encode("s4", q.astype(np.int64) - 8))
    return Packed(weights(qdata, signed, "s4"), scales, "s4", group, zeros)
