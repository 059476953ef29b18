"""Configurations, launches and kernels of a problem, for whichever kernel a configuration names.

A configuration's class names the kernel: ``Config`` is ``multistage``, ``TmaConfig`` is ``tma``,
``SimtConfig`` is ``simt``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..builder import Traced
from ..errors import ConfigError
from ..target import DEFAULT_DEVICE, Device
from .cost_model import AnyConfig
from .cp_async import multistage, simt
from .cp_async.multistage_config import Config
from .cp_async.simt_config import SimtConfig
from .kernel_launch import Arguments, Kernel, Lines, Shape, Step
from .problem import Problem, expect
from .tma import dynamic_tile_scheduler, splitk_reduction, tma_kernel
from .tma.tma_config import TmaConfig, taken


def parse(text: str) -> AnyConfig:
    """A configuration from its text: ``128x128x32:2x2:4``, ``64x64x16:2x2:4:m8n8k4``,
    ``tma:128x256x64:2:4/2x1``, ``simt:128x256x8:16x16:4``.
    """
    if not isinstance(text, str):
        raise ConfigError(f"{text!r} is no configuration's text", hint="128x128x32:2x2:4")
    kinds = {"tma": TmaConfig, "simt": SimtConfig}
    return kinds.get(text.partition(":")[0], Config).parse(text)


def build(problem: Problem, config: AnyConfig) -> Traced:
    """The kernel for a problem and a configuration, traced once for all that it serves."""
    expect(problem)
    return _kernel(config).build(problem, config)


def shape(problem: Problem, config: AnyConfig, device: Device = DEFAULT_DEVICE) -> Shape:
    """Grid, block and cluster of the launch."""
    expect(problem, device)
    return _kernel(config).shape(problem, config, device)


def arguments(
    problem: Problem,
    config: AnyConfig,
    lines: Mapping[str, Lines],
    device: Device = DEFAULT_DEVICE,
) -> Arguments:
    """The kernel's parameters, but for addresses and factors, for matrices ``a``, ``b``, ``d`` (and
    ``c``) that lie as ``lines`` says.
    """
    return _kernel(config).arguments(problem, config, lines, device)


def steps(
    problem: Problem,
    config: AnyConfig,
    lines: Mapping[str, Lines],
    device: Device = DEFAULT_DEVICE,
) -> tuple[Step, ...]:
    """The kernels that do it, one after another: where K is cut, a second one adds up the parts;
    where tiles come by a counter, one before sets it to zero.
    """
    given = problem, config, lines, device
    return tuple(
        Step(kernel, module.shape(problem, config, device), module.arguments(*given))
        for module, kernel in _modules(problem, config, device)
    )


def kernels(
    problem: Problem, config: AnyConfig, device: Device = DEFAULT_DEVICE
) -> tuple[Kernel, ...]:
    """The kernels of ``steps``, not traced yet."""
    return tuple(kernel for _, kernel in _modules(problem, config, device))


def _modules(problem: Problem, config: AnyConfig, device: Device) -> list[tuple[Any, Kernel]]:
    """The kernels, each with the module that it is from."""
    expect(problem, device)
    main = _kernel(config)
    like, found = main.shape_class(problem, config), [main]
    if isinstance(config, TmaConfig):
        before = [dynamic_tile_scheduler] if config.dynamic else []
        after = [splitk_reduction] if splitk_reduction.workspace(problem, config, device) else []
        found = [*before, main, *after]
    return [(module, Kernel(module.build, like, config)) for module in found]


def workspace(problem: Problem, config: AnyConfig, device: Device = DEFAULT_DEVICE) -> int:
    """Bytes of memory that a call takes besides its matrices."""
    expect(problem, device)
    if not isinstance(config, TmaConfig):
        return 0
    return splitk_reduction.workspace(problem, config, device) + dynamic_tile_scheduler.workspace(
        config
    )


def takes(problem: Problem, config: AnyConfig) -> Problem:
    """The problem as the kernel takes it: what lies otherwise is to be copied first."""
    expect(problem)
    return taken(problem) if isinstance(config, TmaConfig) else problem


def _kernel(config: Any) -> Any:
    for kind, kernel in ((Config, multistage), (TmaConfig, tma_kernel), (SimtConfig, simt)):
        if isinstance(config, kind):
            return kernel
    raise ConfigError(f"{config!r} is no configuration")
