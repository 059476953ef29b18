"""Block scales on a GPU: the bits are the virtual machine's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from references.block_scaled_products import (
    CASES,
    CONTIGUOUS,
    COPIED,
    PAIRS,
    BlockScaledCase,
    operands,
    pair_product,
    placed,
    product,
    same,
)

pytestmark = [pytest.mark.gpu, pytest.mark.sm("sm_90a")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bits_are_a_virtual_machine_s(case: BlockScaledCase) -> None:
    a, b, scales = operands(case.mnk, case.scaling, ("e4m3", "e5m2"), hostile=True)
    for type_ in case.d_types:
        found = [
            product(a, b, scales, config=case.config, out_dtype=type_, device=device)
            for device in ("cuda", "vm")
        ]
        assert np.array_equal(*(x.view(np.uint8) for x in found))


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_two_matrices_b(pair: tuple[BlockScaledCase, tuple[str, str]]) -> None:
    torch = pytest.importorskip("torch")

    def array(x: np.ndarray[Any, Any]) -> Any:
        type_ = {"float8_e4m3fn": torch.float8_e4m3fn}.get(x.dtype.name, torch.float8_e5m2)
        return torch.from_numpy(x.view(np.uint8)).cuda().view(type_)

    found, expected = pair_product(
        *pair, array, lambda x, *view: torch.from_numpy(x).cuda().as_strided(*view)
    )
    assert same(found.cpu().numpy(), expected)


@pytest.mark.parametrize("case", COPIED, ids=str)
def test_layouts_of_scales(case: BlockScaledCase) -> None:
    """Scales that tensor copies load, or the scale load warp: the bits are the same."""
    torch = pytest.importorskip("torch")
    config, scaling, mnk, _ = case
    a, b, scales = operands(mnk, scaling, ("e4m3", "e4m3"), hostile=True)
    left, right = (torch.from_numpy(x.view(np.uint8)).cuda().view(torch.float8_e4m3fn)
                   for x in (a, np.ascontiguousarray(b.T)))  # fmt: skip
    expected = product(a, b, scales, config=config, out_dtype="f32", device="vm")
    for contiguous in CONTIGUOUS:
        given = placed(
            scales, contiguous, lambda x, *view: torch.from_numpy(x).cuda().as_strided(*view)
        )
        found = product(left, right.T, given, config=config, out_dtype="f32").cpu().numpy()
        assert np.array_equal(found, expected, equal_nan=True), contiguous
