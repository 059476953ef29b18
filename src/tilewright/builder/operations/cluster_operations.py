"""Clusters, elected threads, register budgets and dependent grids (sm_90)."""

from __future__ import annotations

from typing import Any

from ..emitter import Emitter
from ..values.pointer import Pointer
from ..values.registers import Reg
from .control_flow import ControlFlow
from .special_values import SpecialRegisters
from .warp_operations import FULL


class ClusterOperations:
    """Instructions of clusters, warpgroups and grids."""

    def __init__(self, emitter: Emitter, control: ControlFlow, special: SpecialRegisters) -> None:
        self._emitter = emitter
        self._control = control
        self._special = special

    def mapa(self, address: Any, rank: Any) -> Reg:
        """The 32-bit address of the same shared-memory location in the cluster's CTA ``rank``."""
        place = address.address() if isinstance(address, Pointer) else address
        return self._emitter.compute("mapa.shared::cluster.u32", place, rank)

    def cluster_arrive(self) -> None:
        """Arrive at the cluster's barrier (release); go on without waiting."""
        self._emitter.emit("barrier.cluster.arrive.release.aligned")

    def cluster_wait(self) -> None:
        """Wait until all threads of the cluster have arrived (acquire)."""
        self._emitter.emit("barrier.cluster.wait.acquire.aligned")

    def cluster_sync(self) -> None:
        """A barrier of all threads of the cluster."""
        self.cluster_arrive()
        self.cluster_wait()

    def elect(self) -> Reg:
        """A predicate that holds in one lane of the (whole) warp."""
        _, elected = self._emitter.emit("elect.sync", FULL, pair=True)
        result: Reg = elected
        return result

    def setmaxnreg(self, count: int, *, inc: bool) -> None:
        """Set the warpgroup's register budget per thread: release registers, or wait for more."""
        self._emitter.emit(f"setmaxnreg.{'inc' if inc else 'dec'}.sync.aligned.u32", count)

    def wait_for_prior_grids(self) -> None:
        """Wait until the prerequisite grids have completed and their writes are visible.

        The instruction is in a branch that is always taken: otherwise ptxas moves it above the work
        that should overlap with the prerequisite grids.
        """
        with self._control.if_(self._special.special("nctaid.x") != 0):
            self._emitter.emit("griddepcontrol.wait")

    def launch_dependent_grids(self) -> None:
        """Allow the dependent grid to launch."""
        self._emitter.emit("griddepcontrol.launch_dependents")
