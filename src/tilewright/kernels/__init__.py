"""A shelf of kernels written with the builder, for arrays of any library on the CPU or a GPU.

Each is a short example of how to write a kernel, and fast enough to be used: rows of any length,
types f16, bf16 and f32, computed in f32.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .matrix_row import MatrixRow
    from .normalization import layer_norm, rms_norm
    from .rotary import rotary_embedding
    from .row_layout import RowLayout, row_layout
    from .row_reductions import reduce
    from .softmax import softmax
    from .top_k import top_k
    from .transpose import transpose

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "softmax", "rms_norm", "layer_norm", "reduce", "rotary_embedding", "top_k", "transpose",
    "MatrixRow", "RowLayout", "row_layout",
]  # fmt: skip
