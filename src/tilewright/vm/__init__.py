"""The PTX virtual machine: runs a ``ptx.Module`` on the CPU and returns the bits of the hardware.

``Machine`` is the way in.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .machine import STACK, Machine
    from .step.stepper import Step

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = ["STACK", "Machine", "Step"]
