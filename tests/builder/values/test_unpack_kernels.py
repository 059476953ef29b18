"""Packed integers on the compiled machine: every element beside every other, in every place."""

from __future__ import annotations

import numpy as np
import pytest

from rows import every_row
from tilewright.bit_packing import unpack
from tilewright.builder import trace
from tilewright.builder.operations.unpack_integers import pack_integers
from tilewright.dtypes import dtype
from tilewright.number_conversion import decode
from tilewright.vm import Machine
from unpack_cases import CASES

pytestmark = pytest.mark.vm

BLOCK = 256


@every_row(("source", "dest", "interleaved", "biased"), CASES)
def test_every_element_in_every_place(source, dest, interleaved, biased):
    t = dtype(source)
    per_word = 32 // t.bits
    pairs = np.arange(1 << (2 * t.bits))  # any two elements
    two = np.stack([decode(t, pairs & (1 << t.bits) - 1), decode(t, pairs >> t.bits)])
    values = np.stack([np.roll(two[i % 2], i * 77) for i in range(per_word)], axis=-1)
    words = pack_integers(values, source, interleaved=interleaved, biased=biased)

    def body(k, given, made):
        i = k.mad(k.ctaid.x, BLOCK, k.tid.x)
        found = k.unpack_integers(given[i], source, dest, interleaved=interleaved, biased=biased)
        (made + i * len(found)).store(found)

    kernel = trace(body, params={"given": "ptr u32", "made": f"ptr {dest}x2 align 16"}, name="f")
    machine = Machine()
    machine.load(kernel.ptx)
    results = np.zeros((len(pairs), per_word // 2), np.uint32)
    places = machine.upload(words), machine.upload(results)
    machine.launch("f", len(pairs) // BLOCK or 1, min(BLOCK, len(pairs)), places)
    halves = unpack(dest, machine.download(places[1], results))
    np.testing.assert_array_equal(decode(dest, halves), values)
