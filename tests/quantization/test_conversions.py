"""The table of conversions: the counts are those of the PTX, every element is what the table says.

Integer recipes have all pairs of elements in every place in tests/builder/values; those of floats
have every element in every place here, beside others.
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
FLOATS = [row for row in CONVERSIONS if row.source[0] == "e"]


def name_of(row: ElementConversion) -> str:
    return row.name


@every_row("row", CONVERSIONS, ids=name_of)
def test_the_counts_are_those_of_the_ptx(row: ElementConversion) -> None:
    assert len(row.opcodes()) == row.instructions
    assert row.name in table() and conversion(
        row.source, row.dest, interleaved=row.interleaved, biased=row.biased
    ) is row  # fmt: skip


def test_the_documents_own_recipe() -> None:
    """Biased, interleaved bytes to f16: two prmt and two sub for four elements."""
    row = conversion("s8", "f16", interleaved=True, biased=True)
    assert row.opcodes() == ("prmt.b32", "sub.rn.f16x2") * 2
    assert row.pack([[0, -128, 127, 1]]).tolist() == [[0x8100FF80]]


def converted(row: ElementConversion, words: np.ndarray) -> np.ndarray:
    """The bits of the halves that the recipe makes of each word, on the virtual machine."""

    def body(k: Builder, given: Pointer, made: Pointer) -> None:
        i = k.mad(k.ctaid.x, BLOCK, k.tid.x)
        pairs = row.emit(k, given[i])
        (made + i * len(pairs)).store(pairs)

    kernel = trace(
        body, params={"given": "ptr u32", "made": f"ptr {row.dest}x2 align 16"}, name="f"
    )
    machine = Machine()
    machine.load(kernel.ptx)
    results = np.zeros((len(words), row.elements // 2), np.uint32)
    places = machine.upload(words), machine.upload(results)
    machine.launch("f", len(words) // BLOCK, BLOCK, places)
    return unpack(row.dest, machine.download(places[1], results))


@pytest.mark.vm
@every_row("dest", ["f16", "bf16"])
def test_nf4_is_rounded_in_every_place(dest: str) -> None:
    row = conversion("nf4", dest)
    codes = np.random.default_rng(6).integers(0, 16, (BLOCK, row.elements))
    assert np.array_equal(converted(row, row.pack(codes)), encode(dest, NF4)[codes])


@pytest.mark.vm
@every_row("row", FLOATS, ids=name_of)
def test_every_element_in_every_place(row: ElementConversion) -> None:
    t = dtype(row.source)
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 1 << t.bits, (max(1 << t.bits, BLOCK) * 2, row.elements))
    for place in range(row.elements):
        codes[:, place] = np.roll(np.arange(len(codes)) % (1 << t.bits), 37 * place)
    values = decode(t, codes)
    found = converted(row, row.pack(codes if t.kind == "float" else values))
    numbers = decode(row.dest, found)
    if row.exactness != "exact":
        nan = np.isnan(values)
        assert nan.any() and np.all(np.abs(numbers[nan]) == 480)
        values = np.where(nan, numbers, values)
    assert np.array_equal(numbers, values, equal_nan=True)
    signed = ~np.isnan(values)
    assert np.array_equal(np.signbit(numbers)[signed], np.signbit(values)[signed])


def test_an_unknown_conversion() -> None:
    with pytest.raises(DtypeError, match=r"one of u8 to f16, .*, got e5m2 to bf16, interleaved"):
        conversion("e5m2", "bf16", interleaved=True)
