"""Kernel dispatch: the class of a configuration selects the kernel.

``Config`` selects ``multistage``, ``TmaConfig`` selects ``tma``, ``SimtConfig`` selects ``simt``.
Split-K adds a reduction kernel after the GEMM kernel; a dynamic tile scheduler adds one before it,
and so does stream-K.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..builder import Traced
from ..errors import ConfigError
from ..target import DEFAULT_DEVICE, DeviceSpec
from . import splitk_reduction, workspace
from .cost_model import AnyConfig
from .cp_async import multistage, multistage_config, simt, simt_launch
from .cp_async.multistage_config import Config
from .cp_async.simt_config import SimtConfig
from .epilogue import maxima_reset, reduction_kernel
from .kernel_launch import GemmKernel, KernelArguments, KernelLaunch, LaunchShape, MatrixStrides
from .problem import Problem, validate
from .tma import (
    dynamic_tile_scheduler,
    tma_arguments,
    tma_config,
    tma_kernel,
)
from .tma.launch import tma_launch
from .tma.stream_k import flag_reset
from .tma.stream_k.partial_exchange import shares_tiles
from .tma.tma_config import TmaConfig

Strides = Mapping[str, MatrixStrides]


def itself(config: Any) -> Any:
    """The configuration, where every one has a kernel of its own."""
    return config


class KernelDefinition(NamedTuple):
    """The functions that define a kernel; each takes the kernel's own class of configuration.
    ``problem_class`` and ``config_class`` give what represents all with the same kernel.
    """

    build: Callable[[Problem, Any], Traced]
    launch_shape: Callable[[Problem, Any, DeviceSpec], LaunchShape]
    kernel_arguments: Callable[[Problem, Any, Strides, DeviceSpec], KernelArguments]
    problem_class: Callable[[Problem, Any], Problem]
    config_class: Callable[[Any], Any] = itself

    def kernel(self, problem: Problem, config: Any) -> GemmKernel:
        """The kernel, not traced yet."""
        return GemmKernel(
            self.build, self.problem_class(problem, config), self.config_class(config)
        )


MULTISTAGE = KernelDefinition(
    multistage.build,
    multistage.launch_shape,
    multistage.kernel_arguments,
    multistage.problem_class,
)
SIMT = KernelDefinition(
    simt.build,
    simt_launch.launch_shape,
    simt.kernel_arguments,
    simt.problem_class,
    simt.config_class,
)
TMA = KernelDefinition(
    tma_kernel.build,
    tma_launch.launch_shape,
    tma_arguments.kernel_arguments,
    tma_kernel.problem_class,
)
COUNTER_RESET = TMA._replace(
    build=dynamic_tile_scheduler.build,
    launch_shape=dynamic_tile_scheduler.launch_shape,
    kernel_arguments=dynamic_tile_scheduler.kernel_arguments,
)
FLAG_RESET = TMA._replace(
    build=flag_reset.build,
    launch_shape=flag_reset.launch_shape,
    kernel_arguments=flag_reset.kernel_arguments,
)
SPLITK_REDUCTION = KernelDefinition(
    splitk_reduction.build,
    splitk_reduction.launch_shape,
    splitk_reduction.kernel_arguments,
    splitk_reduction.problem_class,
    splitk_reduction.config_class,
)


def parse(text: str) -> AnyConfig:
    """Parse a configuration: ``128x128x32:2x2:4``, ``64x64x16:2x2:4:m8n8k4``,
    ``tma:128x256x64:2:4/2x1``, ``simt:128x256x8:16x16:4``.
    """
    if not isinstance(text, str):
        raise ConfigError(f"a configuration must be text, got {text!r}", hint="128x128x32:2x2:4")
    kind = text.partition(":")[0]
    if kind == "tma":
        return TmaConfig.parse(text)
    return SimtConfig.parse(text) if kind == "simt" else Config.parse(text)


def build(problem: Problem, config: AnyConfig, device: DeviceSpec) -> Traced:
    """Trace the kernel that the device launches, once for all problems of the same class."""
    validate(problem)
    config = _launched(config, device)
    return _definition(config).build(problem, config)


def launch_shape(
    problem: Problem, config: AnyConfig, device: DeviceSpec = DEFAULT_DEVICE
) -> LaunchShape:
    """Grid, block and cluster of the launch."""
    validate(problem, device)
    config = _launched(config, device)
    return _definition(config).launch_shape(problem, config, device)


def kernel_arguments(
    problem: Problem, config: AnyConfig, strides: Strides, device: DeviceSpec = DEFAULT_DEVICE
) -> KernelArguments:
    """The parameter block for matrices ``a``, ``b``, ``d`` (and ``c``) with these strides; the
    addresses, α and β are written later.
    """
    return _definition(config).kernel_arguments(problem, config, strides, device)


def launches(
    problem: Problem, config: AnyConfig, strides: Strides, device: DeviceSpec = DEFAULT_DEVICE
) -> tuple[KernelLaunch, ...]:
    """The launches of a GEMM in order. With split-K, the split-K reduction follows; with a dynamic
    tile scheduler, the first launch resets its counter, with stream-K its flags. Of an epilogue,
    maxima are reset first of all, and other reductions are the last.
    """
    config = _launched(config, device)
    gemm = tuple(
        KernelLaunch(
            kernel.kernel(problem, config),
            kernel.launch_shape(problem, config, device),
            kernel.kernel_arguments(problem, config, strides, device),
        )
        for kernel in _definitions(problem, config, device)
    )
    before = maxima_reset.launches(problem, config.programmatic)
    return before + gemm + _reductions(problem, config, device)


def _reductions(
    problem: Problem, config: AnyConfig, device: DeviceSpec
) -> tuple[KernelLaunch, ...]:
    """The launches that combine the partial results of an epilogue's reductions."""
    offset = workspace.regions_offset(problem, config, device)
    programmatic = config.programmatic
    return tuple(
        KernelLaunch(
            GemmKernel(
                reduction_kernel.build,
                reduction_kernel.problem_class(problem),
                reduction_kernel.step_of(region, programmatic),
            ),
            reduction_kernel.launch_shape(region, programmatic),
            reduction_kernel.kernel_arguments(region, offset),
        )
        for region in workspace.regions(problem, config)
    )


