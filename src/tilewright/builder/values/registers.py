"""Registers: the values of a kernel function.

A ``Reg`` is a typed PTX register. Python's operators on it emit instructions. It has no value while
the kernel is traced, so Python can't use one (``if x``, ``int(x)``, ``range(x)`` raise
KernelError). A ``Reg`` is written once; a ``Var`` may be written repeatedly (``x.set(v)``,
``x += v``), so that values are carried across iterations.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol, TypeGuard, Union

from ...dtypes import DType
from ...errors import KernelError
from ...ptx import tree
from ..source_location import kernel_error

_UFUNCS = {  # NumPy's operators: the methods of a register as left and as right operand
    "add": ("__add__", "__radd__"),
    "subtract": ("__sub__", "__rsub__"),
    "multiply": ("__mul__", "__rmul__"),
    "divide": ("__truediv__", "__rtruediv__"),
    "floor_divide": ("__floordiv__", "__rfloordiv__"),
    "remainder": ("__mod__", "__rmod__"),
    "left_shift": ("__lshift__", "__rlshift__"),
    "right_shift": ("__rshift__", "__rrshift__"),
    "bitwise_and": ("__and__", "__rand__"),
    "bitwise_or": ("__or__", "__ror__"),
    "bitwise_xor": ("__xor__", "__rxor__"),
    "less": ("__lt__", "__gt__"),
    "less_equal": ("__le__", "__ge__"),
    "greater": ("__gt__", "__lt__"),
    "greater_equal": ("__ge__", "__le__"),
    "equal": ("__eq__", "__eq__"),
    "not_equal": ("__ne__", "__ne__"),
}


Scalar = Union["Reg", int, float]
"""A register or a Python number."""

Destination = Union["Var", "Registers", tuple["Var", ...], list["Var"], None]
"""Variables that an instruction writes; None for new registers."""


class Operations(Protocol):
    """The builder, as registers, pointers and register memory use it.

    ``Builder`` implements it; the modules of values are in a lower layer and don't import it.
    """

    def emit(
        self,
        opcode: str,
        *args: Any,
        into: Destination = None,
        guard: Reg | bool | None = None,
        dtype: str | DType | None = None,
        pair: bool = False,
        vector: int = 0,
    ) -> Any: ...
    def compute(
        self, opcode: str, *args: Any, dtype: str | DType | None = None, into: Destination = None
    ) -> Reg: ...
    def immediate(self, t: DType | None, value: Any) -> tree.Operand: ...
    def eliminate_common_subexpressions(
        self, enabled: bool = True
    ) -> AbstractContextManager[None]: ...

    # --- values ---
    def const(self, dtype: str | DType, value: Any) -> Reg: ...
    def var(self, value: Any, init: Any = None) -> Any: ...
    def mov(
        self, value: Scalar, *, dtype: str | DType | None = None, into: Var | None = None
    ) -> Reg: ...
    def as_result(self, value: Scalar, into: Var | None) -> Reg: ...
    def convert(
        self, a: Reg, dtype: str | DType, rnd: str = "", *, sat: bool = False, ftz: bool = False
    ) -> Reg: ...
    def view(self, a: Reg, dtype: str | DType) -> Reg: ...
    def unpack(self, a: Reg, dtype: str | DType | None = None) -> tuple[Reg, Reg]: ...

    # --- arithmetic ---
    def add(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def sub(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def mul(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def truediv(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def floordiv(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def mod(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def neg(self, a: Reg) -> Reg: ...
    def abs(self, a: Reg) -> Reg: ...
    def compare(self, op: str, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def and_(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def or_(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def xor(self, a: Scalar, b: Scalar, *, into: Var | None = None) -> Reg: ...
    def not_(self, a: Reg | bool) -> Reg: ...
    def shl(self, a: Scalar, n: Scalar, *, into: Var | None = None) -> Reg: ...
    def shr(self, a: Scalar, n: Scalar, *, into: Var | None = None) -> Reg: ...

    # --- addresses ---
    def symbol_address(self, symbol: tree.Symbol, offset: int, width: int) -> Reg: ...
    def address_add(self, base: Reg, count: Reg, scale: int, *, into: Var | None = None) -> Reg: ...


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an integer of Python or a NumPy scalar."""
    if isinstance(value, (int, Reg)):
        return isinstance(value, int)
    try:
        operator.index(value)  # type: ignore[arg-type]  # that is what is tested
    except TypeError:
        return False
    return True


