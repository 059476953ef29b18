"""The kernel before a stream-K GEMM: resets the flags of the workspace, which is new in each call.

It launches the GEMM kernel before it waits for the grids ahead, so that the CTAs of that one start
on SMs as they become free; they wait for this grid before they access global memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ....builder import Builder, Reg, Traced
from ....target import DeviceSpec
from ...kernel_launch import KernelArguments, LaunchShape, MatrixStrides
from ...kernel_scalars import global_pointer
from ...parameter_declaration import KernelParameters, parameter
from ...problem import Problem
from ..tma_config import TmaConfig
from .partial_exchange import flags, grid_ctas

THREADS = 256


@dataclass(frozen=True)
class FlagResetParameters(KernelParameters):
    """The address of the flags, and the number of them."""

    flags: Reg = parameter("u64", address="w")
    count: Reg = parameter("u32")


def build(*_: object) -> Traced:
    """The kernel, the same for all problems."""
    return _build()


@cache
def _build() -> Traced:
    def kernel(k: Builder, p: FlagResetParameters) -> None:
        k.launch_dependent_grids()
        k.wait_for_prior_grids()
        index = k.ctaid.x * THREADS + k.tid.x
        with k.if_(index < p.count):
            (global_pointer(k, p.flags).cast("u32") + index).store(0)

    return FlagResetParameters.trace(kernel, "gemm_stream_k_flags", block=THREADS)


def launch_shape(problem: Problem, config: TmaConfig, device: DeviceSpec) -> LaunchShape:
    """A thread for each flag."""
    count = flags(config, grid_ctas(config, device))
    return LaunchShape((-(-count // THREADS), 1, 1), (THREADS, 1, 1), None, True)


def kernel_arguments(
    problem: Problem, config: TmaConfig, strides: Mapping[str, MatrixStrides], device: DeviceSpec
) -> KernelArguments:
    """The parameter block; the address of the flags is the workspace's."""
    return FlagResetParameters.pack({"count": flags(config, grid_ctas(config, device))})
