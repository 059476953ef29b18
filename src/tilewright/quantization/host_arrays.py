"""What NumPy computes once for each layer, of arrays on a GPU: they are downloaded, and the arrays
of the result are uploaded to where the first of them is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ..dtypes import dtype
from ..lazy_imports import provided
from .array_access import new_array

_Function = TypeVar("_Function", bound=Callable[..., Any])


def through_host(function: _Function) -> _Function:
    """Decorator of a function of arrays on the CPU: it also takes arrays on a GPU."""

    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        like = next(_on_gpu((arguments, named)), None)
        if like is None:
            return function(*arguments, **named)
        given, more = _mapped((arguments, named), _downloaded)
        return _mapped(function(*given, **more), lambda array: _uploaded(array, like))

    return call  # type: ignore[return-value]


def arrays_in(value: Any) -> list[Any]:
    """The arrays that a value holds: itself, those of a matrix, those of a container."""
    found: list[Any] = []

    def note(array: Any) -> Any:
        found.append(array)
        return array

    _mapped(value, note)
    return found


def _is_array(value: Any) -> bool:
    return bool(provided("arrays").is_array(value)) and not isinstance(value, np.generic)


def _on_gpu(value: Any) -> Iterator[Any]:
    """The arrays on a GPU that a value holds."""
    view = provided("arrays").view
    return (array for array in arrays_in(value) if view(array).device != "cpu")


def _mapped(value: Any, convert: Callable[[Any], Any]) -> Any:
    """A value with its arrays converted: an array, a matrix that holds some, or a container."""
    if _is_array(value) and not is_dataclass(value):
        return convert(value)
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: _mapped(getattr(value, f.name), convert) for f in fields(value) if f.init}
        changed = any(x is not getattr(value, name) for name, x in own.items())
        return type(value)(**own) if changed else value
    if isinstance(value, Mapping):
        return {key: _mapped(x, convert) for key, x in value.items()}
    if isinstance(value, tuple | list):
        made = [_mapped(x, convert) for x in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def _downloaded(array: Any) -> Any:
    view = provided("arrays").view(array)
    if view.device == "cpu":
        return array
    return provided("array_copies").download(array).view(dtype(view.dtype).numpy)


def _uploaded(array: Any, like: Any) -> Any:
    arrays = provided("arrays")
    view = arrays.view(array)
    if view.device != "cpu":
        return array
    return new_array(like, np.asarray(arrays.bits(view)), view.dtype)
