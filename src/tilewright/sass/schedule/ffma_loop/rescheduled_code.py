"""The machine code that ``matmul`` runs: of kernel ``simt`` with its main loop rewritten.

ptxas' code is taken as it is where the rewriter does not know the architecture or the loop, or
where the hazard check finds anything in the result. The bits of the product are the same.
"""

from __future__ import annotations

from ....errors import TilewrightError
from ....long_calls import long_call
from ...cubin_file import CubinFile
from ...machine.hazards import function_code, hazards
from .rewrite_loop import rewrite_loop

_ARCHITECTURE = 90  # whose latencies are measured


def rescheduled_code(code: bytes, name: str) -> bytes:
    """The cubin ``code`` with the loop of kernel ``name`` rewritten where that can be done."""
    try:
        file = CubinFile.parse(code)
        if file.sm != _ARCHITECTURE:
            return code
        with long_call(f"scheduling {name}"):
            edited = rewrite_loop(file, name, file.register_limit(name))
            return code if hazards(function_code(edited, name)) else edited.build()
    except TilewrightError:  # another loop, or too few registers
        return code
