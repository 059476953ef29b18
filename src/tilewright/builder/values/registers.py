"""Registers: what a kernel function holds instead of numbers.

A ``Reg`` is a typed PTX register. Python's operators on it emit instructions; it has no value
while the kernel is traced, so asking for one (``if x``, ``int(x)``, ``range(x)``) is a
KernelError. A ``Reg`` is written once; a ``Var`` may be written again (``x.set(v)``, ``x += v``),
which is how values live across iterations.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from ...dtypes import DTYPES, DType
from ...dtypes import dtype as as_dtype
from ...errors import DtypeError, KernelError
from ...ptx import tree
from ..source_location import kernel_error

if TYPE_CHECKING:
    from ..builder import Builder

_BY_SIZE = ((16, "b16", "%rs"), (32, "b32", "%r"), (64, "b64", "%rd"), (128, "b128", "%rq"))
_INTEGER = frozenset(("int", "uint", "bits"))
_UFUNCS = {  # NumPy's operators: a register's methods, on the left and on the right
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


def register_class(t: DType) -> tuple[str, str]:
    """Declared type and name prefix of registers for a format, as nvcc has them: b32, %r."""
    if t.name == "pred":
        return "pred", "%p"
    if t.name in ("f32", "f64"):
        return t.name, {"f32": "%f", "f64": "%fd"}[t.name]
    return next((declared, prefix) for size, declared, prefix in _BY_SIZE if t.bits <= size)


CLASSES = {name: register_class(t) for name, t in DTYPES.items()}


def checked_dtype(name: str | DType) -> DType:
    """The format of a name; an unknown one is a KernelError at the user's line."""
    if isinstance(name, DType):
        return name
    try:
        return as_dtype(name)
    except DtypeError as error:
        raise kernel_error(error.message, error.hint) from None


def accepts(wanted: DType, given: DType, widened: bool = False) -> bool:
    """Whether an operand of type ``wanted`` may be a register of type ``given``.

    PTX's rule: bit types go with everything of their size, signed with unsigned, floats only with
    themselves. ``widened``: the register may be larger, as loads, stores and conversions allow.
    """
    if wanted.name == given.name:
        return True
    if (wanted.name == "pred") != (given.name == "pred"):
        return False
    if wanted.bits != given.bits:
        fits = widened and wanted.bits < given.bits and wanted.kind in _INTEGER
        return fits and given.kind in _INTEGER
    if "bits" in (wanted.kind, given.kind) or wanted.name == "tf32":
        return True
    return wanted.kind in _INTEGER and given.kind in _INTEGER


def is_integer(value: Any) -> bool:
    """Whether a value is a Python whole number (numpy's scalars too, its arrays not)."""
    if isinstance(value, (int, Reg)):
        return isinstance(value, int)
    try:
        operator.index(value)
    except TypeError:
        return False
    return True


def is_real(value: Any) -> bool:
    """Whether a value is a Python number that a float format may hold."""
    if isinstance(value, (int, float)):
        return True
    scalar = hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
    return scalar and not isinstance(value, Reg)


def other_trace_error(value: Any) -> KernelError:
    """The error of a register or pointer of one trace that is used in another."""
    return kernel_error(
        f"{value!r} belongs to another trace", "make it in this kernel, or pass it as a parameter"
    )


