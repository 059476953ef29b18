"""Quantized matrices as values: data, scales and zero points; quantizing; readers; conversions.

Scaled(data, scales, block)     8-bit elements with scales: per tensor, row, column, block
Packed(data, scales, type, …)   weights of 4 to 8 bits with scales per group along K
quantize(x, "e4m3", "row")      an array → Scaled
quantize_weight(w, "u4", …)     an array → Packed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy_imports

if TYPE_CHECKING:  # `as` marks what is public
    from .packed import Packed as Packed
    from .quantizers import quantize as quantize
    from .quantizers import quantize_weight as quantize_weight
    from .quantizers import smoothing_factors as smoothing_factors
    from .scaled import Scaled as Scaled

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)
