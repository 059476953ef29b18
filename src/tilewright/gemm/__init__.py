"""GEMM: a problem and a configuration become a kernel.

``choose`` selects a configuration, ``complete`` one of which some parts are written. ``build``
traces the kernel, ``launch_shape`` gives the launch's grid, block and cluster, ``kernel_arguments``
its parameter block. Nothing here runs anything. The class of the configuration selects the kernel:
``Config`` is ``multistage``, ``TmaConfig`` is ``tma``, ``SimtConfig`` is ``simt``.
"""

from typing import TYPE_CHECKING

from ..lazy_imports import exports

if TYPE_CHECKING:
    from .config_completion import complete
    from .cost_model import AnyConfig
    from .cp_async.multistage_config import TABLE, Config
    from .cp_async.simt_config import SimtConfig
    from .heuristic import check, choose, ranked
    from .kernel_dispatch import (
        build,
        kernel_arguments,
        kernels,
        launch_shape,
        launches,
        parse,
        relayout_problem,
        workspace_bytes,
    )
    from .kernel_launch import (
        GemmKernel,
        KernelArguments,
        KernelLaunch,
        LaunchShape,
        MatrixStrides,
    )
    from .problem import Problem
    from .roofline import Roofline, roofline
    from .tma.mixed_input.pair_estimate import is_faster_together
    from .tma.tma_config import TmaConfig

__getattr__, __dir__ = exports(__name__, __file__)

__all__ = [
    "TABLE", "AnyConfig", "Config", "GemmKernel", "KernelArguments", "KernelLaunch", "LaunchShape",
    "MatrixStrides", "Problem", "Roofline", "SimtConfig", "TmaConfig",
    "build", "check", "choose", "complete", "kernel_arguments", "kernels", "launch_shape",
    "is_faster_together", "launches", "parse", "ranked", "relayout_problem", "roofline",
    "workspace_bytes",
]  # fmt: skip
