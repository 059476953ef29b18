"""A warp-specialised GEMM of TMA and wgmma: right whatever lands when; its mistakes have names."""

import hashlib
from runpy import run_path

import numpy as np
import pytest

from pages import ROOT
from ptx_kernels.hopper_gemm import gemm, on_machine, random_matrices
from rows import every_row
from tilewright.errors import VmFault
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

SIZE = (256, 256, 448)
GOLDEN = "21f1ffe56a56f38206d80bfbbd7e5c024e4ea414f6b3c7e90322f41943d6a2be"  # of D, on an H200


@pytest.mark.parametrize(("stages", "cluster"), [(1, 1), (3, 1), (2, 2)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_bits_of_an_h200_in_any_order_of_completion(stages, cluster, seed):
    d = on_machine(gemm(stages, cluster).ptx, SIZE, stages, cluster, seed)
    a, b, _ = (x.astype(np.float64) for x in random_matrices(*SIZE))
    np.testing.assert_allclose(d.astype(np.float64), a @ b.T, rtol=2**-8, atol=1e-4)
    assert hashlib.sha256(d.tobytes()).hexdigest() == GOLDEN


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_example_has_the_same_bits(seed):
    a, b, d = random_matrices(*SIZE)
    run_path(str(ROOT / "examples" / "hopper_gemm.py"))["multiply"](a, b, d, VmDevice(seed=seed))
    assert hashlib.sha256(d.tobytes()).hexdigest() == GOLDEN


def test_one_warp_frees_a_stage_for_its_warpgroup():
    """However far behind the other three are: it has waited for the products of all."""
    size = (128, 128, 24 * 64)
    made = {on_machine(gemm(4, 1).ptx, size, 4, 1, seed).tobytes() for seed in range(60)}
    assert len(made) == 1


# what is taken from the kernel, what stands there instead, what the machine says
MISTAKES = {
    "a stage is freed while wgmma reads it": ("wgmma.wait_group", None, "in flight"),
    "wgmma is never committed": ("wgmma.commit_group", None, "in flight"),
    "too many bytes are expected": ("], 32768;", "], 32784;", "lacks 0 of 1 arrivals"),
    "one CTA of the cluster frees a stage for both": ("], 4;", "], 2;", "more arrivals than"),
    "B is sent to one CTA of two": ("], 3;", "], 1;", "deadlock"),
    "the producer does not wait": (
        "mbarrier.try_wait.parity.shared::cta.b64 \t%p5,",
        "mov.pred %p5, 1; //",
        "more arrivals than",
    ),
}


@every_row("mistake", MISTAKES, parts=3)
def test_mistakes_are_reported(mistake):
    old, new, says = MISTAKES[mistake]
    ptx = gemm(2, 2).ptx
    assert old in ptx
    lines = ptx.splitlines(keepends=True)
    wrong = "".join(x.replace(old, new or "") for x in lines if new or old not in x)
    with pytest.raises(VmFault, match=says):
        for seed in range(3):
            on_machine(wrong, SIZE, 2, 2, seed)
