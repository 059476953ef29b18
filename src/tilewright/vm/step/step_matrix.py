"""Matrix instructions of the stepping evaluator, by the arithmetic of ``mma``."""

from __future__ import annotations

import re

import numpy as np

from ...errors import MetadataError
from ...mma import MmaInstruction, ldmatrix
from ...mma.sparse_metadata import dense_columns
from ...mma.sparsity import sparsity_pattern
from ...native.native_language import u64
from ...native.native_record import view
from ..engine import ldmatrix_stmatrix, wgmma_operands
from ..matrix.mma_sparse import CODE
from .step_context import Lanes, StepContext, StepPart
from .step_memory import StepMemory

METADATA = re.compile("0b[01]+")


class StepMatrix(StepPart):
    """``ldmatrix``, ``stmatrix`` and ``mma``."""

    def __init__(self, m: StepContext, memory: StepMemory) -> None:
        super().__init__(m)
        self.memory = memory

    def ldmatrix(self, space: str, address: Lanes, count: int, trans: bool) -> tuple[Lanes, ...]:
        """Load whole rows, then distribute the elements to lanes by the fragment's layout."""
        rows = np.zeros((8 * count, 8), np.uint16)
        if self.m.mask:
            hosts = self.memory.hosts((1 << 8 * count) - 1, space, address, 16)
            for row, host in enumerate(hosts[: 8 * count]):
                rows[row] = view(host, u64, 2).view(np.uint16)
        return tuple(ldmatrix(count, trans).registers(rows).T)

    def stmatrix(self, space: str, address: Lanes, values: tuple[Lanes, ...], trans: bool) -> None:
        self.m.warp.addresses[:] = address
        for i, value in enumerate(values):
            self.m.store_area("operands", value, i)
        arguments = (
            self.m.mask,
            self.m.space_code(space),
            int(trans),
            self.m.at("operands"),
            len(values),
        )
        self.m.call_checked(ldmatrix_stmatrix.store_matrix, *arguments, self.m.pc)

    def mma(
        self,
        instruction: MmaInstruction,
        a: tuple[Lanes, ...],
        b: tuple[Lanes, ...],
        c: tuple[Lanes, ...],
        metadata: Lanes | None = None,
        selectors: tuple[int, ...] = (),
        scale_a: Lanes | None = None,
        scale_b: Lanes | None = None,
    ) -> tuple[Lanes, ...]:
        row = instruction.on(self.m.arch)
        if self.m.mask == 0:  # no active lane: invalid metadata must not fault
            d = row.fragment("d")
            return tuple(np.zeros((d.count, 32), f"u{d.word // 8}"))
        operands = (np.stack(x, axis=-1) for x in (a, b, c))
        optional = {"metadata": metadata, "scale_a": scale_a, "scale_b": scale_b}
        extra = {name: x[:, None] for name, x in optional.items() if x is not None}
        if metadata is not None:
            copy = row.copies(selectors).get("metadata", 0)
            self.check_metadata(row, row.fragment("metadata").matrix(extra["metadata"], copy))
        return tuple(row.execute(*operands, selectors=selectors, **extra).T)

    def check_metadata(self, row: MmaInstruction, codes: Lanes) -> None:
        """Fault if the metadata of a matrix row is invalid."""
        for number, code in enumerate(codes):
            try:
                dense_columns(code[None], sparsity_pattern(row.a, row.kind), row.ordered)
            except MetadataError as error:
                status = number + 1 | int(METADATA.findall(error.message)[0], 2) << CODE
                self.m.call_checked(wgmma_operands.check_metadata, status, self.m.pc)
