"""m8n8k4 of f16 as lowered by ptxas from sm_80 on: f32 additions without a tensor core.

Volta's quad-pair instruction is emulated there: f16 is widened to f32, each product and sum is an
FMUL, FFMA or FADD, rounded to nearest even, with subnormals. An f32 result is the chain of products
in the order of k from +0, then added to c. An f16 result is c plus the sum of the first two
products plus the sum of the last two, rounded again to f16. sm_70 and sm_75 have a tensor core
instruction for it, HMMA.884, which fuses and truncates these terms (``mma_arithmetic``,
``generations``).

Evidence: the SASS of all layouts and types from ptxas 12.9, 13.0 and 13.5 for sm_80, 86, 89, 90,
90a, 100a and 120a has exactly these operations; an H200 returned these bits.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ..exact import quiet
from ..number_conversion import decode, encode

Bits = npt.NDArray[Any]


def lowered_sums(a: Bits, b: Bits, c: Bits, c_type: str, d_type: str) -> Bits:
    """D's bits for f16 A and B (…, 4), whose last axis is k, and C (…); the other axes broadcast.

    A product of two f16 numbers has 22 bits and an exponent within f32's range, so f32 holds it
    exactly: a fused multiply-add is that product, then one rounded addition.
    """
    with quiet():
        products = np.moveaxis(_widened("f16", a) * _widened("f16", b), -1, 0)
        start = _widened(c_type, c)
        if d_type == "f32":
            total = start + reduce(np.add, products, np.float32(0))
        else:
            first, second, third, last = products
            total = start + (first + second) + (third + last)
        return encode(d_type, total)


def _widened(fmt: str, bits: Bits) -> Bits:
    return decode(fmt, bits).astype(np.float32)
