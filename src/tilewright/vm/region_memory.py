"""Memory in compiled code: registers go through the frame's areas to native code and back.

Addresses lie in ``addresses``, what is stored in ``operands``, what was loaded in ``results``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import llvmlite.ir as ir

from ..mma import Instruction
from . import access, copies, loads, warpgroup
from .evaluate import Value, combine
from .frame import LANES, Frame
from .llvm_expr import Expr
from .llvm_memory import shuffled
from .llvm_mma import KIND, symbol
from .llvm_mma_plan import selected
from .native import I1, I32, I64, POINTER
from .state import SPACES, Warp

I16 = ir.IntType(16)


class MemoryAccess(Frame):
    """What a region makes of the primitives that touch memory, and of matrix instructions."""

    arch: str

    def _space(self, name: str) -> int:
        return SPACES[self.space(name)]

    def load(self, space: str, address: Value, width: int, count: int = 1) -> tuple[Value, ...]:
        self.set_line("addresses", address)
        common = (self.mask, self._space(space), self.at("results"))
        if width == 32:
            self.check(self.runtime(loads.load_32, *common, count, self.op.pc))
        else:
            self.check(self.runtime(loads.load_n, *common, width // 8, count, self.op.pc))
        return tuple(self.line("results", width, e) for e in range(count))

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        self.set_line("addresses", address)
        for e, value in enumerate(values):
            self.set_line("operands", value, e)
        size = self.width(values[0]) // 8
        common = (self.mask, self._space(space), self.at("operands"))
        if size == 4:
            self.check(self.runtime(loads.store_32, *common, len(values), self.op.pc))
        else:
            self.check(self.runtime(loads.store_n, *common, size, len(values), self.op.pc))

    def reach(self, space: str, address: Value, width: int) -> None:
        self.set_line("addresses", address)
        common = (self.mask, self._space(space), width // 8)
        self.check(self.runtime(access.reach, *common, self.op.pc))

    # --- atomics ---

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        """One lane after another, each through the same vector code (only its own lane counts); of
        halves, whose sums take long, as many lanes at once as have places of their own."""
        width = self.width(operands[0])
        in_global = self.in_space("global", address)
        if self.space(space):
            in_global = self.const(1, self.space(space) == "global")
        self.set_line("addresses", address)
        resolved = self.runtime(
            access.resolve_lanes, self.mask, self._space(space), width // 8, self.op.pc
        )
        self.check(resolved)
        entry = self.b.block
        head, body, done = (self.block_of() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        left = self.b.phi(I32)
        left.add_incoming(self.mask, entry)
        self.b.cbranch(self.is_("!=", left, 0), body, done)
        self.b.position_at_end(body)
        how = self._together if type_.startswith(("f16", "bf16")) else self._alone
        went = how(left, width, lambda old: combine(self, op, type_, old, operands, in_global))
        left.add_incoming(self.b.and_(left, self.b.not_(went)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        return self.line("results", width)

    def _alone(self, left: ir.Value, width: int, new: Callable[[Value], Value]) -> ir.Value:
        """The first lane; its bit."""
        lane = self.b.zext(self.b.cttz(left, I1(0)), I64)
        old, target = self._take(lane, width)
        self.b.store(self.b.extract_element(new(old), lane), target)
        return self.b.and_(left, self.b.neg(left))

    def _together(self, left: ir.Value, width: int, new: Callable[[Value], Value]) -> ir.Value:
        """Lanes that have no place in common; their bits."""
        went = self.b.trunc(self.runtime(loads.at_once, left), I32)
        self.runtime(loads.take, went, width // 8)
        self.set_line("operands", new(self.line("results", width)))
        self.runtime(loads.give, went, width // 8)
        return went

    def _take(self, lane: ir.Value, width: int) -> tuple[Value, ir.Value]:
        """What memory holds for a lane, in all lanes and in ``results``; and where."""
        where = self.b.gep(self.at("addresses"), [lane], source_etype=I64)
        target = self.b.inttoptr(self.b.load(where, typ=I64), POINTER)
        element = ir.IntType(width)
        old = self.b.load(target, typ=element)
        self.b.store(old, self.b.gep(self.at("results"), [lane], source_etype=element))
        return self._splat(old), target

    # --- cp.async ---

    def cp_async(self, shared: Value, global_: Value, size: int, valid: Value) -> None:
        self.set_line("addresses", shared)
        self.set_line("addresses2", global_)
        self.set_line("operands", valid)
        arguments = (self.mask, size, self.at("operands"), self.op.pc)
        self.check(self.runtime(copies.copy_async, *arguments))

    def cp_async_commit(self) -> None:
        self.check(self.runtime(copies.commit_async, self.mask))

    def cp_async_wait(self, pending: int) -> None:
        self.check(self.runtime(copies.wait_async, self.mask, pending))

    # --- matrices ---

    def ldmatrix(self, space: str, address: Value, count: int, trans: bool) -> tuple[Value, ...]:
        self.set_line("addresses", address)
        where = (self.mask, self._space(space))
        arguments = (*where, int(trans), self.at("results"), count, self.op.pc)
        self.check(self.runtime(loads.load_matrix, *arguments))
        return tuple(self.line("results", 32, i) for i in range(count))

    def mma(
        self,
        instruction: Instruction,
        a: tuple[Value, ...],
        b: tuple[Value, ...],
        c: tuple[Value, ...],
        metadata: Value | None = None,
        selectors: tuple[int, ...] = (),
        scale_a: Value | None = None,
        scale_b: Value | None = None,
    ) -> tuple[Value, ...]:
        row = instruction.on(self.arch)
        extra = {"metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
        copies = row.copies(selectors)
        held = {"a": a, "b": b, "c": c, "d": ()} | {
            name: () if x is None else (self._selected(row, name, x, copies.get(name, 0)),)
            for name, x in extra.items()
        }
        starts = dict(zip(held, self._lines("operands", *held.values()), strict=True))
        starts["d"] = self.at("results")
        name = symbol(row)
        function = self.module.globals.get(name) or ir.Function(self.module, KIND, name)
        status = self.b.call(function, list(starts.values()))
        if row.sparse:
            status = self.b.select(self.is_("!=", self.mask, 0), status, I64(0))
            self.check(self.runtime(warpgroup.selects_nothing, status, self.op.pc))
        d = row.fragment("d")
        return tuple(self.line("results", d.word, i) for i in range(d.count))

    def _lines(self, name: str, *groups: tuple[Value, ...]) -> Iterator[ir.Value]:
        """Registers in an area, one after the other; where each group begins."""
        offset = 0
        for group in groups:
            yield self.at(name, offset)
            for value in group:
                self.b.store(value, self.at(name, offset), align=64)
                offset += LANES * self.width(value) // 8
        assert offset <= Warp.fields[name][1].size, f"more registers than {name} holds"

    def _selected(self, row: Instruction, name: str, value: Value, copy: int) -> Value:
        """Metadata or scales where copy 0 of them is."""
        lanes_, shift = selected(row, name, copy)
        moved = shuffled(Expr(self.b, value), lanes_)
        return (moved >> shift if shift else moved).v
