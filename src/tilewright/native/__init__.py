"""Machine code from a typed subset of Python: declared in ``native_language``, translated to LLVM
IR by ``translator``, compiled by ``jit``. The virtual machine's engine and the fast call are
written in it.
"""
