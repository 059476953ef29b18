"""The conversions of packed integers that ``k.unpack_integers`` has."""

from __future__ import annotations

from itertools import product

CASES = [
    (source, dest, interleaved, biased)
    for source, dest, interleaved in product(
        ("u8", "s8", "u4", "s4"), ("f16", "bf16"), (False, True)
    )
    for biased in ((False, True) if source[0] == "s" else (False,))
]
