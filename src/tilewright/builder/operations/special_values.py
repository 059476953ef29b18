"""Special registers: ``%tid``, ``%laneid``, ``%clock64`` and the others."""

from __future__ import annotations

from ...ptx import tree
from ...ptx.special_registers import SPECIALS, VOLATILE, special
from ..emitter import Emitter
from ..launch_bounds import LaunchBounds
from ..source_location import kernel_error
from ..values.registers import Reg
from .arithmetic import ArithmeticOperations


class Vector3:
    """A special register with components: ``k.tid.x``."""

    def __init__(self, registers: SpecialRegisters, name: str) -> None:
        self._registers = registers
        self._name = name

    @property
    def x(self) -> Reg:
        return self._registers.special(f"{self._name}.x")

    @property
    def y(self) -> Reg:
        return self._registers.special(f"{self._name}.y")

    @property
    def z(self) -> Reg:
        return self._registers.special(f"{self._name}.z")


class SpecialRegisters:
    """Reads special registers, and the thread indices derived from them."""

    def __init__(
        self, emitter: Emitter, arithmetic: ArithmeticOperations, bounds: LaunchBounds
    ) -> None:
        self._emitter = emitter
        self._arithmetic = arithmetic
        self._bounds = bounds

    def special(self, name: str) -> Reg:
        """A special register, ``tid.x`` or ``clock64``. Constant ones are read once; timers,
        counters, ``smid`` and ``warpid`` are read each time.
        """
        row = special(f"%{name}")
        if row is None:
            raise kernel_error(f"there is no special register {name!r}; known are {_names()}")
        kind = row.type.replace("b", "u") if row.type != "pred" else row.type
        source = tree.Register(f"%{name}")
        if row.name in VOLATILE:
            return self._emitter.compute(f"mov.{kind}", source)
        return self._emitter.emit_once(source, f"mov.{kind}", source)

    @property
    def laneid(self) -> Reg:
        return self.special("laneid")

    @property
    def warpid(self) -> Reg:
        """The warp's index in its CTA: the linear thread index / 32."""
        return self._emitter.compute_once("warpid", lambda: self.thread >> 5)

    @property
    def thread(self) -> Reg:
        """The linear thread index in the CTA (``tid.x`` if the block is declared 1-D)."""
        block = self._bounds.block
        if block is not None and block[1:] == (1, 1):
            return self.special("tid.x")
        return self._emitter.compute_once("thread", self._linear_thread)

    def _linear_thread(self) -> Reg:
        mad, read = self._arithmetic.mad, self.special
        above = mad(read("tid.z"), read("ntid.y"), read("tid.y"))
        return mad(above, read("ntid.x"), read("tid.x"))


def _names() -> str:
    """The special registers, as ``k.special`` takes them."""
    return ", ".join(f"{n[1:]}.x" if row.vector > 1 else n[1:] for n, row in SPECIALS.items())
