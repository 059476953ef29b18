"""docs/epilogues/*.svg: the pictures of docs/epilogues.md.

python scripts/epilogue_pictures.py           write the files that have changed
python scripts/epilogue_pictures.py --check   print the files that would change; fail if any
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from made import ROOT, keep

import tilewright
from tilewright.gemm.epilogue.graph import EpilogueInput
from tilewright.view import draw_epilogue

FOLDER = ROOT / "docs" / "epilogues"


@tilewright.epilogue
def gelu_e4m3(acc: Any, alpha: Any, bias: Any) -> dict[str, Any]:
    """The first example of the page."""
    d = tilewright.gelu(alpha * acc + bias)
    return {"d": tilewright.cast(d, "e4m3"), "amax": tilewright.amax(d)}


def made() -> dict[Path, str]:
    """Every picture."""
    inputs = EpilogueInput("alpha", "f32", ""), EpilogueInput("bias", "f32", "n")
    graph = gelu_e4m3.trace("f32", inputs)
    return {FOLDER / "gelu_e4m3.svg": draw_epilogue(graph, "gelu_e4m3")}


if __name__ == "__main__":
    sys.exit(keep(made(), FOLDER, sys.argv[1:]))
