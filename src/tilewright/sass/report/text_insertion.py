"""``insert_text``: the listing of ``tilewright sass disassemble``, edited, back into its cubin.

A function begins with ``# name:``. Code of another length moves what follows: symbols, attributes
and relocations of the cubin are kept right as for any edit (``with_code``).
"""

from __future__ import annotations

import re

from ...errors import CubinError
from ..code_listing import assemble, decode_code
from ..code_motion import CodeMotion
from ..cubin_edit import with_code
from ..cubin_file import CubinFile
from ..encoding_table import encoding_table
from ..machine.register_effects import registers_needed

_HEADING = re.compile(r"^# ([^\s:]+): sm_\d+, .*$", re.MULTILINE)


def insert_text(cubin: CubinFile, text: str, file: str = "<sass>") -> CubinFile:
    """The cubin with each function of a listing assembled and replaced.

    The number of registers becomes what the code needs, if that is more. Raises SassError with the
    line of what can't be encoded, CubinError for a listing without functions, or for a function
    that the cubin does not have.
    """
    found = list(_HEADING.finditer(text))
    if not found:
        raise CubinError(
            "a listing must have a line `# name: sm_…` for each function, got none",
            hint="begin with the output of tilewright sass disassemble",
        )
    ends = [m.start() for m in found[1:]] + [len(text)]
    for match, end in zip(found, ends, strict=True):
        # blank lines keep the line numbers of errors
        body = "\n" * text[: match.start()].count("\n") + text[match.start() : end]
        cubin = _replaced(cubin, match[1], body, file)
    return cubin


def _replaced(cubin: CubinFile, name: str, text: str, file: str) -> CubinFile:
    table = encoding_table(cubin.sm)
    code = assemble(table, text, file)
    decoded = decode_code(table, code)
    old = len(cubin.code(name))
    same = {at: at for at, _ in decoded} if len(code) == old else {0: 0}
    exits = [at for at, x in decoded if x.text is not None and x.text.opcode == "EXIT"]
    edited = with_code(cubin, name, code, CodeMotion(same, old, len(code)), exits)
    needed = registers_needed(cubin.sm, [x.text for _, x in decoded if x.text is not None])
    return edited.with_registers(name, needed) if needed > cubin.registers(name) else edited
