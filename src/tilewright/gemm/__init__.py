"""GEMM: a problem and a configuration become a kernel.

``choose`` picks a configuration, ``build`` traces the kernel, ``shape`` says how it is launched and
``arguments`` with what. Nothing here runs anything. A configuration's class names the kernel:
``Config`` is ``multistage``, ``TmaConfig`` is ``tma``, ``SimtConfig`` is ``simt``.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .cost_model import AnyConfig
    from .cp_async.multistage_config import TABLE, Config
    from .cp_async.simt_config import SimtConfig
    from .heuristic import check, choose, ranked
    from .kernel_dispatch import arguments, build, kernels, parse, shape, steps, takes, workspace
    from .kernel_launch import Arguments, Kernel, Lines, Shape, Step
    from .problem import Problem
    from .roofline import Roofline, roofline
    from .tma.tma_config import TmaConfig

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "TABLE", "AnyConfig", "Arguments", "Config", "Kernel", "Lines", "Problem", "Roofline", "Shape",
    "SimtConfig", "Step", "TmaConfig",
    "arguments", "build", "check", "choose", "kernels", "parse", "ranked", "roofline", "shape",
    "steps", "takes", "workspace",
]  # fmt: skip
