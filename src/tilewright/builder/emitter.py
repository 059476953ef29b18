"""The emitter: from an opcode and Python values to one instruction of the tree.

Everything the builder makes passes through ``emit``. It looks the opcode's form up in the
instruction table, takes the form's signature as the truth about operands, converts each value to
what the signature asks, allocates the destination registers, and hands them back. What is the same
for the whole kernel (addresses of parameters, special registers, constants that PTX has no
immediates for) goes to a prologue before the body.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Union

import numpy as np

from ..dtypes import DTYPES, DType
from ..errors import KernelError, UnknownInstruction
from ..ptx import tree
from .opcode_signature import OpcodeSignature, OperandSlot, lookup, operand_mismatch
from .source_location import current_location, kernel_error, user_frame
from .values.immediates import check_immediates, encode_float, wrap_integer
from .values.pointer import Pointer
from .values.registers import (
    CLASSES,
    Reg,
    Registers,
    Var,
    checked_dtype,
    is_integer,
    is_real,
    other_trace_error,
)

_TREE_OPERANDS = (
    tree.Reg,
    tree.Imm,
    tree.FloatImm,
    tree.Symbol,
    tree.Vector,
    tree.Sink,
    tree.Address,
)

PRED = DTYPES["pred"]

Into = Union[Reg, Sequence[Reg], None]


class Emitter:
    """The statements of a kernel under construction, and its registers."""

    def __init__(self, *, lines: bool = True) -> None:
        self.body: list[tree.Statement] = []
        self.prologue: list[tree.Statement] = []
        self.files: dict[str, int] = {}
        self._counts: dict[str, int] = {}
        self.guard: tree.Guard | None = None
        self.guard_register: Reg | None = None
        self.line_info = lines
        self._last_line: tuple[str, int] | None = None
        self._prologue_values: dict[Any, Reg] = {}
        self._labels = 0
        self.failure: Callable[[], KernelError] | None = None

    # --- one instruction ---
    def emit(
        self,
        opcode: str,
        *args: Any,
        into: Into = None,
        guard: Any = None,
        dtype: str | DType | None = None,
        pair: bool = False,
        vector: int = 0,
    ) -> Any:
        """Emit an instruction; returns its destination: a Reg, a tuple for a vector or a pair, or
        None.

        ``args`` are its sources: registers, numbers, pointers, (register, byte offset) for an
        address, sequences for vectors, names for labels. ``into`` gives variables to write instead
        of new registers; ``guard`` is a predicate; ``dtype`` the type of the new registers where
        the opcode says only how many bits; ``pair`` asks for the optional second destination
        (``p|q``), ``vector`` for a destination vector where that is a choice (``mov``).
        """
        if self.failure is not None:
            raise self.failure()
        if not isinstance(opcode, str):
            raise kernel_error(f"an opcode must be text, such as add.u32, got {opcode!r:.60}")
        try:
            signatures = lookup(opcode)
        except UnknownInstruction as error:
            error.place = current_location()
            raise
        if guard is not None:
            options = {"into": into, "dtype": dtype, "pair": pair, "vector": vector}
            return self._guarded(guard, opcode, args, options)
        if vector:
            signatures = tuple(s for s in signatures if s.dests and s.dests[0].count == vector)
        signature, sources = self._bind(opcode, signatures, args)
        if into is None:
            for slot in signature.dests:
                if slot.both:
                    raise kernel_error(f"{opcode} reads {slot.name} too", "into= variables")
            dests, results = self._allocate(signature.all_dests if pair else signature.dests, dtype)
        else:
            dests, results = self._assign(
                opcode, signature.all_dests if pair else signature.dests, into
            )
        if self.line_info:
            self._mark_line()
        self.body.append(tree.Instruction(opcode, (*dests, *sources), self.guard))
        return results

    def _guarded(
        self, guard: Any, opcode: str, args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        with self.when(guard):
            return self.emit(opcode, *args, **options)

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
    def when(self, p: Any) -> Iterator[None]:
        """Predicate every instruction inside with ``p``, without a branch. What is computed inside
        is undefined where ``p`` does not hold. A Python bool is decided now: False drops what is
        inside."""
        if not isinstance(p, Reg):
            with self._static(p):
                yield
            return
        self.check_predicate(p)
        before = self.guard, self.guard_register
        if self.guard_register is not None:
            outer, self.guard = self.guard_register, None
            p = self.emit("and.pred", outer, p)
        self.guard, self.guard_register = tree.Guard(p.operand), p
        try:
            yield
        finally:
            self.guard, self.guard_register = before

    def static_condition(self, condition: Any) -> bool:
        """A condition that is decided while the kernel is traced: Python's or NumPy's bool."""
        if not isinstance(condition, bool | np.bool_):
            what = f"a condition must be a predicate or a Python bool, got {condition!r:.60}"
            raise kernel_error(what, "compare it: x != 0; bool(n) decides now")
        return bool(condition)

    @contextmanager
    def _static(self, condition: Any) -> Iterator[None]:
        kept, self.body = self.body, self.body if self.static_condition(condition) else []
        try:
            yield
        finally:
            self.body = kept

    def check_predicate(self, p: Any) -> None:
        if not isinstance(p, Reg) or p.dtype.name != "pred":
            raise kernel_error(f"{p!r} is not a predicate", "compare it: x != 0")
        if p.k is not self:
            raise other_trace_error(p)

    # --- sources ---
    def _bind(
        self, opcode: str, signatures: tuple[OpcodeSignature, ...], args: tuple[Any, ...]
    ) -> tuple[OpcodeSignature, list[tree.Operand]]:
        """The first signature that takes these arguments, and the operands they become."""
        failure: KernelError | None = None
        count = len(args)
        for signature in signatures:
            if signature.least <= count <= len(signature.sources):
                try:
                    pairs = zip(signature.sources, args, strict=False)
                    made = [self._source(opcode, slot, value) for slot, value in pairs]
                    for i in signature.limited:
                        if i < count:
                            check_immediates(opcode, signature.sources[i], made[i], args[i])
                    return signature, made
                except KernelError as error:
                    failure = failure or error
        if failure is not None:
            raise failure
        allowed = " or ".join(map(str, signatures))
        raise kernel_error(f"{opcode} takes {allowed}; {count} operands were given")

    def _source(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, (Reg, Pointer)) and value.k is not self:
            raise other_trace_error(value)
        if slot.kind == "map":
            return _tensor(opcode, slot, value)
        if slot.count:
            return self._vector(opcode, slot, value)
        if slot.kind == "reg":
            if isinstance(value, Reg):
                if value.dtype.name not in slot.accepted:
                    raise operand_mismatch(opcode, slot, value)
                return value.operand
            if isinstance(value, Pointer):
                return self._source(opcode, slot, value.address())
            return value if isinstance(value, _TREE_OPERANDS) else self.immediate(slot.dtype, value)
        if slot.kind == "address":
            return self._address(opcode, slot, value)
        return self._name(opcode, slot, value)

    def _vector(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, tree.Vector):
            return value
        if not isinstance(value, (tuple, list, Registers)) or len(value) != slot.count:
            size = f"{len(value)} values" if hasattr(value, "__len__") else repr(value)
            raise kernel_error(
                f"{opcode}: operand {slot.name} is a vector of {slot.count}, not {size}"
            )
        accepted = slot.accepted
        items = []
        for item in value:
            if not isinstance(item, Reg):
                items.append(
                    item if isinstance(item, _TREE_OPERANDS) else self.immediate(slot.dtype, item)
                )
            elif item.dtype.name in accepted:
                if item.k is not self:
                    raise other_trace_error(item)
                items.append(item.operand)
            else:
                raise operand_mismatch(opcode, slot, item)
        return tree.Vector(tuple(items))

    def _address(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, Pointer):
            if value.space.split("::")[0] != slot.space.split("::")[0]:
                raise kernel_error(
                    f"{opcode}: operand [{slot.name}] is a {slot.space or 'generic'} address, "
                    f"the pointer is {value.space or 'generic'}",
                    "name the state space in the opcode, or convert the address with cvta",
                )
            return value.operand
        if _moved_on(value):
            if value[0].k is not self:
                raise other_trace_error(value[0])
            return tree.Address(value[0].operand, value[1].__index__())
        if isinstance(value, Reg) and value.dtype.bits in (32, 64):
            return tree.Address(value.operand)
        if isinstance(value, tree.Address):
            return value
        raise kernel_error(
            f"{opcode}: operand [{slot.name}] is an address, not {value!r}",
            "give a pointer, a register, or (register, byte offset)",
        )

    def _name(self, opcode: str, slot: OperandSlot, value: Any) -> tree.Operand:
        if isinstance(value, _TREE_OPERANDS):
            return value
        if slot.kind != "imm":
            if isinstance(value, str):
                return tree.Symbol(value)
            if isinstance(value, Pointer):
                base = value.base
                return (
                    tree.Symbol(base.name, base.offset + value.offset)
                    if isinstance(base, tree.Symbol)
                    else base.operand
                )
            if isinstance(value, Reg) and slot.kind == "any":
                return value.operand
        if is_integer(value):
            return tree.Imm(value.__index__())
        raise kernel_error(f"{opcode}: operand {slot.name} is {slot.kind}, not {value!r}")

    # --- immediates ---
    def immediate(self, t: Any, value: Any) -> tree.Operand:
        """A Python number as an operand; a prologue's register where PTX has no immediate."""
        if t.kind in ("float", "packed"):
            return self._float(t, value)
        if t.name == "pred":
            return self.constant(t, int(bool(value))).operand
        if is_integer(value):
            return tree.Imm(wrap_integer(t, value.__index__()))
        raise kernel_error(f"{value!r} is not a value of type {t.name}")

    def _float(self, t: DType, value: Any) -> tree.Operand:
        if not is_real(value):
            raise kernel_error(f"{value!r} is not a value of type {t.name}")
        bits = encode_float(t, value)
        if t.name in ("f32", "f64"):
            return tree.FloatImm(bits, t.bits)
        return self.constant(t, bits).operand

    def constant(self, t: DType, bits: int) -> Reg:
        """A register of the prologue that holds these bits, one for each value."""
        opcode = "mov.pred" if t.name == "pred" else f"mov.b{max(16, t.bits)}"
        return self.emit_once((t.name, bits), opcode, tree.Imm(bits), dtype=t)

    def emit_once(self, key: Any, opcode: str, *args: Any, dtype: str | DType | None = None) -> Reg:
        """The result of an instruction of the prologue, emitted once for each ``key``."""
        found = self._prologue_values.get(key)
        if found is None:
            with self.in_prologue():
                found = self._prologue_values[key] = self.emit(opcode, *args, dtype=dtype)
        return found

    @contextmanager
    def in_prologue(self) -> Iterator[None]:
        """Emit before the body, unguarded and without line marks."""
        state = self.body, self.guard, self.guard_register, self.line_info
        self.body, self.guard, self.guard_register, self.line_info = (
            self.prologue,
            None,
            None,
            False,
        )
        try:
            yield
        finally:
            self.body, self.guard, self.guard_register, self.line_info = state

    # --- destinations ---
    def register(self, t: DType, variable: bool = False) -> Reg:
        """A new register of a format."""
        _, prefix = CLASSES[t.name]
        count = self._counts[prefix] = self._counts.get(prefix, 0) + 1
        return (Var if variable else Reg)(self, t, tree.Reg(f"{prefix}{count}"))

    def _allocate(
        self, slots: tuple[OperandSlot, ...], dtype: str | DType | None
    ) -> tuple[list[tree.Operand], Any]:
        """New registers for the destinations: their operands, and what the caller gets."""
        forced = checked_dtype(dtype) if dtype is not None else None
        made: list[Any] = []
        if slots and slots[0].kind == "sink":
            return [tree.Sink()], None
        for slot in slots:
            t: Any = slot.dtype if forced is None or slot.dtype is PRED else forced
            count = slot.count
            made.append(
                tuple(self.register(t) for _ in range(count)) if count else self.register(t)
            )
        if len(made) == 1:
            return _dest_operands(slots, made), made[0]
        return _dest_operands(slots, made), tuple(made) or None

    def _assign(
        self, opcode: str, slots: tuple[OperandSlot, ...], into: Any
    ) -> tuple[list[tree.Operand], Any]:
        """The caller's variables as destinations, checked."""
        given = [into] if len(slots) == 1 else list(into)
        if len(given) != len(slots):
            raise kernel_error(
                f"{opcode} has {len(slots)} destinations; {len(given)} variables were given"
            )
        made: list[Any] = []
        for slot, target in zip(slots, given, strict=True):
            regs = tuple(target) if slot.count else (target,)
            if len(regs) != max(1, slot.count):
                have = f"{len(regs)} variables were given"
                raise kernel_error(f"{opcode}: {slot.name} is a vector of {slot.count}; {have}")
            for reg in regs:
                if not isinstance(reg, Var):
                    raise kernel_error(
                        f"{opcode}: into= takes variables, not {reg!r}", "make one with k.var"
                    )
                if reg.k is not self:
                    raise other_trace_error(reg)
                if reg.dtype.name not in slot.accepted:
                    raise operand_mismatch(opcode, slot, reg)
            made.append(regs if slot.count else target)
        return _dest_operands(slots, made), made[0] if len(made) == 1 else tuple(made)

    # --- labels, names, declarations ---
    def label(self, stem: str) -> str:
        """A new label's name."""
        self._labels += 1
        return f"${stem}_{self._labels}"

    def place_label(self, name: str) -> None:
        self.body.append(tree.Label(name))

    def register_declarations(self) -> Iterator[tree.RegDecl]:
        """One ``.reg`` line for each class of registers that was used."""
        for declared, prefix in dict.fromkeys(CLASSES.values()):
            if count := self._counts.get(prefix):
                yield tree.RegDecl(declared, (prefix,), count + 1)


def _dest_operands(slots: tuple[OperandSlot, ...], targets: list[Any]) -> list[tree.Operand]:
    operands: list[tree.Operand] = []
    for slot, target in zip(slots, targets, strict=True):
        operand = tree.Vector(tuple(r.operand for r in target)) if slot.count else target.operand
        if slot.second:
            operand = tree.Pair(operands.pop(), operand)
        operands.append(operand)
    return operands


def _tensor(opcode: str, slot: OperandSlot, value: Any) -> tree.Address:
    """A tensor map's address with coordinates, as ``k.tensor_address`` gives it."""
    if not isinstance(value, tree.Address) or len(value.coords or ()) != slot.count:
        wanted = f"a tensor map's address with {slot.count} coordinates"
        raise kernel_error(f"{opcode}: operand {slot.name} is {wanted}, not {value!r}")
    return value


def _moved_on(value: Any) -> bool:
    """Whether a value is (register, byte offset)."""
    pair = isinstance(value, tuple) and len(value) == 2
    return pair and isinstance(value[0], Reg) and is_integer(value[1])