def kernels(
    problem: Problem, config: AnyConfig, device: DeviceSpec = DEFAULT_DEVICE
) -> tuple[GemmKernel, ...]:
    """The kernels of ``launches``, not traced yet."""
    config = _launched(config, device)
    gemm = tuple(kernel.kernel(problem, config) for kernel in _definitions(problem, config, device))
    first = maxima_reset.launches(problem, config.programmatic)
    last = _reductions(problem, config, device)
    before, after = (tuple(launch.kernel for launch in launches) for launches in (first, last))
    return before + gemm + after


def workspace_bytes(
    problem: Problem, config: AnyConfig, device: DeviceSpec = DEFAULT_DEVICE
) -> int:
    """Bytes of device memory that a call needs besides its matrices."""
    validate(problem, device)
    return workspace.workspace_bytes(problem, config, device)


def relayout_problem(problem: Problem, config: AnyConfig) -> Problem:
    """The problem after relayout: with the layouts and alignments that the kernel supports."""
    validate(problem)
    if isinstance(config, TmaConfig):
        return tma_config.relayout_problem(problem)
    is_multistage = isinstance(config, Config)
    return multistage_config.relayout_problem(problem) if is_multistage else problem


def _definitions(problem: Problem, config: AnyConfig, device: DeviceSpec) -> list[KernelDefinition]:
    """The kernels of a GEMM, in launch order."""
    validate(problem, device)
    found = [_definition(config)]
    if isinstance(config, TmaConfig) and config.dynamic:
        found.insert(0, COUNTER_RESET)
    if isinstance(config, TmaConfig) and shares_tiles(problem, config, device):
        found.insert(0, FLAG_RESET)
    if workspace.split_k_bytes(problem, config, device):
        found.append(SPLITK_REDUCTION)
    return found


def _launched(config: AnyConfig, device: DeviceSpec) -> AnyConfig:
    """The configuration of the kernel that the device launches."""
    return simt_launch.launched_config(config, device) if isinstance(config, SimtConfig) else config


def _definition(config: object) -> KernelDefinition:
    for kind, kernel in ((Config, MULTISTAGE), (TmaConfig, TMA), (SimtConfig, SIMT)):
        if isinstance(config, kind):
            return kernel
    raise ConfigError(f"config must be a Config, TmaConfig or SimtConfig, got {config!r:.60}")
