"""Identity of a plain Python function: lambdas of one line that must give the same graph."""

from __future__ import annotations

from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

_FIXED = (
    ModuleType,
    FunctionType,
    BuiltinFunctionType,
    type,
)  # globals that a program defines once


def function_key(function: object) -> Any:
    """What identifies a function that reads no variables but modules, functions and classes; None
    for any other, and for one with a default that is not hashable.
    """
    if not isinstance(function, FunctionType) or function.__closure__:
        return None
    variables = function.__globals__
    for name in _names(function.__code__):
        if name in variables and not isinstance(variables[name], _FIXED):
            return None
    defaults = tuple(map(_exact, function.__defaults__ or ()))
    named = tuple((name, _exact(x)) for name, x in (function.__kwdefaults__ or {}).items())
    key = function.__code__, defaults, named, id(variables)
    try:
        hash(key)
    except TypeError:
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
