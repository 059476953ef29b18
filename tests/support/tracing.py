"""What the builder's tests share: a kernel's instructions as lines, and straight-line code run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.builder import Builder, Traced, trace
from tilewright.builder.kernel_parameters import parameters
from tilewright.ptx import check, parse, tree
from tilewright.ptx.isa import OperandSpec, form
from tilewright.ptx.syntax.printer import print_statement
from tilewright.vm.step.numpy_primitives import NumpyValues, integers

M = NumpyValues()


def specs(body: Callable[..., Any], types: Sequence[str]) -> dict[str, str]:
    return dict(zip(body.__code__.co_varnames[1 : 1 + len(types)], types, strict=True))


def traced(body: Callable[..., Any], *types: str, **options: Any) -> Traced:
    """``body(k, a, b, …)`` as a kernel; it is sound, and the same after printing and parsing."""
    made = trace(body, params=specs(body, types), name="f", **options)
    check(made.module)
    assert parse(made.ptx) == made.module
    return made


def lines(body: Callable[..., Any], *types: str) -> list[str]:
    """A kernel's instructions and labels, without the reading of parameters and the last ret."""
    kept = [
        " ".join(print_statement(s).split()).rstrip(";")
        for s in traced(body, *types, lines=False).entry.body
        if isinstance(s, tree.Instruction | tree.Label | tree.Directive)
    ]
    assert kept[-1] == "ret"
    return [line for line in kept[:-1] if not line.startswith(("ld.param", "cvta"))]


def evaluate(body: Callable[..., Any], types: Sequence[str], values: Sequence[int]) -> list[int]:
    """The registers that ``body(k, …)`` returns, run in straight line for these parameters."""
    k = Builder(line_info=False)
    params = parameters(body, specs(body, types))
    results = body(k, *[p.load(k) for p in params])
    machine = Machine({p.symbol: value for p, value in zip(params, values, strict=True)})
    for instruction in (*k.emitter.prologue, *k.emitter.body):
        machine.step(instruction)
    return [r if isinstance(r, int) else machine.number(r.operand) for r in results]


class Machine:
    """Registers, and the meaning of one instruction after the other."""

    def __init__(self, parameters: dict[str, int]) -> None:
        self.parameters = parameters
        self.registers: dict[str, Any] = {}

    def number(self, reg: tree.Register) -> int:
        return int(integers(self.registers[reg.name])[0])

    def step(self, i: tree.Instruction) -> None:
        f = form(i.opcode)
        dest, source = next(filter(None, (self.fit(s, i.operands) for s in f.signatures)))
        if source[0].kind == "address":
            made = M.const(width(dest[0]), self.parameters[i.operands[1].base.name])
        else:
            given = zip(source, i.operands[1:], strict=True)
            made = f.row.meaning(M, f, *[self.value(s, o) for s, o in given])
        self.write(dest[0], i.operands[0], made)

    def fit(self, signature: tuple[OperandSpec, ...], operands: tuple[Any, ...]) -> Any:
        """The destinations and sources of the signature that these operands have the shape of."""
        matching = [s for s in signature if not s.second]
        shape = [isinstance(o, tree.Vector) for o in operands]
        if [s.count > 0 for s in matching] != shape:
            return None
        return [s for s in matching if s.dest], [s for s in matching if not s.dest]

    def value(self, spec: OperandSpec, operand: Any) -> Any:
        if isinstance(operand, tree.Vector):
            return tuple(self.value(spec, item) for item in operand.items)
        if isinstance(operand, tree.Register):
            return self.registers[operand.name]
        return operand.value if spec.kind == "imm" else M.const(width(spec), operand.value)

    def write(self, spec: OperandSpec, operand: Any, made: Any) -> None:
        if isinstance(operand, tree.Vector):
            for item, part in zip(operand.items, M.split(made, width(spec)), strict=True):
                self.registers[item.name] = part
        else:
            self.registers[operand.name] = made[0] if isinstance(made, tuple) else made


def width(spec: OperandSpec) -> int:
    return 1 if spec.type == "pred" else int("".join(c for c in spec.type if c.isdigit()))
