"""docs/grouped/*.svg: the picture of docs/grouped.md.

python scripts/grouped_pictures.py           write the files that have changed
python scripts/grouped_pictures.py --check   print the files that would change; fail if any

A kernel with the grouped tile scheduler runs on the virtual machine and notes which CTA gets which
work tile.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from made import ROOT, keep

from tilewright.builder import trace
from tilewright.gemm import TmaConfig
from tilewright.gemm.grouping import ENDS, Grouping
from tilewright.gemm.tma.grouped.grouped_tile_scheduler import GroupedTileScheduler
from tilewright.view.palette import EIGHT
from tilewright.view.svg import Picture
from tilewright.vm import Machine

FOLDER = ROOT / "docs" / "grouped"
SIZES, COLUMNS, CTAS = (150, 0, 40, 230, 64, 12), 256, 8
CONFIG = TmaConfig((64, 64, 64), consumers=1)
MOST = -(-max(SIZES) // CONFIG.tile[0])  # tiles of a group along its rows
ROW, COLUMN, LEFT, GAP = 0.6, 84, 190, 10  # pixels


def schedule() -> Any:
    """The CTA of each tile, (group, tile along the group's rows, tile along N), + 1."""

    def kernel(k: Any, sizes: Any, out: Any) -> None:
        count, m, n, one = (k.mov(k.const("u32", x)) for x in (len(SIZES), sum(SIZES), COLUMNS, 1))
        grouping = Grouping("s32", ENDS)
        scheduler = GroupedTileScheduler(grouping, sizes, count, k, CONFIG, m, n, one)

        def process(tile: Any, _: Any) -> None:
            bm, bn, _ = CONFIG.tile
            row, column = (tile.row - tile.rows.first) // bm, tile.column // bn
            out[(tile.batch * MOST + row) * (COLUMNS // bn) + column] = k.ctaid.x + 1

        scheduler.for_each_tile(process)

    made = trace(kernel, params={"sizes": "u64", "out": "ptr u32"}, name="schedule", block=1)
    m = Machine()
    m.load(made.module)
    ends = np.cumsum(SIZES).astype(np.int32)
    found = np.zeros((len(SIZES), MOST, COLUMNS // CONFIG.tile[1]), np.uint32)
    sizes, out = m.upload(ends), m.upload(found)
    m.launch("schedule", CTAS, 1, [sizes, out], shared=made.dynamic_shared)
    return m.download(out, like=found)


def picture() -> str:
    """D with its groups; each tile has the number of its CTA."""
    ctas, (bm, bn, _) = schedule(), CONFIG.tile
    p = Picture(f"{CTAS} CTAs, groups of {', '.join(map(str, SIZES))} rows, tiles of {bm}×{bn}")
    for j in range(COLUMNS // bn):
        p.text(LEFT + (j + 0.5) * COLUMN, 0, f"{j * bn} … {(j + 1) * bn - 1}", 11, anchor="middle")
    y, first = 10.0, 0
    for group, size in enumerate(SIZES):
        rows = f"rows {first} … {first + size - 1}" if size else "no rows"
        p.text(0, y + max(12, size * ROW / 2 + 4), f"group {group}: {rows}")
        for (i, j), cta in np.ndenumerate(ctas[group]):
            if cta:
                height = (min(size, (i + 1) * bm) - i * bm) * ROW
                x, top = LEFT + j * COLUMN, y + i * bm * ROW
                p.rect(x, top, COLUMN, height, EIGHT[(cta - 1) % len(EIGHT)])
                p.text(x + COLUMN / 2, top + height / 2 + 4, f"CTA {cta - 1}", 10, anchor="middle")
        y, first = y + max(16, size * ROW) + GAP, first + size
    return p.render()


def made() -> dict[Path, str]:
    """Every picture."""
    return {FOLDER / "schedule.svg": picture()}


if __name__ == "__main__":
    sys.exit(keep(made(), FOLDER, sys.argv[1:]))
