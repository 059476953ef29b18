"""Bulk copies: ``cp.async.bulk`` between global and shared memory (sm_90)."""

from __future__ import annotations

from typing import Any

from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.pointer import Pointer
from .warp_operations import check_pending

TX = "mbarrier::complete_tx::bytes"


class BulkCopies:
    """cp.async.bulk, cp.reduce.async.bulk and their bulk groups."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter

    def bulk_load(
        self,
        dst: Any,
        src: Pointer,
        bytes: Any,
        barrier: Any,
        *,
        multicast_mask: Any = None,
        cache_hint: Any = None,
    ) -> None:
        """Copy ``bytes`` of global memory to shared memory, all multiples of 16; the bytes
        complete as a transaction of ``barrier``. ``multicast_mask`` as for ``tma_load``.
        """
        words = ["cp.async.bulk.shared::cluster.global", TX]
        emit_bulk_copy(self._emitter, words, (dst, src, bytes, barrier), multicast_mask, cache_hint)

    def bulk_store(self, dst: Pointer, src: Any, bytes: Any, *, cache_hint: Any = None) -> None:
        """Copy ``bytes`` of shared memory to global memory, all multiples of 16, in this thread's
        current bulk group.
        """
        words = ["cp.async.bulk.global.shared::cta.bulk_group"]
        emit_bulk_copy(self._emitter, words, (dst, src, bytes), None, cache_hint)

    def bulk_prefetch(self, src: Pointer, bytes: Any) -> None:
        """Prefetch ``bytes`` of global memory, a multiple of 16, to the L2 cache."""
        opcode = ["cp.async.bulk.prefetch.L2.global"]
        emit_bulk_copy(self._emitter, opcode, (src, bytes), None, None)

    def bulk_reduce(
        self, dst: Any, src: Pointer, bytes: Any, op: str = "add", *, barrier: Any = None
    ) -> None:
        """Reduce ``bytes`` of shared memory, elements of ``src``'s type, into ``dst``.

        Without a ``barrier``, ``dst`` is in global memory and the copy is in this thread's current
        bulk group. With a ``barrier``, both are in the shared memory of one CTA; ``mapa`` maps
        their addresses to another CTA of the cluster.
        """
        if not isinstance(src, Pointer):
            raise kernel_error(f"the source of bulk_reduce must be a typed pointer, got {src!r}")
        t = src.dtype
        type_ = f"b{t.bits}" if op in ("and", "or", "xor") else t.name
        if op == "add" and t.name in ("f16", "bf16"):
            type_ = f"noftz.{t.name}"
        if op == "add" and t.name == "s64":
            type_ = "u64"
        if barrier is None:
            opcode = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{type_}"
            self._emitter.emit(opcode, dst, src, bytes)
        else:
            opcode = f"cp.reduce.async.bulk.shared::cluster.shared::cta.{TX}.{op}.{type_}"
            self._emitter.emit(opcode, dst, src, bytes, barrier)

    def bulk_commit(self) -> None:
        """Commit this thread's bulk copies since the last commit as a bulk group."""
        self._emitter.emit("cp.async.bulk.commit_group")

    def bulk_wait(self, pending: int = 0, *, read: bool = False) -> None:
        """Wait until at most ``pending`` bulk groups are in flight (``read``: until the others have
        read their sources)."""
        check_pending(pending)
        self._emitter.emit(f"cp.async.bulk.wait_group{'.read' * read}", pending)

    def fence_async(self) -> None:
        """Make generic-proxy writes to shared memory visible to the async proxy (TMA, wgmma)."""
        self._emitter.emit("fence.proxy.async.shared::cta")


def emit_bulk_copy(
    emitter: Emitter,
    words: list[str],
    operands: tuple[Any, ...],
    multicast_mask: Any,
    cache_hint: Any,
) -> None:
    """Emit a bulk or tensor copy with the optional qualifiers and their operands."""
    options = (("multicast::cluster", multicast_mask), ("L2::cache_hint", cache_hint))
    for word, operand in options:
        if operand is not None:
            words, operands = [*words, word], (*operands, operand)
    emitter.emit(".".join(words), *operands)
