"""``matmul`` with packed weights as A: Dᵀ = Bᵀ Wᵀ, which the kernel multiplies as W Bᵀᵀ anyway."""

from __future__ import annotations

from typing import Any

from ....errors import ProblemError
from ....quantization.packed import Packed, is_quantized
from ..alpha_beta import has_several
from ..request import MatmulArguments, MatmulOptions


def has_weights_on_the_left(a: Any, b: Any) -> bool:
    """Whether A is packed, and B an array or a Scaled matrix."""
    return isinstance(a, Packed) and not isinstance(b, Packed)


def transposed_arguments(arguments: MatmulArguments, options: MatmulOptions) -> MatmulArguments:
    """The arguments of the transposed product, whose result is D's transpose.

    Raises ProblemError for weights K×N, factors of several elements and ``static``.
    """
    a, b, c, out, alpha, beta, _ = arguments
    if a.transposed:
        raise ProblemError(f"packed a must be weights N×K, got {a}, which is K×N", hint="a.T")
    if has_several(alpha) or has_several(beta):
        raise ProblemError("alpha and beta must have one element where a is packed")
    if options.static is not None:
        raise ProblemError(f"static must be None where a is packed, got {options.static!r:.60}")
    c, out = (None if x is None else transposed(x) for x in (c, out))
    return MatmulArguments(transposed(b), a.T, c, out, alpha, beta)


def transposed(x: Any) -> Any:
    """The transpose of a matrix, or of those of a stack; a vector as it is."""
    rank = len(getattr(x, "shape", ()))
    if rank == 2 or (is_quantized(x) and rank > 1):
        return x.T
    return x.swapaxes(-1, -2) if rank > 2 else x
