"""What no evaluator has yet: primitives whose instructions are refused before a kernel runs.

Which ones a meaning needs is read from its code, and that of the functions it calls: a primitive
that an evaluator gains leaves ``UNSUPPORTED``, and no list of instructions has to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

UNSUPPORTED = frozenset({
    "multimem_load", "multimem_reduce", "multimem_store",
    "tensor_load_sm100", "tensor_scatter",
})  # fmt: skip


@lru_cache(maxsize=None)
def unsupported_primitives_of(meaning: Callable[..., Any]) -> frozenset[str]:
    """The primitives of ``UNSUPPORTED`` that a row's meaning uses."""
    seen: set[Any] = set()
    return UNSUPPORTED & frozenset(_names(meaning, seen))


def _names(function: Any, seen: set[Any]) -> Iterator[str]:
    """The names in a function's code, and in that of its module's functions among them."""
    if not isinstance(function, FunctionType) or function in seen:
        return
    seen.add(function)
    for code in _codes(function.__code__):
        yield from code.co_names
        for name in code.co_names:
            yield from _names(function.__globals__.get(name), seen)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
