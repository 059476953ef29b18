"""Identity of a plain Python function: lambdas of one line that must give the same graph."""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any

# What a program defines once, and what cannot change: a function of these has one graph.
_FIXED = (ModuleType, FunctionType, BuiltinFunctionType, type)
_VALUES = (bool, int, float, str, NoneType)


def function_key(function: object) -> Any:
    """What identifies a function and the values of the variables that it reads; None if it reads
    others than numbers, text, modules, functions and classes, or has a default that is not
    hashable.
    """
    if not isinstance(function, FunctionType):
        return None
    variables = function.__globals__
    read: list[object] = [variables[n] for n in _names(function.__code__) if n in variables]
    try:
        read += [cell.cell_contents for cell in function.__closure__ or ()]
        if not all(isinstance(x, _FIXED) or type(x) in _VALUES for x in read):
            return None
        defaults = tuple(map(_exact, function.__defaults__ or ()))
        named = tuple((name, _exact(x)) for name, x in (function.__kwdefaults__ or {}).items())
        key = function.__code__, defaults, named, tuple(map(_exact, read)), id(variables)
        hash(key)
    except (TypeError, ValueError):  # not hashable; an empty cell
        return None
    return key


def _names(code: CodeType) -> Iterator[str]:
    """The names of globals and attributes in a function and those within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _exact(x: object) -> Any:
    """A key that tells 1 from True and from 1.0, and 0.0 from −0.0."""
    return type(x), x, str(x) if isinstance(x, float) else ""
