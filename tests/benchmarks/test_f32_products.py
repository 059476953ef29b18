"""``benchmarks/f32_products.py``: its shapes and candidates."""

from __future__ import annotations

import argparse

import f32_products
import pytest

SMALL, OTHER = "simt:16x32x16:4x8:4/8@8", "simt:32x32x32:4x8x2:3/8@8"


def test_configurations_may_follow_a_shape() -> None:
    assert f32_products.parsed("88x1067x79") == ((88, 1067, 79, "tt"), ())
    assert f32_products.parsed(f"8x9x10,{SMALL},{OTHER}") == ((8, 9, 10, "tt"), (SMALL, OTHER))
    assert f32_products.parsed("8x9x10:tn") == ((8, 9, 10, "tn"), ())


def test_they_are_candidates_of_this_call_alone() -> None:
    """One call's shapes do not add to the candidates of the next."""
    shape, more = f32_products.parsed(f"88x1067x79,{SMALL}")
    assert f32_products.candidates(shape, 0, more) == (SMALL,)
    assert f32_products.candidates(shape, 0, ()) == ()
    kernels = list(f32_products.kernels_of(shape, 0, more))
    assert len(kernels) == len(list(f32_products.kernels_of(shape, 0, ()))) + 1


@pytest.mark.parametrize("text", ["88x67", "8x9x10:xx", "8x9x10x11", "8x9xk", ""])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="must be like 88x1067x79:tn"):
        f32_products.parsed(text)
