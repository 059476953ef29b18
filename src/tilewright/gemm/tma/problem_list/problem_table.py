"""The table of a list of problems, as the host writes it: fields of tensor maps and of records,
for all problems at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....mma.tensor_maps import tensor_map_fields as fields
from ....target import DeviceSpec
from ...kernel_launch import KernelArguments, LaunchShape
from ...problem import Problem
from ..launch.tma_parameters import tma_parameters
from ..tma_arguments import PLACEHOLDER
from ..tma_config import TmaConfig
from ..tma_graph_epilogue import output_tiles
from ..tma_operand import GlobalMatrix, matrix_operands
from .problem_record import (
    ADDRESS_OF_D,
    MAP_BYTES,
    MAPS,
    NUMBER,
    OPERAND_BYTES,
    OPERANDS,
    SIZES,
    STRIDE_M,
    STRIDE_N,
    record_bytes,
)

Integers = np.ndarray[Any, np.dtype[np.int64]]  # one for each problem


class OperandOfProblems(NamedTuple):
    """An input of the epilogue: strides along M and N in elements, or a number for each problem."""

    m: Integers
    n: Integers
    numbers: Any = None


class ProblemTable(NamedTuple):
    """``order``: the problems in the order of their records, those with long K first; ``records``:
    without addresses; ``problems``: the record of each work tile; ``by_tma``: D has tensor maps.
    """

    order: Integers
    records: np.ndarray[Any, np.dtype[np.uint8]]
    problems: np.ndarray[Any, np.dtype[np.uint32]]
    operands: tuple[OperandOfProblems | None, ...]
    by_tma: bool

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self.records.nbytes + self.problems.nbytes

    def bytes(self, at: int, matrices: Sequence[Integers], operands: Sequence[Any]) -> Any:
        """The table for address ``at``. ``matrices``: the addresses of A, B and D; ``operands``:
        those of the epilogue's inputs, None for scalars and numbers.
        """
        records = self.records.copy()
        a, b, d = (np.where(x == 0, at, x)[self.order] for x in matrices)  # 0: of an empty one
        for name, addresses in zip(MAPS, (a, b, d), strict=True):
            if name != "d" or self.by_tma:
                _put(records, MAPS[name], addresses)
        _put(records, ADDRESS_OF_D, d)
        for i, (operand, addresses) in enumerate(zip(self.operands, operands, strict=True)):
            slot = OPERANDS + i * OPERAND_BYTES
            if operand is not None and operand.numbers is not None:
                own = at + slot + NUMBER + np.arange(len(records)) * records.shape[1]
                _put(records, slot, own)
            elif operand is not None:
                _put(records, slot, addresses[self.order])
        return np.concatenate([records.reshape(-1), self.problems.view(np.uint8)])


def problem_table(
    problem: Problem, config: TmaConfig, sizes: Integers, leading: Sequence[Integers],
    operands: Sequence[OperandOfProblems | None],
) -> ProblemTable:  # fmt: skip
    """The table of problems of ``sizes`` M, N, K (a row each) and ``leading`` dimensions of A, B
    and D in elements.
    """
    m, n, k = sizes.T
    down, across = _tiles(config, m, n)
    order = np.argsort(-k * (down * across > 0), kind="stable")
    m, n, k, tiles = (x[order] for x in (m, n, k, down * across))
    records = np.zeros((len(sizes), record_bytes(problem.epilogue)), np.uint8)
    a, b = matrix_operands(problem, config)
    d = output_tiles(problem, config)[0]
    counts = {
        "a": (m, k) if problem.a_major == "k" else (k, m),
        "b": (n, k) if problem.b_major == "k" else (k, n),
        "d": (m, n),
    }  # lines of a matrix, elements of a line
    bytes_ = {"a": a.size, "b": b.size, "d": d.size}
    by_name = {"a": a.map, "b": b.map} | ({"d": d.map} if d.by_tma else {})
    for (name, map_), lead in zip(by_name.items(), leading, strict=False):
        encoded = map_(GlobalMatrix(PLACEHOLDER, 1024, 1024, 1024)).encode()
        at = MAPS[name]
        records[:, at : at + MAP_BYTES] = np.frombuffer(encoded, np.uint8)
        lines, length = counts[name]
        _put(records, at + fields.STRIDE.low // 8, lead[order] * bytes_[name] >> 4, np.uint32)
        for i, extent in enumerate((length, lines)):
            last = np.maximum(extent, 1) - 1
            _put(records, at + fields.SIZE.at(i).low // 8, last, np.uint32)
    first = np.cumsum(tiles) - tiles
    for i, column in enumerate((m, n, k, first)):
        _put(records, SIZES + 4 * i, column, np.uint32)
    _put(records, ADDRESS_OF_D + 8, leading[2][order])
    _put_operands(records, operands, order)
    problems = np.repeat(np.arange(len(sizes), dtype=np.uint32), tiles)
    return ProblemTable(order, records, problems, tuple(operands), d.by_tma)


def _put_operands(
    records: Any, operands: Sequence[OperandOfProblems | None], order: Integers
) -> None:
    """Write the strides, or the numbers, of the epilogue's inputs."""
    for i, operand in enumerate(operands):
        if operand is None:
            continue
        slot = OPERANDS + i * OPERAND_BYTES
        _put(records, slot + STRIDE_M, operand.m[order])
        _put(records, slot + STRIDE_N, operand.n[order])
        if operand.numbers is not None:
            _put(records, slot + NUMBER, np.asarray(operand.numbers)[order], np.float32)


def _put(records: Any, at: int, values: Any, dtype: Any = np.int64) -> None:
    """Write a value of each problem at byte ``at`` of its record."""
    raw = np.ascontiguousarray(values, dtype).view(np.uint8).reshape(len(records), -1)
    records[:, at : at + raw.shape[1]] = raw


def _tiles(config: TmaConfig, m: Integers, n: Integers) -> tuple[Integers, Integers]:
    """Work tiles of each problem along the kernel's rows and columns."""
    (bm, bn, _), (cm, cn) = config.tile, config.cluster
    rows, columns = (n, m) if config.swap else (m, n)
    return -(-rows // (bm * cm)), -(-columns // (bn * cn))


def launch_shape(table: ProblemTable, config: TmaConfig, device: DeviceSpec) -> LaunchShape:
    """A cluster for each work tile, but not more than are co-resident."""
    clusters = min(len(table.problems), config.resident_clusters(device))
    cluster = (config.ctas, 1, 1) if config.ctas > 1 else None
    grid = clusters * config.ctas, 1, 1
    return LaunchShape(grid, (config.threads, 1, 1), cluster, programmatic=True)


def kernel_arguments(problem: Problem, table: ProblemTable) -> KernelArguments:
    """The parameter block; a call writes the table's address."""
    values = {"batches": len(table.records), "tiles": len(table.problems)}
    return tma_parameters(problem).pack(values, problem.scalar_type)
