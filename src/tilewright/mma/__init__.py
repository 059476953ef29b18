"""The matrix instructions as mathematics: shapes and types, fragments, bit-exact arithmetic.

``instruction(opcode, arch)`` returns one instruction, ``catalogue`` lists all. ``compress`` and
``expand`` convert sparse A and its metadata. ``fragment_move`` returns an instruction that loads,
stores or transposes fragments (ldmatrix, stmatrix, movmatrix, wmma.load, wmma.store). ``MmaAtom``
and ``CopyAtom`` describe instructions by layouts; ``TiledMma`` and ``TiledCopy`` partition tensors
over the threads of a CTA. ``make_smem_layout`` builds shared-memory layouts for them,
``MatrixDescriptor`` is the operand of wgmma, and ``TensorMap`` the descriptor of TMA copies.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .block_scales import BlockScaledDotAdd
    from .fragment_moves import (
        FRAGMENT_MOVES,
        FragmentMove,
        find_fragment_move,
        fragment_move,
        ldmatrix,
        ldmatrix_rows,
    )
    from .fragments import Fragment
    from .generations import GENERATIONS, TensorCoreGeneration, generation
    from .instruction import MmaInstruction
    from .instruction_table import ROWS, catalogue, find, instruction, nearest
    from .matrix_descriptor import MatrixDescriptor
    from .matrix_product import gemm
    from .mma_arithmetic import (
        OUTPUT_ROUNDING,
        Arithmetic,
        FmaChain,
        FusedDotAdd,
        IntegerDotAdd,
        LoweredDotAdd,
    )
    from .sparse_metadata import compress, expand
    from .tensor_maps.tensor_map import TensorMap
    from .tensor_maps.tensor_map_parameters import Im2col
    from .tensor_maps.tma_boxes import TmaBox, TmaTiling
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
    "MmaInstruction",
    "instruction",
    "catalogue",
    "find",
    "nearest",
    "Fragment",
    "MatrixDescriptor",
    "FRAGMENT_MOVES",
    "FragmentMove",
    "fragment_move",
    "find_fragment_move",
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
    "TmaTiling",
    "TmaBox",
    "Arithmetic",
    "FmaChain",
    "FusedDotAdd",
    "IntegerDotAdd",
    "LoweredDotAdd",
    "BlockScaledDotAdd",
    "GENERATIONS",
    "OUTPUT_ROUNDING",
    "TensorCoreGeneration",
    "generation",
]
