"""Quantized matrices as values: data, scales and zero points; quantizing; readers; conversions.

Scaled(data, scales, block)     8-bit elements with scales: per tensor, row, column, block
Packed(data, scales, type, …)   weights of 4 to 8 bits with scales per group along K
SparsePacked(…)                  the same of 2:4 sparse weights, made by compress_24(packed)
quantize(x, "e4m3", "row")      an array → Scaled
quantize_weight(w, "u4", …)     an array → Packed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy_imports

if TYPE_CHECKING:  # `as` marks what is public
    from .checkpoint_readers import read_awq as read_awq
    from .checkpoint_readers import read_bitsandbytes_nf4 as read_bitsandbytes_nf4
    from .checkpoint_readers import read_compressed_tensors as read_compressed_tensors
    from .checkpoint_readers import read_gptq as read_gptq
    from .checkpoint_readers import read_torchao_int4 as read_torchao_int4
    from .checkpoint_readers import read_torchao_tile_packed as read_torchao_tile_packed
    from .marlin_layout import read_marlin as read_marlin
    from .packed import Packed as Packed
    from .quantizers import quantize as quantize
    from .quantizers import quantize_weight as quantize_weight
    from .quantizers import smoothing_factors as smoothing_factors
    from .scaled import Scaled as Scaled
    from .sparse_packed import SparsePacked as SparsePacked

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)
