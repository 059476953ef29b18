"""The PTX virtual machine: runs a ``ptx.Module`` on the CPU and returns the bits of the hardware.

``Machine`` is the way in.
"""

from .machine import STACK, Machine
from .step import Step

__all__ = ["STACK", "Machine", "Step"]
