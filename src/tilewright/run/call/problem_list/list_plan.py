"""The plan of a list of problems: how matrices are read, kernels, tables.

Problems whose matrices have the same contiguous dimensions share a launch. Of the others there is
one for each combination of contiguous dimensions of A and B, and for D of rows that tensor copies
can and cannot store.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from .... import gemm
from ....errors import ConfigError
from ....gemm.epilogue.bound_epilogue import BoundEpilogue, EpilogueOperandLayout
from ....gemm.epilogue.operand_parameters import check_operands
from ....gemm.grouping import PROBLEMS, Grouping
from ....gemm.kernel_launch import GROUP_ADDRESS, MATRICES, KernelArguments
from ....gemm.problem import FP8
from ....gemm.tma.problem_list import problem_table as tables
from ....gemm.tma.problem_list.problem_table import ProblemTable
from ...devices.device_protocol import ExecutionDevice, KernelSource, PreparedLaunch
from ..alpha_beta import ScaleFactor
from ..dispatch import checked_config
from ..matrix_layout import (
    MAX_ALIGN,
    ArraySignature,
    OperandLayout,
    layout_with_order,
    padded_leading_dim,
)
from ..request import MatmulOptions, Request
from .list_epilogue import ListEpilogue
from .table_memory import TableMemory, UploadedTable

TABLE = MATRICES.index(GROUP_ADDRESS)
MAX_PITCH = 2**36  # bytes of a leading dimension
MAX_TABLES = 32  # of a launch that are kept in device memory
Addresses = np.ndarray[Any, np.dtype[np.int64]]  # one for each problem


class ListLaunch:
    """The launch of some problems, whose ``numbers`` are those in the list."""

    def __init__(
        self, numbers: Sequence[int], table: ProblemTable, launch: PreparedLaunch,
        arguments: KernelArguments,
    ) -> None:  # fmt: skip
        self.numbers, self.table = np.array(numbers, np.int64), table
        self.launch, self.arguments = launch, arguments
        self._uploaded: dict[Any, dict[int, UploadedTable]] = {}  # by addresses, by stream

    def start(
        self, matrices: Sequence[Addresses], operands: Sequence[Addresses | None],
        scales: Sequence[ScaleFactor], memory: TableMemory, stream: int,
    ) -> None:  # fmt: skip
        """Launch with matrices A, B, D and operands of all problems of the list at these addresses.
        The table is uploaded unless one for these addresses is there.
        """
        own = [x[self.numbers] for x in matrices]
        of_inputs = [None if x is None else x[self.numbers] for x in operands]
        key = tuple(x.tobytes() for x in (*own, *(x for x in of_inputs if x is not None)))
        uploaded = memory.find(self._uploaded.get(key, {}))
        if uploaded is None:
            uploaded = memory.upload(
                self.table.nbytes, lambda at: self.table.bytes(at, own, of_inputs)
            )
            if memory.kept:
                if len(self._uploaded) >= MAX_TABLES:
                    self._uploaded.clear()
                self._uploaded.setdefault(key, {})[stream] = uploaded
        memory.use(uploaded)
        addresses = [0] * len(MATRICES)
        addresses[TABLE] = uploaded.address
        self.launch(self.arguments.pack(addresses, scales), stream)


class ListSignatures(NamedTuple):
    """The matrices of a list of problems, as a plan depends on them."""

    a: tuple[ArraySignature, ...]
    b: tuple[ArraySignature, ...]
    d: tuple[ArraySignature, ...]


class ListPlan:
    """``layouts``: those of A and of B of each problem, in place or of their copies."""

    def __init__(
        self, signatures: ListSignatures, request: Request, epilogue: ListEpilogue,
        options: MatmulOptions, on: ExecutionDevice,
    ) -> None:  # fmt: skip
        self.request, self.epilogue, self.on, self.options = request, epilogue, on, options
        self.signatures = signatures
        any_major = signatures.a[0].itemsize == 2
        staged = signatures.a[0].device == "cpu"
        self.layouts = tuple(
            _input_layouts(own, k_order=order, any_major=any_major, staged=staged)
            for own, order in ((signatures.a, True), (signatures.b, False))
        )
        self.sizes = np.array(
            [(*a.shape, b.shape[1]) for a, b in zip(*signatures[:2], strict=True)], np.int64
        )[:, [0, 2, 1]]
        self.pitch_d = np.array([_pitch(d) for d in signatures.d], np.int64)
        self.launches = [self._launch(numbers) for numbers in self._classes()]

    def _classes(self) -> list[list[int]]:
        """The problems that share a launch; those without results are in none."""
        classes: dict[Any, list[int]] = {}
        for i, (a, b) in enumerate(zip(*self.layouts, strict=True)):
            if 0 not in self.signatures.d[i].shape:
                key = a.row_major, b.row_major, self._align_d(i) == MAX_ALIGN
                classes.setdefault(key, []).append(i)
        return list(classes.values())

    def _align_d(self, i: int) -> int:
        """The bytes that divide the address of D, its leading dimension and its rows."""
        d = self.signatures.d[i]
        row, pitch = d.shape[1] * d.itemsize, int(self.pitch_d[i]) * d.itemsize
        return gcd(d.misalignment, row, pitch, MAX_ALIGN)

    def _launch(self, numbers: list[int]) -> ListLaunch:
        problem = self._problem(numbers)
        config = checked_config(problem, self.options.config, self.on.target)
        if not isinstance(config, gemm.TmaConfig):
            raise ConfigError(f"a list of problems needs a configuration of tma, got {config}")
        leading = [np.array([x[i].leading_dim for i in numbers], np.int64) for x in self.layouts]
        operands = [x and x.strides(numbers) for x in self.epilogue.inputs]
        table = tables.problem_table(
            problem, config, self.sizes[numbers], [*leading, self.pitch_d[numbers]], operands
        )
        (kernel,) = gemm.kernels(problem, config, self.on.target)
        executable, shared = self.on.kernel(KernelSource(str(kernel), kernel.trace))
        grid, block, cluster, programmatic, _ = tables.launch_shape(table, config, self.on.target)
        launch = self.on.prepare(
            executable, grid, block, shared, cluster=cluster, programmatic=programmatic
        )
        return ListLaunch(numbers, table, launch, tables.kernel_arguments(problem, table))

    def _problem(self, numbers: list[int]) -> gemm.Problem:
        """The problem that stands for some: its sizes are their means, weighted by their work, and
        as many of it are about the same work.
        """
        work = self.sizes[numbers].prod(1).astype(np.float64) + 1
        mean = (self.sizes[numbers] * work[:, None]).sum(0) / work.sum()
        m, n, k = (max(round(x), 1) for x in mean)
        count = max(round(work.sum() / (m * n * k)), 1)
        a, b = (self.layouts[i][numbers[0]].row_major for i in (0, 1))
        request, (left, right) = self.request, self.request.mma_dtypes
        return gemm.Problem(
            m, n, k, left, right, self.epilogue.graph.d.type,
            "k" if a else "m", "n" if b else "k",
            align_d=min(self._align_d(i) for i in numbers),
            batch=count, fast=request.fast_accum and left in FP8,
            epilogue=self._bound_epilogue(numbers), groups=Grouping("s32", PROBLEMS),
        )  # fmt: skip

    def _bound_epilogue(self, numbers: list[int]) -> BoundEpilogue:
        columns = [int(n) for n in self.sizes[numbers, 1]]
        layouts = tuple(
            EpilogueOperandLayout() if x is None else x.layout(numbers, columns)
            for x in self.epilogue.inputs
        )
        bound = BoundEpilogue(self.epilogue.graph, layouts, (), in_table=True)
        check_operands(bound)
        return bound


def _pitch(d: ArraySignature) -> int:
    """The leading dimension of a D with contiguous rows."""
    return d.strides[0] if d.shape[0] > 1 else max(d.shape[1], 1)


def _input_layouts(
    signatures: Sequence[ArraySignature], *, k_order: bool, any_major: bool, staged: bool
) -> tuple[OperandLayout, ...]:
    """The layouts of A or B of all problems: all K-major or all MN-major if they are readable so,
    else each as it is, K-major if it must be copied. ``k_order``: K-major is row-major.
    """
    by_k = [_readable(s, k_order, staged) for s in signatures]
    by_mn = [_readable(s, not k_order, staged) if any_major else None for s in signatures]
    if all(by_k) or not all(by_mn):
        found = [x or y for x, y in zip(by_k, by_mn, strict=True)]
    else:
        found = by_mn
    return tuple(x or _copy(s, k_order) for x, s in zip(found, signatures, strict=True))


def _readable(s: ArraySignature, row_major: bool, staged: bool) -> OperandLayout | None:
    """The layout of a matrix that tensor copies can read in this order, where it is or as it is
    uploaded.
    """
    own = layout_with_order(s, row_major)
    if own is not None and staged:
        return _copy(s, row_major)
    if own is None or own.align < MAX_ALIGN or own.leading_dim * s.itemsize >= MAX_PITCH:
        return None
    return OperandLayout(row_major, own.leading_dim, copied=False)


def _copy(s: ArraySignature, row_major: bool) -> OperandLayout:
    length = s.shape[1] if row_major else s.shape[0]
    return OperandLayout(row_major, padded_leading_dim(length, s.itemsize, MAX_ALIGN), copied=True)
