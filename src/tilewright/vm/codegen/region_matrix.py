"""Matrix instructions in compiled code: registers are passed in areas of the frame."""

from __future__ import annotations

import llvmlite.ir as ir

from ...mma import MmaInstruction
from ...native.llvm_types import I64
from ..engine import ldmatrix_stmatrix, wgmma_operands
from ..llvm.expressions import Expr
from ..llvm.vector_memory import shuffled
from ..matrix.mma_function import KIND, symbol
from ..matrix.mma_plan import selected
from ..program.evaluator import Value
from .region_context import RegionContext, RegionPart
from .region_fast_memory import FastMemory


class MatrixInstructions(RegionPart):
    """The primitives of ``ldmatrix``, ``stmatrix``, ``mma`` and ``wmma``."""

    def __init__(self, m: RegionContext, fast: FastMemory) -> None:
        super().__init__(m)
        self.fast = fast

    def ldmatrix(self, space: str, address: Value, count: int, trans: bool) -> tuple[Value, ...]:
        self.m.store_area("addresses", address)
        arguments = (
            self.m.mask,
            self.m.space_code(space),
            int(trans),
            self.m.at("results"),
            count,
        )
        self.m.call_checked(ldmatrix_stmatrix.load_matrix, *arguments, self.m.pc)
        return tuple(self.m.load_area("results", 32, i) for i in range(count))

    def stmatrix(self, space: str, address: Value, values: tuple[Value, ...], trans: bool) -> None:
        self.fast.store_addresses(address)
        for i, value in enumerate(values):
            self.m.store_area("operands", value, i)
        arguments = (
            self.m.mask,
            self.m.space_code(space),
            int(trans),
            self.m.at("operands"),
            len(values),
        )
        self.m.call_checked(ldmatrix_stmatrix.store_matrix, *arguments, self.m.pc)

    def mma(
        self,
        instruction: MmaInstruction,
        a: tuple[Value, ...],
        b: tuple[Value, ...],
        c: tuple[Value, ...],
        metadata: Value | None = None,
        selectors: tuple[int, ...] = (),
        scale_a: Value | None = None,
        scale_b: Value | None = None,
    ) -> tuple[Value, ...]:
        row = instruction.on(self.m.arch)
        extra = {"metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
        copies = row.copies(selectors)
        groups = {"a": a, "b": b, "c": c, "d": ()} | {
            name: () if x is None else (self.selected(row, name, x, copies.get(name, 0)),)
            for name, x in extra.items()
        }
        starts = self.m.store_registers("operands", *groups.values())
        pointers = dict(zip(groups, starts, strict=True))
        pointers["d"] = self.m.at("results")
        name = symbol(row)
        function = self.m.module.globals.get(name) or ir.Function(self.m.module, KIND, name)
        status = self.b.call(function, list(pointers.values()))
        if row.sparse:
            status = self.b.select(self.m.compare("!=", self.m.mask, 0), status, I64(0))
            self.m.call_checked(wgmma_operands.check_metadata, status, self.m.pc)
        d = row.fragment("d")
        return tuple(self.m.load_area("results", d.word, i) for i in range(d.count))

    def selected(self, row: MmaInstruction, name: str, value: Value, copy: int) -> Value:
        """Move a copy of metadata or scales to the lanes and bits of copy 0."""
        lanes_, shift = selected(row, name, copy)
        shuffled_ = shuffled(Expr(self.b, value), lanes_)
        return (shuffled_ >> shift if shift else shuffled_).v
