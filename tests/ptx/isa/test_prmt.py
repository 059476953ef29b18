"""``prmt``: every selector of every mode, against the manual's tables written once more."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ptx.isa import form
from tilewright.vm.step.numpy_primitives import NumpyValues

M = NumpyValues()
# The bytes of {b, a} that make d, the highest first, for c[1:0] = 0 … 3 (PTX manual, prmt).
MODES = {
    "f4e": ("3210", "4321", "5432", "6543"),
    "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"),
    "rc16": ("1010", "3232", "1010", "3232"),
}


def permuted(mode: str, a: int, b: int, c: int) -> int:
    """One result, byte by byte."""
    source = a.to_bytes(4, "little") + b.to_bytes(4, "little")
    nibbles = MODES[mode][c & 3] if mode else f"{c & 0xFFFF:04x}"
    made = 0
    for nibble in (int(n, 16) for n in nibbles):
        byte = source[nibble & 7]
        made = made << 8 | ((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return made


def run(opcode: str, *operands: np.ndarray) -> list[int]:
    f = form(opcode)
    lanes = (x.astype(np.uint32) for x in operands)
    return f.row.meaning(M, f, *lanes).tolist()


def words(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, 32)


def test_every_selector():
    """All 65,536, thirty-two at a time; the upper half of ``c`` counts nothing."""
    for first in range(0, 1 << 16, 32 * 16):
        a, b = words(first), words(first + 1)
        for base in range(first, first + 32 * 16, 32):
            c = np.arange(base, base + 32) | (words(base) << 16 & 0xFFFF0000)
            expected = [
                permuted("", *x) for x in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
            ]
            assert run("prmt.b32", a, b, c) == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["prmt.b32.{}", "prmt.{}.b32"])
def test_every_mode(mode, order):
    """Only the lowest two bits of ``c`` count."""
    for seed in range(8):
        a, b, c = words(seed), words(seed + 100), words(seed + 200)
        c[:8] = [0, 1, 2, 3, 4, 5, 0xFFFFFFFE, 0x80000003]
        expected = [
            permuted(mode, *x) for x in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
        ]
        assert run(order.format(mode), a, b, c) == expected
