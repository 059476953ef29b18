"""The matrix instructions as mathematics: shapes and types, fragments, arithmetic to the bit.

``instruction(opcode, arch)`` gives one, ``catalogue`` them all; ``compress`` and ``expand`` are
sparse A and its metadata; ``ldmatrix`` is the fragment that ldmatrix loads.
"""

from .arithmetic import (
    GENERATIONS,
    LEAST,
    OUTPUT,
    Arithmetic,
    Chain,
    Fused,
    Generation,
    Integers,
    Rounded,
    arithmetic,
    generation,
)
from .fragments import Fragment
from .instruction import Instruction
from .moves import ldmatrix, ldmatrix_rows
from .rows import ROWS, catalogue, find, instruction, nearest
from .sparse import compress, expand, positions

__all__ = [
    "ROWS",
    "Instruction",
    "instruction",
    "catalogue",
    "find",
    "nearest",
    "Fragment",
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
    "arithmetic",
    "GENERATIONS",
    "LEAST",
    "OUTPUT",
    "Generation",
    "generation",
]
