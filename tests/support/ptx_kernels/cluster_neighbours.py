"""A kernel whose CTAs read shared memory of the other CTA of their cluster."""

from __future__ import annotations

from typing import Any

import tilewright
from tilewright.builder import ptr


@tilewright.kernel(block=32, cluster=(2, 1, 1))
def neighbours(k: Any, x: ptr("u32")) -> None:
    """Each CTA writes its number where its neighbour reads it."""
    own = k.shared("u32", 1)
    own[0] = k.ctaid.x
    k.cluster_sync()
    there = k.mapa(own, k.cluster_rank ^ 1)
    value = k.emit("ld.shared::cluster.u32", (there, 0))
    k.cluster_sync()
    with k.when(k.tid.x == 0):
        x[k.ctaid.x] = value
