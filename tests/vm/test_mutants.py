"""Whatever is taken from a kernel's order, the checked machine names; what it can't is listed."""

from functools import cache

import pytest

from hopper_gemm import gemm, on_machine
from mutator import Mutant, mutants
from sampling import every
from tilewright.errors import VmFault
from tilewright.ptx import parse

SIZE = (256, 128, 448)
SEEDS = range(4)
STEPS = 3_000_000
KERNELS = [(2, 2), (3, 1)]  # stages, CTAs of a cluster
QUICK = 12  # of so many mutants one is tried in the quick run

# Mutants that are no mistakes, and why.
SAME = {
    "barrier 1: another barrier": "nobody else uses either",
    "barrier 2: another barrier": "nobody else uses either, or no more",
    "barrier 2: all threads": "the producer has ended, and barriers count the living",
    "descriptor 1: another leading": "a swizzled row is as long as the product reads",
    "descriptor 2: another leading": "a swizzled row is as long as the product reads",
    "store 1: twice": "the same bytes to the same place",
}
# Mutants that are another product in good order: nothing but the result is wrong.
OTHER = {
    "load 1: 0 and 1 swapped": "a box of A from elsewhere",
    "load 2: 0 and 1 swapped": "a box of B from elsewhere",
    "product 1: adds, or not": "the last stage's product alone: each begins anew",
    "store 1: dropped": "D stays where it is",
    "store 1: 0 and 1 swapped": "D goes elsewhere",
}


@cache
def all_mutants(stages: int, cluster: int) -> dict[str, Mutant]:
    made = list(mutants(parse(gemm(stages, cluster).ptx)))
    assert len({m.name for m in made}) == len(made)
    return {m.name: m for m in made}


@cache
def right(stages: int, cluster: int) -> bytes:
    return on_machine(gemm(stages, cluster).ptx, SIZE, stages, cluster, 0).tobytes()


CASES = [(*kernel, name) for kernel in KERNELS for name in all_mutants(*kernel)]


@pytest.mark.parametrize(("stages", "cluster", "name"), every(QUICK, CASES))
def test_a_mutant_is_named(stages, cluster, name):
    module = all_mutants(stages, cluster)[name].module
    how = {"checked": True, "step_limit": STEPS}
    try:
        made = {on_machine(module, SIZE, stages, cluster, n, **how).tobytes() for n in SEEDS}
    except VmFault as error:
        assert error.kind != "step limit"
        assert error.place is not None
        assert name not in SAME | OTHER
    else:
        assert name in SAME | OTHER
        assert (made == {right(stages, cluster)}) == (name in SAME)


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "cluster"), [(1, 1), (3, 1), (4, 1), (2, 2), (3, 4)])
def test_the_kernel_itself_is_right_in_every_order(stages, cluster):
    size = (128 * cluster, 256, 24 * 64)
    ptx = gemm(stages, cluster).ptx
    made = {on_machine(ptx, size, stages, cluster, n, checked=True).tobytes() for n in range(50)}
    assert len(made) == 1
