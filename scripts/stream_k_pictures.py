"""docs/gemm/*.svg: the picture of stream-K in docs/gemm.md.

python scripts/stream_k_pictures.py           write the files that have changed
python scripts/stream_k_pictures.py --check   print the files that would change; fail if any

A kernel with the stream-K tile scheduler runs on the virtual machine and notes which CTA gets which
k-blocks of which tile, one after another.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from made import ROOT, keep

from tilewright.builder import trace
from tilewright.gemm import TmaConfig
from tilewright.gemm.tma.stream_k.stream_k_tile_scheduler import StreamKTileScheduler
from tilewright.view.palette import EIGHT
from tilewright.view.svg import Picture
from tilewright.vm import Machine

FOLDER = ROOT / "docs" / "gemm"
CTAS, TILES, K_BLOCKS = 6, 10, 12
CONFIG = TmaConfig((64, 64, 64), consumers=1, stream_k=3)
MOST = 4  # work tiles of a CTA
BLOCK, ROW, LEFT, GAP = 24, 26, 56, 8  # pixels


def schedule() -> Any:
    """(tile, first k-block, k-blocks, whether it stores D) of each CTA's work tiles; of none 0."""

    def kernel(k: Any, out: Any) -> None:
        _, bn, _ = CONFIG.tile
        sizes = (1, TILES * bn, K_BLOCKS, TILES // CTAS * CTAS)
        m, n, k_blocks, whole = (k.mov(k.const("u32", x)) for x in sizes)
        scheduler = StreamKTileScheduler(k, CONFIG, m, n, k_blocks, None, whole)
        index = k.var("u32", 0)

        def process(tile: Any, _: Any) -> None:
            owns = k.select(tile.partial < 0, 1, 0)
            record = out + (k.ctaid.x * MOST + index) * 4
            record.store((tile.column // bn, tile.first_k_block, tile.k_blocks, owns))
            index.set(index + 1)

        scheduler.for_each_tile(process)

    made = trace(kernel, params={"out": "ptr u32 align 16"}, name="schedule", block=1)
    m, found = Machine(), np.zeros((CTAS, MOST, 4), np.uint32)
    m.load(made.module)
    out = m.upload(found)
    m.launch("schedule", CTAS, 1, [out], shared=made.dynamic_shared)
    return m.download(out, like=found)


def picture() -> str:
    """A line for each CTA; along it the k-blocks that it multiplies, one after another."""
    title = f"{TILES} tiles of {K_BLOCKS} k-blocks on {CTAS} CTAs, groups of {CONFIG.stream_k} CTAs"
    p = Picture(title)
    for cta, work in enumerate(schedule().tolist()):
        x, y = float(LEFT), cta * (ROW + GAP)
        p.text(0, y + ROW / 2 + 4, f"CTA {cta}")
        for tile, first, k_blocks, owns in work:
            width = k_blocks * BLOCK
            if not width:
                continue
            p.rect(x, y, width, ROW, EIGHT[tile % len(EIGHT)])
            label = f"tile {tile}: {first} … {first + k_blocks - 1}{'' if owns else ' →'}"
            p.text(x + width / 2, y + ROW / 2 + 4, label, 10, anchor="middle")
            x += width
    return p.render()


def made() -> dict[Path, str]:
    """Every picture."""
    return {FOLDER / "stream_k.svg": picture()}


if __name__ == "__main__":
    sys.exit(keep(made(), FOLDER, sys.argv[1:]))
