"""Philox4x32-10 and dropout: published known answers, statistics, bits on the virtual machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from epilogues import run_elements, same_bits
from tilewright import errors
from tilewright.gemm.epilogue.functions import random_numbers, where
from tilewright.gemm.epilogue.functions.random_numbers import dropout, philox4x32, random_bits
from tilewright.gemm.epilogue.graph import EpilogueInput, EpilogueOutput, GraphBuilder
from tilewright.gemm.epilogue.reference import evaluate
from tilewright.gemm.epilogue.tracing import TracedValue, epilogue

# counter, key, result: Random123's kat_vectors
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize("traced_key", [False, True])
@pytest.mark.parametrize(("counter", "key", "result"), KNOWN_ANSWERS)
def test_philox_has_the_published_answers(
    counter: str, key: str, result: str, traced_key: bool
) -> None:
    builder, inputs = GraphBuilder(), {}

    def load(name: str, number: int) -> TracedValue:
        inputs[name] = np.array([number], np.uint32)
        return TracedValue(builder, builder.add("load", "u32", (), (name, "u32", "")))

    c: Any = tuple(load(f"c{i}", word) for i, word in enumerate(words(counter)))
    k: Any = tuple(load(f"k{i}", w) if traced_key else w for i, w in enumerate(words(key)))
    outputs = [EpilogueOutput(str(i), x.index, "u32") for i, x in enumerate(philox4x32(c, k))]
    got = evaluate(builder.graph(tuple(outputs)), np.zeros(1, np.float32), inputs)
    assert [int(x[0]) for x in got.values()] == words(result)


def philox(counter: list[int], key: list[int]) -> int:
    """The first word by Python's integers."""
    c, k = list(counter), list(key)
    for i in range(random_numbers.ROUNDS):
        if i:
            k = [(a + b) % 2**32 for a, b in zip(k, random_numbers.WEYL, strict=True)]
        first, second = (c[2 * j] * m for j, m in enumerate(random_numbers.MULTIPLIERS))
        c = [second >> 32 ^ c[1] ^ k[0], second % 2**32, first >> 32 ^ c[3] ^ k[1], first % 2**32]
    return c[0]


def test_the_counter_is_column_row_batch_and_offset() -> None:
    seed, offset = 2**40 + 17, 9
    got = random_bits(np.zeros((2, 3, 5), np.float32), seed, offset)
    key = [seed % 2**32, seed >> 32]
    for (batch, row, column), word in np.ndenumerate(got):
        assert word == philox([column, row, batch, offset], key)


def test_a_seed_may_be_an_operand() -> None:
    x = np.ones((4, 8), np.float32)
    expected = random_bits(x, 1234)
    for seed in (np.array([1234], np.uint32), np.array([1234], np.int32), np.array([1234.0])):
        np.testing.assert_array_equal(random_bits(x, seed), expected)
    assert (random_bits(x, np.uint64(1234)) == expected).all()


def test_dropout_keeps_the_fraction_and_scales_it() -> None:
    x = np.full((512, 512), 3.0, np.float32)
    got = dropout(x, 0.3, seed=5)
    kept = got != 0
    assert abs(kept.mean() - 0.7) < 5 * (0.21 / x.size) ** 0.5
    assert np.unique(got[kept]).tolist() == [np.float32(3.0) * np.float32(1 / 0.7)]
    assert abs(np.corrcoef(kept[:, :-1].ravel(), kept[:, 1:].ravel())[0, 1]) < 0.01
    other = dropout(x, 0.3, seed=5, offset=1) != 0
    assert abs(np.corrcoef(kept.ravel(), other.ravel())[0, 1]) < 0.01


def test_dropout_drops_infinities_and_has_its_ends() -> None:
    x = np.full((8, 8), np.inf, np.float32)
    assert set(np.unique(dropout(x, 0.5, 1))) == {0.0, np.inf}
    np.testing.assert_array_equal(dropout(x, 0.0, 1), x)
    np.testing.assert_array_equal(dropout(x, 1.0, 1), 0 * np.ones_like(x))


@pytest.mark.vm
@pytest.mark.parametrize("operand", [False, True])
def test_dropout_has_numpys_bits_on_the_virtual_machine(operand: bool) -> None:
    inputs = (EpilogueInput("seed", "f32", ""),) if operand else ()
    function = (
        (lambda acc, seed: dropout(acc, 0.25, seed))
        if operand
        else (lambda acc: dropout(acc, 0.25, 77))
    )
    graph = epilogue(function).trace("f32", inputs)
    acc = np.linspace(-4, 4, 1024).astype(np.float32)
    got = run_elements(graph, acc, {"seed": np.full(1024, 77, np.float32)} if operand else {})["d"]
    named = {"seed": np.array(77, np.float32)} if operand else {}
    expected = evaluate(graph, acc.reshape(64, 16), named)["d"].ravel()
    assert same_bits(got, np.ascontiguousarray(expected)).all()


@pytest.mark.parametrize(("p", "seed", "message"), [
    (1.5, 1, "p must be a number from 0 to 1, got 1.5"),
    (0.5, -1, "seed must be an integer below 2.64 or an operand, got -1"),
    (0.5, 2**64, "seed must be an integer below 2.64"),
    (0.5, 0.5, "seed must be an integer below 2.64 or an operand, got 0.5"),
])  # fmt: skip
def test_arguments_of_dropout_are_checked(p: float, seed: Any, message: str) -> None:
    with pytest.raises(errors.EpilogueError, match=message):
        dropout(np.ones((2, 2), np.float32), p, seed)


def test_a_mask_is_an_output() -> None:
    function = epilogue(
        lambda acc: {
            "d": dropout(acc, 0.5, 3),
            "mask": where(random_bits(acc, 3) < 2**31, 0.0, 1.0),
        }
    )
    acc = np.ones((16, 16), np.float32)
    got = evaluate(function.trace("f32", ()), acc, {})
    np.testing.assert_array_equal(got["d"], 2 * got["mask"])


@pytest.mark.vm
@pytest.mark.parametrize("case", ["row-major", "column-major", "batched"])
def test_the_mask_of_a_product_depends_on_the_index_alone(case: str) -> None:
    rng = np.random.default_rng(0)
    batch = (2,) if case == "batched" else ()
    a = rng.standard_normal((*batch, 40, 64)).astype(np.float16)
    b = rng.standard_normal((*batch, 64, 72)).astype(np.float16)
    out = np.empty((72, 40), np.float16).T if case == "column-major" else None  # computes Dᵀ

    def dropped(acc: Any, seed: Any) -> Any:
        return dropout(acc, 0.5, seed, 3)

    d = tilewright.matmul(a, b, epilogue=dropped, seed=9.0, out=out, device="vm")
    expected = dropout(np.ones(d.shape, np.float32), 0.5, 9, 3)
    np.testing.assert_array_equal(d != 0, expected != 0)
