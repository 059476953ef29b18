"""``clusterlaunchcontrol``, in native code: a running cluster cancels one that has not started.

A response is four words: the index (x, y, z) of the first CTA of the canceled cluster, and 1; or
four zeros where no cluster was left.
"""

from __future__ import annotations

from ...native.intrinsics import address, at
from ...native.native_language import Ptr, i64, native, u32
from ..state.records import WarpRecord
from .bulk_copies import VALUE_AREA, store_async

WORDS = 4


@native
def take_cluster(w: WarpRecord, lane: i64, words: Ptr[u32]) -> i64:
    """Cancel the next cluster that this worker would start, and write the lane's response."""
    worker = w.worker
    launch = w.launch
    if worker.next >= worker.last:
        for i in range(WORDS):
            words[32 * i + lane] = 0
        return 0
    number = worker.next // launch.cluster_size
    words[lane] = number % launch.clusters[0] * launch.cluster[0]
    words[32 + lane] = number // launch.clusters[0] % launch.clusters[1] * launch.cluster[1]
    words[64 + lane] = number // (launch.clusters[0] * launch.clusters[1]) * launch.cluster[2]
    words[96 + lane] = 1
    worker.next += launch.cluster_size
    return 0


@native
def try_cancel(w: WarpRecord, mask: i64, everywhere: i64, pc: i64) -> i64:
    """``clusterlaunchcontrol.try_cancel`` of each lane: the response is written asynchronously to
    ``w.addresses`` (``everywhere``: in each CTA of the cluster) and signals the mbarrier. Returns 1
    after a fault.
    """
    words = at(u32, address(w.operands + VALUE_AREA))
    for lane in range(32):
        w.operands[32 + lane] = (1 << w.launch.cluster_size) - 1 if everywhere != 0 else 0
        if (mask >> lane & 1) != 0:
            take_cluster(w, lane, words)
    return store_async(w, mask, 4, WORDS, 0, pc)
