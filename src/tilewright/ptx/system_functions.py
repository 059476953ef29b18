"""Functions that CUDA gives to every kernel, as their declarations in PTX (CUDA C++ Programming
Guide, "Formatted Output", "Assertion", "Dynamic Global Memory Allocation").

A module that calls one declares it ``.extern``; ptxas, and here the virtual machine, know the rest.
"""

from __future__ import annotations

from .tree import Function, Variable


def _extern(name: str, result: str, *params: str) -> Function:
    results = (Variable("param", result, "func_retval0"),) if result else ()
    given = (Variable("param", type_, f"{name}_param_{i}") for i, type_ in enumerate(params))
    return Function(name, "func", tuple(given), results, (), None, "extern")


#: Format and arguments (``formats``), as generic addresses; how many arguments were printed.
VPRINTF = _extern("vprintf", "b32", "b64", "b64")

#: Message, file, line, function, bytes of a character; texts are generic addresses. No return.
ASSERTFAIL = _extern("__assertfail", "", "b64", "b64", "b32", "b64", "b64")

#: Bytes; a generic address, or 0 where there is no room.
MALLOC = _extern("malloc", "b64", "b64")

#: What ``malloc`` gave, or 0.
FREE = _extern("free", "", "b64")

EXTERNS = {function.name: function for function in (VPRINTF, ASSERTFAIL, MALLOC, FREE)}
