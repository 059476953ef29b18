"""JAX's arrays on a GPU: products are new arrays of JAX, and none that is there is written."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.errors import ProblemError

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.gpu


def test_products_are_new_arrays_on_the_gpu() -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((96, 64), (64, 32)))
    a, b = jax.numpy.asarray(x), jax.numpy.asarray(y)
    if next(iter(a.devices())).platform != "gpu":
        pytest.skip("JAX has no GPU here")
    for _ in range(3):
        d = tilewright.matmul(a, b)
        assert isinstance(d, jax.Array) and d.devices() == a.devices()
        assert np.array_equal(d, x.astype(float) @ y.astype(float))
        twice = tilewright.matmul(a, b, c=d, beta=1.0)
        assert np.array_equal(twice, 2 * np.asarray(d))
    with pytest.raises(ProblemError, match="out must be writable"):
        tilewright.matmul(a, b, out=d)
