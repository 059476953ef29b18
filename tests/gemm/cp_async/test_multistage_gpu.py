"""Types, split-K and one stage of kernel multistage on a GPU: the virtual machine's bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from gemm_cases.kernels import MAJORS
from gemm_cases.packed_products import elements, product
from gemm_cases.same_bits import laid, numbers
from tilewright.dtypes import dtype
from tilewright.gemm import Problem, parse
from tilewright.gemm.cp_async.multistage_config import table
from tilewright.run import device
from tilewright.target import DEFAULT_DEVICE

pytestmark = pytest.mark.gpu

H200 = DEFAULT_DEVICE.target

CASES: dict[str, tuple[tuple[str, str], str, dict[str, Any]]] = {
    "s8 × u8": (("s8", "u8"), "64x64x128:2x2:3", {}),
    "u8, m16n8k16": (("u8", "u8"), "64x64x64:2x2:3p:m16n8k16", {}),
    "tf32": (("f32", "f32"), "64x64x32:2x2:3", {"precision": "tf32"}),
    "tf32, m16n8k4": (("f32", "f32"), "64x64x32:2x2:3:m16n8k4", {"precision": "tf32"}),
    "8-bit floats": (("e4m3", "e5m2"), "64x64x128:2x2:3", {"out_dtype": "f32"}),
    "fast": (("e5m2", "e4m3"), "64x64x64:2x2:3", {"out_dtype": "f32", "fast_accum": True}),
    "split-K": (("bf16", "bf16"), "64x64x64:2x2:3*3", {}),
    "split-K of s8": (("s8", "s8"), "64x64x128:2x2:3*4", {}),
    "split-K of 8-bit floats": (("e4m3", "e4m3"), "64x64x128:2x2:3*2", {"out_dtype": "f16"}),
    "one stage": (("f16", "f16"), "64x64x64:2x2:1", {}),
}


def matrix(type_: str, *shape: int) -> Any:
    t = dtype(type_)
    if t.kind == "float":
        return numbers(type_, *shape, hostile=0.001)
    return np.random.default_rng(shape).integers(*t.range, shape, endpoint=True).astype(t.numpy)


@pytest.mark.parametrize("layout", MAJORS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_bits_of_the_virtual_machine(case: Any, layout: str) -> None:
    types, config, options = case
    a, b = laid(matrix(types[0], 333, 500), matrix(types[1], 500, 210), layout)
    here, there = (
        tilewright.matmul(a, b, config=config, device=d, **options) for d in ("cuda", "vm")
    )
    assert here.dtype == there.dtype and here.tobytes() == there.tobytes()


@pytest.mark.parametrize("type_", ["tf32", "s8", "e4m3"])
def test_every_configuration_of_the_table(type_: str) -> None:
    stored, options = type_, dict[str, Any](fast_accum=type_ == "e4m3")
    if type_ == "tf32":
        stored, options = "f32", {"precision": "tf32"}
    a, b = matrix(stored, 512, 640), matrix(stored, 512, 640).T
    want = tilewright.matmul(a, b, device="cuda", config=str(table(type_, H200)[-1]), **options)
    for config in table(type_, H200):
        d = tilewright.matmul(a, b, device="cuda", config=config, **options)
        assert d.tobytes() == want.tobytes(), str(config)


@pytest.mark.parametrize("types", [("s4", "u4"), ("b1", "b1")], ids="×".join)
@pytest.mark.parametrize("config", ["64x64x512:2x2:3", "32x64x1024:1x2:2*3"])
def test_packed_elements_are_exact(config: str, types: tuple[str, str]) -> None:
    problem = Problem(100, 136, 3000, *types, "s32", with_c=True)
    a, b = elements(types[0], 1, 100, 3000), elements(types[1], 1, 136, 3000)
    c = np.arange(100 * 136, dtype=np.int32).reshape(1, 100, 136)
    d = product(problem, parse(config), a, b, c, device("cuda"))
    assert np.array_equal(d, a @ b.swapaxes(1, 2) + c)
