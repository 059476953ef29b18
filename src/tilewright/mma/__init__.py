"""The matrix instructions as mathematics: shapes and types, fragments, arithmetic to the bit.

``instruction(opcode, arch)`` gives one, ``catalogue`` them all; ``compress`` and ``expand`` are
sparse A and its metadata; ``move`` gives an instruction that loads, stores or transposes fragments.
``MmaAtom`` and ``CopyAtom`` are instructions as layouts, ``TiledMma`` and ``TiledCopy`` cut tensors
up for the threads of a block; ``make_smem_layout`` is what lies in shared memory for them, and
``TensorMap`` tells tensor copies how to bring it there.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .block_scales import Scaled
    from .fragment_moves import MOVES, Move, find_move, ldmatrix, ldmatrix_rows, move
    from .fragments import Fragment
    from .generations import GENERATIONS, Generation, generation
    from .instruction import Instruction
    from .instruction_table import ROWS, catalogue, find, instruction, nearest
    from .matrix_descriptor import Descriptor
    from .matrix_product import gemm
    from .mma_arithmetic import OUTPUT, Arithmetic, Chain, Fused, Integers, Rounded
    from .sparse_metadata import compress, expand
    from .tensor_maps.tensor_map import Im2col, TensorMap
    from .tensor_maps.tma_boxes import Box, Boxes
    from .tiles.atom import CopyAtom, CpAsync, MmaAtom, UniversalCopy
    from .tiles.smem_layout import (
        DescriptorIterator,
        make_descriptor,
        make_descriptor_tensor,
        make_smem_layout,
        make_smem_layout_atom,
        smem_selector,
    )
    from .tiles.tiled_copy import (
        ThrCopy,
        TiledCopy,
        make_cotiled_copy,
        make_tiled_copy,
        make_tiled_copy_A,
        make_tiled_copy_B,
        make_tiled_copy_C,
        make_tiled_copy_C_atom,
        make_tiled_copy_D,
        make_tiled_copy_S,
        make_tiled_copy_tv,
    )
    from .tiles.tiled_mma import ThrMma, TiledMma, make_tiled_mma

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "ROWS",
    "Instruction",
    "instruction",
    "catalogue",
    "find",
    "nearest",
    "Fragment",
    "Descriptor",
    "MOVES",
    "Move",
    "move",
    "find_move",
    "ldmatrix",
    "ldmatrix_rows",
    "compress",
    "expand",
    "MmaAtom",
    "CopyAtom",
    "UniversalCopy",
    "CpAsync",
    "TiledMma",
    "ThrMma",
    "make_tiled_mma",
    "TiledCopy",
    "ThrCopy",
    "make_tiled_copy",
    "make_tiled_copy_tv",
    "make_tiled_copy_A",
    "make_tiled_copy_B",
    "make_tiled_copy_C",
    "make_tiled_copy_C_atom",
    "make_tiled_copy_S",
    "make_tiled_copy_D",
    "make_cotiled_copy",
    "gemm",
    "make_smem_layout_atom",
    "make_smem_layout",
    "smem_selector",
    "make_descriptor",
    "make_descriptor_tensor",
    "DescriptorIterator",
    "TensorMap",
    "Im2col",
    "Boxes",
    "Box",
    "Arithmetic",
    "Chain",
    "Fused",
    "Integers",
    "Rounded",
    "Scaled",
    "GENERATIONS",
    "OUTPUT",
    "Generation",
    "generation",
]
