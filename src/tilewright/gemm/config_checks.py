"""Notation and checks that the configurations of all GEMM kernels share."""

from __future__ import annotations

import re
from typing import Any

from ..errors import ConfigError
from ..mma.array_inputs import is_integer
from ..target import DeviceSpec
from .problem import SIZE_LIMIT, Problem

MmaShape = tuple[int, int, int]
MAX_SPLIT = 64  # parts of K in split-K


def notation(form: str) -> re.Pattern[str]:
    """How a kernel's configurations are written; each ``#`` is a number."""
    return re.compile(form.replace("#", r"(\d{1,10})"), re.ASCII)


def numbers_of(form: re.Pattern[str], text: object, example: str) -> re.Match[str]:
    """The parts of a configuration's text. Raises ConfigError."""
    found = form.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise ConfigError(f"expected a configuration such as {example}, got {text!r:.60}")
    return found


def check_kinds(config: Any, **lengths: int) -> None:
    """Raise ConfigError unless a field has this number of integers; length 0: one integer."""
    for name, length in lengths.items():
        value = getattr(config, name)
        numbers = value if isinstance(value, tuple) else (value,)
        fits = len(numbers) == length if length else numbers is not value
        if not fits or ({*map(type, numbers)} != {int} and not all(map(is_integer, numbers))):
            kind = f"a tuple of {length} whole numbers" if length else "a whole number"
            raise ConfigError(f"{name} of {type(config).__name__} must be {kind}, got {value!r}")


def check_flags(config: Any, *names: str) -> None:
    """Raise ConfigError unless these fields are True or False."""
    for name in names:
        value = getattr(config, name)
        if not isinstance(value, bool):
            kind = type(config).__name__
            raise ConfigError(f"{name} of {kind} must be True or False, got {value!r:.60}")


def check_tile(config: Any, least: MmaShape) -> None:
    """Raises ConfigError for a tile size that is not a power of two of at least ``least``."""
    for name, size, smallest in zip("MNK", config.tile, least, strict=True):
        check_power_of_two(config, f"tile {name}", size, smallest)


def check_power_of_two(config: Any, name: str, size: int, least: int) -> None:
    """Raises ConfigError for a size that is not a power of two of at least ``least``."""
    if size < least or size & (size - 1):
        raise ConfigError(f"{config}: {name} must be a power of two, at least {least}, got {size}")


def check_counts(config: Any) -> None:
    """Raises ConfigError for threads, CTAs per SM or stages that a cp.async mainloop lacks."""
    if not 1 <= config.stages <= 16:
        raise ConfigError(f"{config}: stages must be 1 to 16, got {config.stages}")
    if config.threads > 1024 or config.ctas < 1:
        raise ConfigError(f"{config}: a CTA has at most 1024 threads, and an SM at least 1 CTA")
    check_group(config)


def check_group(config: Any) -> None:
    """Raises ConfigError for a rasterization group out of range."""
    if not 1 <= config.group < SIZE_LIMIT:
        raise ConfigError(f"{config}: the rasterization group must be from 1 to 2^31 - 1")


def check_shared_memory(config: Any, need: int, device: DeviceSpec) -> None:
    """Raises ConfigError where a CTA needs more shared memory than the device has."""
    have = device.limits.shared_per_block
    if need > have:
        raise ConfigError(
            f"{config} needs {need} bytes of shared memory; {device.name} has {have} for a CTA",
            hint="fewer stages or a smaller tile",
        )


def check_epilogue(config: Any, problem: Problem) -> None:
    """Raises ConfigError for an epilogue that the cp.async kernels do not compute."""
    if problem.pair:
        raise ConfigError(f"{config}: two matrices B need a configuration of kernel tma")
    if problem.scaling is not None:
        raise ConfigError(f"{config}: block scales need kernel tma")
