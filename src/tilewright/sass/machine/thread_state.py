"""Registers and local memory of a CTA's threads, as arrays over (warp, lane)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..sass_text import ALWAYS
from .register_effects import RZ, URZ

LANES = 32
UNSET = 0x7FC5A5A5  # a NaN, and far from any address
Array = npt.NDArray[Any]


class ThreadState:
    """``registers[r]``: uint32 of (warps, 32); ``predicates[p]``: bool of (warps, 32); ``uniform``
    and ``uniform_predicates``: (warps, 1). ``local`` is local memory: bytes of (warps, 32, size).
    A register that is not written yet holds UNSET.
    RZ, URZ are 0, PT and UPT are true and are never written.
    """

    def __init__(self, warps: int, local_bytes: int) -> None:
        self.warps = warps
        self.registers = np.full((RZ + 1, warps, LANES), UNSET, np.uint32)
        self.registers[RZ] = 0
        self.predicates = np.zeros((ALWAYS + 1, warps, LANES), bool)
        self.predicates[ALWAYS] = True
        self.uniform = np.zeros((URZ + 1, warps, 1), np.uint32)
        self.uniform_predicates = np.zeros((ALWAYS + 1, warps, 1), bool)
        self.uniform_predicates[ALWAYS] = True
        self.carry = np.zeros((warps, LANES), bool)
        self.local = np.zeros((warps, LANES, local_bytes), np.uint8)

    def file(self, name: str) -> Array:
        """The array of file R, UR, P or UP."""
        return {
            "R": self.registers, "UR": self.uniform,
            "P": self.predicates, "UP": self.uniform_predicates,
        }[name]  # fmt: skip


class ThreadGroup:
    """The threads that run an instruction together: warps ``rows`` (all at one address) with the
    lanes of ``mask``, bool of (rows, 32); ``cta`` is what they belong to.
    """

    __slots__ = ("cta", "is_full", "mask", "rows", "state")

    def __init__(self, cta: Any, rows: Array | slice, mask: Array, is_full: bool) -> None:
        self.cta, self.state = cta, cta.state
        self.rows, self.mask, self.is_full = rows, mask, is_full

    @property
    def indices(self) -> Array:
        """The warps' numbers."""
        return np.arange(self.state.warps)[self.rows]

    def read(self, file: str, number: int) -> Array:
        """A register: (rows, 32), or (rows, 1) of a uniform one."""
        found: Array = self.state.file(file)[number][self.rows]
        return found

    def write(self, file: str, number: int, value: Array, active: Array) -> None:
        """Write the active lanes; registers RZ, PT, URZ, UPT stay."""
        if number == {"R": RZ, "UR": URZ}.get(file, ALWAYS):
            return
        array = self.state.file(file)[number]
        if file in ("UR", "UP"):
            active = np.asarray(active.any(axis=1, keepdims=True))
            value = np.broadcast_to(value, (active.shape[0], value.shape[-1]))[:, :1]
        if active is self.mask and self.is_full:
            array[self.rows] = value
        else:
            array[self.rows] = np.where(active, value, array[self.rows])