def is_real(value: object) -> TypeGuard[float]:
    """Whether a value is a real number of Python or a NumPy scalar."""
    if isinstance(value, (int, float)):
        return True
    scalar = hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
    return scalar and not isinstance(value, Reg)


def other_trace_error(value: Any) -> KernelError:
    """The error for a register or pointer of another trace."""
    return kernel_error(
        f"{value!r} belongs to another trace", "make it in this kernel, or pass it as a parameter"
    )


class Reg:
    """A typed register.

    ``+ - * / // % << >> & | ^ ~ -x abs`` and comparisons (which give predicates) emit instructions.
    The operands are two registers of the same type, or a register and a Python number. ``//`` and
    ``%`` are for unsigned registers, ``/`` for f32 and f64.
    """

    __slots__ = ("dtype", "k", "operand")

    def __init__(self, k: Operations, dtype: DType, operand: tree.Register) -> None:
        self.k = k
        self.dtype = dtype
        self.operand = operand

    def __repr__(self) -> str:
        return f"{self.operand.name}:{self.dtype.name}"

    def to(self, dtype: str | DType, rnd: str = "", *, sat: bool = False, ftz: bool = False) -> Reg:
        """Convert the value. ``rnd``: rn (default; to an integer rz), rz, rm, rp."""
        return self.k.convert(self, dtype, rnd, sat=sat, ftz=ftz)

    def view(self, dtype: str | DType) -> Reg:
        """The same bits as another type of the same size; a view of a variable is the variable."""
        return self.k.view(self, dtype)

    # --- arithmetic ---
    def __add__(self, other: Scalar) -> Reg:
        return self.k.add(self, other)

    def __radd__(self, other: Scalar) -> Reg:
        return self.k.add(other, self)

    def __sub__(self, other: Scalar) -> Reg:
        return self.k.sub(self, other)

    def __rsub__(self, other: Scalar) -> Reg:
        return self.k.sub(other, self)

    def __mul__(self, other: Scalar) -> Reg:
        return self.k.mul(self, other)

    def __rmul__(self, other: Scalar) -> Reg:
        return self.k.mul(other, self)

    def __truediv__(self, other: Scalar) -> Reg:
        return self.k.truediv(self, other)

    def __rtruediv__(self, other: Scalar) -> Reg:
        return self.k.truediv(other, self)

    def __floordiv__(self, other: Scalar) -> Reg:
        return self.k.floordiv(self, other)

    def __rfloordiv__(self, other: Scalar) -> Reg:
        return self.k.floordiv(other, self)

    def __mod__(self, other: Scalar) -> Reg:
        return self.k.mod(self, other)

    def __rmod__(self, other: Scalar) -> Reg:
        return self.k.mod(other, self)

    def __divmod__(self, other: Scalar) -> tuple[Reg, Reg]:
        return self.k.floordiv(self, other), self.k.mod(self, other)

    def __neg__(self) -> Reg:
        return self.k.neg(self)

    def __pos__(self) -> Reg:
        return self

    def __abs__(self) -> Reg:
        return self.k.abs(self)

    # --- bits ---
    def __lshift__(self, other: Scalar) -> Reg:
        return self.k.shl(self, other)

    def __rlshift__(self, other: Scalar) -> Reg:
        return self.k.shl(other, self)

    def __rshift__(self, other: Scalar) -> Reg:
        return self.k.shr(self, other)

    def __rrshift__(self, other: Scalar) -> Reg:
        return self.k.shr(other, self)

    def __and__(self, other: Scalar) -> Reg:
        return self.k.and_(self, other)

    def __or__(self, other: Scalar) -> Reg:
        return self.k.or_(self, other)

    def __xor__(self, other: Scalar) -> Reg:
        return self.k.xor(self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Reg:
        return self.k.not_(self)

    # --- comparisons: predicates ---
    def __lt__(self, other: Scalar) -> Reg:
        return self.k.compare("lt", self, other)

    def __le__(self, other: Scalar) -> Reg:
        return self.k.compare("le", self, other)

    def __gt__(self, other: Scalar) -> Reg:
        return self.k.compare("gt", self, other)

    def __ge__(self, other: Scalar) -> Reg:
        return self.k.compare("ge", self, other)

    def __eq__(self, other: Any) -> Reg:  # type: ignore[override]
        return NotImplemented if other is None else self.k.compare("eq", self, other)

    def __ne__(self, other: Any) -> Reg:  # type: ignore[override]
        return NotImplemented if other is None else self.k.compare("ne", self, other)

    __hash__ = object.__hash__

    # --- operations that need a value, which a register does not have during tracing ---
    def __bool__(self) -> NoReturn:
        raise kernel_error(
            f"{self!r} has no truth value while the kernel is traced",
            "branch on the device with k.if_(p) or k.when(p); select with k.select(p, a, b)",
        )

    def __index__(self) -> NoReturn:
        raise kernel_error(
            f"{self!r} has no value while the kernel is traced",
            "loop on the device with k.range(n); shapes and Python indices must be static",
        )

    def __iter__(self) -> Iterator[Any]:
        raise kernel_error(f"{self!r} can't be iterated over", "k.unpack splits a packed register")

    __int__ = __index__

    def __float__(self) -> NoReturn:
        raise self._no_function("Python's float and math")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators are those of the register; other ufuncs are errors."""
        names = _UFUNCS.get(ufunc.__name__)
        if names is None or method != "__call__" or options:
            raise self._no_function(f"numpy.{ufunc.__name__}")
        a, b = inputs
        return getattr(a, names[0])(b) if isinstance(a, Reg) else getattr(b, names[1])(a)

    def _no_function(self, what: str) -> KernelError:
        return kernel_error(
            f"{self!r} has no value while the kernel is traced, but {what} needs one",
            "use k.sqrt(x), k.exp(x), k.elementwise(tilewright.gelu, x); .to converts",
        )


class Var(Reg):
    """A register that may be written repeatedly, made by ``k.var``. ``x += 1`` changes it in place.

    An instruction reads its value at that point of the kernel. ``y = x``, ``+x`` and ``x.view(t)``
    are the variable itself and change with it; ``k.mov(x)`` copies its current value.
    """

    __slots__ = ()

    def set(self, value: Scalar) -> None:
        """Assign a register of the same type, or a number."""
        self.k.mov(value, into=self)

    def __iadd__(self, other: Scalar) -> Var:
        self.k.add(self, other, into=self)
        return self

    def __isub__(self, other: Scalar) -> Var:
        self.k.sub(self, other, into=self)
        return self

    def __imul__(self, other: Scalar) -> Var:
        self.k.mul(self, other, into=self)
        return self

    def __itruediv__(self, other: Scalar) -> Var:
        self.k.truediv(self, other, into=self)
        return self

    def __ifloordiv__(self, other: Scalar) -> Var:
        self.k.floordiv(self, other, into=self)
        return self

    def __imod__(self, other: Scalar) -> Var:
        self.k.mod(self, other, into=self)
        return self

    def __ilshift__(self, other: Scalar) -> Var:
        self.k.shl(self, other, into=self)
        return self

    def __irshift__(self, other: Scalar) -> Var:
        self.k.shr(self, other, into=self)
        return self

    def __iand__(self, other: Scalar) -> Var:
        self.k.and_(self, other, into=self)
        return self

    def __ior__(self, other: Scalar) -> Var:
        self.k.or_(self, other, into=self)
        return self

    def __ixor__(self, other: Scalar) -> Var:
        self.k.xor(self, other, into=self)
        return self


class Registers:
    """An array of variables, for fragments and accumulators. Indices must be static.

    It is an engine for tensors: ``r[i]``, ``r[i] = v`` and ``r + n`` (the array from element n on).
    ``r[i]`` is the variable, not a copy of its value: to swap two elements, write
    ``r[0], r[1] = k.mov(r[1]), k.mov(r[0])``.
    """

    __slots__ = ("items", "offset")

    def __init__(self, items: tuple[Var, ...], offset: int = 0) -> None:
        self.items = items
        self.offset = offset

    @property
    def dtype(self) -> DType:
        return self.items[0].dtype

    def __len__(self) -> int:
        return len(self.items) - self.offset

    def __iter__(self) -> Iterator[Var]:
        return iter(self.items[self.offset :])

    def __add__(self, count: int) -> Registers:
        return Registers(self.items, self._at(count, len(self) + 1))

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self.items[self.offset :][index]
        return self.items[self._at(index, len(self))]

    def __setitem__(self, index: int, value: Any) -> None:
        self.items[self._at(index, len(self))].set(value)

    def __repr__(self) -> str:
        return f"Registers({self.dtype.name}, {len(self)})"

    def _at(self, index: int, end: int) -> int:
        if not is_integer(index):
            raise kernel_error(
                f"an index of registers must be static, got {index!r}", "unroll the loop"
            )
        if not 0 <= index < end:
            raise kernel_error(
                f"an index of registers must be from 0 to {len(self) - 1}, got {index}"
            )
        return self.offset + index
