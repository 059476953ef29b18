"""The matrix instructions as mathematics: shapes and types, fragments, arithmetic to the bit.

``instruction(opcode, arch)`` gives one, ``catalogue`` them all; ``compress`` and ``expand`` are
sparse A and its metadata; ``move`` gives an instruction that loads, stores or transposes fragments.
``MmaAtom`` and ``CopyAtom`` are instructions as layouts, ``TiledMma`` and ``TiledCopy`` cut tensors
up for the threads of a block; ``make_smem_layout`` is what lies in shared memory for them, and
``TensorMap`` tells tensor copies how to bring it there.
"""

from typing import TYPE_CHECKING

from ..lazy import exports

if TYPE_CHECKING:
    from .arithmetic import OUTPUT, Arithmetic, Chain, Fused, Integers, Rounded
    from .atom import CopyAtom, CpAsync, MmaAtom, UniversalCopy
    from .descriptor import Descriptor
    from .fragments import Fragment
    from .generations import GENERATIONS, Generation, generation
    from .instruction import Instruction
    from .moves import MOVES, Move, find_move, ldmatrix, ldmatrix_rows, move
    from .product import gemm
    from .rows import ROWS, catalogue, find, instruction, nearest
    from .scaled import Scaled
    from .shared import (
        DescriptorIterator,
        make_descriptor,
        make_descriptor_tensor,
        make_smem_layout,
        make_smem_layout_atom,
        smem_selector,
    )
    from .sparse import compress, expand
    from .tensor_boxes import Box, Boxes
    from .tensor_map import Im2col, TensorMap
    from .tiled_copy import (
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
    from .tiled_mma import ThrMma, TiledMma, make_tiled_mma

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
