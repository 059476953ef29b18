"""The stepping evaluator: one instruction at a time in NumPy, every register of every lane to be looked at.

The scheduler, barriers and memory are the compiled ones; only what a region would do is done here, from the same rows. It is
the specification in doubt, and what a debugger stands on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..mma import Instruction, ldmatrix
from . import access, scheduler
from .evaluate import Evaluator
from .library import Library
from .native import Native, u32
from .numpy_values import NumpyValues
from .program import Op, Program, is_exit_block
from .record import Record, view
from .region import CONSTANTS, SCALARS, combine
from .state import DONE, FAULT, JUMP, SPACES, TRAP, YIELD, Cta, Launch, Warp, Worker

Lanes = npt.NDArray[Any]
FULL = np.uint32(0xFFFFFFFF)
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


class Step:
    """An instruction about to happen: ``pc``, ``text``, ``warp`` and ``block`` indices, ``active`` lanes, registers."""

    def __init__(self, stepper: Stepper) -> None:
        self._s = stepper
        self.pc = stepper.op.pc
        self.text = stepper.op.form.opcode
        self.place = stepper.program.place(self.pc)
        self.warp = stepper.warp.index
        self.block = tuple(int(i) for i in Record(Cta, stepper.warp.cta).index)
        self.active = stepper.mask

    def __getitem__(self, name: str) -> Lanes:
        """A register by name: its bits in all 32 lanes."""
        for index, register in enumerate(self._s.program.registers):
            if register.name == name:
                return self._s.get(index).copy()
        raise KeyError(name)

    @property
    def registers(self) -> dict[str, Lanes]:
        """All registers by name."""
        return {r.name: self._s.get(i).copy() for i, r in enumerate(self._s.program.registers)}


class _Fault(Exception):
    """Native code reported a fault; it is in the worker's record."""


