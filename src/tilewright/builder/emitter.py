"""The emitter: turns an opcode and Python values into one instruction of the PTX tree.

Every instruction of the builder passes through ``emit``. It looks up the opcode's signatures in the
instruction table, converts each argument to an operand, allocates the destination registers, and
returns them. Values that are the same for the whole kernel (parameter addresses, special registers,
constants without a PTX immediate) are computed in a prologue before the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..dtypes import DTYPES, DType
from ..errors import KernelError, UnknownInstruction
from ..ptx import tree
from .common_subexpressions import SubexpressionCache, subexpression_key
from .opcode_signature import OperandSlot, lookup, operand_mismatch
from .operand_binding import OperandBinding
from .source_location import current_location, kernel_error, user_frame
from .values.immediates import encode_float, wrap_integer
from .values.register_class import CLASSES, checked_dtype
from .values.registers import (
    Destination,
    Operations,
    Reg,
    Var,
    is_integer,
    is_real,
    other_trace_error,
)

PRED = DTYPES["pred"]


class Emitter:
    """The statements and registers of a kernel under construction.

    ``k`` is the builder that the kernel's registers refer to.
    """

    def __init__(self, k: Operations, *, line_info: bool = True) -> None:
        self.k = k
        self.body: list[tree.Statement] = []
        self.prologue: list[tree.Statement] = []
        self.files: dict[str, int] = {}
        self.guard: tree.Guard | None = None
        self.guard_register: Reg | None = None
        self.line_info = line_info
        self.failure: Callable[[], KernelError] | None = None  # set: nothing can be emitted
        self.subexpressions = SubexpressionCache()
        self.operands = OperandBinding(k, self.immediate)
        self._register_counts: dict[str, int] = {}
        self._last_line: tuple[str, int] | None = None
        self._prologue_values: dict[object, Reg] = {}
        self._label_count = 0

    # --- one instruction ---
    def emit(
        self,
        opcode: str,
        *args: Any,
        into: Destination = None,
        guard: Reg | bool | None = None,
        dtype: str | DType | None = None,
        pair: bool = False,
        vector: int = 0,
    ) -> Any:
        """Emit an instruction. Returns its destination: a Reg, a tuple of them for a vector or a
        pair, or None.

        ``args`` are the sources: registers, numbers, pointers, (register, byte offset) for an
        address, sequences for vectors, names for labels. ``into`` gives variables to write instead
        of new registers; ``guard`` is a predicate; ``dtype`` is the type of the new registers where
        the opcode defines only their size; ``pair`` requests the optional second destination
        (``p|q``), ``vector`` a destination vector of that length (``mov``).
        """
        key = None
        if self.subexpressions.enabled and into is None and guard is None and not (pair or vector):
            key = subexpression_key(opcode, args, dtype)
        if key is None:
            return self._emit(opcode, args, into, guard, dtype, pair, vector)
        result = self.subexpressions.find(key)
        if result is None:
            result = self._emit(opcode, args, None, None, dtype, False, 0)
            if self.guard is None:
                self.subexpressions.add(key, result)
        return result

    def compute(
        self, opcode: str, *args: Any, dtype: str | DType | None = None, into: Destination = None
    ) -> Reg:
        """``emit`` of an instruction with one destination register."""
        result: Reg = self.emit(opcode, *args, dtype=dtype, into=into)
        return result

    def _emit(
        self,
        opcode: str,
        args: tuple[Any, ...],
        into: Destination,
        guard: Reg | bool | None,
        dtype: str | DType | None,
        pair: bool,
        vector: int,
    ) -> Any:
        if self.failure is not None:
            raise self.failure()
        if not isinstance(opcode, str):
            raise kernel_error(f"an opcode must be text, such as add.u32, got {opcode!r:.60}")
        try:
            signatures = lookup(opcode)
        except UnknownInstruction as error:
            error.location = current_location()
            raise
        if guard is not None:
            with self.when(guard):
                return self.emit(opcode, *args, into=into, dtype=dtype, pair=pair, vector=vector)
        if vector:
            signatures = tuple(s for s in signatures if s.dests and s.dests[0].count == vector)
        signature, sources = self.operands.bind(opcode, signatures, args)
        slots = signature.all_dests if pair else signature.dests
        if into is None:
            for slot in signature.dests:
                if slot.read_write:
                    raise kernel_error(f"{opcode} also reads {slot.name}", "pass into=variables")
            dests, results = self._allocate(slots, dtype)
        else:
            dests, results = self._assign(opcode, slots, into)
        if self.line_info:
            self._mark_line()
        self.body.append(tree.Instruction(opcode, (*dests, *sources), self.guard))
        return results

    def _mark_line(self) -> None:
        frame = user_frame()
        if frame is None:
            return
        file, line = frame.f_code.co_filename, frame.f_lineno
        if (file, line) != self._last_line:
            self._last_line = (file, line)
            index = self.files.setdefault(file, len(self.files) + 1)
            self.body.append(tree.Loc(index, line, 0))

    # --- guards ---
    @contextmanager
    def when(self, p: Reg | bool) -> Iterator[None]:
        """Predicate every instruction of the block with ``p``, without a branch. Results of the
        block are undefined where ``p`` does not hold. A Python bool is decided while the kernel is
        traced: False drops the block."""
        if not isinstance(p, Reg):
            with self.static_branch(p):
                yield
            return
        self.check_predicate(p)
        before = self.guard, self.guard_register
        if self.guard_register is not None:
            outer, self.guard = self.guard_register, None
            p = self.compute("and.pred", outer, p)
        self.guard, self.guard_register = tree.Guard(p.operand), p
        try:
            yield
        finally:
            self.guard, self.guard_register = before

    def static_condition(self, condition: object) -> bool:
        """The value of a static condition: a Python or NumPy bool."""
        if not isinstance(condition, bool | np.bool_):
            what = f"a condition must be a predicate or a Python bool, got {condition!r:.60}"
            raise kernel_error(what, "compare it: x != 0; bool(n) is static")
        return bool(condition)

    @contextmanager
    def static_branch(self, condition: object) -> Iterator[None]:
        """A block that is emitted if a static condition holds, and dropped otherwise."""
        with self.scope():
            body, self.body = self.body, self.body if self.static_condition(condition) else []
            try:
                yield
            finally:
                self.body = body

    def check_predicate(self, p: object) -> None:
        """Raise KernelError unless ``p`` is a predicate of this kernel."""
        if not isinstance(p, Reg) or p.dtype.name != "pred":
            raise kernel_error(f"expected a predicate, got {p!r}", "compare it: x != 0")
        if p.k is not self.k:
            raise other_trace_error(p)

    def eliminate_common_subexpressions(self, enabled: bool = True) -> Any:
        """A block in which equal operations on equal registers are emitted once."""
        return self.subexpressions.enable(enabled)

    def scope(self) -> Any:
        """A block outside of which the registers computed in it are not reused."""
        return self.subexpressions.scope()

    # --- immediates and the prologue ---
    def immediate(self, t: DType | None, value: Any) -> tree.Operand:
        """A Python number as an operand; a register of the prologue if PTX has no immediate."""
        if t is None:
            raise kernel_error(f"the operand must not be a number, got {value!r}")
        if t.kind in ("float", "packed"):
            return self._float(t, value)
        if t.name == "pred":
            return self.constant(t, int(bool(value))).operand
        if is_integer(value):
            return tree.Imm(wrap_integer(t, value.__index__()))
        raise kernel_error(f"expected a value of type {t.name}, got {value!r}")

    def _float(self, t: DType, value: Any) -> tree.Operand:
        if not is_real(value):
            raise kernel_error(f"expected a value of type {t.name}, got {value!r}")
        bits = encode_float(t, value)
        if t.name in ("f32", "f64"):
            return tree.FloatImm(bits, t.bits)
        return self.constant(t, bits).operand

    def constant(self, t: DType, bits: int) -> Reg:
        """A register of the prologue that holds these bits, one for each value."""
        opcode = "mov.pred" if t.name == "pred" else f"mov.b{max(16, t.bits)}"
        return self.emit_once((t.name, bits), opcode, tree.Imm(bits), dtype=t)

    def emit_once(
        self, key: object, opcode: str, *args: Any, dtype: str | DType | None = None
    ) -> Reg:
        """The result of an instruction of the prologue, emitted once for each ``key``."""
        register = self._prologue_values.get(key)
        if register is None:
            with self.in_prologue():
                register = self._prologue_values[key] = self.compute(opcode, *args, dtype=dtype)
        return register

    def compute_once(self, key: object, function: Callable[[], Reg]) -> Reg:
        """The result of ``function``, which emits into the prologue once for each ``key``."""
        register = self._prologue_values.get(key)
        if register is None:
            with self.in_prologue():
                register = self._prologue_values[key] = function()
        return register

    @contextmanager
    def in_prologue(self) -> Iterator[None]:
        """Emit before the body, unguarded and without line information."""
        state = self.body, self.guard, self.guard_register, self.line_info
        with self.subexpressions.enable(False):
            self.body, self.guard, self.guard_register = self.prologue, None, None
            self.line_info = False
            try:
                yield
            finally:
                self.body, self.guard, self.guard_register, self.line_info = state

    # --- destinations ---
    def register(self, t: DType) -> Reg:
        """A new register of a type."""
        return Reg(self.k, t, self._new_register(t))

    def variable(self, t: DType) -> Var:
        """A new register that may be written more than once."""
        return Var(self.k, t, self._new_register(t))

    def _new_register(self, t: DType) -> tree.Register:
        _, prefix = CLASSES[t.name]
        count = self._register_counts[prefix] = self._register_counts.get(prefix, 0) + 1
        return tree.Register(f"{prefix}{count}")

    def _allocate(
        self, slots: tuple[OperandSlot, ...], dtype: str | DType | None
    ) -> tuple[list[tree.Operand], Any]:
        """New registers for the destinations: their operands, and the caller's result."""
        forced = checked_dtype(dtype) if dtype is not None else None
        results: list[Any] = []
        if slots and slots[0].kind == "sink":
            return [tree.Sink()], None
        for slot in slots:
            t: Any = slot.dtype if forced is None or slot.dtype is PRED else forced
            count = slot.count
            results.append(
                tuple(self.register(t) for _ in range(count)) if count else self.register(t)
            )
        if len(results) == 1:
            return _destination_operands(slots, results), results[0]
        return _destination_operands(slots, results), tuple(results) or None

    def _assign(
        self, opcode: str, slots: tuple[OperandSlot, ...], into: Any
    ) -> tuple[list[tree.Operand], Any]:
        """The caller's variables as destinations, checked."""
        targets = [into] if len(slots) == 1 else list(into)
        if len(targets) != len(slots):
            raise kernel_error(
                f"{opcode}: into= must have {len(slots)} variables, got {len(targets)}"
            )
        results: list[Any] = []
        for slot, target in zip(slots, targets, strict=True):
            variables = tuple(target) if slot.count else (target,)
            if len(variables) != max(1, slot.count):
                what = f"{opcode}: {slot.name} must be a vector of {slot.count} variables"
                raise kernel_error(f"{what}, got {len(variables)}")
            for variable in variables:
                self._check_variable(opcode, slot, variable)
            results.append(variables if slot.count else target)
        return _destination_operands(slots, results), results[0] if len(results) == 1 else tuple(
            results
        )

    def _check_variable(self, opcode: str, slot: OperandSlot, variable: object) -> None:
        if not isinstance(variable, Var):
            what = f"{opcode}: into= must be variables, got {variable!r}"
            raise kernel_error(what, "make one with k.var")
        if variable.k is not self.k:
            raise other_trace_error(variable)
        if variable.dtype.name not in slot.accepted:
            raise operand_mismatch(opcode, slot, variable)

    # --- labels and declarations ---
    def label(self, stem: str) -> str:
        """The name of a new label."""
        self._label_count += 1
        return f"${stem}_{self._label_count}"

    def place_label(self, name: str) -> None:
        """Put a label at the current position."""
        self.body.append(tree.Label(name))

    def register_declarations(self) -> Iterator[tree.RegDecl]:
        """One ``.reg`` declaration for each register class in use."""
        for declared, prefix in dict.fromkeys(CLASSES.values()):
            if count := self._register_counts.get(prefix):
                yield tree.RegDecl(declared, (prefix,), count + 1)


def _destination_operands(slots: tuple[OperandSlot, ...], targets: list[Any]) -> list[tree.Operand]:
    operands: list[tree.Operand] = []
    for slot, target in zip(slots, targets, strict=True):
        operand = tree.Vector(tuple(r.operand for r in target)) if slot.count else target.operand
        if slot.second:
            operand = tree.Pair(operands.pop(), operand)
        operands.append(operand)
    return operands
