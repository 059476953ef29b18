"""Synchronization left out of the kernels of docs/hopper.md is reported by a checked machine."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from pages import ROOT, blocks
from rows import every_row
from tilewright.errors import VmFault
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

PAGE = ROOT / "docs" / "hopper.md"
RELEASE = """            with k.when(k.tid.x == 0):
                pipeline.consumer_release(at.stage)
"""
LEFT_OUT = {  # what goes, what stands instead, the fault
    "nothing": ("", "", ""),
    "wgmma_fence": ("            k.wgmma_fence()\n", "", "fence"),
    "fence_mbarrier_init": ("        k.fence_mbarrier_init()\n", "", "fence"),
    "barrier": ("    k.barrier()\n", "", "race"),
    "release": (
        f"            k.wgmma_wait()\n{RELEASE}", f"{RELEASE}            k.wgmma_wait()\n", "race"
    ),
}  # fmt: skip


def names_of(goes: str, instead: str, file: str) -> dict[str, Any]:
    """The names that the page defines up to its pipeline, whose kernel is changed."""
    sources = [b.text for b in blocks(PAGE.read_text(encoding="utf-8")) if b.language == "python"]
    ring = next(i for i, source in enumerate(sources) if "def by_stages" in source)
    kernel = sources[ring].partition("by_stages[1](")[0]
    assert goes in kernel
    code = "\n".join(
        [*(s for s in sources[:ring] if "try:" not in s), kernel.replace(goes, instead, 1)]
    )
    linecache.cache[file] = len(code), None, code.splitlines(True), file
    names: dict[str, Any] = {}
    exec(compile(code, file, "exec"), names)
    return names


@every_row("what", LEFT_OUT, parts=4)
def test_only_a_checked_machine_reports_it(what: str) -> None:
    goes, instead, kind = LEFT_OUT[what]
    names = names_of(goes, instead, f"<without {what}>")
    kernel, maps, d = (names[x] for x in ("by_stages", "maps", "d"))
    kernel[1](*maps, d, bytes=2 * 64 * 64 * 2, device=VmDevice())
    assert np.allclose(d, names["exact"], atol=1e-3)
    checked = VmDevice(checked=True)
    if not kind:
        kernel[1](*maps, d, bytes=2 * 64 * 64 * 2, device=checked)
        return
    with pytest.raises(VmFault) as caught:
        kernel[1](*maps, d, bytes=2 * 64 * 64 * 2, device=checked)
    assert caught.value.kind == kind
