"""Printing and assertions inside a kernel, by CUDA's ``vprintf`` and ``__assertfail``.

A format is checked against its values while the kernel is traced. A print stores the values in
local memory, promoted and aligned as in C; all prints of a kernel share one array. The texts are
global variables of the module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...errors import KernelError, PtxError
from ...ptx import tree
from ...ptx.printf_format import (
    ADDRESS,
    CHARACTER,
    FLOAT,
    INTEGER,
    LENGTHS,
    MAX_ARGUMENTS,
    TEXT,
    Conversion,
    offsets,
    parse_format,
)
from ...ptx.system_functions import ASSERTFAIL, VPRINTF
from ...ptx.types import bits
from ..emitter import Emitter
from ..source_location import kernel_error, user_frame
from ..values.pointer import Pointer
from ..values.register_class import checked_dtype
from ..values.registers import Reg, is_integer, is_real, other_trace_error
from .control_flow import ControlFlow
from .value_conversions import ConversionOperations

DEPOT = "print_depot"


@dataclass(frozen=True, slots=True)
class PrintArgument:
    """A value that a format expects: its conversion, letter (``d`` for a ``*``) and memory type."""

    conversion: Conversion
    letter: str
    type: str

    def mismatch(self, value: Any) -> KernelError:
        """The error for a value of another type."""
        if self.letter in FLOAT:
            what, hint = "a float", "print integers with %d, %u or %x; .to('f32') converts them"
        elif self.letter == TEXT:
            what, hint = "a Python string or a pointer to bytes", "pointer.cast('u8')"
        elif self.letter == ADDRESS:
            what, hint = "a pointer or a 64-bit address", "print integers with %d, %u or %x"
        else:
            what = f"an integer of {'64' if self.type == 'b64' else 'up to 32'} bits"
            hint = "%lld, %llu or %llx print 64 bits, %d, %u or %x less; %f, %e or %g floats"
        return kernel_error(f"k.print: {self.conversion} must be {what}, got {value!r}", hint)


def _arguments_of(c: Conversion) -> Iterator[PrintArgument]:
    """The arguments of a conversion: one for each ``*``, then the value."""
    for n, type_ in enumerate(c.types, 1):
        yield PrintArgument(c, c.letter if n == len(c.types) else "d", type_)


class KernelPrinting:
    """``k.print`` and ``k.assert_``."""

    def __init__(
        self, emitter: Emitter, conversions: ConversionOperations, control: ControlFlow
    ) -> None:
        self._emitter = emitter
        self._conversions = conversions
        self._control = control
        self._texts: dict[bytes, str] = {}
        self._externs: dict[str, tree.Function] = {}
        self._depot_bytes = 0

    def print(self, format_: str, *values: Any) -> None:
        """Print a line from every active thread, as C's ``printf`` does:
        ``k.print("x[%u] = %f", i, x)``.

        Use ``%d %i %u %x %X %o %c`` for integers up to 32 bits, the same with ``ll`` (``%lld``) for
        64 bits, ``%f %e %g %a`` for floats of any size, ``%p`` for pointers, and ``%s`` for Python
        strings and pointers to bytes. Flags, widths and precisions are those of C, but a precision
        must be digits and a length ``h``, ``l`` or ``ll``: the CUDA driver prints others wrongly. A
        newline is added if the text has none at its end. At most 32 values.
        """
        text = _encoded("the format", format_)
        expected = self._parse(format_, values)
        with self._unguarded():
            arguments = self._store_arguments(expected, values)
            address = self._text_address(text if text.endswith(b"\n") else text + b"\n")
            self._call(VPRINTF, address, arguments)

    def assert_(self, condition: Any, message: str) -> None:
        """Stop the launch with ``message`` and the kernel's line if the predicate is false.

        The virtual machine raises VmFault; CUDA writes to stderr and fails with CUDA_ERROR_ASSERT,
        after which the process can't use the GPU any more.
        """
        text = _encoded("the message", message)
        if isinstance(condition, Reg):
            self._emitter.check_predicate(condition)
        elif self._emitter.static_condition(condition):
            return
        with self._unguarded(), self._skip_if(condition):
            self._assertion_failed(text)

    def texts(self) -> Iterator[tree.Variable]:
        """The module's variables for the printed texts."""
        for text, name in self._texts.items():
            init = tuple(tree.Imm(byte) for byte in (*text, 0))
            yield tree.Variable("global", "b8", name, (len(init),), 1, init)

    def externs(self) -> Iterator[tree.Function]:
        """The functions that the kernel calls."""
        yield from self._externs.values()

    def depots(self) -> Iterator[tree.Variable]:
        """The kernel's local memory for arguments, if it needs any."""
        if self._depot_bytes:
            yield tree.Variable("local", "b8", DEPOT, (self._depot_bytes,), 8)

    # --- calls ---
    @contextmanager
    def _unguarded(self) -> Iterator[None]:
        """Replace the guard of ``k.when`` by a branch, since a call can't be predicated."""
        p, state = self._emitter.guard_register, (self._emitter.guard, self._emitter.guard_register)
        if p is None:
            yield
            return
        self._emitter.guard = self._emitter.guard_register = None
        try:
            with self._skip_if(p, negated=True):
                yield
        finally:
            self._emitter.guard, self._emitter.guard_register = state

    @contextmanager
    def _skip_if(self, p: Any, negated: bool = False) -> Iterator[None]:
        """Branch past the block if ``p`` is true (or, ``negated``, false)."""
        past = self._emitter.label("past")
        self._control.branch(p, past, negated)
        with self._emitter.scope():
            yield
        self._emitter.place_label(past)

    def _call(self, function: tree.Function, *arguments: Any) -> None:
        self._externs[function.name] = function
        results = [self._emitter.register(checked_dtype(v.type)).operand for v in function.results]
        pairs = zip(function.params, arguments, strict=True)
        operands = (a.operand if isinstance(a, Reg) else tree.Imm(a) for _, a in pairs)
        callee = tree.Symbol(function.name)
        self._emitter.emit(
            "call.uni", tree.Vector(tuple(results)), callee, tree.Vector(tuple(operands))
        )

    def _assertion_failed(self, message: bytes) -> None:
        frame = user_frame()
        assert frame is not None, "k.assert_ is called from a kernel"
        code = frame.f_code
        texts = (message, code.co_filename.encode(), code.co_name.encode())
        text, file, function = map(self._text_address, texts)
        self._call(ASSERTFAIL, text, file, frame.f_lineno, function, 1)

    def _text_address(self, text: bytes) -> Reg:
        """The generic address of a text."""
        count = len(self._texts)
        name = self._texts.setdefault(text, f"$str${count}" if count else "$str")
        return self._emitter.compute(
            "cvta.global.u64", self._emitter.emit("mov.u64", tree.Symbol(name))
        )

    # --- values ---
    def _parse(self, format_: str, values: Sequence[Any]) -> list[PrintArgument]:
        """The arguments that a format expects, one for each value."""
        try:
            pieces = parse_format(format_.encode())
        except PtxError as error:
            raise kernel_error(f"k.print: {error.message}", error.hint) from None
        conversions = [c for c in pieces if isinstance(c, Conversion)]
        for c in conversions:
            if c.precision == "*" or c.length not in LENGTHS:
                raise kernel_error(
                    f"k.print: a precision must be digits and a length h, l or ll, got {c}",
                    "the CUDA driver prints other lengths, and a precision of *, wrongly",
                )
        expected = [argument for c in conversions for argument in _arguments_of(c)]
        if len(expected) != len(values):
            raise kernel_error(
                f"k.print: {format_!r} must have {len(expected)} values, got {len(values)}"
            )
        if len(expected) > MAX_ARGUMENTS:
            raise kernel_error(
                f"k.print: there must be at most {MAX_ARGUMENTS} values, got {len(expected)}"
            )
        return expected

    def _store_arguments(self, expected: Sequence[PrintArgument], values: Sequence[Any]) -> Any:
        """Store the values in local memory; returns the generic address, 0 without values."""
        starts, size = offsets([argument.type for argument in expected])
        if not size:
            return 0
        self._depot_bytes = max(self._depot_bytes, size)
        for argument, value, start in zip(expected, values, starts, strict=True):
            promoted = self._promoted(argument, value)
            target = tree.MemoryOperand(tree.Symbol(DEPOT), start)
            self._emitter.emit(f"st.local.{argument.type}", target, promoted)
        return self._emitter.emit(
            "cvta.local.u64", self._emitter.emit("mov.u64", tree.Symbol(DEPOT))
        )

    def _promoted(self, argument: PrintArgument, value: Any) -> Any:
        """A value promoted to its type in memory: a register of that size, or a number."""
        letter = argument.letter
        if isinstance(value, Reg | Pointer) and value.k is not self._emitter.k:
            raise other_trace_error(value)
        if letter == TEXT and isinstance(value, str):
            return self._text_address(_encoded("the text", value))
        if isinstance(value, Pointer) and (
            letter == ADDRESS or (letter == TEXT and value.dtype.bits == 8)
        ):
            return self._generic_address(value)
        if letter in FLOAT and isinstance(value, Reg) and value.dtype.kind == "float":
            return self._conversions.convert(value, "f64")
        if letter in FLOAT and is_real(value):
            return float(value)
        if letter in INTEGER + CHARACTER + ADDRESS and isinstance(value, Reg):
            return self._promoted_integer(argument, value)
        if letter in INTEGER + CHARACTER and is_integer(value):
            return self._emitter.immediate(checked_dtype(argument.type), value)
        raise argument.mismatch(value)

    def _promoted_integer(self, argument: PrintArgument, value: Reg) -> Reg:
        """An integer of less than 32 bits is promoted to 32 bits by its own sign."""
        t = value.dtype
        if t.name != "pred" and t.kind not in ("int", "uint", "bits"):
            raise argument.mismatch(value)
        if t.kind == "bits" and 8 <= t.bits < 32:
            value = self._conversions.view(value, f"u{t.bits}")
        if t.bits < 32:
            value = self._conversions.convert(value, "s32" if t.kind == "int" else "u32")
        if value.dtype.bits != bits(argument.type):
            raise argument.mismatch(value)
        return value

    def _generic_address(self, pointer: Pointer) -> Reg:
        address = pointer.address()
        wide = self._conversions.convert(address, "u64") if address.dtype.bits == 32 else address
        return self._emitter.emit(f"cvta.{pointer.space}.u64", wide) if pointer.space else wide


def _encoded(what: str, text: Any) -> bytes:
    """A text as the bytes of a C string, without the final zero."""
    if not isinstance(text, str) or "\0" in text:
        raise kernel_error(f"{what} must be a string without zero characters, got {text!r}")
    return text.encode()
