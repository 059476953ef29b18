"""Printing and assertions inside a kernel, by CUDA's ``vprintf`` and ``__assertfail``.

A format is checked against its values while the kernel is traced. A print lays them out in local
memory as C promotes and aligns them; one array serves all prints of a kernel. The texts are global
variables of the module.
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
    """One value that a format takes: by what conversion, as what letter (``d`` for a ``*``), and
    its type in memory.
    """

    conversion: Conversion
    letter: str
    type: str

    def misfit(self, value: Any) -> KernelError:
        """The error of a value that does not go with it."""
        if self.letter in FLOAT:
            what, hint = "a float", "integers take %d, %u or %x; .to('f32') converts them"
        elif self.letter == TEXT:
            what, hint = "a Python string or a pointer to bytes", "pointer.cast('u8')"
        elif self.letter == ADDRESS:
            what, hint = "a pointer or a 64-bit address", "integers take %d, %u or %x"
        else:
            what = f"an integer of {'64' if self.type == 'b64' else 'up to 32'} bits"
            hint = "64 bits take %lld, %llu or %llx, less %d, %u or %x; floats %f, %e or %g"
        return kernel_error(f"k.print: {self.conversion} takes {what}, not {value!r}", hint)


def _wanted_by(c: Conversion) -> Iterator[PrintArgument]:
    """What a conversion takes: a number for each ``*``, then its own."""
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

        Integers up to 32 bits take ``%d %i %u %x %X %o %c``, those of 64 bits the same with ``ll``
        (``%lld``), floats of any size ``%f %e %g %a``, pointers ``%p``, Python strings and pointers
        to bytes ``%s``. Flags, widths and precisions are C's, but a precision is digits, and
        lengths are ``h``, ``l`` and ``ll``: CUDA's driver prints others wrongly. A newline is added
        where the text ends in none. At most 32 values.
        """
        text = _encoded("a format", format_)
        wanted = self._wanted(format_, values)
        with self._branched():
            arguments = self._laid_out(wanted, values)
            address = self._text_address(text if text.endswith(b"\n") else text + b"\n")
            self._call(VPRINTF, address, arguments)

    def assert_(self, condition: Any, message: str) -> None:
        """Where a predicate does not hold, stop the launch with ``message`` and the kernel's line.

        The virtual machine raises VmFault; CUDA writes to stderr and fails with CUDA_ERROR_ASSERT,
        after which the process can't use the GPU any more.
        """
        said = _encoded("a message", message)
        if isinstance(condition, Reg):
            self._emitter.check_predicate(condition)
        elif self._emitter.static_condition(condition):
            return
        with self._branched(), self._past(condition):
            self._assertion_failed(said)

    def texts(self) -> Iterator[tree.Variable]:
        """The module's variables for what is printed."""
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
    def _branched(self) -> Iterator[None]:
        """Inside of ``k.when``, a branch: a call is for all threads that come to it."""
        p, state = self._emitter.guard_register, (self._emitter.guard, self._emitter.guard_register)
        if p is None:
            yield
            return
        self._emitter.guard = self._emitter.guard_register = None
        try:
            with self._past(p, negated=True):
                yield
        finally:
            self._emitter.guard, self._emitter.guard_register = state

    @contextmanager
    def _past(self, p: Any, negated: bool = False) -> Iterator[None]:
        """A branch past what is inside, where ``p`` holds (or, ``negated``, does not)."""
        past = self._emitter.label("past")
        self._control.branch(p, past, negated)
        with self._emitter.scope():
            yield
        self._emitter.place_label(past)

    def _call(self, function: tree.Function, *arguments: Any) -> None:
        self._externs[function.name] = function
        results = [self._emitter.register(checked_dtype(v.type)).operand for v in function.results]
        pairs = zip(function.params, arguments, strict=True)
        given = (a.operand if isinstance(a, Reg) else tree.Imm(a) for _, a in pairs)
        callee = tree.Symbol(function.name)
        self._emitter.emit(
            "call.uni", tree.Vector(tuple(results)), callee, tree.Vector(tuple(given))
        )

    def _assertion_failed(self, message: bytes) -> None:
        frame = user_frame()
        assert frame is not None, "somebody called k.assert_"
        code = frame.f_code
        texts = (message, code.co_filename.encode(), code.co_name.encode())
        said, file, function = map(self._text_address, texts)
        self._call(ASSERTFAIL, said, file, frame.f_lineno, function, 1)

    def _text_address(self, text: bytes) -> Reg:
        """The generic address of a text."""
        count = len(self._texts)
        name = self._texts.setdefault(text, f"$str${count}" if count else "$str")
        return self._emitter.compute(
            "cvta.global.u64", self._emitter.emit("mov.u64", tree.Symbol(name))
        )

    # --- values ---
    def _wanted(self, format_: str, values: Sequence[Any]) -> list[PrintArgument]:
        """What a format takes, which must be as many as the values."""
        try:
            found = parse_format(format_.encode())
        except PtxError as error:
            raise kernel_error(f"k.print: {error.message}", error.hint) from None
        conversions = [c for c in found if isinstance(c, Conversion)]
        for c in conversions:
            if c.precision == "*" or c.length not in LENGTHS:
                hint = "CUDA's driver prints other lengths, and a precision of *, wrongly"
                said = f"k.print: {c}: a precision is digits, a length h, l or ll"
                raise kernel_error(said, hint)
        wanted = [w for c in conversions for w in _wanted_by(c)]
        if len(wanted) != len(values):
            counts = f"takes {len(wanted)} values, {len(values)} are given"
            raise kernel_error(f"k.print: {format_!r} {counts}")
        if len(wanted) > MAX_ARGUMENTS:
            most = f"CUDA prints at most {MAX_ARGUMENTS} at once"
            raise kernel_error(f"k.print: {len(wanted)} values; {most}")
        return wanted

    def _laid_out(self, wanted: Sequence[PrintArgument], values: Sequence[Any]) -> Any:
        """The generic address of the values in local memory; 0 where there are none."""
        places, size = offsets([w.type for w in wanted])
        if not size:
            return 0
        self._depot_bytes = max(self._depot_bytes, size)
        for w, value, at in zip(wanted, values, places, strict=True):
            promoted = self._promoted(w, value)
            self._emitter.emit(
                f"st.local.{w.type}", tree.MemoryOperand(tree.Symbol(DEPOT), at), promoted
            )
        return self._emitter.emit(
            "cvta.local.u64", self._emitter.emit("mov.u64", tree.Symbol(DEPOT))
        )

    def _promoted(self, wanted: PrintArgument, value: Any) -> Any:
        """A value as its bytes in memory: a register of that size, or a number."""
        letter = wanted.letter
        if isinstance(value, Reg | Pointer) and value.k is not self._emitter.k:
            raise other_trace_error(value)
        if letter == TEXT and isinstance(value, str):
            return self._text_address(_encoded("a text", value))
        if isinstance(value, Pointer) and (
            letter == ADDRESS or (letter == TEXT and value.dtype.bits == 8)
        ):
            return self._generic_address(value)
        if letter in FLOAT and isinstance(value, Reg) and value.dtype.kind == "float":
            return self._conversions.convert(value, "f64")
        if letter in FLOAT and is_real(value):
            return float(value)
        if letter in INTEGER + CHARACTER + ADDRESS and isinstance(value, Reg):
            return self._promoted_integer(wanted, value)
        if letter in INTEGER + CHARACTER and is_integer(value):
            return self._emitter.immediate(checked_dtype(wanted.type), value)
        raise wanted.misfit(value)

    def _promoted_integer(self, wanted: PrintArgument, value: Reg) -> Reg:
        """Of 32 bits if it has less, signed or not as it is."""
        t = value.dtype
        if t.name != "pred" and t.kind not in ("int", "uint", "bits"):
            raise wanted.misfit(value)
        if t.kind == "bits" and 8 <= t.bits < 32:
            value = self._conversions.view(value, f"u{t.bits}")
        if t.bits < 32:
            value = self._conversions.convert(value, "s32" if t.kind == "int" else "u32")
        if value.dtype.bits != bits(wanted.type):
            raise wanted.misfit(value)
        return value

    def _generic_address(self, pointer: Pointer) -> Reg:
        address = pointer.address()
        wide = self._conversions.convert(address, "u64") if address.dtype.bits == 32 else address
        return self._emitter.emit(f"cvta.{pointer.space}.u64", wide) if pointer.space else wide


def _encoded(what: str, text: Any) -> bytes:
    """A text as a C string, without its end."""
    if not isinstance(text, str) or "\0" in text:
        raise kernel_error(f"{what} is a Python string without zero characters, not {text!r}")
    return text.encode()
