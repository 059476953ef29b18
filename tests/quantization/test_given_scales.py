"""``quantize`` with given scales, by NumPy and by a kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gemm_cases.resident import Resident, registered
from rows import every_row
from tilewright.errors import DeviceError, DtypeError, ProblemError
from tilewright.quantization import quantize
from tilewright.run.devices.vm_device import VmDevice

RNG = np.random.default_rng(3)
HOSTILE = (RNG.standard_normal((37, 264)) * 2.0 ** RNG.integers(-30, 30, (37, 264))).astype(
    np.float32
)
HOSTILE[3], HOSTILE[4, 7], HOSTILE[5, 9], HOSTILE[6, 8] = 0, np.nan, np.inf, -np.inf


def test_given_scales() -> None:
    scales = np.array([0.5, 2, 0, np.nan], np.float32)
    x = np.array([[1, 300], [1, 1e9], [0, 1], [1, 2]], np.float32)
    found = quantize(x, "e4m3", "row", scale=scales)
    assert found.data.astype(np.float32)[:2].tolist() == [[2, 448], [0.5, 448]]
    assert found.data.view(np.uint8)[2:].tolist() == [[0x7F, 0x7E], [0x7F, 0x7F]]
    assert quantize(x, "s8", scale=2.0).data.tolist() == [[0, 127], [0, 127], [0, 0], [0, 1]]


@every_row("source block", [
    (np.float32, None), (np.float16, "row"), (ml_dtypes.bfloat16, "column"),
    (np.float32, (128, 128)), (np.float16, (1, 128)), (ml_dtypes.bfloat16, (3, 12)),
])  # fmt: skip
def test_given_scales_by_a_kernel(source: Any, block: Any) -> None:
    with np.errstate(all="ignore"):
        x = np.stack([HOSTILE, -HOSTILE]).astype(source)
    for matrix, type_ in ((x, "e4m3"), (x[0], "s8"), (x[1, :, :8].copy(), "e5m2")):
        grid = quantize(matrix, type_, block).scales.shape
        scales = RNG.choice([0.5, -3, 0, np.nan, np.inf, 1e-40, 3e38], grid).astype(np.float32)
        for scale in (scales, 0.75):
            found, expected = (
                quantize(matrix, type_, block, scale=scale, device=device)
                for device in (VmDevice(checked=True), None)
            )
            assert repr(found) == repr(expected)
            assert np.array_equal(found.data.view(np.uint8), expected.data.view(np.uint8))
            assert np.array_equal(found.scales, expected.scales, equal_nan=True)


def test_given_scales_on_a_device() -> None:
    x = RNG.standard_normal((7, 24)).astype(np.float16)
    scales = RNG.random((len(x), 1)).astype(np.float32)
    expected = quantize(x, "e4m3", "row", scale=scales)
    with registered():
        given, own = Resident.of(x), Resident.of(scales)
        found = quantize(given, "e4m3", "row", scale=own)
        assert found.scales is own
        assert np.array_equal(found.data.numpy(), expected.data)
        for error, message, scale in (
            (ProblemError, f"must have shape {len(x)}×1, got 3×1", Resident.of(scales[:3])),
            (DtypeError, "scale on a GPU must be f32, got f16", Resident.of(x[:, :1])),
        ):
            with pytest.raises(error, match=message):
                quantize(given, "e4m3", "row", scale=scale)
        with pytest.raises(DeviceError, match="scale must be on cpu, where x is, got vm"):
            quantize(x, "e4m3", "row", scale=own, device="vm")
