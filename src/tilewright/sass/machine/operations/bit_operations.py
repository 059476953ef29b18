"""Shifts, permutations and counts of bits; see ``integer_operations``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..thread_state import ThreadGroup
from .operation_operands import Array, Operation, OperationOperands, signed, wide, word


def shift_funnel(o: OperationOperands) -> Operation:
    """SHF: ({c, a} shifted)'s low or high word; shifts clamp, or wrap with .W."""
    a, amount, c = o.integers(3)
    left, high, wrap = o.has("L"), o.has("HI"), o.has("W")
    is_wide = o.has("U64") or o.has("S64")
    arithmetic = o.has("S32") or o.has("S64")
    limit = 64 if is_wide else 32

    def run(group: ThreadGroup) -> list[Array]:
        count = wide(amount(group))
        count = count & np.uint64(63 if is_wide else 31) if wrap else np.minimum(count, limit)
        value = wide(a(group)) | wide(c(group)) << np.uint64(32)
        more = (count >> np.uint64(6)).astype(np.uint64)  # a shift by 64 in two steps
        count = (count - more).astype(np.uint64)
        if left:
            moved = value << count << more
        elif arithmetic:
            steps = count.astype(np.int64), more.astype(np.int64)
            moved = (value.view(np.int64) >> steps[0] >> steps[1]).astype(np.uint64)
        else:
            moved = value >> count >> more
        return [word(moved >> np.uint64(32) if high else moved)]

    return run


def permute(o: OperationOperands) -> Operation:
    """PRMT: four bytes of {c, a} picked by nibbles; bit 3 of a nibble replicates the sign."""
    a, selector, c = o.integers(3)

    def run(group: ThreadGroup) -> list[Array]:
        value = wide(a(group)) | wide(c(group)) << np.uint64(32)
        chosen = wide(selector(group))
        total = np.zeros((1, 1), np.uint64)
        for i in range(4):
            nibble = chosen >> np.uint64(4 * i)
            byte = value >> ((nibble & np.uint64(7)) * np.uint64(8)) & np.uint64(255)
            sign = np.where(byte & np.uint64(128), np.uint64(255), np.uint64(0))
            byte = np.where(nibble & np.uint64(8), sign, byte)
            total = total | byte << np.uint64(8 * i)
        return [word(total)]

    return run


def extend_bits(o: OperationOperands) -> Operation:
    """SGXT: the low bits, sign-extended or with .U32 zero-extended."""
    a, bits = o.integers(2)

    def run(group: ThreadGroup) -> list[Array]:
        count = np.minimum(signed(bits(group)), 32)
        field = wide(a(group)).astype(np.int64) & (np.int64(1) << count) - 1
        top = np.where(count > 0, field >> np.maximum(count - 1, 0) & 1, 0)
        return [
            word(field if o.has("U32") else np.where(top, field - (np.int64(1) << count), field))
        ]

    return run


def count_bits(o: OperationOperands) -> Operation:
    """POPC."""
    a = o.integers(1)[0]
    return lambda group: [np.bitwise_count(a(group)).astype(np.uint32)]


def find_leading(o: OperationOperands) -> Operation:
    """FLO: the highest set bit (of the complement for negative numbers), 0xffffffff for none."""
    a = o.integers(1)[0]

    def run(group: ThreadGroup) -> list[Array]:
        x = a(group)
        if not o.has("U32"):
            x = np.where(signed(x) < 0, ~x, x)
        length = np.frexp(x.astype(np.float64))[1]
        found = np.where(x == 0, -1, 32 - length if o.has("SH") else length - 1)
        return [word(found.astype(np.int64))]

    return run


def reverse_bits(o: OperationOperands) -> Operation:
    """BREV."""
    a = o.integers(1)[0]

    def run(group: ThreadGroup) -> list[Array]:
        x = a(group)
        for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0xF0F0F0F), (8, 0xFF00FF)):
            x = (x >> np.uint32(shift) & np.uint32(mask)) | (x & np.uint32(mask)) << np.uint32(
                shift
            )
        return [x >> np.uint32(16) | x << np.uint32(16)]

    return run


def mask_bits(o: OperationOperands) -> Operation:
    """BMSK: ``width`` bits from ``position``."""
    position, width = o.integers(2)

    def run(group: ThreadGroup) -> list[Array]:
        start = np.minimum(wide(position(group)), np.uint64(32))
        count = np.minimum(wide(width(group)), np.uint64(32))
        return [word(((np.uint64(1) << count) - np.uint64(1)) << start)]

    return run


BIT_OPERATIONS: dict[str, Callable[[OperationOperands], Operation]] = {
    "SHF": shift_funnel, "PRMT": permute, "SGXT": extend_bits, "POPC": count_bits,
    "FLO": find_leading, "BREV": reverse_bits, "BMSK": mask_bits,
}  # fmt: skip
