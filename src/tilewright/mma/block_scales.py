"""Block scales: what the tensor cores of sm_120 make of mxf8f6f4, mxf4 and mxf4nvf4.

A row of A and a column of B have scales, one for each block of k. mxf8f6f4 adds the exponents of
both to each product's and then sums as ever. The 4-bit kinds sum the products of a block, 16 at a
time, exactly; the sum times its two scales is one term, aligned by the scales' exponents alone. So
a group whose products cancel counts like any other; one whose products are all zero does not.

Published, not verified: no H200 has these. MMA-Sim 2.1.1 (mmasim/nv_ptx/sim.py, MMABlockScale;
mmasim/arithmetic/fdpa.py, st_fdpa and gst_fdpa) has all dense forms: mxf8f6f4 of each two of fp8,
fp6 and fp4 (e3m2, e2m3 and e2m1 too, aligned by their own least exponents), mxf4 and mxf4nvf4. Its
kernels for comparison (mmasim_kernels/nv_ptx/rtx_blackwell.py) run each on an RTX Blackwell. It has
no sparse A: that a row is summed as stored, 16 kept elements at a time, is by analogy with the
other types. A scale is for K / scales of dense k, also where A is sparse (CUTLASS's atoms of
sm_120).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..dtypes import DType
from .mma_arithmetic import NOWHERE, Arithmetic, FloatTerms, FusedDotAdd

Bits = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class BlockScaledDotAdd(Arithmetic):
    """One fused sum of scaled terms: c and the sums, exact, of ``group`` products each.

    ``fused`` is the same without scales; ``stype`` is the format of the scales.
    """

    fused: FusedDotAdd
    stype: DType
    group: int = 1

    def _sums(self, a: Bits, b: Bits, c: Bits, *scales: Bits) -> Bits:
        scale_a, scale_b = scales  # (…, M, s) and (…, s, N)
        left = FloatTerms.of(self.stype, scale_a[..., :, None, :])
        right = FloatTerms.of(self.stype, np.swapaxes(scale_b, -1, -2)[..., None, :, :])
        factors = left.times(right)
        terms = FloatTerms.of(self.a, a).times(FloatTerms.of(self.b, b))
        if self.group > 1:
            terms = _summed(terms, self.group)
        count, blocks = terms.lead.shape[-1], factors.lead.shape[-1]
        block = np.arange(count) * blocks // count
        scaled = terms.times(factors.at(np.s_[..., block]))
        return self.fused.fuse(scaled.and_(FloatTerms.of(self.c, c).at(np.s_[..., None])))


def _summed(products: FloatTerms, size: int) -> FloatTerms:
    """The exact sums of each ``size`` neighbours, of finite numbers. They leave the alignment to
    their scales: the leading place is 2^0's, or none where all are zero.
    """
    groups = products.grouped(size)
    low = groups.exponent.min()
    steps = groups.significand << (groups.exponent - low)
    total = np.where(groups.negative, -steps, steps).sum(-1)
    live = (groups.significand != 0).any(-1)
    return FloatTerms(
        negative=total < 0,
        significand=np.abs(total),
        exponent=np.full_like(total, low),
        lead=np.where(live, np.int64(0), NOWHERE),
        infinite=np.asarray(groups.infinite.any(-1)),
        nan=np.asarray(groups.nan.any(-1)),
    )
