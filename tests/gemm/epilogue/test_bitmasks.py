"""Bitmasks of epilogues: a bit for each element, stored by every kernel, read as a condition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from epilogue_calls import CONFIGS, OTHER_KERNELS, masked, masked_gradient, random
from rows import slow_but
from tilewright.errors import EpilogueError
from tilewright.gemm.epilogue.graph import EpilogueInput
from tilewright.run import VmDevice

pytestmark = pytest.mark.vm

ROWS: dict[str, tuple[str | None, tuple[int, ...], str]] = {
    **{name: (config, shape, "f16") for name, (config, shape) in CONFIGS.items()},
    **{name: (config, shape, types[0]) for name, (config, types, shape) in OTHER_KERNELS.items()},
    "swapped, 8 columns of A": ("tma:64x8x64:1:3~", (5, 77, 64), "f16"),
    "f64": (None, (37, 21, 16), "f64"),
}
QUICK = (
    "odd sizes swapped",
    "split-K, odd",
    "simt",
    "f64",
)


def pack(conditions: Any) -> Any:
    return np.packbits(conditions, axis=-1, bitorder="little")


def masked_f64(acc: Any, bias: Any) -> Any:
    return {"d": acc + bias, "mask": tilewright.bitmask(acc + bias > 0)}


def kept_f64(acc: Any, mask: Any) -> Any:
    return tilewright.where(mask, acc, 0.0)


def condition_and_mask(d: Any) -> tuple[Any, Any]:
    return d > 0, pack(d > 0)


@pytest.mark.parametrize("name", slow_but(QUICK, ROWS))
def test_a_mask_is_stored_and_read(name: str) -> None:
    config, (*batch, m, n, k), type_ = ROWS[name]
    a, b = random((*batch, m, k), type_), random((*batch, k, n), type_)
    bias = random((n,), "f64" if type_ == "f64" else "f32")
    given: dict[str, Any] = {"config": config, "device": VmDevice(checked=True)}
    forward, back = (masked_f64, kept_f64) if type_ == "f64" else (masked, masked_gradient)
    got = tilewright.matmul(a, b, epilogue=forward, bias=bias, **given)
    positive, mask = condition_and_mask(got["d"])
    np.testing.assert_array_equal(got["mask"], mask)
    if "all" in got:
        np.testing.assert_array_equal(got["all"], pack(np.ones_like(positive)))
    plain = tilewright.matmul(a, b, out_dtype=got["d"].dtype, **given)
    gradient = tilewright.matmul(a, b, epilogue=back, mask=got["mask"], **given)
    np.testing.assert_array_equal(gradient, np.where(positive, plain, 0))


def test_a_strided_mask_of_all_matrices_of_a_batch() -> None:
    a, b = random((3, 20, 64), "f16"), random((3, 64, 44), "f16")
    conditions = np.random.default_rng(1).random((20, 44)) < 0.5
    memory = np.zeros((40, 12), np.uint8)
    mask = memory[::-2, ::2]
    mask[...] = pack(conditions)
    got = tilewright.matmul(a, b, epilogue=masked_gradient, mask=mask, device="vm")
    plain = tilewright.matmul(a, b, out_dtype="f32", device="vm")
    np.testing.assert_array_equal(got, np.where(conditions, plain, 0))


def test_numpy_gives_the_same_bytes() -> None:
    x = np.arange(-9, 12, dtype=np.float32).reshape(1, 21)
    condition = x > 0
    np.testing.assert_array_equal(tilewright.bitmask(condition), pack(condition))


def test_a_bitmask_may_be_given_and_is_shown() -> None:
    a, bias = random((16, 16), "f16"), random((16,), "f32")
    out = {"mask": np.zeros((16, 2), np.uint8)}
    got = tilewright.matmul(a, a, epilogue=masked, bias=bias, device="vm", out=out)
    assert got["mask"] is out["mask"]
    np.testing.assert_array_equal(out["mask"], pack(got["d"] > 0))
    plan = tilewright.plan(a, a, epilogue=masked, bias=bias, device="vm")
    assert "mask = bitmask of" in plan.explain()


def test_what_cannot_be_a_bitmask_is_an_error() -> None:
    a = random((16, 16), "f16")
    with pytest.raises(EpilogueError, match="bitmask must be of a condition"):
        tilewright.matmul(
            a, a, epilogue=lambda acc: {"d": acc, "m": tilewright.bitmask(acc)}, device="vm"
        )
    graph = masked.trace("f32", (EpilogueInput("bias", "f32", "n"),))
    with pytest.raises(EpilogueError, match="bitmasks need a result whose rows are contiguous"):
        graph.transposed()
    with pytest.raises(EpilogueError, match="must return D"):
        tilewright.matmul(a, a, epilogue=lambda acc: tilewright.bitmask(acc > 0), device="vm")