class Reg:
    """A typed register.

    ``+ - * // % << >> & | ^ ~ -x abs`` and comparisons (which give predicates) emit instructions.
    Both sides are registers of one type, or a register and a Python number. ``//`` and ``%`` are
    for unsigned registers.
    """

    __slots__ = ("dtype", "k", "operand")

    def __init__(self, k: Builder, dtype: DType, operand: tree.Reg) -> None:
        self.k = k
        self.dtype = dtype
        self.operand = operand

    def __repr__(self) -> str:
        return f"{self.operand.name}:{self.dtype.name}"

    def to(self, dtype: str | DType, rnd: str = "", *, sat: bool = False, ftz: bool = False) -> Reg:
        """Convert the value. ``rnd``: rn (default; to an integer rz), rz, rm, rp."""
        return self.k.convert(self, dtype, rnd, sat=sat, ftz=ftz)

    def view(self, dtype: str | DType) -> Reg:
        """The same bits as another type of the same size; of a variable, the variable."""
        return self.k.view(self, dtype)

    # --- arithmetic ---
    def __add__(self, other: Any) -> Any:
        return self.k.add(self, other)

    def __radd__(self, other: Any) -> Any:
        return self.k.add(other, self)

    def __sub__(self, other: Any) -> Any:
        return self.k.sub(self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.k.sub(other, self)

    def __mul__(self, other: Any) -> Any:
        return self.k.mul(self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.k.mul(other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.k.truediv(self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.k.truediv(other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self.k.floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.k.floordiv(other, self)

    def __mod__(self, other: Any) -> Any:
        return self.k.mod(self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.k.mod(other, self)

    def __divmod__(self, other: Any) -> Any:
        return self.k.floordiv(self, other), self.k.mod(self, other)

    def __neg__(self) -> Reg:
        return self.k.neg(self)

    def __pos__(self) -> Reg:
        return self

    def __abs__(self) -> Reg:
        return self.k.abs(self)

    # --- bits ---
    def __lshift__(self, other: Any) -> Any:
        return self.k.shl(self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self.k.shl(other, self)

    def __rshift__(self, other: Any) -> Any:
        return self.k.shr(self, other)

    def __rrshift__(self, other: Any) -> Any:
        return self.k.shr(other, self)

    def __and__(self, other: Any) -> Any:
        return self.k.and_(self, other)

    def __or__(self, other: Any) -> Any:
        return self.k.or_(self, other)

    def __xor__(self, other: Any) -> Any:
        return self.k.xor(self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Reg:
        return self.k.not_(self)

    # --- comparisons: predicates ---
    def __lt__(self, other: Any) -> Any:
        return self.k.compare("lt", self, other)

    def __le__(self, other: Any) -> Any:
        return self.k.compare("le", self, other)

    def __gt__(self, other: Any) -> Any:
        return self.k.compare("gt", self, other)

    def __ge__(self, other: Any) -> Any:
        return self.k.compare("ge", self, other)

    def __eq__(self, other: Any) -> Any:
        return NotImplemented if other is None else self.k.compare("eq", self, other)

    def __ne__(self, other: Any) -> Any:
        return NotImplemented if other is None else self.k.compare("ne", self, other)

    __hash__ = object.__hash__

    # --- what a register can't do while it is traced ---
    def __bool__(self) -> NoReturn:
        raise kernel_error(
            f"{self!r} has no truth value while the kernel is traced",
            "branch on the device with k.if_(p) or k.when(p); choose with k.select(p, a, b)",
        )

    def __index__(self) -> NoReturn:
        raise kernel_error(
            f"{self!r} has no value while the kernel is traced",
            "loop on the device with k.range(n); shapes and Python indices must be static",
        )

    def __iter__(self) -> Iterator[Any]:
        raise kernel_error(f"{self!r} can't be iterated over", "split a packed one with k.unpack")

    __int__ = __index__

    def __float__(self) -> NoReturn:
        raise self._no_function("Python's float and math")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy leaves operators to the register; its functions there are none of."""
        names = _UFUNCS.get(ufunc.__name__)
        if names is None or method != "__call__" or options:
            raise self._no_function(f"numpy.{ufunc.__name__}")
        a, b = inputs
        return getattr(a, names[0])(b) if isinstance(a, Reg) else getattr(b, names[1])(a)

    def _no_function(self, what: str) -> KernelError:
        return kernel_error(
            f"{self!r} has no value while the kernel is traced, which {what} would need",
            "name the instruction: k.ptx.sqrt.rn.f32(x), k.ptx.ex2.approx.f32(x); .to converts",
        )


class Var(Reg):
    """A register that may be written again, made by ``k.var``. ``x += 1`` changes it in place.

    It stands for what it holds when an instruction reads it: ``y = x``, ``+x`` and ``x.view(t)``
    are the variable itself, and change with it. ``k.mov(x)`` is its value now.
    """

    __slots__ = ()

    def set(self, value: Any) -> None:
        """Assign a register of the same type, or a number."""
        self.k.mov(value, into=self)

    def __iadd__(self, other: Any) -> Var:
        return self.k.add(self, other, into=self)

    def __isub__(self, other: Any) -> Var:
        return self.k.sub(self, other, into=self)

    def __imul__(self, other: Any) -> Var:
        return self.k.mul(self, other, into=self)

    def __itruediv__(self, other: Any) -> Var:
        return self.k.truediv(self, other, into=self)

    def __ifloordiv__(self, other: Any) -> Var:
        return self.k.floordiv(self, other, into=self)

    def __imod__(self, other: Any) -> Var:
        return self.k.mod(self, other, into=self)

    def __ilshift__(self, other: Any) -> Var:
        return self.k.shl(self, other, into=self)

    def __irshift__(self, other: Any) -> Var:
        return self.k.shr(self, other, into=self)

    def __iand__(self, other: Any) -> Var:
        return self.k.and_(self, other, into=self)

    def __ior__(self, other: Any) -> Var:
        return self.k.or_(self, other, into=self)

    def __ixor__(self, other: Any) -> Var:
        return self.k.xor(self, other, into=self)


class Registers:
    """An array of variables: fragments and accumulators. Indices are static.

    It is an engine for tensors: ``r[i]``, ``r[i] = v`` and ``r + n`` (the array from the n-th on).
    ``r[i]`` is the variable, not its value now, so ``r[0], r[1] = r[1], r[0]`` is no exchange:
    ``r[0], r[1] = k.mov(r[1]), k.mov(r[0])`` is.
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
                f"registers have no addresses: their index is static, not {index!r}", "unroll"
            )
        if not 0 <= index < end:
            raise kernel_error(f"register {index} of an array of {len(self)}")
        return self.offset + index
