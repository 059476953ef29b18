"""Compile the kernels of all rows in parallel, into the compile cache, before anything is timed.

Tracing is Python and ptxas is a process, so each CPU core runs a process of its own. The process
that measures then loads kernels from the cache. The few relayout kernels, which rows share, are
compiled on first use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import tilewright
from tilewright.run.call.prepared_call import prepare_call

from .rows import Row

Compiled = int | str  # the number of kernels of a row, or why it has none


def row_plan(row: Row, config: str | None, device: str) -> tilewright.Plan:
    """The plan of a row on a device; with None the configuration is chosen. Raises DtypeError for
    types that are not supported, ConfigError for a configuration that does not fit.
    """
    options = {"fast_accum": True} if row.fast else {}
    return tilewright.plan(
        row.m, row.n, row.k, dtype=row.type, layout=row.layout, out_dtype=row.result,
        device=device, config=config, **options,
    )  # fmt: skip


def compile_row(row: Row, config: str | None, device: str) -> Compiled:
    """Compile a row's kernels: the GEMM and the split-K reduction."""
    try:
        plan = row_plan(row, config, device)
        assert plan.request is not None
        return len(prepare_call(plan.request, plan.device, config).bind())
    except Exception as error:  # the row itself reports it when it is measured
        return f"{type(error).__name__}: {error}"


def compile_rows(
    work: Sequence[tuple[Row, str | None]], device: str = "cuda", processes: int | None = None
) -> list[Compiled]:
    """``compile_row`` of each row and configuration, in ``processes`` (default: as many as there
    are CPU cores).
    """
    if not work:
        return []
    count = min(len(work), processes or len(os.sched_getaffinity(0)))
    with ProcessPoolExecutor(count, get_context("spawn")) as pool:
        rows, configs = zip(*work, strict=True)
        return list(pool.map(compile_row, rows, configs, [device] * len(work)))
