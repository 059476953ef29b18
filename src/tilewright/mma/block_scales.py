"""Arithmetic with block scales of the tensor cores of sm_120: mxf8f6f4, mxf4 and mxf4nvf4.

A row of A and a column of B have one scale for each block of k. mxf8f6f4 adds the exponents of both
scales to each product's exponent and then accumulates as without scales. The 4-bit kinds sum the
products of a block exactly, 16 at a time; such a sum times its two scales is one term, aligned by
the scales' exponents alone. So a group whose products cancel takes part in the alignment; a group
whose products are all zero does not.

Published, not verified: an H200 has none of these. MMA-Sim 2.1.1 (mmasim/nv_ptx/sim.py,
MMABlockScale; mmasim/arithmetic/fdpa.py, st_fdpa and gst_fdpa) has all dense forms: mxf8f6f4 of any
two of fp8, fp6 and fp4 (e3m2, e2m3 and e2m1 too, aligned by their own minimum exponents), mxf4 and
mxf4nvf4. Its kernels for comparison (mmasim_kernels/nv_ptx/rtx_blackwell.py) run each of them on an
RTX Blackwell. It has no sparse A: that a row is summed as stored, 16 stored elements at a time, is
by analogy with the other types. A scale covers K / scales elements of dense k, also for sparse A
(CUTLASS's atoms of sm_120).
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
    """One fused sum of c and of scaled terms, each an exact sum of ``group`` products.

    ``fused`` is the arithmetic without scales; ``stype`` is the format of the scales.
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
            terms = _group_sums(terms, self.group)
        count, blocks = terms.lead.shape[-1], factors.lead.shape[-1]
        block = np.arange(count) * blocks // count
        scaled = terms.times(factors.at(np.s_[..., block]))
        return self.fused.fuse(scaled.and_(FloatTerms.of(self.c, c).at(np.s_[..., None])))


def _group_sums(products: FloatTerms, size: int) -> FloatTerms:
    """The exact sums of groups of ``size`` finite neighbours. Their scales determine the alignment:
    the leading exponent is 0, or ``NOWHERE`` where all products are zero.
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
