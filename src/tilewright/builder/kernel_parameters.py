"""Parameters of a kernel, parsed from the annotations of its Python function.

    def saxpy(k, n: u32, a: f32, x: ptr(f32), y: ptr(f32, align=16)): …

A specification is a number format (``"u32"``, ``u32``), a pointer (``"ptr f32"``, ``"ptr f32 align
16"``, ``ptr(f32)``), a tensor map (``"tensor_map"``, ``tensor_map``), or another block of bytes
passed by value (``"bytes 16 align 8"``, ``by_value(16, 8)``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..dtypes import DTYPES, DType, dtype
from ..errors import DtypeError, KernelError, SourceLocation
from ..ptx import parameter_block, tree
from .source_location import kernel_error
from .values.pointer import Pointer, memory_type
from .values.registers import Reg, is_integer

if TYPE_CHECKING:
    from .builder import Builder

_SPEC = re.compile(r"(?:(?P<what>ptr|bytes) +)?(?P<word>\w+)(?: +align +(?P<align>\d+))?")

_EXAMPLES = 'annotate it: "u32", "ptr f16", "ptr f16 align 16", "tensor_map"'
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


@dataclass(frozen=True, slots=True, repr=False)
class Param:
    """A number, a pointer to ``dtype`` (in ``space``; empty: generic), or ``count`` bytes."""

    name: str
    dtype: DType
    pointer: bool = False
    align: int | None = None
    count: int = 0
    space: str = "global"

    @property
    def symbol(self) -> str:
        """Its name in PTX."""
        return f"param_{self.name}"

    @property
    def type_text(self) -> str:
        """Its specification: ``ptr f32 align 16``."""
        what = (
            f"bytes {self.count}"
            if self.count
            else f"{'ptr ' if self.pointer else ''}{self.dtype.name}"
        )
        return what + (f" align {self.align}" if self.align else "")

    def __str__(self) -> str:
        return f"{self.name}: {self.type_text}"

    __repr__ = __str__

    def variable(self) -> tree.Variable:
        """Its declaration."""
        if self.count:
            return tree.Variable("param", "b8", self.symbol, (self.count,), self.align)
        if not self.pointer:
            return tree.Variable("param", memory_type(self.dtype), self.symbol)
        words = (".ptr", f".{self.space}", ".align", str(self.align or self.dtype.bits // 8 or 1))
        return tree.Variable("param", "u64", self.symbol, qualifiers=words if self.space else ())

    def load(self, k: Builder) -> Reg | Pointer:
        """The parameter's value in the kernel function, read in the prologue."""
        where = tree.Symbol(self.symbol)
        if self.count:
            return Pointer(k, "param", "b8", where, 0, self.align)
        address = tree.MemoryOperand(where)
        if not self.pointer:
            return k.emit_once(
                self, f"ld.param.{memory_type(self.dtype)}", address, dtype=self.dtype
            )
        base = k.emit_once(self, "ld.param.u64", address)
        if self.space:
            base = k.emit_once((self, "cvta"), f"cvta.to.{self.space}.u64", base)
        return Pointer(k, self.space, self.dtype, base, 0, self.align)


def pointer_parameter(to: str | DType, *, align: int | None = None, space: str = "global") -> Param:
    """A pointer to elements of a type; ``align`` is the caller's promise, in bytes."""
    _check_align(align)
    return Param("", dtype(to), True, align, space=space)


def by_value(count: int, align: int = 64) -> Param:
    """Bytes passed by value."""
    _check_align(align)
    if not is_integer(count) or count < 1:
        raise kernel_error(f"a parameter must have at least one byte, got {count!r:.60}")
    return Param("", DTYPES["b8"], False, align, count)


def _check_align(align: Any) -> None:
    if align is not None and not (is_integer(align) and align > 0 and align & (align - 1) == 0):
        raise kernel_error(f"align must be a power of two in bytes, got {align!r:.60}")


