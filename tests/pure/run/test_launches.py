"""What a call launches is planned once, and found on disk by the next process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright import cache
from tilewright.run import VmDevice, planned, route, tuned_file
from tilewright.run.asked import Asked
from tilewright.run.launches import Launches
from tilewright.run.placement import fresh
from tilewright.target import device as device_of


def asked(m: int, n: int, k: int, dtype: str = "f16", batch: tuple[int, ...] = ()) -> Asked:
    a, b = fresh((*batch, m, k), dtype, "cpu"), fresh((*batch, k, n), dtype, "cpu")
    return Asked(a, b, None, None, {"s8": "s32"}.get(dtype, dtype))


REQUESTS = {
    "tma": asked(512, 384, 256),
    "split-K": asked(128, 128, 16384, "bf16"),
    "batched, padded": asked(33, 65, 17, batch=(3,)),
    "column-major": asked(64, 64, 64)._replace(
        out=fresh((64, 64), "f16", "cpu")._replace(strides=(1, 64))
    ),
    "simt": asked(100, 50, 30, "f32"),
    "integers": asked(64, 96, 128, "s8"),
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cache.Cache:
    """A cache of this test alone."""
    made = cache.Cache(tmp_path)
    monkeypatch.setattr(route, "store", lambda: made)
    return made


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("gpu", ["H200", "A100"])
def test_a_record_comes_back_whole(request_: Asked, gpu: str) -> None:
    if gpu == "A100" and request_.dtype == "s32":
        pytest.skip("8-bit types begin with Hopper")
    made = planned.Planned(request_, device_of(gpu)).launches()
    assert made.kernels and Launches.unpack(made.pack()) == made


def test_a_second_process_plans_nothing(kept: cache.Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    on = VmDevice()
    first = [route.Route(r, on).launches for r in REQUESTS.values()]

    def refuse(*_: Any) -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(planned, "Planned", refuse)
    assert [route.Route(r, on).launches for r in REQUESTS.values()] == first
    with pytest.raises(AssertionError, match="planned again"):  # another target, configuration
        route.Route(REQUESTS["tma"], VmDevice(device_of("A100")))
    with pytest.raises(AssertionError, match="planned again"):
        route.Route(REQUESTS["tma"], on, "tma:128x128x64:4:2")


def test_results_of_tuning_make_another_plan(
    kept: cache.Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(tmp_path / "tuned.sqlite"))
    before = tuned_file.state()
    route.Route(REQUESTS["tma"], VmDevice())
    entries = kept.info().entries
    (tmp_path / "tuned.sqlite").write_bytes(b"")  # a database without results
    assert tuned_file.state() != before
    route.Route(REQUESTS["tma"], VmDevice())
    assert kept.info().entries == entries  # what was read was read before the change: not kept
