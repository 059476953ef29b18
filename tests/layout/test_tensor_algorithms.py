"""What is done to all elements, or those that are wanted. The bits are compared with a kernel's in
``vm/test_tensors.py``.
"""

import numpy as np
import pytest

from tilewright.errors import LayoutError
from tilewright.layout import (
    Layout,
    copy,
    local_tile,
    make_identity_tensor,
    make_predicate,
    make_tensor,
)


def padded(data, tile):
    """A 4×4 tile of 5×5, over its edge too, and where it has data."""
    where = local_tile(make_identity_tensor((5, 5)), (4, 4), tile)
    return local_tile(make_tensor(data), (4, 4), tile), make_predicate(where, (5, 5))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("tile", [(0, 0), (1, 0), (1, 1)])
def test_a_predicated_copy_accesses_selected_elements_only(tile, dtype):
    data = np.arange(25, dtype=np.float32).reshape(5, 5)
    src, inside = padded(data, tile)
    out = np.full((4, 4), -1, dtype)
    copy(src, make_tensor(out), pred=inside)
    held = data[4 * tile[0] :, 4 * tile[1] :][:4, :4]
    assert np.array_equal(out, np.pad(held, [(0, 4 - n) for n in held.shape], constant_values=-1))
    back = np.zeros_like(data)
    copy(make_tensor(out), padded(back, tile)[0], pred=inside)
    assert back.sum() == held.sum()


def test_an_empty_predicate_copies_nothing():
    src, _ = padded(np.ones((5, 5), np.float32), (1, 1))
    out = np.zeros((4, 4), np.float16)
    copy(src, make_tensor(out), pred=make_predicate(make_identity_tensor((4, 4)), (0, 0)))
    assert not out.any()


def test_there_is_a_predicate_for_each_element():
    src, dst = (make_tensor(np.zeros(8), Layout(8)) for _ in range(2))
    for size in (4, 16):
        with pytest.raises(LayoutError, match="the same number of elements"):
            copy(src, dst, pred=make_predicate(make_identity_tensor(size), 3))
    with pytest.raises(LayoutError, match="expected a tensor, got True"):
        copy(src, dst, pred=True)
