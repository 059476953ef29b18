"""Machine code (SASS): cubin files and their edits, encodings, text and control codes.

cubin = CubinFile.parse(data)
table = encoding_table(cubin.sm)
text = disassemble(table, cubin.code("kernel"))
assert assemble(table, text) == cubin.code("kernel")
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .code_listing import assemble, decode_code, disassemble, encode_code
    from .code_motion import CodeMotion
    from .control_code import ControlCode
    from .cubin_edit import with_code
    from .cubin_file import CubinFile
    from .encoding_table import EncodingTable, encoding_table
    from .sass_instruction import SassInstruction, decode_instruction, encode_instruction
    from .sass_text import SassOperand, SassText, parse_instruction

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "CubinFile", "CodeMotion", "with_code",
    "disassemble", "assemble", "decode_code", "encode_code",
    "SassInstruction", "SassText", "SassOperand", "ControlCode", "parse_instruction",
    "decode_instruction", "encode_instruction", "EncodingTable", "encoding_table",
]  # fmt: skip
