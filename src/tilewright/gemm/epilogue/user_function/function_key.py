"""Identity of a plain Python function: the functions of a line that must give the same graph.

Two functions have one key if their code is the same and so are the present values of all variables
that they read: closure, defaults, globals, attributes of modules and classes, also within the
functions that they call. ``_Reads`` collects the values; a function of the same code whose
variables still are the same objects has the key of the one before it without that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType, NoneType
from typing import Any, NamedTuple

_VALUES = (int, bool, str, NoneType)
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: attributes of other classes cannot change
_OWN = __name__.partition(".")[0]
_MAX_KEYS = 1024
_ABSENT = object()

_numbers: dict[Any, int] = {}
_next_number = count()
_guards: dict[CodeType, _Guard] = {}


def function_key(function: object) -> int | None:
    """A number that identifies a function and the values of the variables that it reads; None if it
    reads others than numbers, text, modules, functions and classes, or has a default that is not
    hashable. Variables that it reads through ``eval`` or ``globals()`` are not seen.
    """
    if type(function) is not FunctionType:
        return None
    guard = _guards.get(function.__code__)
    try:
        if guard is not None and guard.holds(function):
            return guard.number
        reads = _Reads()
        reads.add_function(function)
        key = tuple(reads.key)
        hash(key)
    except (_UnknownValueError, TypeError, ValueError):  # not hashable; an empty cell
        return None
    if len(_numbers) >= _MAX_KEYS:
        _numbers.clear()
        _guards.clear()
    number = _numbers.setdefault(key, next(_next_number))
    _guards[function.__code__] = reads.guard(function, number)
    return number


def new_key() -> int:
    """A number that no function has as its key."""
    return next(_next_number)


class _UnknownValueError(Exception):
    """A function reads a value that may change unnoticed."""


class _Guard(NamedTuple):
    """What must be the same objects for a function of the same code to have the key ``number``.

    ``variables``: (mapping, name, value); ``helpers``: (function that is called, its code,
    defaults and closure's values).
    """

    number: int
    spaces: dict[str, Any]
    defaults: tuple[Any, ...] | None
    cells: tuple[Any, ...]
    variables: list[tuple[Mapping[str, Any], str, Any]]
    helpers: list[tuple[FunctionType, tuple[Any, ...]]]

    def holds(self, function: FunctionType) -> bool:
        """Whether the function's variables are these."""
        if (
            function.__globals__ is not self.spaces
            or function.__defaults__ is not self.defaults
            or function.__kwdefaults__
            or function.__dict__
        ):
            return False
        for cell, value in zip(function.__closure__ or (), self.cells, strict=True):
            if cell.cell_contents is not value:
                return False
        for space, name, value in self.variables:
            if space.get(name, _ABSENT) is not value:
                return False
        return not self.helpers or all(_are(_state(f), state) for f, state in self.helpers)


def _are(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _cells(function: FunctionType) -> tuple[Any, ...]:
    """The values of a function's closure. Raises ValueError for one that is not assigned."""
    return tuple([cell.cell_contents for cell in function.__closure__ or ()])


def _state(function: FunctionType) -> tuple[Any, ...]:
    """What makes up a function besides its globals."""
    parts = function.__code__, function.__defaults__, function.__kwdefaults__
    return *parts, *_cells(function)


class _Reads:
    """Collects the key of a function, and what its guard compares."""

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.variables: list[tuple[Mapping[str, Any], str, Any]] = []
        self.helpers: list[tuple[FunctionType, tuple[Any, ...]]] = []
        self._seen: set[int] = set()

    def guard(self, function: FunctionType, number: int) -> _Guard:
        defaults, cells = function.__defaults__, _cells(function)
        return _Guard(number, function.__globals__, defaults, cells, self.variables, self.helpers)

    def add_function(self, function: FunctionType) -> None:
        self._seen.add(id(function))
        names = _names(function.__code__)
        self.key += function.__code__, id(function.__globals__)
        self.key.append(tuple(map(_exact, function.__defaults__ or ())))
        named = (function.__kwdefaults__ or {}).items()
        self.key.append(tuple((name, _exact(x)) for name, x in named))
        for value in _cells(function):
            self._add(value, names)
        self._add_variables(function.__globals__, names)
        if function.__dict__:
            self._add_variables(function.__dict__, names)

    def _add_variables(self, space: Mapping[str, Any], names: tuple[str, ...]) -> None:
        for name in names:
            value = space.get(name, _ABSENT)
            self.variables.append((space, name, value))
            if value is not _ABSENT:
                self.key.append(name)
                self._add(value, names)

    def _add(self, x: Any, names: tuple[str, ...]) -> None:
        """Add a value that is read by code which uses these names."""
        kind = type(x)
        if kind in _VALUES:
            self.key += kind, x
        elif kind is float:
            self.key += kind, x.hex()  # tells 0.0 from −0.0, and a NaN is itself
        elif isinstance(x, ModuleType | FunctionType | BuiltinFunctionType | type):
            self.key.append(x)
            if id(x) not in self._seen:
                self._seen.add(id(x))
                self._add_attributes(x, names)
        elif _is_own(kind.__module__) and hasattr(x, "__wrapped__"):
            self.key.append(x)
            self._add(x.__wrapped__, names)
        else:
            raise _UnknownValueError

    def _add_attributes(self, x: Any, names: tuple[str, ...]) -> None:
        """Add what a module, function or class holds; tilewright's own don't change."""
        if isinstance(x, ModuleType) and not _is_own(x.__name__):
            self._add_variables(x.__dict__, names)
        elif isinstance(x, FunctionType) and not _is_own(x.__module__):
            self.helpers.append((x, _state(x)))
            self.add_function(x)
        elif isinstance(x, type) and not _is_own(x.__module__):
            for base in x.__mro__:
                if base.__flags__ & _HEAP_TYPE:
                    self._add_variables(base.__dict__, names)


def _is_own(module: str | None) -> bool:
    return (module or "").partition(".")[0] == _OWN


@lru_cache(maxsize=_MAX_KEYS)
def _names(code: CodeType) -> tuple[str, ...]:
    """The names of globals and attributes in a function and those within it."""
    return tuple(dict.fromkeys(_all_names(code)))


def _all_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_names(constant)


def _exact(x: object) -> Any:
    """A key that tells 1 from True and from 1.0, and 0.0 from −0.0."""
    return type(x), x, str(x) if isinstance(x, float) else ""
