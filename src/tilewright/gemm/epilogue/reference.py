"""Epilogue graphs evaluated with NumPy: the same bits as kernels give.

Every operation of ``operations.OPERATIONS`` has its NumPy counterpart here. A NaN result is the
canonical one in f32; in f64 the payload of a NaN is not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ... import exact, mufu
from ...dtypes import dtype
from ...errors import ProblemError
from ...number_conversion import decode, encode
from .graph import (
    ACCUMULATOR,
    BIT,
    BITMASK,
    CONSTANT,
    INDEX,
    LOAD,
    ROUND,
    TENSOR,
    EpilogueGraph,
    EpilogueOutput,
    Node,
)

Array = npt.NDArray[Any]

NUMPY_TYPES: dict[str, type[np.generic]] = {
    "f32": np.float32, "f64": np.float64, "s32": np.int32, "u32": np.uint32, "pred": np.bool_,
}  # fmt: skip


def evaluate(
    graph: EpilogueGraph, accumulator: Array | Sequence[Array], inputs: Mapping[str, Array]
) -> dict[str, Array]:
    """The outputs of a graph, by name: arrays of ``accumulator``'s shape, or reduced ones.

    ``accumulator``, or both of two products with the same A: f32, f64 or s32 of shape (M, N) or
    (batch, M, N). ``inputs``: arrays of each input's type that broadcast to this shape. Sums add up
    in f64 and are rounded once, kernels in f32 in an order that depends on the configuration.
    """
    values: list[Array] = []
    accumulators = [accumulator] if isinstance(accumulator, np.ndarray) else accumulator
    first = accumulators[0]
    with np.errstate(all="ignore"):
        for node in graph.nodes:
            values.append(_node_value(node, values, accumulators, inputs))
        return {o.name: _output_value(o, values[o.node], first) for o in graph.outputs}


def _node_value(
    node: Node, values: list[Array], accumulators: Sequence[Array], inputs: Mapping[str, Array]
) -> Array:
    if node.op == ACCUMULATOR:
        return accumulators[node.attributes[0] if node.attributes else 0]
    if node.op == CONSTANT:
        return (
            np.array(node.attributes[0], np.uint64)
            .astype(_bits_type(node.type))
            .view(NUMPY_TYPES[node.type])
        )
    if node.op == LOAD:
        return _loaded(node, inputs, accumulators[0].shape[-1])
    if node.op == INDEX:
        return _index(node.attributes[0], accumulators[0].shape)
    if node.op == ROUND:
        type_ = node.attributes[0]
        return widen(store(values[node.args[0]], type_), type_)
    return apply(node.op, *(values[i] for i in node.args))


def _bits_type(type_: str) -> Any:
    if type_ == "pred":
        return np.uint8
    return np.uint64 if type_ == "f64" else np.uint32


def _loaded(node: Node, inputs: Mapping[str, Array], columns: int) -> Array:
    name, type_, _ = node.attributes
    if name not in inputs:
        raise ProblemError(f"the epilogue reads {name}, and no such input is given")
    if type_ == BIT:
        bits = np.unpackbits(np.asarray(inputs[name]), axis=-1, bitorder="little")
        return np.asarray(bits[..., :columns] != 0)
    return widen(np.asarray(inputs[name]), type_)


def _index(dimension: str, shape: tuple[int, ...]) -> Array:
    axis = {"row": -2, "column": -1, "batch": -3}[dimension]
    if len(shape) < -axis:
        return np.zeros((), np.uint32)
    index: Array = np.arange(shape[axis], dtype=np.uint32)
    return index.reshape((-1,) + (1,) * (-axis - 1))


def compute_type(type_: str) -> str:
    """The compute type in which an input of a storage type is read."""
    if type_ == BIT:
        return "pred"
    t = dtype(type_)
    if t.kind == "float":
        return "f64" if t.bits == 64 else "f32"
    if t.name in ("s32", "u32", "pred"):
        return t.name
    return "f32"


def widen(array: Array, type_: str) -> Array:
    """An array of a storage type as its compute type, without a change of value. A NaN becomes the
    canonical one, but bf16 is the upper half of an f32, a NaN's bits too.
    """
    wide = NUMPY_TYPES[compute_type(type_)]
    if array.dtype == wide:
        return array
    bits = array.view(dtype(type_).storage)
    if type_ == "bf16":
        return np.asarray((bits.astype(np.uint32) << 16).view(np.float32))
    return canonical(np.asarray(decode(type_, bits)).astype(wide))


def store(array: Array, type_: str) -> Array:
    """A value rounded once to a storage type, as the kernels store it: to nearest even. 8-bit
    floats and integers saturate; f16 overflows to infinity; u32 is stored as the s32 of its bits.
    """
    t = dtype(type_)
    if array.dtype == NUMPY_TYPES.get(type_):
        return array
    if array.dtype == np.uint32 and type_ == "s32":
        return np.ascontiguousarray(array).view(np.int32)
    finite = t.bits == 8 or t.kind != "float"
    bits = np.asarray(encode(type_, array, satfinite=finite))
    return bits.astype(t.storage).view(t.numpy)


def _output_value(output: EpilogueOutput, value: Array, accumulator: Array) -> Array:
    value = np.broadcast_to(value, accumulator.shape)
    if output.reduction == BITMASK:
        return np.packbits(value, axis=-1, bitorder="little")
    if output.reduction == TENSOR:
        return store(value, output.type)
    axes = tuple("bmn".index(d) - 3 for d in output.reduced if "bmn".index(d) - 3 >= -value.ndim)
    if output.reduction == "max":
        return store(canonical(value.max(axis=axes)), output.type)
    return store(value.astype(np.float64).sum(axis=axes).astype(value.dtype), output.type)


def canonical(array: Array) -> Array:
    """The array with every NaN of f32 replaced by the canonical one."""
    if array.dtype != np.float32:
        return array
    nan = np.uint32(0x7FFFFFFF).view(np.float32)
    return np.where(np.isnan(array), nan, array)


# --- operations ---------------------------------------------------------------------------------


def fma(a: Array, b: Array, c: Array) -> Array:
    """a · b + c, rounded once."""
    if a.dtype.kind in "iu":
        return np.asarray(a * b + c)
    if a.dtype == np.float64:
        a, b, c = np.broadcast_arrays(a, b, c)
        x, y, z = (np.ascontiguousarray(v).view(np.uint64) for v in (a, b, c))
        return exact.fma("f64", x, y, z).view(np.float64)
    # The product is exact in f64. The sum is rounded to odd there, so that rounding it to f32
    # rounds once (Boldo and Melquiond, 2008).
    product, addend = a.astype(np.float64) * b, c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    even = (total.view(np.uint64) & 1) == 0
    inexact = np.isfinite(total) & (error != 0)
    toward = np.where(error > 0, np.inf, -np.inf)
    odd = np.where(inexact & even, np.nextafter(total, toward), total)
    return canonical(odd.astype(np.float32))


def _extreme(choose: Any, other: Any, nan: bool) -> Callable[[Array, Array], Array]:
    """min or max; −0 is below +0."""

    def extreme(a: Array, b: Array) -> Array:
        if a.dtype.kind != "f":
            return np.asarray(choose(a, b))
        larger = choose(a, b) if nan else other(a, b)
        zeros = (a == 0) & (b == 0)
        bits = {4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
        a, b = np.broadcast_arrays(a, b)
        x, y = np.ascontiguousarray(a).view(bits), np.ascontiguousarray(b).view(bits)
        both = (x | y) if choose is np.minimum else (x & y)
        return canonical(np.where(zeros, both.view(a.dtype), larger))

    return extreme


def _approximate(name: str) -> Callable[[Array], Array]:
    def approximate(a: Array) -> Array:
        a = np.ascontiguousarray(a)
        return mufu.evaluate(name, a.view(np.uint32)).view(np.float32)

    return approximate


def _copysign(sign: Array, magnitude: Array) -> Array:
    return np.asarray(np.copysign(magnitude, sign))


def _shift(operation: Any) -> Callable[[Array, Array], Array]:
    def shift(a: Array, b: Array) -> Array:
        wide = operation(a.astype(np.uint64), np.minimum(b, 32).astype(np.uint64))
        return np.asarray(wide & 0xFFFFFFFF).astype(np.uint32)

    return shift


def _mul_hi(a: Array, b: Array) -> Array:
    wide = np.int64 if a.dtype == np.int32 else np.uint64
    return np.asarray((a.astype(wide) * b.astype(wide)) >> np.array(32, wide)).astype(a.dtype)


def _to_s32(a: Array) -> Array:
    """Rounded and clamped; a NaN of f32 gives 0, one of f64 the least integer."""
    nan = 0 if a.dtype == np.float32 else -(2**31)
    whole = np.where(np.isnan(a), nan, np.rint(a.astype(np.float64)))
    return np.clip(whole, -(2**31), 2**31 - 1).astype(np.int32)


def _reciprocal(a: Array) -> Array:
    return np.asarray(np.array(1, a.dtype) / a)


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "fma": fma,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": _reciprocal,
    "neg": np.negative,
    "abs": np.abs,
    "copysign": _copysign,
    "min_nan": _extreme(np.minimum, np.fmin, True),
    "max_nan": _extreme(np.maximum, np.fmax, True),
    "min": _extreme(np.minimum, np.fmin, False),
    "max": _extreme(np.maximum, np.fmax, False),
    "exp2_approx": _approximate("ex2"),
    "log2_approx": _approximate("lg2"),
    "tanh_approx": _approximate("tanh"),
    "rcp_approx": _approximate("rcp"),
    "rsqrt_approx": _approximate("rsqrt"),
    "sqrt_approx": _approximate("sqrt"),
    "mul_hi": _mul_hi,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": _shift(np.left_shift),
    "shr": _shift(np.right_shift),
    "bits": lambda a: np.ascontiguousarray(a).view(np.uint32),
    "float_of_bits": lambda a: np.ascontiguousarray(a).view(np.float32),
    "to_f32": lambda a: a.astype(np.float32),
    "to_f64": lambda a: a.astype(np.float64),
    "to_s32": _to_s32,
    "round_f32": lambda a: a.astype(np.float32),
    "select": np.where,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
_BITWISE = ("bits", "float_of_bits", "copysign", "select")  # a NaN keeps its payload


def apply(operation: str, *operands: Array) -> Array:
    """An operation of ``OPERATIONS`` on arrays of compute types."""
    with np.errstate(all="ignore"):
        result = np.asarray(_NUMPY[operation](*operands))
    return result if operation in _BITWISE else canonical(result)
