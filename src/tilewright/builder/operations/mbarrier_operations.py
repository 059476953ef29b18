"""Mbarriers: the synchronisation objects of asynchronous copies and pipelines (sm_90)."""

from __future__ import annotations

from typing import Any

from ..emitter import Emitter
from ..source_location import kernel_error
from ..values.registers import Reg, is_integer
from .cluster_operations import ClusterOperations
from .control_flow import ControlFlow

COUNTS = 1 << 20  # the range of an mbarrier's pending and transaction counts


class MbarrierOperations:
    """mbarrier instructions."""

    def __init__(self, emitter: Emitter, control: ControlFlow, cluster: ClusterOperations) -> None:
        self._emitter = emitter
        self._control = control
        self._cluster = cluster

    def mbarrier_init(self, barrier: Any, count: Any) -> None:
        """Initialise an mbarrier at ``barrier`` (8 bytes of shared memory): a phase completes after
        ``count`` arrivals. Other threads see it after ``fence_mbarrier_init`` and a barrier of the
        CTA or cluster.
        """
        _within("the arrivals of an mbarrier's phase", count, 1)
        self._emitter.emit("mbarrier.init.shared::cta.b64", barrier, count)

    def fence_mbarrier_init(self) -> None:
        """Make initialised mbarriers visible to asynchronous copies and to the cluster."""
        self._emitter.emit("fence.mbarrier_init.release.cluster")

    def mbarrier_arrive(self, barrier: Any, *, bytes: Any = None, rank: Any = None) -> None:
        """Arrive once; ``bytes`` first raises the expected transaction count. ``rank``: arrive at
        the same mbarrier of the cluster's CTA of that rank.
        """
        if bytes is not None:
            _within("the bytes that an mbarrier expects", bytes, 0)
        more = () if bytes is None else (bytes,)
        what = "arrive" if bytes is None else "arrive.expect_tx"
        if rank is None:
            self._emitter.emit(f"mbarrier.{what}.shared::cta.b64", barrier, *more)
        else:
            there = self._cluster.mapa(barrier, rank)
            self._emitter.emit(f"mbarrier.{what}.release.cluster.shared::cluster.b64", there, *more)

    def mbarrier_try_wait(self, barrier: Any, parity: Any, *, scope: str = "cta") -> Reg:
        """Whether the phase of that parity has completed; the thread may be suspended meanwhile.
        ``scope``: ``"cta"``, or ``"cluster"`` to see what other CTAs wrote before they arrived.
        """
        if scope not in ("cta", "cluster"):
            raise kernel_error(f"scope must be 'cta' or 'cluster', got {scope!r:.40}")
        acquire = ".acquire.cluster" * (scope == "cluster")
        opcode = f"mbarrier.try_wait.parity{acquire}.shared::cta.b64"
        return self._emitter.compute(opcode, barrier, parity)

    def mbarrier_wait(self, barrier: Any, parity: Any, *, scope: str = "cta") -> None:
        """Wait until the phase of that parity (0 or 1) has completed; ``scope`` as above."""
        again = self._emitter.label("wait")
        self._emitter.place_label(again)
        ended = self.mbarrier_try_wait(barrier, parity, scope=scope)
        self._control.branch(ended, again, negated=True)

    def cp_async_mbarrier_arrive(self, barrier: Any, *, noinc: bool = False) -> None:
        """Arrive when this thread's ``cp_async`` copies so far have completed. The arrival
        is added to the pending count of the phase, or (``noinc``) is one of its ``count``.
        """
        self._emitter.emit(f"cp.async.mbarrier.arrive{'.noinc' * noinc}.shared::cta.b64", barrier)


def _within(what: str, given: Any, least: int) -> None:
    """Check the range of a static count of an mbarrier."""
    if is_integer(given) and not least <= given < COUNTS:
        raise kernel_error(f"{what} must be from {least} to {COUNTS - 1}, got {given}")
