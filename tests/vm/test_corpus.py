"""The corpus: what nvcc makes of our CUDA sources runs, and gives what NumPy gives."""

from __future__ import annotations

import pytest

import corpus_elements
import corpus_products
from corpus_table import CASES, CORPUS, module, run
from tilewright.ptx import parse
from tilewright.ptx.printer import print_module
from tilewright.vm import Machine

FAMILIES = (corpus_elements, corpus_products)  # they fill the table
FILES = sorted(path.stem for path in CORPUS.glob("*.ptx"))


def marked(cases):
    return [pytest.param(c, id=str(c), marks=[pytest.mark.slow] * c.slow) for c in cases]


@pytest.mark.parametrize("case", marked(CASES))
def test_a_kernel_gives_what_numpy_gives(case):
    run(case, Machine())


@pytest.mark.parametrize("file", FILES)
def test_each_kernel_of_a_file_is_in_the_table(file):
    kernels = {entry.name for entry in module(file).entries}
    assert kernels == {case.kernel for case in CASES if case.file == file}


@pytest.mark.parametrize("file", FILES)
def test_what_is_printed_is_read_again(file):
    assert parse(print_module(module(file))) == module(file)
