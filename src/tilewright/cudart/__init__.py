"""CUDA programs without CUDA: an unmodified program runs here, and its kernels on the virtual
machine.

It has a floor of its own above ``vm``: the virtual machine runs kernels and knows of no runtime,
and what stands in for the runtime (``shim/``, in C) knows of no kernel.
"""

from .fatbin import best_ptx, in_program
from .server import machine_factory, run

__all__ = ["run", "machine_factory", "in_program", "best_ptx"]
