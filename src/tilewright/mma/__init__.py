"""The matrix instructions as mathematics: shapes and types, fragments, arithmetic to the bit.

``instruction(opcode, arch)`` gives one, ``catalogue`` them all; ``ldmatrix`` is the fragment that
ldmatrix loads.
"""

from .arithmetic import (
    GENERATIONS,
    LEAST,
    OUTPUT,
    Arithmetic,
    Generation,
    arithmetic,
    dot_accumulate,
    generation,
)
from .fragments import Fragment, ldmatrix, ldmatrix_rows
from .rows import ROWS, Instruction, catalogue, instruction, nearest

__all__ = [
    "ROWS",
    "Instruction",
    "instruction",
    "catalogue",
    "nearest",
    "Fragment",
    "ldmatrix",
    "ldmatrix_rows",
    "Arithmetic",
    "arithmetic",
    "dot_accumulate",
    "GENERATIONS",
    "LEAST",
    "OUTPUT",
    "Generation",
    "generation",
]
