"""The matrix instructions as mathematics: shapes and types, fragments, arithmetic to the bit.

``instruction(opcode, arch)`` gives one, ``catalogue`` them all; ``compress`` and ``expand`` are
sparse A and its metadata; ``move`` gives an instruction that loads, stores or transposes fragments.
"""

from .arithmetic import OUTPUT, Arithmetic, Chain, Fused, Integers, Rounded
from .descriptor import Descriptor
from .fragments import Fragment
from .generations import GENERATIONS, Generation, arithmetic, generation
from .instruction import Instruction
from .moves import MOVES, Move, find_move, ldmatrix, ldmatrix_rows, move
from .rows import ROWS, catalogue, find, instruction, nearest
from .scaled import Scaled
from .sparse import compress, expand, positions

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
    "positions",
    "Arithmetic",
    "Chain",
    "Fused",
    "Integers",
    "Rounded",
    "Scaled",
    "arithmetic",
    "GENERATIONS",
    "OUTPUT",
    "Generation",
    "generation",
]
