"""Runs one instruction's meaning on 32 lanes of Python integers, with the NumPy evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ptx.isa import form
from tilewright.ptx.isa.compose import width_of
from tilewright.vm.step.numpy_primitives import LANES, NumpyValues, integers, value


class Machine(NumpyValues):
    """All lanes are there, so ``convergent`` has nothing to wait for."""

    def __init__(self) -> None:
        self.flag = self.const(1, 0)

    def carry(self) -> Any:
        return self.flag

    def set_carry(self, p: Any) -> None:
        self.flag = p

    def convergent(self, members: Any) -> None:
        pass


def lanes(x: int | list[int], width: int) -> Any:
    """One integer for all lanes, or a list of up to 32 (the last fills up)."""
    given = x if isinstance(x, list) else [x]
    given = given + [given[-1]] * (LANES - len(given))
    return value(np.array([i & ((1 << width) - 1) for i in given], dtype=object), width)


def run(opcode: str, *operands: Any, machine: Machine | None = None) -> Any:
    """The result's lanes as unsigned integers; a list of such lists for two destinations."""
    m, f = machine or Machine(), form(opcode)
    sources = next(
        s for specs in f.signatures if len(s := [x for x in specs if not x.dest]) == len(operands)
    )
    values = [
        x if spec.kind == "imm" else lanes(x, width_of(spec.type))
        for spec, x in zip(sources, operands, strict=True)
    ]
    result = f.row.meaning(m, f, *values)
    if isinstance(result, tuple):
        return [integers(r).tolist() for r in result]
    return integers(result).tolist()


def one(opcode: str, *operands: int) -> Any:
    """The result in lane 0."""
    result = run(opcode, *operands)
    return [r[0] for r in result] if isinstance(result[0], list) else result[0]
