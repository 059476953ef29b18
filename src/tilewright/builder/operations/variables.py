"""Values: constants, variables and copies, and the typing rules of operations.

There are no implicit conversions: the registers of an operation have the same type, and a Python
number takes the register's type. Untyped bits (``b32``) match any type of the same size in bitwise
operations and moves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...dtypes import DType
from ...errors import KernelError
from ...ptx import tree
from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.register_class import checked_dtype
from ..values.registers import Reg, Scalar, Var, is_integer, is_real

INTEGER_KINDS = ("int", "uint")


class Variables:
    """Constants, variables, copies."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def const(self, dtype: str | DType, value: Any) -> Reg:
        """A register that holds a number."""
        t = checked_dtype(dtype)
        if t.kind in ("packed", "pred") or (t.kind == "float" and t.bits == 16):
            operand = self._emitter.immediate(t, value)
            assert isinstance(operand, tree.Register), "PTX has no immediate of these types"
            return Reg(self._emitter.k, t, operand)
        return self.mov(value, dtype=t)

    def var(self, value: Any, init: Any = None) -> Any:
        """A variable: ``k.var("u32", 0)``, ``k.var("f32")`` (undefined until set), ``k.var(reg)``,
        ``k.var(pointer)``.
        """
        if isinstance(value, (str, DType)):
            made = self._emitter.variable(checked_dtype(value))
            if init is not None:
                self.mov(init, into=made)
            return made
        if isinstance(value, Reg):
            return self.mov(value, into=self._emitter.variable(value.dtype))
        if hasattr(value, "add_bytes"):
            base = self.var(value._register())
            return value._with(base, value.offset)
        raise kernel_error(f"k.var must be given a type, a register or a pointer, got {value!r}")

    def mov(
        self, value: Scalar, *, dtype: str | DType | None = None, into: Var | None = None
    ) -> Reg:
        """A copy of a register (a variable's value now) or of a number, which needs ``dtype``."""
        t = (
            into.dtype
            if into is not None
            else checked_dtype(dtype)
            if dtype
            else getattr(value, "dtype", None)
        )
        if value is into and into is not None:
            return into
        if t is None:
            raise kernel_error(f"dtype must be given for a number, got {value!r}")
        if isinstance(value, Reg) and not compatible(t, value.dtype):
            raise type_mismatch("=", t, value.dtype)
        source = value if isinstance(value, Reg) else self._emitter.immediate(t, value)
        if isinstance(source, tree.Register) and into is None:
            return Reg(self._emitter.k, t, source)
        return self._emitter.compute(f"mov.{move_type(t)}", source, into=into, dtype=t)

    def as_result(self, value: Scalar, into: Var | None) -> Reg:
        """``value`` as a result: itself, a copy of a variable, or assigned to ``into``."""
        if into is not None:
            return self.mov(value, into=into)
        if isinstance(value, Var):
            return self.mov(value)
        return value  # type: ignore[return-value]  # what folds to a number stays one

    def common_type(self, symbol: str, *values: Any) -> DType:
        """The one type of the registers among ``values``."""
        regs = [v for v in values if isinstance(v, Reg)]
        if not regs:
            raise register_expected(symbol, *values)
        first = regs[0].dtype
        for reg in regs[1:]:
            if reg.dtype is not first:
                raise type_mismatch(symbol, first, reg.dtype)
        for value in values:
            if not isinstance(value, Reg):
                check_number(symbol, first, value)
        return first


def register_expected(symbol: str, *values: Any) -> KernelError:
    """The error of an operation without any register."""
    shown = ", ".join(f"{value!r:.60}" for value in values)
    hint = "k.const('u32', n) makes a register of a number; Python computes with numbers alone"
    return kernel_error(f"{symbol} must be given a register, got {shown}", hint)


def require_register(symbol: str, value: Any) -> Reg:
    """The value, which must be a register."""
    if not isinstance(value, Reg):
        raise register_expected(symbol, value)
    return value


def fold_constants(symbol: str, operation: Callable[[Any, Any], Any], a: Any, b: Any) -> Reg:
    """The result of Python's operation on two numbers, or on a pointer and a number.

    It is a number or a pointer. The declared type is that of the operation on registers.
    """
    if any(
        isinstance(x, str | bytes) or not (is_real(x) or hasattr(x, "add_bytes")) for x in (a, b)
    ):
        raise register_expected(symbol, a, b)
    try:
        result: Reg = operation(a, b)
    except (ArithmeticError, TypeError, ValueError) as error:
        raise kernel_error(f"{symbol} of {a!r:.60} and {b!r:.60}: {error}") from error
    return result


def power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def move_type(t: DType) -> str:
    """The type of mov and selp instructions for a format."""
    own = t.name in ("f32", "f64", "pred") or (t.kind in INTEGER_KINDS and t.bits >= 16)
    return t.name if own else f"b{max(16, t.bits)}"


def compatible(a: DType, b: DType, ordered: bool = False) -> bool:
    """Whether bitwise operations and moves may mix two types: equal ones, or untyped bits of the
    same size.
    """
    return a is b or (not ordered and a.bits == b.bits and "bits" in (a.kind, b.kind))


def check_number(symbol: str, t: DType, value: Any) -> None:
    if t.name == "pred":
        good = isinstance(value, bool)
    elif t.kind in ("float", "packed"):
        good = is_real(value)
    else:
        good = is_integer(value)
    if not good:
        raise kernel_error(f"{symbol}: {value!r} is not valid for a {t.name} register")


def type_mismatch(symbol: str, a: DType, b: DType) -> KernelError:
    view = f".view({a.name!r}) reinterprets the bits, " if a.bits == b.bits else ""
    return kernel_error(
        f"the operands of {symbol} must have the same type, got {a.name} and {b.name}",
        f"{view}.to({a.name!r}) converts the value",
    )


def unsupported_operator(symbol: str, t: DType) -> KernelError:
    small = "widen it with .to('u32')" if t.bits < 16 else "give the bits a type with .view('u32')"
    hint = small if t.kind != "float" else "convert it to f32, or use an instruction: k.ptx"
    return kernel_error(f"PTX has no {symbol} for {t.name}", hint)
