"""Parameters of kernel ``tma``: a class for each kind of operands."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from functools import cache
from typing import Any

from ....builder import Pointer, Reg
from ...epilogue.operand_parameters import parameters_with
from ...grouping import has_problems
from ...kernel_launch import (
    GROUP_ADDRESS,
    INDEX_ADDRESSES,
    METADATA_ADDRESSES,
    PAIR_ADDRESS,
)
from ...parameter_declaration import TENSOR_MAP, KernelParameters, parameter
from ...problem import Problem


@dataclass(frozen=True)
class TmaParameters(KernelParameters):
    """``edge_*``: tensor maps of the last tile along M or N. ``full_tiles``: tiles that are not
    split along K. ``counter``: of the dynamic tile scheduler, or the workspace of stream-K.
    """

    map_a: Pointer = parameter(TENSOR_MAP, address="a")
    map_b: Pointer = parameter(TENSOR_MAP, address="b")
    map_c: Pointer = parameter(TENSOR_MAP, address="c")
    map_d: Pointer = parameter(TENSOR_MAP, address="d")
    map_workspace: Pointer = parameter(TENSOR_MAP, address="w")
    edge_a: Pointer = parameter(TENSOR_MAP, address="a")
    edge_b: Pointer = parameter(TENSOR_MAP, address="b")
    c: Reg = parameter("u64", address="c")
    d: Reg = parameter("u64", address="d")
    ldc: Reg = parameter("u64")
    ldd: Reg = parameter("u64")
    batch_stride_c: Reg = parameter("u64")
    batch_stride_d: Reg = parameter("u64")
    m: Reg = parameter("u32")
    n: Reg = parameter("u32")
    k: Reg = parameter("u32")
    batches: Reg = parameter("u32")
    full_tiles: Reg = parameter("u32")
    counter: Reg = parameter("u64", address="w")
    alpha: Reg = parameter("f32")
    beta: Reg = parameter("f32")
    alpha_ptr: Reg = parameter("u64")
    beta_ptr: Reg = parameter("u64")

    @property
    def prefetched_maps(self) -> tuple[Pointer, ...]:
        """The tensor maps that all CTAs use."""
        return self.map_a, self.edge_a, self.map_b, self.edge_b


@dataclass(frozen=True)
class PairParameters(TmaParameters):
    """With the second matrix B of a pair."""

    map_b2: Pointer = parameter(TENSOR_MAP, address=PAIR_ADDRESS)


@dataclass(frozen=True)
class ScaledParameters(TmaParameters):
    """With block scales: tensor maps of those that tensor copies load, else addresses."""

    scale_a: Reg = parameter("u64", address="scale_a")
    scale_a_m: Reg = parameter("u64")
    scale_a_k: Reg = parameter("u64")
    scale_a_batch: Reg = parameter("u64")
    scale_b: Reg = parameter("u64", address="scale_b")
    scale_b_n: Reg = parameter("u64")
    scale_b_k: Reg = parameter("u64")
    scale_b_batch: Reg = parameter("u64")
    map_scale_a: Pointer = parameter(TENSOR_MAP, address="scale_a")
    map_scale_b: Pointer = parameter(TENSOR_MAP, address="scale_b")

    @property
    def scale_maps(self) -> tuple[tuple[Pointer, ...], tuple[Pointer, ...]]:
        """The tensor maps of the scales of A, and of each B."""
        return (self.map_scale_a,), (self.map_scale_b,)


@dataclass(frozen=True)
class ScaledPairParameters(ScaledParameters, PairParameters):
    """With the block scales of a pair, both of the same strides."""

    scale_b2: Reg = parameter("u64", address="scale_b2")
    map_scale_b2: Pointer = parameter(TENSOR_MAP, address="scale_b2")

    @property
    def scale_maps(self) -> tuple[tuple[Pointer, ...], tuple[Pointer, ...]]:
        return (self.map_scale_a,), (self.map_scale_b, self.map_scale_b2)


@dataclass(frozen=True)
class WeightParameters(TmaParameters):
    """With prepared weights. ``units_along``: units of a row block, along K."""

    weights: Reg = parameter("u64", address="b")
    units_along: Reg = parameter("u32")

    @property
    def prefetched_maps(self) -> tuple[Pointer, ...]:
        return self.map_a, self.edge_a


@dataclass(frozen=True)
class WeightPairParameters(WeightParameters):
    """With the second matrix of prepared weights."""

    weights2: Reg = parameter("u64", address=PAIR_ADDRESS)


@dataclass(frozen=True)
class SparseParameters(TmaParameters):
    """With the metadata of a sparse matrix, and its blocks along M (or N) and along K."""

    metadata: Reg = parameter("u64", address=METADATA_ADDRESSES[0])
    metadata_rows: Reg = parameter("u32")
    metadata_columns: Reg = parameter("u32")


@dataclass(frozen=True)
class SparsePairParameters(SparseParameters, PairParameters):
    """With the metadata of a sparse matrix, or of a pair of them, which have equally many."""

    metadata2: Reg = parameter("u64", address=METADATA_ADDRESSES[1])


@dataclass(frozen=True)
class ScaledSparseParameters(SparseParameters, ScaledParameters):
    """With the metadata of a sparse matrix, and block scales."""


@dataclass(frozen=True)
class GroupedParameters(TmaParameters):
    """With the array of the groups' sizes; with indices of rows, A's row pitch in units of 16
    bytes, and the rows of A and of D.
    """

    groups: Reg = parameter("u64", address=GROUP_ADDRESS)
    gather: Reg = parameter("u64", address=INDEX_ADDRESSES[0])
    scatter: Reg = parameter("u64", address=INDEX_ADDRESSES[1])
    places: Reg = parameter("u64", address=INDEX_ADDRESSES[2])
    a: Reg = parameter("u64", address="a")
    pitch_a: Reg = parameter("u32")
    rows_a: Reg = parameter("u32")
    rows_d: Reg = parameter("u32")


@dataclass(frozen=True)
class ProblemListParameters(TmaParameters):
    """With the table of a list of ``batches`` problems, and the number of work tiles."""

    table: Reg = parameter("u64", address=GROUP_ADDRESS)
    tiles: Reg = parameter("u32")

    @property
    def prefetched_maps(self) -> tuple[Pointer, ...]:
        return ()


def tma_parameters(problem: Problem) -> type[TmaParameters]:
    """The class of the kernel's parameters."""
    base = PairParameters if problem.pair else TmaParameters
    if problem.scaling is not None:
        base = ScaledPairParameters if problem.pair else ScaledParameters
    if problem.weights is not None:
        base = WeightPairParameters if problem.pair else WeightParameters
    if problem.sparse:
        base = ScaledSparseParameters if problem.scaling is not None else SparseParameters
        base = SparsePairParameters if problem.pair else base
    if problem.groups is not None:
        base = ProblemListParameters if has_problems(problem.groups) else _with_groups(base)
    return parameters_with(base, problem.epilogue, problem.scalar_type, maps=True)


@cache
def _with_groups(base: Any) -> type[TmaParameters]:
    """The parameters ``base``, and those of groups after them."""
    if base is TmaParameters:
        return GroupedParameters
    name, bases = f"Grouped{base.__name__}", (GroupedParameters, base)
    made: type[TmaParameters] = make_dataclass(name, [], bases=bases, frozen=True)
    return made
