"""Machine code from a typed subset of Python: declared in ``language``, translated to LLVM IR,
compiled by ``jit``. The virtual machine's engine and the fast call are written in it.
"""
