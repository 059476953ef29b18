"""Packed integers become exactly the numbers they are, for the instructions that the docs state."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from error_messages import raises_message
from examples import examples
from rows import every_row
from tilewright.bit_packing import unpack
from tilewright.builder import Builder, trace
from tilewright.builder.operations.unpack_integers import (
    IntegerUnpacking,
    interleaved_order,
    pack_integers,
)
from tilewright.dtypes import dtype
from tilewright.errors import DtypeError, KernelError
from tilewright.number_conversion import decode
from tilewright.ptx import tree
from tracing import evaluate
from unpack_cases import CASES


def count(source, dest, interleaved, biased) -> int:
    def body(k, w):
        k.unpack_integers(w, source, dest, interleaved=interleaved, biased=biased)

    made = trace(body, params={"w": "u32"}, name="f", lines=False).entry.body
    words = [s.opcode for s in made if isinstance(s, tree.Instruction)]
    return len([w for w in words if not w.startswith(("mov", "ld", "ret"))])


@every_row(("source", "dest", "interleaved", "biased"), CASES)
def test_elements_are_exact(source, dest, interleaved, biased):
    """A few words; ``test_unpack_kernels`` has every element in every place."""
    low, high = dtype(source).range
    per_word = 32 // dtype(source).bits
    values = np.array([[low, high, 0, 1] * 2, [high, low + 1, high - 1, low] * 2])[:, :per_word]

    def body(k, w):
        return k.unpack_integers(w, source, dest, interleaved=interleaved, biased=biased)

    for row in values:
        (word,) = pack_integers(row, source, interleaved=interleaved, biased=biased).tolist()
        pairs = np.array(evaluate(body, ["u32"], [word]), np.uint32)
        np.testing.assert_array_equal(decode(dest, unpack(dest, pairs)), row)


@every_row("case", CASES)
def test_the_number_of_instructions_is_documented(case):
    source, dest, interleaved, biased = case
    name = "u4, s4 (both)" if source[1:] == "4" else source + " biased" * biased
    found = re.search(
        rf"{re.escape(name)} +(\d+) +(\d+) +(\d+) +(\d+)", IntegerUnpacking.unpack_integers.__doc__
    )
    costs = {("f16", False): 1, ("f16", True): 2, ("bf16", False): 3, ("bf16", True): 4}
    assert count(*case) == int(found[costs[dest, interleaved]])


@examples(40)
@given(st.sampled_from(CASES), st.lists(st.integers(-8, 7), min_size=16, max_size=16))
def test_the_order_of_elements_in_words(case, values):
    source, _, interleaved, biased = case
    t = dtype(source)
    values = [abs(v) for v in values] if source[0] == "u" else values
    words = pack_integers(values, source, interleaved=interleaved, biased=biased)
    codes = unpack(f"u{t.bits}", words).astype(int)
    order = interleaved_order(source) if interleaved else range(32 // t.bits)
    for place, code in enumerate(codes.tolist()):
        word, slot = divmod(place, len(order))
        value = values[word * len(order) + order[slot]]
        bias = (1 << (t.bits - 1)) if biased else 0
        assert code == (value + bias) % (1 << t.bits)


def test_invalid_arguments():
    k = Builder(line_info=False)
    word, half = k.const("u32", 0), k.const("u16", 0)
    for call, got in (
        (lambda: k.unpack_integers(half, "u8"), "got u16 of u8 to f16"),
        (lambda: k.unpack_integers(word, "u16"), "got u32 of u16 to f16"),
        (lambda: k.unpack_integers(word, "u8", "f32"), "got u32 of u8 to f32"),
        (lambda: k.unpack_integers(word, "u8", biased=True), "for s8 and s4 only"),
    ):
        with raises_message(KernelError, got):
            call()
    with pytest.raises(DtypeError, match="do not fill words of 32 bits"):
        pack_integers([1, 2, 3], "u8")
