"""``Scaled`` matrices of a call: their scales as operands of the epilogue, or as block scales.

Scales that do not vary along K are factors of the rows or columns of D, so that the kernel for the
plain 8-bit data computes the product and the epilogue multiplies the accumulator:

    D = ((f32(acc) · scale of a) · scale of b), each product rounded to f32, then once to D's type

Zero points are subtracted from the s32 accumulator, times sums along K (``zero_points``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, NamedTuple

import numpy as np

from ....errors import EpilogueError, ProblemError
from ....gemm.block_scaling import BLOCK, SIDES, BlockScaling
from ....gemm.epilogue.tracing import (
    Epilogue,
    cast,
    epilogue,
    epilogue_key,
    epilogue_with_key,
)
from ....quantization.packed import Packed, is_quantized
from ....quantization.scale_blocks import grid_shape
from ....quantization.scaled import Scaled
from ....quantization.weight_format import PreparedWeights
from ..alpha_beta import ALPHA, BETA
from ..request import BlockScales, MatmulArguments
from .prepared_operand import check_static, weight_operands
from .weight_pair import is_weight_pair, pair_operands
from .zero_points import column_sums, row_sums

MATRICES = ("a", "b", "b2")
SCALE_NAMES = tuple(f"{name}_{what}" for what in ("scales", "zeros", "sums") for name in MATRICES)


def has_quantized(a: Any, b: Any) -> bool:
    """Whether an operand of a call is a Scaled or Packed matrix; ``b`` may be two."""
    return is_quantized(*_matrices(a, b))


class ArraysWithScales(NamedTuple):
    """The data of matrices, the epilogue function and its operands, to which scales of rows and
    columns are added, or the block scales. ``a`` is two arrays where those of two packed matrices
    have their columns in different orders.
    """

    a: Any
    b: Any
    function: Any
    operands: dict[str, Any]
    scales: BlockScales | None = None


def without_scales(
    a: Any, b: Any, function: Any, operands: Mapping[str, Any], static: Any = None, *,
    grouped: bool = False,
) -> ArraysWithScales:  # fmt: skip
    """The data of the matrices, and their scales: block scales, or operands of the epilogue of
    their accumulators in front of ``function``. ``static``: as ``matmul`` takes it;
    ``grouped``: as ``weight_operands`` does.

    Raises ProblemError for other scales that vary along K.
    """
    check_static(static, b)
    if (scales := block_scales(a, b)) is not None:
        pair = isinstance(b, tuple | list)
        data = tuple(x.data for x in b) if pair else b.data
        return ArraysWithScales(a.data, data, function, {**operands}, scales)
    if isinstance(b, _WEIGHTS) or is_weight_pair(b):
        _check_matrix("a", a)
        return _weights_as_operands(a, b, function, operands, grouped=grouped)
    matrices = _matrices(a, b)
    for name, matrix in zip(MATRICES, matrices, strict=False):
        _check_matrix(name, matrix)
    given = {name: x for name, (_, x) in scale_operands(matrices, keep=static == "b").items()}
    left, *right = [x.data if isinstance(x, Scaled) else x for x in matrices]
    second = right[0] if len(right) == 1 else tuple(right)
    wrapped = with_scales(function, tuple(given), len(right))
    return ArraysWithScales(left, second, wrapped, {**operands, **given})


def scale_operands(
    matrices: Sequence[Any], depth_axis: int = 0, *, keep: bool = False
) -> dict[str, tuple[str, Any]]:
    """The operands of the epilogue, by name: scales, zero points and the sums that these need, of
    A and of one or two B. Each is an expression of the matrices' names, and its value.
    ``depth_axis``, ``keep``: of B, as ``column_sums`` takes them.
    """
    named, found = dict(zip(MATRICES, matrices, strict=False)), {}
    for name, x in named.items():
        if isinstance(x, Scaled):
            found[f"{name}_scales"] = f"{name}.scales", x.scales
            if x.zeros is not None:
                found[f"{name}_zeros"] = f"{name}.zeros", x.zeros
    if "a_zeros" in found:
        for name in list(named)[1:]:
            found[f"{name}_sums"] = (
                f"column_sums({name}, {depth_axis}, {keep})",
                column_sums(named[name], depth_axis, keep),
            )
    if {"b_zeros", "b2_zeros"} & found.keys():
        found["a_sums"] = "row_sums(a)", row_sums(matrices[0])
    return found


def _weights_as_operands(
    a: Any, b: Any, function: Any, operands: Mapping[str, Any], *, grouped: bool
) -> ArraysWithScales:
    """``without_scales`` for packed weights, whose global scales are operands."""
    scales, data = {}, a
    if isinstance(a, Scaled):
        if a.zeros is not None:
            raise ProblemError(f"a must have no zero points for packed weights, got {a}")
        scales, data = {"a_scales": a.scales}, a.data
    found: Any
    if is_weight_pair(b):
        found = pair_operands(data, b, grouped=grouped)
        factors = found.factors
    else:
        found = weight_operands(data, b, grouped=grouped)
        factors = (found.factor,)
    for name, factor in zip(MATRICES[1:], factors, strict=False):
        if factor is not None:
            scales[f"{name}_scales"] = factor
    wrapped = with_scales(function, tuple(scales), len(factors))
    return ArraysWithScales(found.a, found.b, wrapped, {**operands, **scales})


def _matrices(a: Any, b: Any) -> tuple[Any, ...]:
    return (a, *b) if isinstance(b, tuple | list) else (a, b)


def _check_matrix(name: str, matrix: Any) -> None:
    if isinstance(matrix, Packed):
        raise ProblemError(
            f"{name} must be an array or Scaled, got {matrix}: packed weights must be b, or both b",
            hint=f"{name}.dequantize() is the matrix in f32",
        )
    if not isinstance(matrix, Scaled):
        return
    if not has_line_scales(matrix, along_k=1 if name == "a" else 0):
        line = "row" if name == "a" else "column"
        raise ProblemError(
            f"{name} must have one scale or one per {line}, or both matrices must have blocks of "
            f"{BLOCK} along K, got {matrix}",
            hint=f"{name}.dequantize() is the matrix in f32",
        )


def has_line_scales(matrix: Scaled, along_k: int) -> bool:
    """Whether the scales do not vary along K, the axis ``along_k``: one scale (of each matrix), or
    one per line.
    """
    grid = grid_shape(matrix.shape, matrix.block)[-2:]
    by_line = grid[along_k] == 1 and matrix.block[1 - along_k] == 1
    return _size(matrix.scales) == 1 or grid == (1, 1) or by_line


def with_block_scales(arguments: MatmulArguments, static: Any = None) -> MatmulArguments | None:
    """The arguments with the data of A and B and their scales in blocks of 128 along K, which the
    mainloop multiplies, or with packed weights as the mainloop reads them; None for other matrices.
    ``static``: as ``matmul`` takes it.
    """
    a, b = arguments.a, arguments.b
    check_static(static, b)
    if isinstance(b, _WEIGHTS) and not isinstance(a, Scaled | Packed):
        found = weight_operands(a, b)
        return arguments._replace(a=found.a, b=found.b) if found.factor is None else None
    scales = block_scales(a, b)
    return None if scales is None else arguments._replace(a=a.data, b=b.data, scales=scales)


def block_scales(a: Any, b: Any) -> BlockScales | None:
    """The scales of A and of one or two B in blocks of 128 along K; None for others."""
    matrices = _matrices(a, b)
    if not all(isinstance(x, Scaled) for x in matrices) or len(matrices) > len(MATRICES):
        return None
    if all(has_line_scales(x, int(i == 0)) for i, x in enumerate(matrices)):
        return None
    (rows, along_a), *of_b = (_scale_blocks(x) for x in matrices)
    along_b, columns = of_b[0]
    blocks = along_a == along_b == BLOCK and not {rows, columns} - set(SIDES)
    if not blocks or of_b[0] != of_b[-1]:
        return None
    return BlockScales(BlockScaling(rows, columns), *(_grid(x) for x in matrices))


def _scale_blocks(matrix: Scaled) -> tuple[int, int]:
    """The blocks; a side of at most 128 that one block covers is as good as 128."""
    sides = zip(matrix.block, matrix.shape[-2:], strict=True)
    rows, columns = (BLOCK if 1 < size <= min(side, BLOCK) else side for side, size in sides)
    return rows, columns


def _grid(matrix: Scaled) -> Any:
    """The scales, as many rows and columns as there are blocks."""
    grid = grid_shape(matrix.shape, matrix.block)
    return matrix.scales if tuple(matrix.scales.shape) == grid else matrix.scales.reshape(grid)


def _size(array: Any) -> int:
    return int(np.prod(array.shape))


def default_dtype(a: Any, b: Any) -> str | None:
    """D's default type: bf16, or A's for packed weights and an A that is not Scaled."""
    return None if isinstance(b, _WEIGHTS) and not isinstance(a, Scaled) else "bf16"


def linear_combination(c: Any, alpha: Any, beta: Any) -> tuple[Epilogue, Any, Any, Any]:
    """α x + β C as an epilogue, and those of C, α and β that have an effect."""
    if not _is(beta, 0):
        if c is None:
            raise ProblemError("c must be given if beta is not 0")
        return _ACCUMULATED, c, alpha, beta
    return (_UNCHANGED, None, ALPHA, BETA) if _is(alpha, 1) else (_MULTIPLIED, None, alpha, BETA)


def _is(factor: Any, number: int) -> bool:
    return isinstance(factor, int | float) and factor == number


_WEIGHTS = (Packed, PreparedWeights)
_UNCHANGED = Epilogue(lambda x: x)
_MULTIPLIED = Epilogue(lambda x, alpha: alpha * x)
_ACCUMULATED = Epilogue(lambda x, alpha, beta, c: alpha * x + beta * c)


def with_scales(function: Any, scales: tuple[str, ...], count: int) -> Epilogue:
    """``function``, which gets ``count`` scaled accumulators; the scales are further operands."""
    user = epilogue(function)
    names = user.parameters[count:]
    for name in scales:
        if name in names:
            raise EpilogueError(f"{name} are the scales of a matrix, got an operand of {user}")
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = [Parameter(name, kind) for name in (*user.parameters[:count], *scales)]
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, default=user.defaults.get(name, Parameter.empty))
        for name in names
    ]
    scaled = _scaled(user.function, scales)
    scaled.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    scaled.__name__ = user.__name__
    key = epilogue_key(function)
    return epilogue_with_key(scaled, None if key is None else ("scales", key, scales, count))


def _scaled(function: Callable[..., Any], names: tuple[str, ...]) -> Callable[..., Any]:
    """``function`` of accumulators without the products of zero points, that are multiplied by the
    scales of A and of their B. ``names``: the operands that are not the function's.
    """

    def scaled(*accumulators: Any, **operands: Any) -> Any:
        given: dict[str, Any] = dict.fromkeys(SCALE_NAMES)
        given |= {name: operands.pop(name) for name in names}
        products = []
        for name, accumulator in zip(MATRICES[1:], accumulators, strict=False):
            product = accumulator
            for zeros, sums in (("a_zeros", f"{name}_sums"), (f"{name}_zeros", "a_sums")):
                if given[zeros] is not None:
                    product = product - cast(given[zeros], "s32") * given[sums]
            for scales in ("a_scales", f"{name}_scales"):
                product = product if given[scales] is None else product * given[scales]
            products.append(product)
        return function(*products, **operands)

    return scaled
