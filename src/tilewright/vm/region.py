"""Blocks become machine code: the compiled evaluator.

A region is one LLVM function over a run of a kernel's blocks: ``i64 region(ptr warp)`` goes on at ``warp.block`` until
the warp must wait, ends, faults, or leaves for another region. Inside a block registers are LLVM values; what crosses blocks is
read from the frame at its first use and written back at the block's end. In a kernel whose branches are all uniform the
masks cost nothing; otherwise a write keeps the lanes that are elsewhere.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir

from .. import mma
from ..mma import Instruction
from .evaluate import Evaluator, Value
from .llvm_mma import symbol
from .llvm_values import LlvmValues
from .native import I8, I32, I64, POINTER, Native
from .program import CodeBlock, Op, Program, is_exit_block
from . import access, scheduler
from .state import (
    DONE, FAULT, JUMP, SPACES, TRAP, YIELD, Cta, Launch, Warp, Worker,
)  # fmt: skip

I16 = ir.IntType(16)
LANES = 32


def lanes(width: int) -> ir.VectorType:
    return ir.VectorType(ir.IntType(width), LANES)


def region_name(program: Program, first: int) -> str:
    return f"region_{first}"


class Region(LlvmValues, Evaluator):
    """Compiles blocks ``first`` … ``last - 1`` of a program into one function of ``module``."""

    def __init__(self, program: Program, module: ir.Module, first: int, last: int, arch: str) -> None:
        self.program, self.module, self.arch = program, module, arch
        self.range = range(first, last)
        self.function = ir.Function(module, ir.FunctionType(I64, [POINTER]), region_name(program, first))
        self.warp = self.function.args[0]
        self.entry = self.function.append_basic_block("entry")
        self.heads = {i: self.function.append_basic_block(f"block{i}") for i in self.range}
        super().__init__(ir.IRBuilder(self.entry), module, I32(0))
        self.faulted = self._returning(FAULT)
        self.left = self._returning(JUMP)
        self.dispatch: ir.Block | None = None
        self.b.branch(self._switch())

    @property
    def b(self) -> ir.IRBuilder:
        return self.builder

    def compile(self) -> None:
        for index in self.range:
            self.block(self.program.blocks[index])

    def _returning(self, code: int) -> ir.Block:
        block = self.function.append_basic_block()
        ir.IRBuilder(block).ret(I64(code))
        return block

    def _switch(self) -> ir.Block:
        """Go to the block that ``warp.block`` names, or leave."""
        block = self.function.append_basic_block("switch")
        at = ir.IRBuilder(block)
        target = at.load(self._field(at, "block"), typ=I64)
        switch = at.switch(target, self.left)
        for index, head in self.heads.items():
            switch.add_case(I64(index), head)
        self.switch = block
        return block

    # --- the frame ---

    def _field(self, at: ir.IRBuilder, name: str) -> ir.Value:
        return at.gep(self.warp, [I64(Warp.offset(name))], source_etype=I8)

    def peek(self, name: str, type_: ir.Type = I64) -> ir.Value:
        return self.b.load(self._field(self.b, name), typ=type_)

    def poke(self, name: str, value: ir.Value) -> None:
        self.b.store(value, self._field(self.b, name))

    def follow(self, *path: tuple[type, str], type_: ir.Type = I32, index: int = 0) -> ir.Value:
        """A scalar at the end of a path of records from the warp: (Warp, "cta"), (Cta, "index")."""
        pointer = self.warp
        for record, name in path[:-1]:
            place = self.b.gep(pointer, [I64(record.offset(name))], source_etype=I8)
            pointer = self.b.load(place, typ=POINTER)
        record, name = path[-1]
        offset = record.offset(name) + index * (type_.width // 8)
        return self.b.load(self.b.gep(pointer, [I64(offset)], source_etype=I8), typ=type_)

    def slot(self, index: int) -> ir.Value:
        return self.b.gep(self.warp, [I64(self.program.slots[index])], source_etype=I8)

    def load_slot(self, index: int) -> Value:
        width = self.program.registers[index].width
        if width == 1:
            return self.b.bitcast(self.b.load(self.slot(index), typ=I32), lanes(1))
        return self.b.load(self.slot(index), typ=lanes(width), align=64)

    def store_slot(self, index: int, value: Value) -> None:
        if self.program.registers[index].width == 1:
            self.b.store(self.b.bitcast(value, I32), self.slot(index))
        else:
            self.b.store(value, self.slot(index), align=64)

    def get(self, index: int) -> Value:
        if index not in self.values:
            self.values[index] = self.load_slot(index)
        return self.values[index]

    def put(self, index: int, value: Value) -> None:
        if self.guard is not None:
            value = self.b.select(self.guard, value, self.get(index))
        self.values[index] = value
        if index in self.program.kept:
            self.dirty[index] = None

    def flush(self) -> None:
        """Write what this block changed back to the frame."""
        active = self.b.bitcast(self.active_mask, lanes(1)) if self.program.divergent and self.dirty else None
        for index in self.dirty:
            value = self.values[index]
            if active is not None:
                value = self.b.select(active, value, self.load_slot(index))
            self.store_slot(index, value)
        self.dirty.clear()

    # --- blocks ---

    def block(self, block: CodeBlock) -> None:
        self.current = block
        self.values: dict[int, Value] = {}
        self.dirty: dict[int, None] = {}
        self.b.position_at_end(self.heads[block.index])
        self.active_mask = self.peek("active", I32)
        self.ended = False
        for op in block.ops:
            self.prepare(op)
            self.operate(op)
        if not self.ended:
            self.guard = None
            if block.index + 1 < len(self.program.blocks):
                self.flush()
                self.goto(block.index + 1)
            else:
                self.leave_lanes(self.active_mask, None)

    def prepare(self, op: Op) -> None:
        """Guard and mask of an operation."""
        self.op = op
        self.guard = self.get(op.guard.index) if op.guard else None
        if self.guard is not None and op.negated:
            self.guard = self.b.not_(self.guard)
        self.mask = self.active_mask
        if self.guard is not None:
            self.mask = self.b.and_(self.active_mask, self.b.bitcast(self.guard, I32))

    # --- control ---

    def runtime(self, function: Native, *arguments: ir.Value) -> ir.Value:
        """Call native code; numbers are widened to 64 bits."""
        widened = [
            a if isinstance(a.type, ir.PointerType) or a.type.width == 64 else self.b.zext(a, I64) for a in arguments
        ]
        return self.b.call(function.declare(self.module), widened)

    def check(self, failed: ir.Value) -> None:
        """Leave the region where native code reported a fault."""
        following = self.function.append_basic_block()
        branch = self.b.cbranch(self.b.icmp_unsigned("!=", failed, I64(0)), self.faulted, following)
        branch.set_weights([1, 1000])
        self.b.position_at_end(following)

    def goto(self, target: int) -> None:
        """The active lanes go on at block ``target``."""
        if target <= self.current.index:
            self.spend(target)
        if self.program.divergent:
            others = self.peek("others", I32)
            alone = self.function.append_basic_block()
            apart = self.function.append_basic_block()
            self.b.cbranch(self.b.icmp_unsigned("==", others, I32(0)), alone, apart)
            self.b.position_at_end(apart)
            if target <= self.current.index:
                self.poke("spin", self.b.add(self.peek("spin"), I64(1)))
            self.pend(target, self.peek("active", I32))
            self.b.branch(self.dispatcher())
            self.b.position_at_end(alone)
        if target in self.heads:
            self.b.branch(self.heads[target])
        else:
            self.poke("block", I64(target))
            self.b.branch(self.left)

    def spend(self, target: int) -> None:
        """A loop costs budget; where that is spent the warp yields."""
        left = self.b.sub(self.peek("budget"), I64(max(1, len(self.current.ops))))
        self.poke("budget", left)
        out, on = self.function.append_basic_block(), self.function.append_basic_block()
        self.b.cbranch(self.b.icmp_signed("<", left, I64(0)), out, on)
        self.b.position_at_end(out)
        self.poke("block", I64(target))
        self.b.ret(I64(YIELD))
        self.b.position_at_end(on)

    def pend(self, target: int, mask: ir.Value) -> None:
        place = self.b.gep(self.warp, [I64(self.program.pending_offset + 4 * target)], source_etype=I8)
        self.b.store(self.b.or_(self.b.load(place, typ=I32), mask), place)

    def dispatcher(self) -> ir.Block:
        """Choose another group of lanes."""
        if self.dispatch is None:
            self.dispatch = self.function.append_basic_block("dispatch")
            at = ir.IRBuilder(self.dispatch)
            code = at.call(scheduler.next_group.declare(self.module), [self.warp])
            stop = self.function.append_basic_block()
            at.cbranch(at.icmp_unsigned("==", code, I64(JUMP)), self.switch, stop)
            ir.IRBuilder(stop).ret(code)
        return self.dispatch

    def branch(self, label: str) -> None:
        self.ended = True
        self.flush()
        target = self.program.targets[label]
        if self.guard is None:
            self.goto(target)
        elif is_exit_block(self.program.blocks[target]):
            self.leave_lanes(self.mask, self.current.index + 1)
        else:
            self.part_ways(target, self.current.index + 1)

    def part_ways(self, target: int, other: int) -> None:
        """The lanes of ``self.mask`` go to ``target``, the rest to ``other``."""
        none, some = self.function.append_basic_block(), self.function.append_basic_block()
        self.b.cbranch(self.b.icmp_unsigned("==", self.mask, I32(0)), none, some)
        self.b.position_at_end(none)
        self.goto(other)
        self.b.position_at_end(some)
        if self.program.divergent:
            every, part = self.function.append_basic_block(), self.function.append_basic_block()
            self.b.cbranch(self.b.icmp_unsigned("==", self.mask, self.active_mask), every, part)
            self.b.position_at_end(part)
            self.pend(target, self.mask)
            self.pend(other, self.b.and_(self.active_mask, self.b.not_(self.mask)))
            self.b.branch(self.dispatcher())
            self.b.position_at_end(every)
        self.goto(target)

    def leave_lanes(self, mask: ir.Value, follow: int | None) -> None:
        """These lanes exit; any that stay go on at block ``follow``."""
        self.ended = True
        code = self.runtime(scheduler.lanes_exit, self.warp, mask, I64(self.op.pc))
        if follow is None:
            self.b.ret(code) if not self.program.divergent else self._after_exit(code)
            return
        done, stay = self.function.append_basic_block(), self.function.append_basic_block()
        self.b.cbranch(self.b.icmp_unsigned("==", code, I64(DONE)), done, stay)
        self.b.position_at_end(done)
        self.b.ret(I64(DONE))
        self.b.position_at_end(stay)
        if self.program.divergent:
            rest, gone = self.function.append_basic_block(), self.function.append_basic_block()
            self.b.cbranch(self.b.icmp_unsigned("!=", self.peek("active", I32), I32(0)), rest, gone)
            self.b.position_at_end(gone)
            self.b.branch(self.dispatcher())
            self.b.position_at_end(rest)
        self.goto(follow)

    def _after_exit(self, code: ir.Value) -> None:
        done = self._returning(DONE)
        self.b.cbranch(self.b.icmp_unsigned("==", code, I64(DONE)), done, self.dispatcher())

    def exit(self) -> None:
        self.flush()
        self.leave_lanes(self.mask, self.current.index + 1 if self.guard is not None else None)

    def barrier_reduce(self, index: Value, threads: Value | None, op: str, p: Value) -> Value | None:
        if not self.op.resumed:
            self.barrier(index, threads, votes=p)
            return None
        code = {"popc": 0, "or": 1, "and": 2}[op]
        word = self.runtime(scheduler.barrier_result, self.warp, self.first(index), I64(code))
        result = self._splat(self.b.trunc(word, I32))
        return result if op == "popc" else self.cmp("ne", result, self.const(32, 0))

    def barrier(
        self, index: Value, threads: Value | None, arrive: bool = False, votes: Value | None = None
    ) -> None:
        number = self.first(index)
        count = I64(0) if threads is None else self.b.zext(self.first(threads), I64)
        ayes = I32(0) if votes is None else self.b.and_(self.mask, self.b.bitcast(votes, I32))
        follow = self.current.index + 1
        self.flush()
        if self.guard is not None:
            self._guarded(follow)
        arguments = (number, count, I64(int(arrive)), ayes, I64(follow), I64(self.op.pc))
        code = self.runtime(scheduler.barrier, self.warp, *arguments)
        if arrive:
            self.check(code)
            return
        self.ended = True
        go, stop = self.function.append_basic_block(), self.function.append_basic_block()
        self.b.cbranch(self.b.icmp_unsigned("==", code, I64(JUMP)), go, stop)
        self.b.position_at_end(stop)
        self.b.ret(code)
        self.b.position_at_end(go)
        self.b.branch(self.switch)

    def _guarded(self, follow: int) -> None:
        """Only the lanes whose guard holds come to the barrier; the others go on."""
        none, some = self.function.append_basic_block(), self.function.append_basic_block()
        self.b.cbranch(self.b.icmp_unsigned("==", self.mask, I32(0)), none, some)
        self.b.position_at_end(none)
        self.goto(follow)
        self.b.position_at_end(some)
        if self.program.divergent:
            self.pend(follow, self.b.and_(self.active_mask, self.b.not_(self.mask)))
            self.poke("active", self.mask)

    def convergent(self, members: Value) -> None:
        if not self.program.divergent:
            return
        wait, ready = self.function.append_basic_block(), self.function.append_basic_block()
        others = self.peek("others", I32)
        self.b.cbranch(self.b.icmp_unsigned("!=", others, I32(0)), wait, ready)
        self.b.position_at_end(wait)
        wanted = self.first(members)
        arguments = (wanted, I64(self.current.index), I64(self.op.pc))
        code = self.runtime(scheduler.await_members, self.warp, *arguments)
        moved = self.function.append_basic_block()
        none = self.b.icmp_unsigned("==", code, I64(0))
        self.b.cbranch(none, ready, moved)
        self.b.position_at_end(moved)
        self.b.cbranch(self.b.icmp_unsigned("==", code, I64(FAULT)), self.faulted, self.switch)
        self.b.position_at_end(ready)

    def first(self, value: Value) -> ir.Value:
        """The value in the first active lane."""
        lane = self.b.cttz(self.active_mask, ir.IntType(1)(0))
        return self.b.extract_element(value, self.b.and_(lane, I32(31)))

    def trap(self, why: str) -> None:
        hit, on = self.function.append_basic_block(), self.function.append_basic_block()
        self.b.cbranch(self.b.icmp_unsigned("!=", self.mask, I32(0)), hit, on)
        self.b.position_at_end(hit)
        lane = self.b.cttz(self.mask, ir.IntType(1)(0))
        self.runtime(scheduler.fault, self.warp, I64(TRAP), I64(self.op.pc), lane, I64(0))
        self.b.branch(self.faulted)
        self.b.position_at_end(on)

    def branch_index(self, index: Value, targets: tuple[str, ...]) -> None:
        """A compare tree's worth of branches: one label after another."""
        self.ended = True
        self.flush()
        for number, label in enumerate(targets):
            chosen = self.b.icmp_unsigned("==", index, self.const(32, number))
            mask = self.b.and_(self.mask, self.b.bitcast(chosen, I32))
            self.pend(self.program.targets[label], mask)
        if self.guard is not None:
            self.pend(self.current.index + 1, self.b.and_(self.active_mask, self.b.not_(self.mask)))
        self.b.branch(self.dispatcher())

    # --- lanes and special registers ---

    def special(self, name: str) -> Value:
        return self.splat_lanes(name) if name not in SCALARS else self._splat(self._scalar(name))

    def _splat(self, scalar: ir.Value) -> Value:
        one = self.b.insert_element(ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined), scalar, I32(0))
        zeros = ir.Constant(lanes(32), [0] * LANES)
        return self.b.shuffle_vector(one, one, zeros)

    def _scalar(self, name: str) -> ir.Value:
        width, path, index = SCALARS[name]
        return self.follow(*path, type_=ir.IntType(width), index=index)

    def splat_lanes(self, name: str) -> Value:
        """The special registers that differ from lane to lane, or are computed."""
        if name.startswith("%tid."):
            return self.b.load(self._field(self.b, f"tid_{name[-1]}"), typ=lanes(32), align=64)
        if name == "%laneid":
            return self.lane()
        if name.startswith("%lanemask_"):
            lane = self.lane()
            below = self.sub(self.shl(self.const(32, 1), lane), self.const(32, 1))
            bit = self.shl(self.const(32, 1), lane)
            upto = self.or_(below, bit)
            made = {"eq": bit, "lt": below, "le": upto, "gt": self.not_(upto), "ge": self.not_(below)}
            return made[name[-2:]]
        return self._computed(name)

    def _computed(self, name: str) -> Value:
        if name == "%warpid":
            return self._splat(self.b.trunc(self.peek("index"), I32))
        if name in ("%clock64", "%globaltimer"):
            return self._splat(self._clock())
        if name in ("%clock", "%clock_hi", "%globaltimer_lo", "%globaltimer_hi"):
            high = self.b.lshr(self._clock(), I64(32 if name.endswith("hi") else 0))
            return self._splat(self.b.trunc(high, I32))
        return self.const(32, CONSTANTS.get(name, 0))

    def _clock(self) -> ir.Value:
        """Operations so far in the worker: deterministic, ever growing."""
        done = self.follow((Warp, "worker"), (Worker, "steps"), type_=I64)
        return self.b.sub(self.b.add(done, I64(1 << 30)), self.peek("budget"))

    def active(self) -> Value:
        return self._splat(self.mask)

    def carry(self) -> Value:
        return self.b.bitcast(self.peek("carry", I32), lanes(1))

    def set_carry(self, p: Value) -> None:
        self.poke("carry", self.b.bitcast(p, I32))

    # --- memory ---

    def _area(self, name: str, offset: int = 0) -> ir.Value:
        return self.b.gep(self.warp, [I64(Warp.offset(name) + offset)], source_etype=I8)

    def _addresses(self, address: Value, area: str = "addresses") -> None:
        self.b.store(address, self._area(area), align=64)

    def load(self, space: str, address: Value, width: int, count: int = 1) -> tuple[Value, ...]:
        self._addresses(address)
        out, size = self._area("results"), width // 8
        common = (self.warp, self.mask, I64(SPACES[self.space(space)]), out)
        pc = I64(self.op.pc)
        if width == 32:
            self.check(self.runtime(access.load_32, *common, I64(count), pc))
        else:
            self.check(self.runtime(access.load_n, *common, I64(size), I64(count), pc))
        step = LANES * size
        places = [self._area("results", e * step) for e in range(count)]
        return tuple(self.b.load(p, typ=lanes(width), align=min(64, step)) for p in places)

    def store(self, space: str, address: Value, values: tuple[Value, ...]) -> None:
        self._addresses(address)
        size = self.width(values[0]) // 8
        for e, value in enumerate(values):
            self.b.store(value, self._area("operands", e * LANES * size), align=min(64, LANES * size))
        common = (self.warp, self.mask, I64(SPACES[self.space(space)]), self._area("operands"))
        pc = I64(self.op.pc)
        if size == 4:
            self.check(self.runtime(access.store_32, *common, I64(len(values)), pc))
        else:
            self.check(self.runtime(access.store_n, *common, I64(size), I64(len(values)), pc))

    def atomic(self, space: str, op: str, type_: str, address: Value, *operands: Value) -> Value:
        """One lane after another, each through the same vector code (only its own lane counts)."""
        width = self.width(operands[0])
        self._addresses(address)
        code = SPACES[self.space(space)]
        arguments = (self.mask, I64(code), I64(width // 8), I64(self.op.pc))
        self.check(self.runtime(access.resolve_lanes, self.warp, *arguments))
        entry = self.b.block
        head, body, done = (self.function.append_basic_block() for _ in range(3))
        self.b.branch(head)
        self.b.position_at_end(head)
        left = self.b.phi(I32)
        left.add_incoming(self.mask, entry)
        self.b.cbranch(self.b.icmp_unsigned("!=", left, I32(0)), body, done)
        self.b.position_at_end(body)
        lane = self.b.zext(self.b.cttz(left, ir.IntType(1)(0)), I64)
        self._atomic_lane(lane, op, type_, width, operands)
        left.add_incoming(self.b.and_(left, self.b.sub(left, I32(1))), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)
        return self.b.load(self._area("results"), typ=lanes(width), align=64)

    def _atomic_lane(self, lane: ir.Value, op: str, type_: str, width: int, operands: tuple[Value, ...]) -> None:
        where = self.b.gep(self._area("addresses"), [lane], source_etype=I64)
        pointer = self.b.inttoptr(self.b.load(where, typ=I64), POINTER)
        element = ir.IntType(width)
        old = self.b.load(pointer, typ=element)
        place = self.b.gep(self._area("results"), [lane], source_etype=element)
        self.b.store(old, place)
        new = combine(self, op, type_, self._splat(old), operands)
        self.b.store(self.b.extract_element(new, lane), pointer)

    def cp_async(self, shared: Value, global_: Value, size: int, valid: Value) -> None:
        self._addresses(shared)
        self._addresses(global_, "addresses2")
        self.b.store(valid, self._area("operands"), align=64)
        arguments = (self.mask, I64(size), self._area("operands"), I64(self.op.pc))
        self.check(self.runtime(access.copy_async, self.warp, *arguments))

    def cp_async_commit(self) -> None:
        self.runtime(access.commit_async, self.warp, self.mask)

    def cp_async_wait(self, pending: int) -> None:
        self.runtime(access.wait_async, self.warp, self.mask, I64(pending))

    def ldmatrix(self, space: str, address: Value, count: int, trans: bool) -> tuple[Value, ...]:
        self._addresses(address)
        table = matrix_table(self.module, trans)
        arguments = (I64(SPACES[self.space(space)]), table, self._area("results"), I64(count), I64(self.op.pc))
        self.check(self.runtime(access.load_matrix, self.warp, *arguments))
        return tuple(self._line("results", i) for i in range(count))

    def _line(self, area: str, index: int) -> Value:
        return self.b.load(self._area(area, index * 128), typ=lanes(32), align=64)

    # --- matrices ---

    def mma(
        self, instruction: Instruction, a: tuple[Value, ...], b: tuple[Value, ...], c: tuple[Value, ...]
    ) -> tuple[Value, ...]:
        row = instruction.on(self.arch)
        starts, index = [], 0
        for group in (a, b, c):
            starts.append(self._area("operands", index * 128))
            for value in group:
                self.b.store(value, self._area("operands", index * 128), align=64)
                index += 1
        type_ = ir.FunctionType(ir.VoidType(), [POINTER] * 4)
        function = self.module.globals.get(symbol(row)) or ir.Function(self.module, type_, symbol(row))
        self.b.call(function, [*starts, self._area("results")])
        return tuple(self._line("results", i) for i in range(row.fragment("d").count))


def combine(m: Any, op: str, type_: str, old: Value, operands: tuple[Value, ...]) -> Value:
    """What an atomic operation leaves in memory."""
    b = operands[0]
    signed = type_.startswith("s")
    if op == "add" and type_[0] in "fb" and not type_.startswith("b3") and not type_.startswith("b6"):
        base, packed, _ = type_.partition("x")
        if not packed:
            return m.fadd(base, old, b)
        parts = zip(m.split(old, 16), m.split(b, 16), strict=True)
        return m.join(*(m.fadd(base, x, y) for x, y in parts))
    if op in ("add", "and", "or", "xor"):
        return {"add": m.add, "and": m.and_, "or": m.or_, "xor": m.xor}[op](old, b)
    if op in ("min", "max"):
        return m.select(m.cmp("lt" if op == "min" else "gt", b, old, signed), b, old)
    if op == "exch":
        return b
    if op == "cas":
        return m.select(m.cmp("eq", old, b), operands[1], old)
    one, zero = m.const(m.width(b), 1), m.const(m.width(b), 0)
    if op == "inc":
        return m.select(m.cmp("ge", old, b), zero, m.add(old, one))
    wrap = m.or_(m.cmp("eq", old, zero), m.cmp("gt", old, b))
    return m.select(wrap, b, m.sub(old, one))


def matrix_table(module: ir.Module, trans: bool) -> ir.GlobalVariable:
    """ldmatrix's fragment as a table: half register → element of an 8×8 matrix."""
    name = "tw_matrix_trans" if trans else "tw_matrix"
    if name not in module.globals:
        type_ = ir.ArrayType(I16, 64)
        table = ir.GlobalVariable(module, type_, name)
        table.initializer = ir.Constant(type_, matrix_order(trans))
        table.linkage, table.global_constant = "internal", True
    return module.globals[name]


def matrix_order(trans: bool) -> list[int]:
    rows, columns = mma.ldmatrix(1, trans).coordinates()
    return [int(r) * 8 + int(c) for r, c in zip(rows.reshape(-1), columns.reshape(-1), strict=True)]


_CTA, _LAUNCH = (Warp, "cta"), (Warp, "launch")
SCALARS: dict[str, tuple[int, tuple[tuple[type, str], ...], int]] = {}
for _i, _axis in enumerate("xyz"):
    SCALARS[f"%ctaid.{_axis}"] = (32, (_CTA, (Cta, "index")), _i)
    SCALARS[f"%nctaid.{_axis}"] = (32, (_LAUNCH, (Launch, "grid")), _i)
    SCALARS[f"%ntid.{_axis}"] = (32, (_LAUNCH, (Launch, "block")), _i)
SCALARS["%nwarpid"] = (32, (_LAUNCH, (Launch, "warps")), 0)
SCALARS["%smid"] = (32, (_CTA, (Cta, "linear")), 0)
SCALARS["%dynamic_smem_size"] = (32, (_LAUNCH, (Launch, "dynamic_bytes")), 0)
SCALARS["%total_smem_size"] = (32, (_LAUNCH, (Launch, "shared_bytes")), 0)
CONSTANTS = {"%nsmid": 132, "%cluster_nctarank": 1}
CONSTANTS |= {f"%{n}.{a}": 1 for n in ("cluster_nctaid",) for a in "xyz"}
