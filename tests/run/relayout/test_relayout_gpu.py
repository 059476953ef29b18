"""Copies of matrices on a GPU: the bytes, nothing around them, and one after another in order."""

from __future__ import annotations

import numpy as np
import pytest

from gemm_cases.copied import RNG, SIZES, Place, aligned, check
from tilewright.run import device
from tilewright.run.relayout.relayout import RelayoutSpec, prepare

pytestmark = pytest.mark.gpu

ON = "cuda"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("shape", [(1, 2), (5, 70), (81, 3163), (1000, 777), (3, 130, 257)])
def test_every_kind(shape: tuple[int, ...], size: int) -> None:
    lines, length = shape[-2:]
    apart = ((lines + 1) * (length + 1),) if len(shape) == 3 else ()
    by_rows, by_columns = (*apart, length + 1, 1), (*apart, 1, lines + 1)
    for source in (by_rows, by_columns, tuple(2 * s for s in by_rows)):
        for rows in (True, False):
            given = Place(shape, source, size, size, 0, ON)
            check((given, aligned(shape, size, rows, ON)), padded=True)
        for target in (by_rows, by_columns, tuple(-3 * s for s in by_columns)):
            given = Place(shape, source, size, size, 0, ON)
            check((given, Place(shape, target, size, 16 - size, 5, ON)))


def test_several_at_once() -> None:
    shapes = [((400, 333), 2), ((70, 3000), 1), ((999, 5), 4)]
    pairs = [(Place(s, (s[1] + 1, 1), z, z, 0, ON), aligned(s, z, on=ON)) for s, z in shapes]
    check(*pairs, padded=True)


@pytest.mark.parametrize("shape", [(33, 47), (700, 1001)])
def test_one_waits_for_the_one_before(shape: tuple[int, int]) -> None:
    """Twenty copies in a ring of three places, each of what the last one wrote."""
    on, (rows, columns) = device(ON), shape
    strides = [(columns, 1), (1, rows), (columns + 3, 1)]
    places = [Place(shape, steps, 2, 2, 0, ON) for steps in strides]
    given = RNG.integers(0, 256, places[0].bytes, np.uint8)
    places[0].write(given)
    for i in range(20):
        source, target = places[i % 3], places[(i + 1) % 3]
        move = RelayoutSpec(shape, 2, strides[i % 3], strides[(i + 1) % 3])
        prepare(on, (move,))((source.address, target.address))
    last = places[20 % 3]
    np.testing.assert_array_equal(last.view(last.read()), places[0].view(given))
    for place in places:
        place.free()
