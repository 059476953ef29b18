"""How rows are distributed over threads and CTAs: laws that hold for rows of any length."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rows import every_row
from tilewright import target
from tilewright.kernels.row_layout import (
    AHEAD,
    MAX_CLUSTER,
    MAX_THREADS,
    OWN,
    RowLayout,
    overlapping,
    row_layout,
)

H200 = target.device_spec("H200")
COLUMNS = [
    1, 2, 31, 127, 128, 777, 1000, 4097, 8190, 8192, 16384, 20000, 32768, 32776, 65536, 99999,
    131072, 200000, 262144, 300000, 1 << 20,
]  # fmt: skip
CASES = [(columns, width) for columns in COLUMNS for width in (1, 2, 4, 8) if columns % width == 0]


def indices(layout: RowLayout) -> np.ndarray:
    """Element indices of the vectors (CTA, vector of a thread, thread) of a row's first chunk."""
    ctas, vectors, threads = np.ogrid[: layout.ctas, : layout.vectors, : layout.threads]
    return ((ctas * layout.vectors + vectors) * layout.threads + threads) * layout.width


@every_row(("columns", "width"), CASES)
def test_vectors_of_a_row(columns: int, width: int) -> None:
    """Each is one thread's; ``certain`` of a thread's are within the row, and no more always."""
    for clusters in (False, True):
        layout = row_layout(columns, width, 2, clusters=clusters)
        held = indices(layout)
        if layout.resident:
            assert held.max() + width >= columns
            present = (held < columns).all((0, 2))
            assert layout.certain == present.sum() and present[: layout.certain].all()
        else:
            assert layout.ctas == 1 and held.max() + width < columns
            assert layout.certain == (0 if columns % (held.max() + width) else layout.vectors)


@every_row(("columns", "width"), CASES)
def test_a_cluster_only_for_rows_that_no_cta_holds(columns: int, width: int) -> None:
    layout = row_layout(columns, width, 2, clusters=True)
    assert layout.ctas <= MAX_CLUSTER and layout.block <= MAX_THREADS
    assert layout.width * layout.vectors <= 32
    assert (layout.ctas > 1) == (MAX_THREADS * 32 < columns <= MAX_CLUSTER * MAX_THREADS * 32)


@every_row(("columns", "width"), CASES)
@every_row("sms", [1, 132])
def test_prefetches_are_of_equal_bytes(columns: int, width: int, sms: int) -> None:
    """For rows of any length and type, rounded up to whole CTAs."""
    for itemsize in (2, 4):
        for stores_rows in (False, True):
            layout = overlapping(
                row_layout(columns, width, itemsize, clusters=stores_rows), itemsize,
                replace(H200, sms=sms), stores_rows=stores_rows, contiguous=True,
            )  # fmt: skip
            alternates = stores_rows and layout.resident
            wanted = (AHEAD if alternates else OWN) * sms
            of_cta = layout.capacity * itemsize
            assert wanted <= layout.own * of_cta < wanted + of_cta
            assert layout.ahead == (layout.own if alternates else 0)
