"""Parameters of the kernels ``multistage`` and ``simt``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...builder import Reg
from ...mma.metadata_blocks import block_grid
from ...target import DeviceSpec
from ..epilogue.operand_parameters import operand_values, parameters_with, reduction_values
from ..kernel_launch import METADATA_ADDRESSES, KernelArguments, MatrixStrides
from ..parameter_declaration import KernelParameters, parameter
from ..problem import Problem
from ..workspace import regions, regions_offset


@dataclass(frozen=True)
class CpAsyncParameters(KernelParameters):
    """Parameters of the kernels ``multistage`` and ``simt``."""

    a: Reg = parameter("u64", address="a")
    b: Reg = parameter("u64", address="b")
    c: Reg = parameter("u64", address="c")
    d: Reg = parameter("u64", address="d")
    m: Reg = parameter("u32")
    n: Reg = parameter("u32")
    k: Reg = parameter("u32")
    lda: Reg = parameter("u64")
    ldb: Reg = parameter("u64")
    ldc: Reg = parameter("u64")
    ldd: Reg = parameter("u64")
    alpha: Reg = parameter("f32")
    beta: Reg = parameter("f32")
    alpha_ptr: Reg = parameter("u64")
    beta_ptr: Reg = parameter("u64")
    batch_stride_a: Reg = parameter("u64")
    batch_stride_b: Reg = parameter("u64")
    batch_stride_c: Reg = parameter("u64")
    batch_stride_d: Reg = parameter("u64")


@dataclass(frozen=True)
class SparseCpAsyncParameters(CpAsyncParameters):
    """With the metadata of a sparse matrix, and its blocks along M (or N) and along K."""

    metadata: Reg = parameter("u64", address=METADATA_ADDRESSES[0])
    metadata_rows: Reg = parameter("u32")
    metadata_columns: Reg = parameter("u32")


def parameters_class(problem: Problem) -> type[CpAsyncParameters]:
    """The class of the kernel's parameters, without those of an epilogue."""
    return SparseCpAsyncParameters if problem.sparse else CpAsyncParameters


def kernel_arguments(
    problem: Problem, config: Any, strides: Mapping[str, MatrixStrides], device: DeviceSpec,
    parameters: type[CpAsyncParameters], more: Mapping[str, object] | None = None,
) -> KernelArguments:  # fmt: skip
    """The parameter block of this class for matrices with these strides. ``more``: values of other
    parameters.
    """
    offset = regions_offset(problem, config, device)
    values = reduction_values(regions(problem, config), offset) | dict(more or {})
    return packed(parameters, problem, strides, values)


def packed(
    parameters: type[CpAsyncParameters], problem: Problem, strides: Mapping[str, MatrixStrides],
    more: Mapping[str, object] | None = None,
) -> KernelArguments:  # fmt: skip
    """The parameter block of this class for matrices with these strides. ``more``: values of other
    parameters, such as those of an epilogue's reductions.
    """
    values = {"m": problem.m, "n": problem.n, "k": problem.k}
    values |= {f"ld{name}": stride.leading for name, stride in strides.items()}
    values |= {f"batch_stride_{name}": stride.batch for name, stride in strides.items()}
    if problem.sparse:
        grid = block_grid(problem.a, problem.sparse_rows, problem.k)
        values |= dict(zip(("metadata_rows", "metadata_columns"), grid, strict=True))
    bound = problem.epilogue
    with_epilogue = parameters_with(parameters, bound, problem.scalar_type)
    operands = operand_values(bound, strides) | dict(more or {})
    return with_epilogue.pack({**values, **operands}, problem.scalar_type)
