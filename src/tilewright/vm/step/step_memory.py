"""Memory instructions of the stepping evaluator, by the native code that regions call too."""

from __future__ import annotations

import ctypes

import numpy as np

from ..engine import async_copies, memory_access, vector_access
from ..program.evaluator import combine
from ..state.records import WRITES
from .step_context import Lanes, StepPart, lanes_of, read_lanes, write_lanes


class StepMemory(StepPart):
    """Loads, stores, atomics and ``cp.async``."""

    def hosts(self, mask: int, space: str, address: Lanes, size: int, writes: int = 0) -> list[int]:
        """The host addresses of the lanes in ``mask``; those of other lanes are undefined."""
        self.m.warp.addresses[:] = address
        self.m.call_checked(
            memory_access.resolve_lanes, mask, self.m.space_code(space) + writes, size, self.m.pc
        )
        return [int(a) for a in self.m.warp.addresses]

    # --- memory ---

    def load(self, space: str, address: Lanes, width: int, count: int = 1) -> tuple[Lanes, ...]:
        self.m.warp.addresses[:] = address
        out, size = self.m.at("results"), width // 8
        common = (self.m.mask, self.m.space_code(space), out)
        self.m.call_checked(vector_access.load_n, *common, size, count, self.m.pc)
        return tuple(read_lanes(out + e * 32 * size, width) for e in range(count))

    def store(self, space: str, address: Lanes, values: tuple[Lanes, ...]) -> None:
        self.m.warp.addresses[:] = address
        width = self.m.width(values[0])
        values_at, size = self.m.at("operands"), width // 8
        for e, value in enumerate(values):
            write_lanes(values_at + e * 32 * size, value, width)
        common = (self.m.mask, self.m.space_code(space), values_at)
        self.m.call_checked(vector_access.store_n, *common, size, len(values), self.m.pc)

    def reach(self, space: str, address: Lanes, width: int) -> None:
        self.m.warp.addresses[:] = address
        self.m.call_checked(
            memory_access.check_bounds, self.m.mask, self.m.space_code(space), width // 8, self.m.pc
        )

    def atomic(self, space: str, op: str, type_: str, address: Lanes, *operands: Lanes) -> Lanes:
        width = self.m.width(operands[0])
        in_global = self.m.in_space("global", address)
        if self.m.space(space):
            in_global = self.m.const(1, self.m.space(space) == "global")
        hosts = self.hosts(self.m.mask, space, address, width // 8, WRITES)
        result = self.m.const(width, 0)
        for lane in np.flatnonzero(lanes_of(self.m.mask)):
            raw = (ctypes.c_uint8 * (width // 8)).from_address(hosts[lane])
            old = int.from_bytes(bytes(raw), "little")
            new = combine(self.m, op, type_, self.m.const(width, old), operands, in_global)
            result[lane] = old
            raw[:] = list(int(new[lane]).to_bytes(width // 8, "little"))
        return result

    def cp_async(self, shared: Lanes, global_: Lanes, size: int, valid: Lanes) -> None:
        self.m.warp.addresses[:], self.m.warp.addresses2[:] = shared, global_
        write_lanes(self.m.at("operands"), valid, 32)
        self.m.call_checked(
            async_copies.copy_async, self.m.mask, size, self.m.at("operands"), self.m.pc
        )

    def cp_async_commit(self) -> None:
        self.m.call_checked(async_copies.commit_async, self.m.mask)

    def cp_async_wait(self, pending: int) -> None:
        self.m.call_checked(async_copies.wait_async, self.m.mask, pending)
