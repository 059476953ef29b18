"""docs/layouts/*.svg: the pictures of docs/layouts.md.

python scripts/layout_pictures.py           write the files that have changed
python scripts/layout_pictures.py --check   print the files that would change; fail if any
"""

from __future__ import annotations

import sys
from pathlib import Path

from made import ROOT, keep

from tilewright.layout import Layout, Swizzle, composition, logical_divide
from tilewright.mma import CopyAtom, MmaAtom, TiledMma, make_tiled_copy_A
from tilewright.view import draw_layout, draw_tiled_copy, draw_tiled_mma, draw_tv

FOLDER = ROOT / "docs" / "layouts"


def made() -> dict[Path, str]:
    """Every picture."""
    atom = MmaAtom("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    mma = TiledMma(atom, (2, 2, 1), (32, 32, 16))
    load = make_tiled_copy_A(CopyAtom("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "f16"), mma)
    tile = composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1)))
    svg = {
        "nested": draw_layout(Layout((4, (2, 3)), (2, (1, 8))), hover=False),
        "tiles": draw_layout(logical_divide(Layout((8, 8), (8, 1)), (4, 2)), hover=False),
        "threads": draw_tv(Layout(((8, 4), 8), ((32, 1), 4)), (4, 64), grain="thread", hover=False),
        "swizzled": draw_layout(tile, bits=16, grain="run", hover=False),
        "mma": draw_tiled_mma(mma, grain="register", hover=False),
        "ldmatrix": draw_tiled_copy(load, hover=False),
    }
    return {FOLDER / f"{name}.svg": text for name, text in svg.items()}


if __name__ == "__main__":
    sys.exit(keep(made(), FOLDER, sys.argv[1:]))
