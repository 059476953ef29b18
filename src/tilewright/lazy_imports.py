"""Package attributes that are imported when first read (PEP 562).

A package's ``__init__`` lists its public names once, in imports that only type checkers run:

    if TYPE_CHECKING:
        from .machine import Machine

    __getattr__, __dir__ = exports(__name__, __file__)

``from .vm import Machine`` then imports ``vm.machine`` and nothing else of ``vm``. A submodule is
an attribute too: ``from .. import vm`` costs nothing, and ``vm.machine`` is imported when read.

``provide`` and ``provided`` let a lower layer use an object of a higher layer without importing it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_BLOCK = re.compile(r"^if TYPE_CHECKING:.*?\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)
_IMPORT = re.compile(r"from (\.\S+) import (\([^)]*\)|.*)")
_NAME = re.compile(r"(\w+)(?: as (\w+))?")


def exports(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of the package whose ``__init__`` is ``file``."""
    module = sys.modules[package]
    homes = imported(Path(file).read_text(encoding="utf-8"))
    space, folder = vars(module), Path(file).parent
    space["_homes"] = homes
    module.__class__ = _Package

    def get(name: str) -> object:
        if name in homes:
            module, own = homes[name]
            value = space[name] = getattr(import_module(module, package), own)
            return value
        if not name.startswith("__") and is_module(folder, name):
            return import_module(f".{name}", package)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*space, *homes})

    return get, names


class _Package(ModuleType):
    """A package in which a public name may also be the name of a submodule: ``run.matmul`` remains
    the function after the module ``run.matmul`` is imported.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self._homes):
            super().__setattr__(name, value)


def imported(source: str) -> dict[str, tuple[str, str]]:
    """The names that the ``TYPE_CHECKING`` block imports, each with its module and name there."""
    homes = {}
    for block in _BLOCK.findall(source):
        text = re.sub(r"#.*", "", block)
        for module, names in _IMPORT.findall(text):
            for original, alias in _NAME.findall(names):
                homes[alias or original] = module, original
    return homes


def is_module(folder: Path, name: str) -> bool:
    return (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


class _Deferred:
    """Proxy of a module that is imported when an attribute is first read."""

    def __init__(self, name: str, package: str) -> None:
        self.__dict__.update(_name=name, _package=package)

    def __getattr__(self, name: str) -> Any:
        if name == "_module":
            self.__dict__["_module"] = module = import_module(self._name, self._package)
            return module
        return getattr(self._module, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._module, name, value)


def deferred(name: str, package: str) -> Any:
    """The module ``name``, relative to ``package``; imported when an attribute is first read.

    >>> copies = deferred(".copies", __package__)
    """
    return _Deferred(name, package)


_PROVIDED: dict[str, Callable[[], Any]] = {}


def provide(name: str, load: Callable[[], Any] | None) -> None:
    """Register ``load``, whose result ``provided(name)`` returns; None removes it."""
    if load is None:
        _PROVIDED.pop(name, None)
    else:
        _PROVIDED[name] = load


def provided(name: str) -> Any:
    """The object that a higher layer provides under this name; None if there is none."""
    load = _PROVIDED.get(name)
    return load() if load is not None else None


def calling(name: str, function: str) -> Callable[..., Any]:
    """A function that calls ``function`` of the object that is provided under this name."""

    def call(*arguments: Any, **named: Any) -> Any:
        return getattr(provided(name), function)(*arguments, **named)

    return call


UNTRACED: list[Any] = []
"""The functions of ``untraced``, for ``torch.calls``, which tells Dynamo when it is imported."""


def untraced(function: _Function) -> _Function:
    """Decorator of a function that computes on memory: torch.compile calls it between two graphs
    (under ``fullgraph=True`` that is torch's error), and compiles none of its code.
    """

    def call(*arguments: Any, **named: Any) -> Any:
        return provided("torch_operators").call_untraced(function, *arguments, **named)

    function._torchdynamo_inline = call  # type: ignore[attr-defined]
    UNTRACED.append(function)
    if (operators := sys.modules.get("tilewright.torch.calls")) is not None:
        operators.run_untraced(function)
    return function
