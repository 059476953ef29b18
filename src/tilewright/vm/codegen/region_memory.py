"""Memory in compiled code: registers go through the frame's areas to native code and back.

Addresses lie in ``addresses``, what is stored in ``operands``, what was loaded in ``results``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import llvmlite.ir as ir

from ...mma import Instruction
from ...native.llvm_types import I1, I32, I64, POINTER
from ..engine import async_copies, ldmatrix_stmatrix, memory_access, vector_access, wgmma_operands
from ..llvm.expressions import Expr
from ..llvm.llvm_primitives import Scalars
from ..llvm.vector_memory import shuffled
from ..matrix.mma_function import KIND, symbol
from ..matrix.mma_plan import selected
from ..program.evaluator import Value, combine
from ..state.records import WRITES, Warp
from .frame_access import LANES
from .region_fast_memory import ELEMENTS, Direct, Spot

I16 = ir.IntType(16)


class MemoryAccess(Direct):
    """What a region makes of the primitives that touch memory, and of matrix instructions."""

    arch: str

    def load(self, space: str, address: Value, width: int, count: int = 1) -> tuple[Value, ...]:
        host = self.one_host(space, address, width // 8 * count)
        if host is not None:
            return self.load_one(host, width, count)
        spot = self.spot(space, address, width // 8, count)
        if spot is None:
            return tuple(self._load(space, address, width, count))
        with self.b.if_else(spot.right, likely=True) as (then, otherwise):
            with then:
                near, came = self.load_at(spot, width, count), self.b.block
            with otherwise:
                far, went = self._load_apart(spot, space, address, width, count), self.b.block
        return tuple(self.either((x, came), (y, went)) for x, y in zip(near, far, strict=True))

    def _load_apart(
        self, spot: Spot, space: str, address: Value, width: int, count: int
    ) -> list[Value]:
        if count > 1:
            return self._load(space, address, width, count)
        right, offsets = self.apart(spot.window, spot.addresses, spot.unit)
        with self.b.if_else(right, likely=True) as (then, otherwise):
            with then:
                near, came = self.load_apart(spot, offsets, width), self.b.block
            with otherwise:
                (far,), went = self._load(space, address, width, count), self.b.block
        return [self.either((near, came), (far, went))]

    def _load(self, space: str, address: Value, width: int, count: int) -> list[Value]:
        self.show(address)
        common = (self.mask, self._space(space), self.at("results"))
        if width == 32 and count == 1:
            self.check(self.runtime(vector_access.load_32, *common, self.op.pc))
        elif width == 32:
            self.check(self.runtime(vector_access.load_32s, *common, count, self.op.pc))
        else:
            self.check(self.runtime(vector_access.load_n, *common, width // 8, count, self.op.pc))
        return [self.line("results", width, e) for e in range(count)]

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        spot = self.spot(space, address, self.width(values[0]) // 8, len(values), writes=True)
        if spot is None:
            self._store(space, address, values)
            return
        with self.b.if_else(spot.right, likely=True) as (then, otherwise):
            with then:
                self.store_at(spot, values)
            with otherwise:
                self._store_apart(spot, space, address, values)

    def _store_apart(
        self, spot: Spot, space: str, address: Value, values: tuple[Value, ...]
    ) -> None:
        if len(values) > 1:
            self._store(space, address, values)
            return
        right, offsets = self.apart(spot.window, spot.addresses, spot.unit)
        with self.b.if_else(right, likely=True) as (then, otherwise):
            with then:
                self.store_apart(spot, offsets, values[0])
            with otherwise:
                self._store(space, address, values)

    def _store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        self.show(address)
        for e, value in enumerate(values):
            self.set_line("operands", value, e)
        size = self.width(values[0]) // 8
        common = (self.mask, self._space(space), self.at("operands"))
        if size == 4 and len(values) == 1:
            self.check(self.runtime(vector_access.store_32, *common, self.op.pc))
        elif size == 4:
            self.check(self.runtime(vector_access.store_32s, *common, len(values), self.op.pc))
        else:
            self.check(self.runtime(vector_access.store_n, *common, size, len(values), self.op.pc))

    def reach(self, space: str, address: Value, width: int) -> None:
        self.set_line("addresses", address)
        common = (self.mask, self._space(space), width // 8)
        self.check(self.runtime(memory_access.reach, *common, self.op.pc))

    # --- atomics ---

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        """One lane after another; of halves, whose sums take long in vectors and longer alone, as
        many at once as have places of their own."""
        width = self.width(operands[0])
        in_global = self.in_space("global", address)
        if self.space(space):
            in_global = self.const(1, self.space(space) == "global")
        self._resolve(space, address, width // 8)
        places = list(self._lines("operands", *((o,) for o in operands)))
        entry = self.b.block
        head, body, done = (self.block_of() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        left = self.b.phi(I32)
        left.add_incoming(self.mask, entry)
        self.b.cbranch(self.is_("!=", left, 0), body, done)
        self.b.position_at_end(body)
        if type_.startswith(("f16", "bf16")):
            new = partial(combine, self, op, type_, operands=operands, in_global=in_global)
            went = self._together(left, width, new)
        else:
            went = self._alone(left, width, op, type_, places, self.word(in_global))
        left.add_incoming(self.b.and_(left, self.b.not_(went)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        return self.line("results", width)

    def _resolve(self, space: str, address: Value, size: int) -> None:
        """Host addresses to ``addresses``."""
        place = self.space(space)
        window = self.window(place, writes=True) if self.small and size in ELEMENTS else None
        if window is None:
            self._resolve_lanes(space, address, size)
            return
        right, offsets = self.apart(window, self.short(window, address), size)
        with self.b.if_else(right, likely=True) as (then, otherwise):
            with then:
                hosts = self.b.add(self._splat(window.start), self.zext(offsets, 64))
                self.set_line("addresses", hosts)
            with otherwise:
                self._resolve_lanes(space, address, size)

    def _resolve_lanes(self, space: str, address: Value, size: int) -> None:
        self.show(address)
        common = (self.mask, self._space(space) + WRITES, size)
        self.check(self.runtime(memory_access.resolve_lanes, *common, self.op.pc))

    def _alone(
        self,
        left: ir.Value,
        width: int,
        op: str,
        type_: str,
        operands: list[ir.Value],
        in_global: ir.Value,
    ) -> ir.Value:
        """The first lane; its bit."""
        lane, element = self.b.zext(self.b.cttz(left, I1(0)), I64), ir.IntType(width)
        where = self.b.gep(self.at("addresses"), [lane], source_etype=I64)
        target = self.b.inttoptr(self.b.load(where, typ=I64), POINTER)
        places = (self.b.gep(o, [lane], source_etype=element) for o in operands)
        given = tuple(self.b.load(place, typ=element) for place in places)
        bit = self.b.and_(left, self.b.neg(left))
        old = self.b.load(target, typ=element)
        if self.op.dests:
            self.b.store(old, self.b.gep(self.at("results"), [lane], source_etype=element))
        there = self.is_("!=", self.b.and_(in_global, bit), 0)
        one = Scalars(self.b, self.module, bit)
        self.b.store(combine(one, op, type_, old, given, there), target)
        return bit

    def _together(self, left: ir.Value, width: int, new: Callable[..., Value]) -> ir.Value:
        """Lanes that have no place in common; their bits."""
        went = self.b.trunc(self.runtime(vector_access.at_once, left), I32)
        self.runtime(vector_access.take, went, width // 8)
        self.set_line("operands", new(self.line("results", width)))
        self.runtime(vector_access.give, went, width // 8)
        return went

    # --- cp.async ---

    def cp_async(self, shared: Value, global_: Value, size: int, valid: Value) -> None:
        self.set_line("addresses", shared)
        self.set_line("addresses2", global_)
        self.set_line("operands", valid)
        arguments = (self.mask, size, self.at("operands"), self.op.pc)
        self.check(self.runtime(async_copies.copy_async, *arguments))

    def cp_async_commit(self) -> None:
        self.check(self.runtime(async_copies.commit_async, self.mask))

    def cp_async_wait(self, pending: int) -> None:
        self.check(self.runtime(async_copies.wait_async, self.mask, pending))

    # --- matrices ---

    def ldmatrix(self, space: str, address: Value, count: int, trans: bool) -> tuple[Value, ...]:
        self.set_line("addresses", address)
        where = (self.mask, self._space(space))
        arguments = (*where, int(trans), self.at("results"), count, self.op.pc)
        self.check(self.runtime(ldmatrix_stmatrix.load_matrix, *arguments))
        return tuple(self.line("results", 32, i) for i in range(count))

    def stmatrix(self, space: str, address: Value, values: tuple[Value, ...], trans: bool) -> None:
        self.show(address)
        for i, value in enumerate(values):
            self.set_line("operands", value, i)
        arguments = (self.mask, self._space(space), int(trans), self.at("operands"), len(values))
        self.check(self.runtime(ldmatrix_stmatrix.store_matrix, *arguments, self.op.pc))

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
        async_copies = row.copies(selectors)
        held = {"a": a, "b": b, "c": c, "d": ()} | {
            name: () if x is None else (self._selected(row, name, x, async_copies.get(name, 0)),)
            for name, x in extra.items()
        }
        starts = dict(zip(held, self._lines("operands", *held.values()), strict=True))
        starts["d"] = self.at("results")
        name = symbol(row)
        function = self.module.globals.get(name) or ir.Function(self.module, KIND, name)
        status = self.b.call(function, list(starts.values()))
        if row.sparse:
            status = self.b.select(self.is_("!=", self.mask, 0), status, I64(0))
            self.check(self.runtime(wgmma_operands.selects_nothing, status, self.op.pc))
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
