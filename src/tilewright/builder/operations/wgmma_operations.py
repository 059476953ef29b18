"""wgmma: asynchronous matrix products of a warpgroup (sm_90a)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..emitter import Emitter
from ..values.registers import Reg


class WgmmaOperations:
    """wgmma instructions."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def wgmma(
        self,
        instruction: Any,
        d: Sequence[Any],
        a: Any,
        b: Any,
        *,
        accumulate: Any = True,
        signs: tuple[int, int] = (1, 1),
        trans: tuple[int, ...] | None = None,
        metadata: tuple[Any, int] | None = None,
    ) -> None:
        """D = A B, or A B + D where ``accumulate``, asynchronously, by the four warps of
        a warpgroup.

        ``d`` are variables; ``a`` a descriptor (u64) or fragments, ``b`` a descriptor. ``trans``
        says which operands in shared memory are MN-major (16-bit types only). ``metadata``: the
        register of sparse A's metadata, and the selector.
        """
        opcode = instruction if isinstance(instruction, str) else instruction.opcode
        of_half = opcode.rsplit(".", 1)[-1] in ("f16", "bf16")
        shared = not isinstance(a, (tuple, list))
        flags = trans if trans is not None else (0, 0) if shared else (0,)
        immediates = (*signs, *flags) if of_half else signs
        if "s32" in opcode.split("."):
            immediates = ()
        scale_d = accumulate if isinstance(accumulate, Reg) else int(bool(accumulate))
        left = a if shared else tuple(a)
        self._emitter.emit(opcode, left, b, *(metadata or ()), scale_d, *immediates, into=tuple(d))

    def wgmma_fence(self) -> None:
        """Order prior register accesses before the wgmma instructions that follow."""
        self._emitter.emit("wgmma.fence.sync.aligned")

    def wgmma_commit(self) -> None:
        """Commit the wgmma instructions since the last commit as a group."""
        self._emitter.emit("wgmma.commit_group.sync.aligned")

    def wgmma_wait(self, pending: int = 0) -> None:
        """Wait until at most ``pending`` wgmma groups are in flight."""
        self._emitter.emit("wgmma.wait_group.sync.aligned", pending)
