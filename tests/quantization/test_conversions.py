"""The table of conversions: the counts are those of the PTX, every element is what the table says.

Exact integer recipes to f16 and bf16 have all pairs of elements in every place in
tests/builder/values; the others have every element in every place here, beside others.
"""

from __future__ import annotations

import numpy as np
import pytest

from rows import every_row
from tilewright.bit_packing import unpack
from tilewright.builder import Builder, Pointer, trace
from tilewright.dtypes import dtype
from tilewright.errors import DtypeError
from tilewright.number_conversion import decode, encode
from tilewright.quantization.conversions import CONVERSIONS, ElementConversion, conversion, table
from tilewright.quantization.weight_types import NF4
from tilewright.vm import Machine

BLOCK = 128
ROWS = [row for row in CONVERSIONS if row.source[0] == "e" or row.exponent or row.to_bytes]
SUBTRACTING = [row for row in ROWS if row.source == "u4" and row.exponent != -9]  # u · 2⁻⁹ is masks


def name_of(row: ElementConversion) -> str:
    return row.name


@every_row("row", CONVERSIONS, ids=name_of)
def test_the_counts_are_those_of_the_ptx(row: ElementConversion) -> None:
    assert len(row.opcodes()) == row.instructions
    assert row.name in table() and conversion(
        row.source, row.dest, interleaved=row.interleaved, biased=row.biased, exponent=row.exponent
    ) is row  # fmt: skip


def test_the_documents_own_recipe() -> None:
    """Biased, interleaved bytes to f16: two prmt and two sub for four elements."""
    row = conversion("s8", "f16", interleaved=True, biased=True)
    assert row.opcodes() == ("prmt.b32", "sub.rn.f16x2") * 2
    assert row.pack([[0, -128, 127, 1]]).tolist() == [[0x8100FF80]]


def converted(row: ElementConversion, words: np.ndarray, zeros: tuple[int, ...] = ()) -> np.ndarray:
    """The bits of the elements that the recipe makes of each word, on the virtual machine."""

    def body(k: Builder, given: Pointer, made: Pointer) -> None:
        i = k.mad(k.ctaid.x, BLOCK, k.tid.x)
        registers = [k.view(x, "b32") for x in row.emit(k, given[i], zeros)]
        (made + i * len(registers)).store(registers)

    kernel = trace(body, params={"given": "ptr u32", "made": "ptr b32 align 16"}, name="f")
    machine = Machine()
    machine.load(kernel.ptx)
    results = np.zeros((len(words), row.elements * dtype(row.dest).bits // 32), np.uint32)
    places = machine.upload(words), machine.upload(results)
    machine.launch("f", len(words) // BLOCK, BLOCK, places)
    return unpack(row.dest, machine.download(places[1], results))


@pytest.mark.vm
@every_row("dest", ["f16", "bf16"])
def test_nf4_is_rounded_in_every_place(dest: str) -> None:
    row = conversion("nf4", dest)
    codes = np.random.default_rng(6).integers(0, 16, (BLOCK, row.elements))
    assert np.array_equal(converted(row, row.pack(codes)), encode(dest, NF4)[codes])


def all_codes(row: ElementConversion) -> np.ndarray:
    """Every code in every place of a word, beside others."""
    count = 1 << dtype(row.source).bits
    codes = np.random.default_rng(5).integers(0, count, (max(count, BLOCK) * 2, row.elements))
    for place in range(row.elements):
        codes[:, place] = np.roll(np.arange(len(codes)) % count, 37 * place)
    return codes


@pytest.mark.vm
@every_row("row", ROWS, ids=name_of)
def test_every_element_in_every_place(row: ElementConversion) -> None:
    t, codes = dtype(row.source), all_codes(row)
    values = decode(t, codes).astype(float)
    numbers = decode(row.dest, converted(row, row.pack_codes(codes.astype(np.uint8))))
    numbers = numbers.astype(float) * 2.0**-row.exponent
    if row.exactness != "exact":
        nan = np.isnan(values)
        assert nan.any() and np.all(np.abs(numbers[nan]) == 480)
        values = np.where(nan, numbers, values)
    assert np.array_equal(numbers, values, equal_nan=True)
    signed = ~np.isnan(values) & (t.kind == "float")
    assert np.array_equal(np.signbit(numbers)[signed], np.signbit(values)[signed])


@pytest.mark.vm
@every_row("row", SUBTRACTING, ids=name_of)
def test_zero_points_are_subtracted(row: ElementConversion) -> None:
    codes = all_codes(row)
    for zero in (1, 8, 15):
        numbers = decode(row.dest, converted(row, row.pack_codes(codes.astype(np.uint8)), (zero,)))
        assert np.array_equal(numbers.astype(float) * 2.0**-row.exponent, codes - zero)


def test_an_unknown_conversion() -> None:
    with pytest.raises(DtypeError, match=r"one of u8 to f16, .*, got e5m2 to bf16, interleaved"):
        conversion("e5m2", "bf16", interleaved=True)
