"""Pickling and copying of what decorators make of functions: by name, as functions are pickled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import TilewrightError

Made = TypeVar("Made", bound="PickledByName")


class PickledByName:
    """Base of objects that a decorator makes of ``function``. They are pickled by the function's
    module and name; if the function itself has this name, by it and the other arguments of the
    class. Copies, deep ones too, share what the object has.
    """

    function: Callable[..., Any]

    def take_names(self, function: Callable[..., Any], name: str = "") -> None:
        """Have the function's module, docstring and name (unless ``name`` is given)."""
        self.function = function
        self.__module__ = getattr(function, "__module__", __name__)
        self.__doc__, self.__name__ = (
            function.__doc__,
            name or getattr(function, "__name__", type(function).__name__),
        )

    def pickled_arguments(self) -> tuple[Any, ...]:
        """The arguments of the class that make an equal object."""
        return (self.function,)

    def __reduce__(self) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
        module, name = self.__module__, getattr(self.function, "__qualname__", self.__name__)
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is self:
            return name  # of a variable of module ``__module__``
        if found is self.function:
            return type(self), self.pickled_arguments()
        raise TilewrightError(
            f"{name} of module {module} can't be pickled: it must be found by this name",
            hint="define it at the top level of a module, under its own name",
        )

    def __copy__(self: Made) -> Made:
        made = object.__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __deepcopy__(self: Made, memo: Any) -> Made:
        return self.__copy__()
