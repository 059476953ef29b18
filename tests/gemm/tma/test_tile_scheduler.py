"""Which tile comes when, and which part of K, at sizes whose matrices would fill a GPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from rows import every_row
from tilewright.builder import trace
from tilewright.gemm import TmaConfig, parse
from tilewright.gemm.rasterization import tile_coordinates
from tilewright.gemm.tma.tile_scheduler import TileScheduler
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

Array = np.ndarray[Any, Any]


def run(body: Any, count: int) -> Array:
    """What ``body(k, thread)``, some numbers, is in each of the threads."""

    def kernel(k: Any, out: Any) -> None:
        for i, number in enumerate(body(k, k.tid.x)):
            out[k.tid.x * 2 + i] = number

    made = trace(kernel, params={"out": "ptr u32"}, name="of_threads", block=count)
    m = Machine()
    m.load(made.module)
    there = m.alloc(8 * count)
    m.launch("of_threads", 1, count, [there], shared=made.dynamic_shared)
    return m.download(there, like=np.zeros((count, 2), np.uint32))


@every_row("group", [1, 3, 8, 2**29, 2**31, 2**32 - 1])
@every_row(("rows", "columns"), [(1, 1), (4, 8), (7, 5), (16, 2)])
def test_tiles_go_down_groups_of_rows(rows: int, columns: int, group: int) -> None:
    def body(k: Any, index: Any) -> Any:
        return tile_coordinates(
            k, index, k.mov(k.const("u32", rows)), k.mov(k.const("u32", columns)), group
        )

    want = [
        (row, column)
        for first in range(0, rows, group)
        for column in range(columns)
        for row in range(first, min(first + group, rows))
    ]
    assert run(body, rows * columns).tolist() == [list(x) for x in want]


@every_row("split", [2, 3, 63, 64])
@every_row("steps", [0, 1, 100, 2**26 - 1, 2**26])
def test_parts_of_k_follow_one_another(steps: int, split: int) -> None:
    config = parse(f"tma:64x16x32:1:2*{split}")
    assert isinstance(config, TmaConfig)

    def body(k: Any, index: Any) -> Any:
        one, depth = k.mov(k.const("u32", 1)), k.mov(k.const("u32", steps))
        work = TileScheduler(k, config, one, one, depth, None, k.mov(k.const("u32", 0))).work_tile(
            index
        )
        return work.first_k_block, work.k_blocks

    got = run(body, split).tolist()
    places = [steps * i // split for i in range(split + 1)]
    assert got == [[i, j - i] for i, j in pairwise(places)]


@pytest.mark.parametrize(
    ("config", "whole"), [("tma:64x16x32:1:2*3", 0), ("tma:64x16x32:1:2+3", 4)]
)
def test_the_same_part_of_all_tiles_comes_first(config: str, whole: int) -> None:
    made = parse(config)
    assert isinstance(made, TmaConfig)

    def body(k: Any, index: Any) -> Any:
        m, n, depth = (k.mov(k.const("u32", x)) for x in (64, 16 * 6, 9))
        schedule = TileScheduler(k, made, m, n, depth, None, k.mov(k.const("u32", whole)))
        work = schedule.work_tile(index)
        return work.column, work.partial.view("u32")

    cut = range(whole, 6)
    parts = [[16 * tile, (tile - whole) * 3 + part] for part in range(3) for tile in cut]
    wholes = [[16 * tile, 2**32 - 1] for tile in range(whole)]
    assert run(body, whole + 3 * len(cut)).tolist() == wholes + parts
