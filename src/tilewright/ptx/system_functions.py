"""System functions that CUDA provides to every kernel, as declarations in PTX (CUDA C++ Programming
Guide, "Formatted Output", "Assertion", "Dynamic Global Memory Allocation").

A module that calls one declares it ``.extern``; ptxas and the virtual machine implement it.
"""

from __future__ import annotations

from .tree import Function, Variable


def _extern(name: str, result: str, *params: str) -> Function:
    results = (Variable("param", result, "func_retval0"),) if result else ()
    given = (Variable("param", type_, f"{name}_param_{i}") for i, type_ in enumerate(params))
    return Function(name, "func", tuple(given), results, (), None, "extern")


#: Format and arguments (``printf_format``) as generic addresses; returns the number of arguments.
VPRINTF = _extern("vprintf", "b32", "b64", "b64")

#: Message, file, line, function, size of a character; strings are generic addresses. No return.
ASSERTFAIL = _extern("__assertfail", "", "b64", "b64", "b32", "b64", "b64")

#: Size in bytes; returns a generic address, or 0 if the heap is full.
MALLOC = _extern("malloc", "b64", "b64")

#: An address from ``malloc``, or 0.
FREE = _extern("free", "", "b64")

EXTERNS = {function.name: function for function in (VPRINTF, ASSERTFAIL, MALLOC, FREE)}
