"""The corpus: what compilers make of our sources runs, and gives what NumPy gives."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from corpus_cases import (
    elements,
    hopper,
    language,
    memory,
    numbers,
    plain,
    products,
    triton_across,
    triton_elements,
    triton_hopper,
    triton_networks,
    triton_products,
)
from corpus_cases.table import CASES, CORPUS, module, run
from rows import every_row, slow_but
from tilewright.errors import TilewrightError, VmFault
from tilewright.ptx import parse
from tilewright.ptx.syntax.printer import print_module
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

FAMILIES = (  # they fill the table
    elements,
    hopper,
    language,
    memory,
    numbers,
    plain,
    products,
    triton_across,
    triton_elements,
    triton_hopper,
    triton_networks,
    triton_products,
)
FILES = sorted(str(p.relative_to(CORPUS).with_suffix("")) for p in CORPUS.rglob("*.ptx"))


LONG = """attention embedding_gradient heap_sort mandelbrot pipelined powers queue register_blocked
rope shared_tree special stack_machine uneven_loops""".split()  # to be run a step at a time


AGAIN = [c for c in CASES if c.again]
COMPILED = [c for c in CASES if not (c.slow or c.again)][::2]  # quick ones
STEPPED = [c for c in AGAIN[::3] if c.kernel not in LONG]


@pytest.mark.parametrize("case", slow_but(COMPILED, CASES), ids=str)
def test_kernel_results_equal_numpy(case, capsys):
    check(case, capsys)


@pytest.mark.parametrize("case", slow_but(STEPPED, AGAIN), ids=str)
def test_kernels_of_another_compiler_in_the_stepping_evaluator(case, capsys):
    """The same source's kernel as before, which took less time to compile than this would."""
    check(case, capsys, on_step=lambda step: None)


def check(case, capsys, **how):
    if case.fails:
        with pytest.raises(TilewrightError, match=case.fails):
            run(case, Machine(), **how)
    else:
        run(case, Machine(), **how)
        assert capsys.readouterr().out == case.says


# Triton lets tensor copies use mbarriers with no fence behind their initialisation.
UNFENCED = {
    f"triton/{name}"
    for name in "cubes described described_cluster flash specialised tensor_reductions".split()
}
MODES = {
    "stepped": ({}, {"on_step": lambda step: None}),
    "checked": ({"checked": True}, {}),
    "other orders": ({"seed": 7}, {}),
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@every_row("mode", MODES, parts=24)
@every_row("case", [c for c in CASES if not c.fails], ids=str)
def test_kernel_results_equal_numpy_with_other_options(case, mode):
    machine, launch = MODES[mode]
    careless = mode == "checked" and case.file in UNFENCED
    message = "fence: cp.async.bulk.tensor.* what the mbarrier.init.* wrote"
    with pytest.raises(VmFault, match=message) if careless else nullcontext():
        run(case, Machine(**machine), **launch)


@pytest.mark.slow
@pytest.mark.timeout(900)
@every_row("case", [c for c in CASES if not c.fails], ids=str, parts=8)
def test_kernel_results_on_its_own_architecture(case):
    run(case, Machine(module(case.file).target[0]))


@every_row("file", FILES)
def test_each_kernel_of_a_file_is_in_the_table(file):
    kernels = {entry.name for entry in module(file).entries}
    assert kernels == {case.kernel for case in CASES if case.file == file}


@every_row("file", FILES)
def test_printed_module_parses_to_the_same_tree(file):
    assert parse(print_module(module(file))) == module(file)
