"""The approximate instructions give an H200's bits, over all operands of a sign and exponent."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from golden.golden_approximations import BLOCKS, FORMS, checksums, read
from ptx_kernels import simt
from rows import every_row
from tilewright.errors import DtypeError
from tilewright.mufu import evaluate
from tilewright.ptx.isa import ROWS

pytestmark = pytest.mark.vm

KEPT = read()
EDGES = [0, 1, 118, 119, 126, 127, 129, 130, 134, 135, 254, 255]  # exponents where rules change


def test_golden_file_has_every_form():
    assert list(KEPT) == FORMS
    every = (row for rows in ROWS.values() for row in rows if re.search("approx|full", row.syntax))
    named = {opcode for row in every for opcode in row.opcodes()}
    named = {opcode for opcode in named if ".approx" in opcode or ".full" in opcode}
    assert {opcode + "x2" * opcode.endswith("f16") for opcode in named} == set(FORMS)


def held(opcode: str, blocks) -> list[int]:
    """The blocks whose results are others than the H200's."""
    return [b for b in blocks if checksums(opcode, b, 1, simt.run)[0] != KEPT[opcode][b]]


@every_row("opcode", FORMS, parts=11)
def test_approximations_equal_the_h200(opcode):
    blocks = random.Random(opcode).sample(range(BLOCKS), 4)
    assert not held(opcode, [*blocks, *random.Random(opcode).sample(EDGES, 2)])


@pytest.mark.slow
@pytest.mark.parametrize("opcode", FORMS)
def test_approximations_of_many_operands_equal_the_h200(opcode):
    edges = [e + sign for e in EDGES for sign in (0, 256)]
    assert not held(opcode, [*edges, *range(random.Random(opcode).randrange(8), BLOCKS, 8)])


@pytest.mark.parametrize(
    ("function", "bits", "message"),
    [
        ("exp", np.zeros(1, np.uint32), "known are rcp"),
        ("rcp", np.ones(1, np.float32), "got float32"),
        ("rcp", np.array([-1]), "got int64"),
        ("rcp", [1], "got list"),
    ],
)
def test_operands_must_be_f32_bits(function, bits, message):
    with pytest.raises(DtypeError, match=message):
        evaluate(function, bits)
