"""Operand reuse in the promotion of kernel ``tma``: control bits of ptxas' code, nothing else.

With block scales, the main loop has rows of FFMAs in which each adds an accumulator times a scale
that the next one reads too. An FFMA reads three registers from two banks: two cycles, one where the
scale comes from the reuse cache. ptxas keeps it there for every second FFMA, and lets the warp
yield after the others, which loses it.

The words are read by the few bits that matter, as the encodings' table takes a second to load. What
is not known here stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ...errors import TilewrightError
from ..cubin_file import TEXT, CubinFile

if TYPE_CHECKING:
    import numpy.typing as npt

    Words = npt.NDArray[np.uint64]  # of two columns, the low and the high 64 bits
    Numbers = npt.NDArray[np.uint64]
    Mask = npt.NDArray[np.bool_]

_ARCHITECTURE = 90
_OPCODE = 0xFFF
FFMA, FMUL, FADD, QGMMA, BRANCH = 0x223, 0x220, 0x221, 0xDF3, 0x947
_SHARED_QGMMA = 0x9F3  # both operands from shared memory
# The lowest bit of the register number that is read through each slot; FADD reads the first and
# the third, its second operand's number is where others have that of the second slot.
SLOTS = {FFMA: (24, 32, 64), FMUL: (24, 32, None), FADD: (24, None, 32)}
_RZ, _ALWAYS = 255, 7
_RESULT, _GUARD = 16, 12  # lowest bits of the result's number and the guard
_STALL, _STAYS, _WAIT, _REUSE = 105, 109, 116, 122  # of the control code; _STAYS: no yield
_LONGEST = 11  # cycles of a stall without yield


def with_kept_operands(code: bytes, name: str) -> bytes:
    """The cubin ``code`` where FP32 instructions of kernel ``name`` keep all operands that the
    next one reads, if FFMAs promote in its main loop.
    """
    try:
        file = CubinFile.parse(code)
        if file.sm != _ARCHITECTURE:
            return code
        words = np.frombuffer(file.code(name), "<u8").reshape(-1, 2)
        index = file.index(TEXT + name)
        if index is None or not promotes(words):
            return code
        return file.with_data(index, with_reuse(words).tobytes()).build()
    except TilewrightError:
        return code


def promotes(words: Words) -> bool:
    """Whether FFMAs and wgmmas of 8-bit floats are in one loop without a loop of such inside."""
    opcode = words[:, 0] & np.uint64(_OPCODE)
    wgmmas = np.flatnonzero((opcode == QGMMA) | (opcode == _SHARED_QGMMA))
    products = np.flatnonzero(opcode == FFMA)
    around = [x for x in _loops(words, opcode) if _between(wgmmas, x)]
    inner = [x for x in around if not any(x != y and x.first <= y.first and y.last <= x.last
                                          for y in around)]  # fmt: skip
    return any(_between(products, x) for x in inner)


class WordRange(NamedTuple):
    """The words from number ``first`` to ``last``."""

    first: int
    last: int


def _loops(words: Words, opcode: Numbers) -> list[WordRange]:
    """From the target of each conditional branch back to the branch."""
    found = []
    for at in np.flatnonzero(opcode == BRANCH):
        low, high = (int(x) for x in words[at])
        word = high << 64 | low
        # in units of 4 bytes from the next instruction on, 8 bits and 48 bits, the first the sign
        distance = (word >> 34 & (1 << 48) - 1) << 8 | word >> 16 & 0xFF
        distance -= (distance >> 55) << 56
        target = int(at) + 1 + distance // 4
        if 0 <= target <= at and low >> _GUARD & 15 != _ALWAYS:
            found.append(WordRange(target, int(at)))
    return found


def _between(places: npt.NDArray[np.intp], words: WordRange) -> bool:
    return bool(((places >= words.first) & (places <= words.last)).any())


def with_reuse(words: Words) -> Words:
    """The words with flags on operands that the next instruction reads through the same slot.

    Neither of the two has a guard, the first does not write the register, the second waits for no
    barrier, so that nothing comes between them. A warp that yields or does not stall would lose
    what it keeps: a flagged instruction does not yield.
    """
    kept = np.zeros(len(words), np.uint64)
    registers = [_registers(words, slot) for slot in range(3)]
    result, stall = _field(words, _RESULT, 8), _field(words, _STALL, 4)
    first = (stall >= 1) & (stall <= _LONGEST) & _is_unguarded(words)
    second = (_field(words, _WAIT, 6) == 0) & _is_unguarded(words)
    for slot, number in enumerate(registers):
        same = (number[:-1] == number[1:]) & (number[:-1] < _RZ) & (number[:-1] != result[:-1])
        kept[:-1] |= (same & first[:-1] & second[1:]).astype(np.uint64) << np.uint64(slot)
    found = words.copy()
    found[:, 1] |= kept << np.uint64(_REUSE - 64)
    found[kept > 0, 1] |= np.uint64(1 << _STAYS - 64)
    return found


def _registers(words: Words, slot: int) -> Numbers:
    """The register that each word reads through a slot; 256 and more, no two alike, for none."""
    found = np.arange(len(words), dtype=np.uint64) + np.uint64(256)
    opcode = words[:, 0] & np.uint64(_OPCODE)
    for number, bits in SLOTS.items():
        bit = bits[slot]
        if bit is not None:
            found = np.where(opcode == number, _field(words, bit, 8), found)
    return found


def _is_unguarded(words: Words) -> Mask:
    return np.asarray(_field(words, _GUARD, 4) == _ALWAYS)


def _field(words: Words, bit: int, width: int) -> Numbers:
    """A field of each word."""
    half = words[:, bit // 64] >> np.uint64(bit % 64)
    return half & np.uint64((1 << width) - 1)
