"""Clusters that have not begun, taken by those that run: ``clusterlaunchcontrol``, in native code.

A response is four words: the place of the cluster's first CTA in the grid, and 1 where there was
such a cluster, which then never begins.
"""

from __future__ import annotations

from ...native.intrinsics import address, at
from ...native.native_language import Ptr, i64, native, u32
from ..state.records import WarpRecord
from .bulk_copies import VALUE_AREA, store_async

WORDS = 4


@native
def take_cluster(w: WarpRecord, lane: i64, words: Ptr[u32]) -> i64:
    """The next cluster that this worker would begin, if there is one, is the lane's."""
    k = w.worker
    launch = w.launch
    if k.next >= k.last:
        for i in range(WORDS):
            words[32 * i + lane] = 0
        return 0
    number = k.next // launch.cluster_size
    words[lane] = number % launch.clusters[0] * launch.cluster[0]
    words[32 + lane] = number // launch.clusters[0] % launch.clusters[1] * launch.cluster[1]
    words[64 + lane] = number // (launch.clusters[0] * launch.clusters[1]) * launch.cluster[2]
    words[96 + lane] = 1
    k.next += launch.cluster_size
    return 0


@native
def try_cancel(w: WarpRecord, mask: i64, everywhere: i64, pc: i64) -> i64:
    """A request of each lane, answered at ``w.addresses``, or there in each CTA of the cluster,
    when its mbarrier hears of it; 1 after a fault.
    """
    words = at(u32, address(w.operands + VALUE_AREA))
    for lane in range(32):
        w.operands[32 + lane] = (1 << w.launch.cluster_size) - 1 if everywhere != 0 else 0
        if (mask >> lane & 1) != 0:
            take_cluster(w, lane, words)
    return store_async(w, mask, 4, WORDS, 0, pc)
