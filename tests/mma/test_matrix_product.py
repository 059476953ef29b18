"""Products of whole matrices by one instruction: what is computed, and what is refused.

``vm/test_tensors.py`` compares the bits with a kernel's.
"""

import numpy as np
import pytest

from tilewright.dtypes import dtype
from tilewright.errors import DtypeError, LayoutError
from tilewright.layout import Layout, make_tensor
from tilewright.mma import MmaAtom, gemm

HALF = MmaAtom("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32")
WIDENED = MmaAtom("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f16")  # C of f16, D of f32
TF32 = MmaAtom("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
NIBBLES = MmaAtom("mma.sync.aligned.m8n8k32.row.col.s32.s4.s4.s32")


def random_operands(atom, k=1, **types):
    """Small whole numbers as D, A, B, C of an atom's shape, K of so many; of other ``types``."""
    m, n, depth = atom.shape_mnk
    row, random = atom.instruction, np.random.default_rng(1)
    shapes = {"d": (m, n), "a": (m, k * depth), "b": (n, k * depth), "c": (m, n)}
    held = {name: types.get(name) or dtype(getattr(row, name)).numpy for name in shapes}
    return [random.integers(-8, 8, shapes[name]).astype(held[name]) for name in shapes]


def product(atom, d, a, b, c):
    gemm(atom, *map(make_tensor, (d, a, b, c)))
    return d


@pytest.mark.parametrize(
    ("atom", "k", "types"),
    [
        (HALF, 3, {}),
        (NIBBLES, 2, {}),
        (WIDENED, 1, {}),
        (TF32, 2, {"a": np.float32, "b": np.float32}),
    ],
    ids=["f16", "s4", "widened", "tf32"],
)
def test_a_product_of_small_numbers_is_exact(atom, k, types):
    d, a, b, c = random_operands(atom, k, **types)
    want = a.astype(int) @ b.T.astype(int) + c.astype(int)
    assert np.array_equal(product(atom, d, a, b, c), want)


def test_modes_may_have_modes():
    d, a, b, c = random_operands(HALF)
    made = np.zeros(d.size, np.float32)
    parts = make_tensor(made, Layout(((8, 2), (2, 4)), ((1, 64), (8, 16))))
    gemm(HALF, parts, *map(make_tensor, (a, b, c)))
    assert np.array_equal(parts.to_numpy(), product(HALF, d, a, b, c))


def test_codes_are_accepted_as_numbers():
    d, a, b, c = random_operands(HALF)
    bits = product(HALF, d.view(np.uint32), a.view(np.uint16), b, c.view(np.uint32))
    assert np.array_equal(bits.view(np.float32), product(HALF, *random_operands(HALF)))


@pytest.mark.parametrize("name", "dabc")
def test_every_matrix_must_have_its_format(name):
    size = 8 * dtype(getattr(HALF.instruction, name)).bits // 64
    operands = random_operands(HALF, **{name: np.dtype(f"i{size}")})  # of the same size
    before = operands[0].copy()
    with pytest.raises(DtypeError, match=f"got int{8 * size}"):
        product(HALF, *operands)
    assert np.array_equal(operands[0], before)


def test_a_code_with_too_many_bits_is_rejected():
    d, _, b, c = random_operands(NIBBLES)
    with pytest.raises(DtypeError, match="a code of s4 must have at most 4 bits, got 0xc8"):
        product(NIBBLES, d, np.full((8, 32), 200, np.uint8), b, c)


def test_d_of_another_type_cannot_become_c():
    with pytest.raises(LayoutError, match=r"D of f32 can't be C of f16"):
        product(WIDENED, *random_operands(WIDENED, 2))
