"""Sizes of a launch, checked against the limits of kernel and target; SM and core counts."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from ...errors import LaunchError
from ...target import DEFAULT_DEVICE, DEVICES, Target
from ..program.kernel_metadata import KernelMetadata

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_CLUSTER = 16  # CTAs; on hardware, more than 8 (the portable size) is an opt-in of the kernel
MAX_LOCAL = 512 * 1024  # bytes of local memory per thread

Dim = int | Sequence[int]
Dim3 = tuple[int, int, int]


def check_count(name: str, value: object, least: int) -> int:
    """The value of an argument that must be an integer of at least ``least``."""
    if not isinstance(value, int | np.integer) or value < least:
        raise LaunchError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def available_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def sm_count(target: Target) -> int:
    """The number of SMs of a GPU of that architecture."""
    sms = (d.sms for d in DEVICES.values() if d.target.number == target.number)
    return next(sms, DEFAULT_DEVICE.sms)


def parse_dims(dims: object, name: str, least: int, most: Dim3) -> Dim3:
    """Grid, block or cluster dimensions (a ``Dim``) as three integers."""
    values: tuple[object, ...] = ()
    if isinstance(dims, int | np.integer):
        values = (dims,)
    elif isinstance(dims, Sequence) and not isinstance(dims, bytes | bytearray):
        values = tuple(dims)
    integers = [int(v) for v in values if isinstance(v, int | np.integer)]
    if not 1 <= len(values) <= 3 or len(integers) < len(values):
        raise LaunchError(f"{name} must be one to three integers, got {dims!r}")
    x, y, z = (*integers, 1, 1)[:3]
    if any(not least <= v <= top for v, top in zip((x, y, z), most, strict=True)):
        raise LaunchError(f"{name} must be from {least} to {most}, got {(x, y, z)}")
    return x, y, z


def cluster_dims(
    kernel: KernelMetadata, target: Target, grid: Dim3, dims: Dim | None
) -> tuple[Dim3, bool]:
    """The cluster dimensions, and whether the caller (``dims``) or the kernel specifies them."""
    declared: Dim3 | None = None
    if kernel.cluster:
        x, y, z = (*kernel.cluster, 1, 1)[:3]
        declared = x, y, z
    cluster = declared if dims is None else parse_dims(dims, "cluster", 1, MAX_GRID)
    if cluster is None:
        return (1, 1, 1), False
    if declared is not None and cluster != declared:
        raise LaunchError(f"kernel {kernel.name!r} needs clusters of {declared}, got {cluster}")
    size = cluster[0] * cluster[1] * cluster[2]
    most = MAX_CLUSTER if target.limits.cluster > 1 else 1
    if size > most:
        raise LaunchError(f"a cluster on {target.name} must have at most {most} CTAs, got {size}")
    if any(n % c for n, c in zip(grid, cluster, strict=True)):
        raise LaunchError(f"grid must be a multiple of the cluster {cluster}, got {grid}")
    return cluster, True


def check_limits(
    kernel: KernelMetadata, target: Target, stack: int, block: Dim3, shared: object
) -> None:
    """Raise LaunchError if the block or its memory exceeds the limits of kernel and target.
    ``stack``: bytes per thread, if the kernel uses a stack. ``shared``: dynamic shared memory.
    """
    limits = target.limits
    threads = block[0] * block[1] * block[2]
    most = kernel.max_threads or limits.threads_per_block
    if threads > most:
        raise LaunchError(
            f"a block of kernel {kernel.name!r} must have at most {most} threads, got {threads}"
        )
    exact = (*kernel.exact_block, 1, 1)[:3]
    if kernel.exact_block and block != exact:
        raise LaunchError(f"kernel {kernel.name!r} needs blocks of {exact}, got {block}")
    local = kernel.local_bytes + (stack if kernel.uses_dynamic_stack else 0)
    if local > MAX_LOCAL:
        raise LaunchError(
            f"kernel {kernel.name!r} needs {local} bytes of local memory per thread; "
            f"at most {MAX_LOCAL} are available"
        )
    most = limits.shared_per_block - kernel.shared_bytes
    if most < 0:
        raise LaunchError(
            f"kernel {kernel.name!r} needs {kernel.shared_bytes} bytes of static shared memory; "
            f"at most {limits.shared_per_block} are available"
        )
    if not isinstance(shared, int | np.integer) or not 0 <= shared <= most:
        raise LaunchError(
            f"the dynamic shared memory of kernel {kernel.name!r} must be 0 to {most} bytes "
            f"({limits.shared_per_block} less {kernel.shared_bytes} static), got {shared}"
        )