tensor_map = by_value(128, 64)
"""A tensor map for tensor copies; ``tilewright.tensor_map`` creates the argument."""


def parameters(
    function: Callable[..., Any], specs: Mapping[str, Any] | None = None
) -> tuple[Param, ...]:
    """A kernel function's parameters after ``k``, in order. ``specs`` override annotations."""
    if not inspect.isfunction(function):
        raise KernelError(
            f"a kernel must be a Python function, got {function!r}", hint="use @kernel on a def"
        )
    code = function.__code__
    names = code.co_varnames[1 : code.co_argcount]
    location = SourceLocation(code.co_filename, code.co_firstlineno)
    if code.co_flags & _SUSPENDS:
        raise KernelError(
            f"{function.__name__} must not be a generator or async: a kernel is traced in one call",
            location=location,
            hint="use a plain def, without yield",
        )
    if code.co_argcount == 0:
        raise KernelError(
            f"{function.__name__} has no parameter for the builder",
            location=location,
            hint="the first parameter of a kernel is k",
        )
    if code.co_flags & 0x0C:
        raise KernelError(
            f"a kernel must not have *args or **kwargs, but {function.__name__} has",
            location=location,
            hint="name each parameter",
        )
    for name in specs or {}:
        if name not in names:
            allowed = ", ".join(names) or "none"
            message = f"{function.__name__} has no parameter {name!r}"
            raise KernelError(message, location=location, hint=f"its parameters: {allowed}")
    merged = {**function.__annotations__, **(specs or {})}
    return tuple(_parameter(function, name, merged.get(name), location) for name in names)


def declared(specs: Mapping[str, Any]) -> tuple[Param, ...]:
    """Parameters declared by name and type, without a Python signature."""
    parsed = {name: _parsed(spec, {}) for name, spec in specs.items()}
    params = [replace(param, name=name) for name, param in parsed.items() if param is not None]
    assert len(params) == len(specs)
    return tuple(params)


def block(specs: Mapping[str, Any]) -> parameter_block.ParameterLayout:
    """The layout of the parameter block of a kernel with these declared parameters."""
    return parameter_block.layout_parameters("", [p.variable() for p in declared(specs)])


def _parameter(
    function: Callable[..., Any], name: str, spec: Any, location: SourceLocation
) -> Param:
    try:
        param = _parsed(spec, function.__globals__)
    except (DtypeError, KernelError) as error:
        raise KernelError(
            f"parameter {name}: {error.message}", location=location, hint=error.hint
        ) from None
    except Exception as error:  # of an annotation that is evaluated
        message = (
            f"the annotation {spec!r} of parameter {name} raised {type(error).__name__}: {error}"
        )
        raise KernelError(message, location=location, hint=_EXAMPLES) from error
    if param is None or param.dtype.name == "pred":
        raise KernelError(
            f"parameter {name} of {function.__name__} has the unsupported type {spec!r}",
            location=location,
            hint=_EXAMPLES,
        )
    return replace(param, name=name)


def _parsed(spec: Any, names: Mapping[str, Any]) -> Param | None:
    if isinstance(spec, Param):
        return spec
    if isinstance(spec, DType):
        return Param("", spec)
    if metadata := getattr(spec, "__metadata__", ()):  # of typing.Annotated
        return _parsed(metadata[0], names)
    if not isinstance(spec, str):
        return None
    text = spec.strip("\"' ")
    match = _SPEC.fullmatch(text)
    if match is None:
        return _parsed(eval(spec, dict(names)), {}) if names else None
    if text == "tensor_map":
        return tensor_map
    align = int(match["align"]) if match["align"] else None
    if match["what"] == "bytes":
        return by_value(int(match["word"]), align or 1)
    t = DTYPES.get(match["word"])
    if t is None and match["what"] is None and text in names:
        return _parsed(names[text], {})
    _check_align(align)
    return Param("", t or dtype(match["word"]), match["what"] == "ptr", align)
