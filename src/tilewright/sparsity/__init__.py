"""2:4 sparse matrices as values: two of four neighbours of a row are stored, with metadata.

Sparse24(values, metadata, type)      stored elements and metadata, as kernels read them
compress_24(w)                        a matrix with two zeros in each four → Sparse24
compress_24(w, prune="magnitude")     any matrix: the two largest of each four are kept
search_permutation, transposable_mask what to keep; kept_magnitude: how much that is
Sparse24.block() → SparseBlock         64 rows by 16 chunks, to be drawn
from_torch, to_torch                  torch's SparseSemiStructuredTensor
from_cutlass, to_cutlass              the layout of torch's SparseSemiStructuredTensor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import lazy_imports

if TYPE_CHECKING:  # `as` marks what is public
    from .compression import compress_24 as compress_24
    from .pruning import kept_magnitude as kept_magnitude
    from .pruning import search_permutation as search_permutation
    from .pruning import transposable_mask as transposable_mask
    from .sparse24 import Sparse24 as Sparse24
    from .sparse_block import SparseBlock as SparseBlock
    from .torch_layouts import from_cutlass as from_cutlass
    from .torch_layouts import from_torch as from_torch
    from .torch_layouts import to_cutlass as to_cutlass
    from .torch_layouts import to_torch as to_torch

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)
