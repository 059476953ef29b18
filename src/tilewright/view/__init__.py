"""Pictures: layouts, and the fragments of matrix instructions, as SVG; what they compute in words.

In a notebook they show their pictures by themselves.
"""

from ..mma import Fragment, Instruction
from ..shows import draws
from .fragment import draw_fragment
from .instruction import draw_instruction
from .layout import draw_layout
from .text import layout_text, print_layout
from .words import arithmetic_words

draws(Fragment)(draw_fragment)
draws(Instruction)(draw_instruction)

__all__ = [
    "draw_fragment",
    "draw_instruction",
    "draw_layout",
    "layout_text",
    "print_layout",
    "arithmetic_words",
]
