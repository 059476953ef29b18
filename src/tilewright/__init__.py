"""tilewright: GEMM on NVIDIA tensor cores from Python down to the bits, with a PTX virtual machine.

    tilewright.matmul(a, b)      D = α A B + β C, on a GPU or on the virtual machine
    tilewright.plan(…)           which kernel a call runs, and why
    @tilewright.kernel           a kernel of your own, traced to PTX
    tilewright.load(file)        kernels that ``tilewright build`` serialized

Every name is imported when it is first read, so ``import tilewright`` takes a few milliseconds and
needs no optional package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import lazy_imports, notebook_display
from .version import __version__ as __version__

if TYPE_CHECKING:  # `as` marks what is public
    from . import builder as builder
    from . import cuda as cuda
    from . import dtypes as dtypes
    from . import errors as errors
    from . import gemm as gemm
    from . import layout as layout
    from . import mma as mma
    from . import ptx as ptx
    from . import run as run
    from . import target as target
    from . import view as view
    from . import vm as vm
    from .errors import TilewrightError as TilewrightError
    from .gemm import Config as Config
    from .gemm import Problem as Problem
    from .layout import Layout as Layout
    from .layout import Swizzle as Swizzle
    from .run import Plan as Plan
    from .run import kernel as kernel
    from .run import load as load
    from .run import matmul as matmul
    from .run import plan as plan
    from .run import tensor_map as tensor_map

__all__ = [
    "matmul", "plan", "Plan", "Problem", "Config",
    "kernel", "tensor_map", "load",
    "Layout", "Swizzle", "TilewrightError",
    "builder", "cuda", "dtypes", "errors", "gemm", "layout", "mma", "ptx", "run", "target", "view",
    "vm",
]  # fmt: skip

__getattr__, __dir__ = lazy_imports.exports(__name__, __file__)

lazy_imports.provide("launcher", lambda: importlib.import_module(".run", __name__).launch)
notebook_display.register_loader(lambda: importlib.import_module(".view", __name__))
