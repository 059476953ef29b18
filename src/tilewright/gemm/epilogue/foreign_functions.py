"""What NumPy, torch, ``math`` and Python's other operators do with a traced value: arithmetic and
comparisons work, all others raise.

``np.float32(2) * acc`` and ``torch.tensor(2.0) * acc`` call the library first, which asks the
traced value what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from ...errors import EpilogueError

# A library's name of an operator, and Python's methods of the left and of the right operand.
_OPERATORS = {
    "add": ("__add__", "__radd__"), "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"), "divide": ("__truediv__", "__rtruediv__"),
    "less": ("__lt__", "__gt__"), "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"), "greater_equal": ("__ge__", "__le__"),
    "equal": ("__eq__", "__eq__"), "not_equal": ("__ne__", "__ne__"),
}  # fmt: skip
_OTHER_NAMES = {
    "sub": "subtract", "mul": "multiply", "div": "divide", "true_divide": "divide",
    "truediv": "divide", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
    "eq": "equal", "ne": "not_equal",
}  # fmt: skip
# Python's operators that no value of an epilogue has.
_REFUSED = {
    "__matmul__": "@", "__rmatmul__": "@", "__mod__": "%", "__rmod__": "%", "__floordiv__": "//",
    "__rfloordiv__": "//", "__lshift__": "<<", "__rshift__": ">>", "__rpow__": "**",
    "__getitem__": "[…]", "__iter__": "iteration", "__len__": "len()",
}  # fmt: skip
_ARITHMETIC = {
    "__add__": "+", "__radd__": "+", "__sub__": "-", "__rsub__": "-", "__mul__": "*",
    "__rmul__": "*", "__truediv__": "/", "__rtruediv__": "/", "__neg__": "-", "__pow__": "**",
}  # fmt: skip
_HINT = "tilewright.exp, tilewright.maximum, … take values of an epilogue (docs/epilogues.md)"


class ForeignFunctions:
    """Base of traced values, whose Python operators it calls."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return _foreign(f"numpy.{ufunc.__name__}", ufunc.__name__, inputs, bool(options))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _foreign(f"numpy.{function.__name__}", "", ())

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        return _foreign(f"torch's {name}", name.strip("_"), args, bool(kwargs))

    def __float__(self) -> float:
        _refuse("float() or a function of math")

    def __int__(self) -> int:
        _refuse("int()")


def _refuse_operators(class_: type, names: Mapping[str, str], hint: str) -> None:
    """Make operators of a class raise EpilogueError. ``names``: of methods, and what Python writes
    for them.
    """

    def refusing(shown: str) -> Callable[..., NoReturn]:
        def method(value: Any, *_: Any) -> NoReturn:
            raise EpilogueError(f"{shown} is not defined for {value!r:.80}", hint=hint)

        return method

    for name, shown in names.items():
        setattr(class_, name, refusing(shown))


class OnlyOutput:
    """Base of what a function may return, but not compute with."""

    __slots__ = ()


_ELEMENTWISE = "an epilogue computes each element of D by itself, with + - * / ** and functions"
_refuse_operators(ForeignFunctions, _REFUSED, _ELEMENTWISE)
ONLY_OUTPUT = "return it as an output; it is known when the kernel has ended"
_refuse_operators(OnlyOutput, _ARITHMETIC | _REFUSED, ONLY_OUTPUT)


def _foreign(shown: str, name: str, args: Any, options: bool = False) -> Any:
    methods = _OPERATORS.get(_OTHER_NAMES.get(name, name))
    if methods is None or len(args) != 2 or options:
        _refuse(shown)
    left, right = args
    if isinstance(left, ForeignFunctions):
        return getattr(left, methods[0])(right)
    return getattr(right, methods[1])(left)


def _refuse(shown: str) -> NoReturn:
    what = f"{shown} must not be called with a value of an epilogue, which only the kernel knows"
    raise EpilogueError(what, hint=_HINT)
