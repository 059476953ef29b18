"""Pictures: the fragments of matrix instructions as SVG, and what they compute in words.

In a notebook an ``Instruction`` or a ``Fragment`` shows its picture by itself.
"""

from ..mma import Fragment, Instruction
from ..shows import draws
from .fragment import draw_fragment
from .instruction import draw_instruction
from .words import arithmetic_words

draws(Fragment)(draw_fragment)
draws(Instruction)(draw_instruction)

__all__ = ["draw_fragment", "draw_instruction", "arithmetic_words"]