class _Left(Exception):
    """Control left the block; the value is what the region returns."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Stepper(NumpyValues, Evaluator):
    """Runs blocks on behalf of the scheduler, which calls it back for each."""

    def __init__(
        self, program: Program, library: Library, arch: str, on_step: Callable[[Step], object] | None = None
    ) -> None:
        self.program, self.library, self.arch, self.on_step = program, library, arch, on_step
        self.callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)(self._enter)
        address = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.table = np.full(len(program.blocks), address, np.int64)
        self.frame_bytes = -(-program.full_frame_bytes // 64) * 64
        self.error: BaseException | None = None

    def need(self, block: int) -> None:
        raise AssertionError("every block is there from the start")

    def _enter(self, address: int) -> int:
        self.warp = Record(Warp, address)
        try:
            self._block()
        except _Left as left:
            return left.code
        except _Fault:
            return FAULT
        except BaseException as error:  # noqa: BLE001 - it must not cross native code; the launch raises it
            self.error = error
            self.native(scheduler.fault, TRAP, self.op.pc, 0, 0)
            return FAULT
        return JUMP

    def _block(self) -> None:
        self.current = self.program.blocks[self.warp.block]
        self.active_mask = self.warp.active
        for op in self.current.ops:
            self.op = op
            self.guard = self._guard(op)
            self.mask = self.active_mask if self.guard is None else self.active_mask & _word(self.guard)
            if self.on_step:
                self.on_step(Step(self))
            self.operate(op)
        self.guard = None
        if self.current.index + 1 < len(self.program.blocks):
            self.goto(self.current.index + 1)
        self.mask = self.active_mask
        self.exit()

    def _guard(self, op: Op) -> Lanes | None:
        if op.guard is None:
            return None
        holds = self.get(op.guard.index)
        return ~holds if op.negated else holds

    # --- registers ---

    def _slot(self, index: int) -> Lanes:
        address, width = self.warp.address + self.program.slots[index], self.program.registers[index].width
        if width == 1:
            return view(address, u32, 1)
        raw = np.ctypeslib.as_array((ctypes.c_uint8 * (4 * width)).from_address(address))
        return raw.view(UNSIGNED[min(width, 64)])

    def get(self, index: int) -> Lanes:
        slot, width = self._slot(index), self.program.registers[index].width
        if width == 1:
            return _lanes(int(slot[0]))
        if width == 128:
            return slot[0::2].astype(object) | (slot[1::2].astype(object) << 64)
        return slot.copy()

    def put(self, index: int, value: Lanes) -> None:
        where = _lanes(self.mask)
        merged = np.where(where, value, self.get(index))
        slot, width = self._slot(index), self.program.registers[index].width
        if width == 1:
            slot[0] = _word(merged)
        elif width == 128:
            slot[0::2] = (merged & (2**64 - 1)).astype(np.uint64)
            slot[1::2] = (merged >> 64).astype(np.uint64)
        else:
            slot[:] = merged

    def special(self, name: str) -> Lanes:
        if name in SCALARS:
            width, path, index = SCALARS[name]
            record = self.warp
            for kind, field in path[:-1]:
                record = Record(_POINTEES[field], getattr(record, field))
            value = getattr(record, path[-1][1])
            return self.const(width, int(value[index]) if isinstance(value, np.ndarray) else int(value))
        if name.startswith("%tid."):
            return getattr(self.warp, f"tid_{name[-1]}").copy()
        if name == "%laneid":
            return self.lane()
        if name.startswith("%lanemask_"):
            return _lane_masks(name[-2:])
        if name == "%warpid":
            return self.const(32, self.warp.index)
        if "clock" in name or "timer" in name:
            return self._clock(name)
        return self.const(32, CONSTANTS.get(name, 0))

    def _clock(self, name: str) -> Lanes:
        now = Record(Worker, self.warp.worker).steps + (1 << 30) - self.warp.budget
        if name in ("%clock64", "%globaltimer"):
            return self.const(64, now)
        return self.const(32, now >> (32 if name.endswith("hi") else 0))

    def carry(self) -> Lanes:
        return _lanes(self.warp.carry)

    def set_carry(self, p: Lanes) -> None:
        self.warp.carry = _word(p)

    # --- native code ---

    def native(self, function: Native, *arguments: int) -> int:
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64, *[ctypes.c_int64] * len(arguments))
        wrapped = [(a + 2**63) % 2**64 - 2**63 for a in arguments]
        return int(call(self.library.addresses[function.name])(self.warp.address, *wrapped))

    def checked(self, function: Native, *arguments: int) -> None:
        if self.native(function, *arguments):
            raise _Fault

    # --- control ---

    def goto(self, target: int) -> None:
        if target <= self.current.index:
            self.warp.budget -= max(1, len(self.current.ops))
            if self.warp.budget < 0:
                self.warp.block = target
                raise _Left(YIELD)
        if self.program.divergent and self.warp.others:
            if target <= self.current.index:
                self.warp.spin += 1
            self._pend(target, self.warp.active)
            raise _Left(self.native(scheduler.next_group))
        self.warp.block = target
        raise _Left(JUMP)

    def _pend(self, target: int, mask: int) -> None:
        view(self.warp.pending, u32, len(self.program.blocks))[target] |= mask

    def branch(self, label: str) -> None:
        target, follow = self.program.targets[label], self.current.index + 1
        if self.guard is not None and is_exit_block(self.program.blocks[target]):
            self._leave(follow)
        if self.mask in (self.active_mask, 0):
            self.goto(target if self.mask else follow)
        self._pend(target, self.mask)
        self._pend(follow, self.active_mask & ~self.mask)
        raise _Left(self.native(scheduler.next_group))

    def branch_index(self, index: Lanes, targets: tuple[str, ...]) -> None:
        for number, label in enumerate(targets):
            self._pend(self.program.targets[label], self.mask & _word(index == number))
        self._pend(self.current.index + 1, self.active_mask & ~self.mask)
        raise _Left(self.native(scheduler.next_group))

    def exit(self) -> None:
        self._leave(self.current.index + 1)

    def _leave(self, follow: int) -> None:
        if self.native(scheduler.lanes_exit, self.mask, self.op.pc) == DONE:
            raise _Left(DONE)
        if self.program.divergent and self.warp.active == 0:
            raise _Left(self.native(scheduler.next_group))
        self.goto(follow)

    def barrier_reduce(self, index: Lanes, threads: Lanes | None, op: str, p: Lanes) -> Lanes | None:
        if not self.op.resumed:
            self.barrier(index, threads, votes=p)
        word = self.native(scheduler.barrier_result, self._first(index), {"popc": 0, "or": 1, "and": 2}[op])
        return self.const(32, word) if op == "popc" else self.const(1, word)

    def barrier(
        self, index: Lanes, threads: Lanes | None, arrive: bool = False, votes: Lanes | None = None
    ) -> None:
        count = 0 if threads is None else self._first(threads)
        ayes = 0 if votes is None else self.mask & _word(votes)
        follow = self.current.index + 1
        if self.mask == 0:
            self.goto(follow)
        if self.mask != self.active_mask and self.program.divergent:
            self._pend(follow, self.active_mask & ~self.mask)
            self.warp.active = self.mask
        code = self.native(scheduler.barrier, self._first(index), count, arrive, ayes, follow, self.op.pc)
        if not arrive:
            raise _Left(code)
        if code:
            raise _Fault

    def convergent(self, members: Lanes) -> None:
        if self.program.divergent and self.warp.others:
            arguments = (self._first(members), self.current.index, self.op.pc)
            code = self.native(scheduler.await_members, *arguments)
            if code:
                raise _Left(code)

    def _first(self, value: Lanes) -> int:
        lane = (self.active_mask & -self.active_mask).bit_length() - 1
        return int(value[lane])

    def trap(self, why: str) -> None:
        if self.mask:
            lane = (self.mask & -self.mask).bit_length() - 1
            self.native(scheduler.fault, TRAP, self.op.pc, lane, 0)
            raise _Fault

    # --- memory ---

    def _area(self, name: str) -> int:
        return int(self.warp.address + Warp.offset(name))

    def _array(self, name: str, width: int, count: int) -> Lanes:
        raw = (ctypes.c_uint8 * (width // 8 * count)).from_address(self._area(name))
        return np.ctypeslib.as_array(raw).view(UNSIGNED[width])

    def load(self, space: str, address: Lanes, width: int, count: int = 1) -> tuple[Lanes, ...]:
        self.warp.addresses[:] = address
        pc, size = self.op.pc, width // 8
        arguments = (self.mask, SPACES[self.space(space)], self._area("results"), size, count, pc)
        self.checked(access.load_n, *arguments)
        if width == 128:
            parts = self._array("results", 64, 64 * count).reshape(count, 32, 2)
            return tuple(p[:, 0].astype(object) | (p[:, 1].astype(object) << 64) for p in parts)
        return tuple(self._array("results", width, 32 * count).reshape(count, 32).copy())

    def store(self, space: str, address: Lanes, values: tuple[Lanes, ...]) -> None:
        self.warp.addresses[:] = address
        width = self.width(values[0])
        if width == 128:
            parts = self._array("operands", 64, 64 * len(values)).reshape(len(values), 32, 2)
            for part, value in zip(parts, values, strict=True):
                part[:, 0], part[:, 1] = value & (2**64 - 1), value >> 64
        else:
            self._array("operands", width, 32 * len(values))[:] = np.concatenate(values)
        arguments = (self.mask, SPACES[self.space(space)], self._area("operands"), width // 8, len(values))
        self.checked(access.store_n, *arguments, self.op.pc)

    def atomic(self, space: str, op: str, type_: str, address: Lanes, *operands: Lanes) -> Lanes:
        self.warp.addresses[:] = address
        width = self.width(operands[0])
        self.checked(access.resolve_lanes, self.mask, SPACES[self.space(space)], width // 8, self.op.pc)
        old = self.const(width, 0)
        for lane in range(32):
            if self.mask >> lane & 1:
                raw = (ctypes.c_uint8 * (width // 8)).from_address(int(self.warp.addresses[lane]))
                number = int.from_bytes(bytes(raw), "little")
                new = combine(self, op, type_, self.const(width, number), operands)
                old[lane] = number
                raw[:] = int(new[lane]).to_bytes(width // 8, "little")
        return old

    def cp_async(self, shared: Lanes, global_: Lanes, size: int, valid: Lanes) -> None:
        self.warp.addresses[:], self.warp.addresses2[:] = shared, global_
        self._array("operands", 32, 32)[:] = valid
        self.checked(access.copy_async, self.mask, size, self._area("operands"), self.op.pc)

    def cp_async_commit(self) -> None:
        self.native(access.commit_async, self.mask)

    def cp_async_wait(self, pending: int) -> None:
        self.native(access.wait_async, self.mask, pending)

    def ldmatrix(self, space: str, address: Lanes, count: int, trans: bool) -> tuple[Lanes, ...]:
        """Whole rows first, then each lane takes its elements by the fragment's layout."""
        rows = np.zeros((8 * count, 8), np.uint16)
        self.warp.addresses[:] = address
        mask = (1 << 8 * count) - 1
        self.checked(access.resolve_lanes, mask, SPACES[self.space(space)], 16, self.op.pc)
        for row in range(8 * count):
            raw = (ctypes.c_uint8 * 16).from_address(int(self.warp.addresses[row]))
            rows[row] = np.frombuffer(bytes(raw), np.uint16)
        return tuple(ldmatrix(count, trans).registers(rows).T)

    def mma(
        self, instruction: Instruction, a: tuple[Lanes, ...], b: tuple[Lanes, ...], c: tuple[Lanes, ...]
    ) -> tuple[Lanes, ...]:
        operands = (np.stack(x, axis=-1) for x in (a, b, c))
        return tuple(instruction.on(self.arch).execute(*operands).T)


_POINTEES = {"cta": Cta, "launch": Launch, "worker": Worker}


def _lanes(mask: int) -> Lanes:
    return (np.uint32(mask) >> np.arange(32, dtype=np.uint32) & 1).astype(bool)


def _word(p: Lanes) -> int:
    return int(np.packbits(p, bitorder="little").view(np.uint32)[0])


def _lane_masks(kind: str) -> Lanes:
    bit = np.uint32(1) << np.arange(32, dtype=np.uint32)
    made = {"eq": bit, "lt": bit - 1, "le": bit | (bit - 1), "gt": ~(bit | (bit - 1)), "ge": ~(bit - 1)}
    return made[kind].astype(np.uint32)
