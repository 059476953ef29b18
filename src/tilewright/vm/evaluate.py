"""What both evaluators share: an operation's operands in, its meaning, its results out.

A subclass provides the primitives and, for registers by number, ``get`` and ``put``.
"""

from __future__ import annotations

from typing import Any

from ..dtypes import dtype
from ..ptx.isa import OperandSpec
from .program import A, Arg, K, N, Op, Program, R, S, V
from .state import GLOBAL_BASE, LOCAL_BASE, PARAM_BASE, SHARED_BASE

WINDOWS = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE}

Value = Any


def width_of(type_: str) -> int:
    return dtype(type_).bits if type_ else 32


class Evaluator:
    """Runs operations through their rows' meanings. ``op`` is the one under way."""

    program: Program
    op: Op

    # --- what a subclass provides ---

    def get(self, index: int) -> Value:
        """The register's value, all 32 lanes."""
        raise NotImplementedError

    def put(self, index: int, value: Value) -> None:
        """Set the register where the guard holds."""
        raise NotImplementedError

    def special(self, name: str) -> Value:
        raise NotImplementedError

    # --- operations ---

    def operate(self, op: Op) -> None:
        """Evaluate one operation."""
        self.op = op
        results = op.form.row.meaning(self, op.form, *(self.read(spec, arg) for spec, arg in op.sources))
        if not op.dests or results is None:
            return
        if not isinstance(results, tuple) or isinstance(op.dests[0][1], V):
            results = (results,)
        for (spec, arg), value in zip(op.dests, results, strict=False):
            self.write(spec, arg, value)

    def read(self, spec: OperandSpec, arg: Arg) -> Any:
        """A source operand as a meaning wants it."""
        if spec.kind == "address":
            assert isinstance(arg, A)
            return self.locate(arg)
        if spec.kind == "reg":
            width = width_of(spec.type)
            if isinstance(arg, V):
                return tuple(self.value(item, width) for item in arg.items)
            return self.value(arg, width)
        return arg.bits if isinstance(arg, K) else arg

    def value(self, arg: Arg, width: int) -> Value:
        if isinstance(arg, R):
            return self.fit(self.get(arg.index), width)
        if isinstance(arg, K):
            return self.const(width, arg.bits)  # type: ignore[attr-defined]
        if isinstance(arg, N):
            return self.not_(self.get(arg.reg.index))  # type: ignore[attr-defined]
        if isinstance(arg, S):
            return self.fit(self.special(arg.name), width)
        return None

    def fit(self, value: Value, width: int) -> Value:
        """Cut or zero-extended to ``width`` bits."""
        have = self.width(value)  # type: ignore[attr-defined]
        if have == width:
            return value
        return self.trunc(value, width) if have > width else self.zext(value, width)  # type: ignore[attr-defined]

    def locate(self, a: A) -> Value:
        """An address operand as 64 bits."""
        if a.base is None:
            return self.const(64, a.offset)  # type: ignore[attr-defined]
        base = self.fit(self.get(a.base.index), 64)
        return self.add(base, self.const(64, a.offset)) if a.offset else base  # type: ignore[attr-defined]

    def space(self, name: str) -> str:
        """The state space of the operation's address: what the operand says where the form does not."""
        for spec, arg in (*self.op.sources, *self.op.dests):
            if spec.kind == "address" and isinstance(arg, A):
                return name or (arg.space if arg.base is None else spec.space)
        return name

    def write(self, spec: OperandSpec, arg: Arg, value: Any) -> None:
        """A destination gets its value, extended by its type where the register is wider."""
        if isinstance(arg, V):
            if "pack" in self.op.form.effects:
                value = self.split(value, width_of(spec.type))  # type: ignore[attr-defined]
            for item, part in zip(arg.items, value, strict=True):
                self.write(spec, item, part)
        elif isinstance(arg, R):
            width = self.program.registers[arg.index].width
            if self.width(value) < width:  # type: ignore[attr-defined]
                widen = self.sext if spec.type.startswith("s") else self.zext  # type: ignore[attr-defined]
                value = widen(value, width)
            self.put(arg.index, self.fit(value, width))

    # --- primitives that are the same for both ---

    def to_generic(self, space: str, address: Value) -> Value:
        base = self.const(64, WINDOWS.get(space, 0))  # type: ignore[attr-defined]
        return self.add(address, base)  # type: ignore[attr-defined]

    def from_generic(self, space: str, address: Value) -> Value:
        base = self.const(64, WINDOWS.get(space, 0))  # type: ignore[attr-defined]
        return self.sub(address, base)  # type: ignore[attr-defined]

    def in_space(self, space: str, address: Value) -> Value:
        if space in WINDOWS:
            high = self.lshr(address, self.const(32, 32))  # type: ignore[attr-defined]
            return self.cmp("eq", high, self.const(64, WINDOWS[space] >> 32))  # type: ignore[attr-defined]
        return self.cmp("ge", address, self.const(64, GLOBAL_BASE))  # type: ignore[attr-defined]

    def fence(self, kind: str) -> None:
        """Accesses happen in order here; nothing is left to order."""

    def nanosleep(self, a: Value) -> None:
        """A warp that loops gives way at its branch."""

    def ret(self) -> None:
        self.exit()  # type: ignore[attr-defined]
