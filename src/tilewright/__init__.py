"""tilewright: GEMM on NVIDIA tensor cores from Python down to the bits, with a PTX virtual machine.

Everything is fetched when first named, so that ``import tilewright`` costs next to nothing and
needs nothing optional. ``_HOMES`` says where each name lives; the block for type checkers repeats
it, and ``tests/test_import.py`` holds the two together.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from . import lazy_imports, notebook_display

__version__ = "0.1.0"

_HOMES = {
    "matmul": "run",
    "plan": "run",
    "Plan": "run",
    "Problem": "gemm",
    "Config": "gemm",
    "kernel": "run",
    "tensor_map": "run",
    "load": "run",
    "Layout": "layout",
    "Swizzle": "layout",
    "TilewrightError": "errors",
}
_MODULES = frozenset(
    "errors dtypes target layout mma ptx builder vm cuda gemm run view".split()  # in order of floor
)

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


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


lazy_imports.provide("launcher", lambda: importlib.import_module(".run", __name__).launch)
notebook_display.load_with(lambda: importlib.import_module(".view", __name__))


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
