"""m8n8k4 of f16 as ptxas has it from sm_80 on: f32 additions, no tensor core.

Volta's instruction of quad pairs is emulated there: f16 is widened, each product and sum is an
FMUL, FFMA or FADD, rounded to nearest even, subnormals kept. An f32 result is the chain of products
in the order of k from +0, then added to c. An f16 result is c plus the first two products' sum plus
the last two's, rounded to f16 once more. sm_70 and sm_75 have a tensor core instruction for it,
HMMA.884, which fuses these terms and cuts them off (``arithmetic``, ``generations``).

Evidence: the SASS of all layouts and types from ptxas 12.9, 13.0 and 13.5 for sm_80, 86, 89, 90,
90a, 100a and 120a is this, term for term; an H200 returned these bits.
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
    """D's bits for A and B (…, 4), f16 with k last, and C (…); the axes before k broadcast.

    A product of two f16 numbers has 22 bits and no extreme exponent, so f32 holds it exactly: a
    fused multiply-add is that product, then one rounded addition.
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
