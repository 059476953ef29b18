"""CUDA programs on the virtual machine: an unmodified program runs, with its kernels on the CPU.

A shared library in C (``shim/``) replaces the CUDA runtime and driver and forwards requests to this
process, which runs the kernels on ``vm.Machine``.
"""

from .fatbin import best_ptx, in_program
from .server import machine_factory, run

__all__ = ["run", "machine_factory", "in_program", "best_ptx"]
