"""A kernel that reads memory by bulk copies into shared memory, and does nothing else.

It is how fast a kernel with TMA copies can read: one CTA an SM, a ring of stages, and like kernel
``tma`` it waits for the prior grid before the first copy, and may begin before that has ended.
"""

from __future__ import annotations

from typing import Any

import torch

import tilewright

STAGE, STAGES = 16 << 10, 12  # bytes, number


class BulkRead:
    """Reads of buffers of ``size`` bytes, a multiple of 16 KB."""

    def __init__(self, size: int) -> None:
        self.count = size // STAGE
        self.sms = torch.cuda.get_device_properties(0).multi_processor_count
        params = {"source": "ptr b8 align 16", "count": "u32", "ctas": "u32"}
        self.kernel = tilewright.kernel(read_all, params=params, block=32)

    def __call__(self, source: torch.Tensor) -> None:
        self.kernel[self.sms](source, self.count, self.sms, programmatic=True)


def read_all(k: Any, source: Any, count: Any, ctas: Any) -> None:
    """CTA i reads stages i, i + ``ctas``, … of the source, by one thread."""
    ring = k.dynamic_shared(STAGES * STAGE, 128)
    full = k.dynamic_shared(8 * STAGES, 8, dtype="b64")
    with k.if_(k.tid.x == 0):
        for i in range(STAGES):
            k.mbarrier_init(full + i, 1)
        k.fence_mbarrier_init()
        k.launch_dependent_grids()
        k.wait_for_prior_grids()
        own = (count - k.ctaid.x + (ctas - 1)) // ctas
        for i in k.range(0, own + STAGES, unroll=False):
            stage, round_ = i % STAGES, i // STAGES
            with k.if_(i >= STAGES):
                k.mbarrier_wait(full + stage, (round_ & 1) ^ 1)
            with k.if_(i < own):
                at = (k.ctaid.x + i * ctas).to("u64") * STAGE
                k.mbarrier_arrive(full + stage, bytes=STAGE)
                k.bulk_load(ring + stage * STAGE, (source + at).aligned(16), STAGE, full + stage)
