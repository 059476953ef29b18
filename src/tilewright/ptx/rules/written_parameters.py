"""Which pointer parameters a kernel may write through; a launch rejects read-only arrays for them.

A flow-insensitive taint analysis of registers and memory. ``taint`` has two bits for each
parameter, one for its value and one for its own address. The result is conservative, as long as the
memory that a kernel reads holds no pointers stored by others.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..isa import OperandSpec
from ..isa.lookup import find
from ..system_functions import ASSERTFAIL, VPRINTF
from ..tree import (
    Function,
    Instruction,
    MemoryOperand,
    Negated,
    Not,
    Operand,
    Pair,
    Register,
    Selected,
    Symbol,
    Vector,
)

_READ_ONLY = {VPRINTF.name, ASSERTFAIL.name}  # functions that write nothing


def written_parameters(function: Function) -> frozenset[int]:
    """The indices of the parameters through which the kernel may write, by stores, atomics or
    copies, or by calling a function with such a pointer.
    """
    flow = _TaintAnalysis(function)
    code = list(function.instructions())
    while sum(flow.step(i) for i in code):  # a sum: any() would stop at the first change
        pass
    return frozenset(i for i in range(len(function.params)) if flow.written >> 2 * i & 1)


class _TaintAnalysis:
    """The taint of each register, of all memory, and of the addresses that are written."""

    def __init__(self, function: Function) -> None:
        self.params = {p.name: 2 << 2 * i for i, p in enumerate(function.params)}
        self.values = sum(bit >> 1 for bit in self.params.values())
        self.registers: dict[str, int] = {}
        self.memory = self.written = 0

    def step(self, i: Instruction) -> bool:
        """Propagate taint through one instruction; return whether anything changed."""
        before = self.memory, self.written
        changed = self._run(i)
        return changed or before != (self.memory, self.written)

    def _run(self, i: Instruction) -> bool:
        form = find(i.opcode)
        specs = form.signature(i.operands) if form else None
        if form is None or specs is None or "call" in form.effects:
            return self._call(i)
        pairs = list(zip([s for s in specs if not s.second], i.operands, strict=False))
        touches = "memory" in form.effects
        addresses = ("address", "map") if touches else ()  # do not taint what a load returns
        read = [
            (s, o) for s, o in pairs if s.kind not in addresses and (not s.dest or s.read_write)
        ]
        taint = self._taint([o for s, o in read if s.type != "pred"])
        if touches:
            taint |= self._loaded(pairs)
            if "reads" not in form.effects:
                self._write(pairs)
        return self._assign([o for s, o in pairs if s.dest], taint)

    def _write(self, pairs: list[tuple[OperandSpec, Operand]]) -> None:
        for n, (spec, operand) in enumerate(pairs):
            if spec.kind == "address" and spec.name != "src":
                self.written |= self._taint([operand]) & self.values
            elif spec.kind == "map" and n == 0:
                self.written |= (self._taint([operand]) >> 1 | self.memory) & self.values
            elif spec.kind not in ("address", "map"):
                self.memory |= self._taint([operand])

    def _call(self, i: Instruction) -> bool:
        """A function or unknown instruction: it may write, store and return all its operands."""
        callee = i.operands[1] if len(i.operands) > 1 else None
        taint = self._taint(i.operands) | self.memory
        taint |= taint >> 1 & self.values  # the parameters whose addresses it has
        if not (isinstance(callee, Symbol) and callee.name in _READ_ONLY):
            self.written |= taint & self.values
            self.memory |= taint
        return self._assign(i.operands[:1], taint)

    def _loaded(self, pairs: list[tuple[OperandSpec, Operand]]) -> int:
        """The taint of a loaded value: of memory, and of parameters read at their own addresses."""
        addresses = [o for s, o in pairs if s.kind == "address"]
        direct = self._taint(addresses) >> 1 & self.values
        named = all(isinstance(o, MemoryOperand) and isinstance(o.base, Symbol) for o in addresses)
        return direct if direct and named else direct | self.memory

    def _taint(self, operands: list[Operand] | tuple[Operand, ...]) -> int:
        taint = 0
        for part in _parts(operands):
            if isinstance(part, Symbol):
                taint |= self.params.get(part.name, 0)
            else:
                taint |= self.registers.get(_register_name(part), 0)
        return taint

    def _assign(self, operands: list[Operand] | tuple[Operand, ...], taint: int) -> bool:
        changed = False
        for part in _parts(operands):
            if isinstance(part, Register):
                name = _register_name(part)
                known = self.registers.get(name, 0)
                self.registers[name] = known | taint
                changed |= known | taint != known
        return changed


def _register_name(register: Register) -> str:
    """The register ``%v`` of a component ``%v.y``."""
    return register.name.partition(".")[0]


def _parts(operands: list[Operand] | tuple[Operand, ...]) -> Iterator[Register | Symbol]:
    """The registers and names in operands."""
    for o in operands:
        if isinstance(o, Register | Symbol):
            yield o
        elif isinstance(o, MemoryOperand):
            yield from _parts((o.base,))
        elif isinstance(o, Vector):
            yield from _parts(o.items)
        elif isinstance(o, Pair):
            yield from _parts((o.first, o.second))
        elif isinstance(o, Not | Negated):
            yield from _parts((o.operand,))
        elif isinstance(o, Selected):
            yield o.reg
