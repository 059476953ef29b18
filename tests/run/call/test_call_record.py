"""What a call launches is planned once, and found on disk by the next process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright import compile_cache
from tilewright.run import VmDevice
from tilewright.run.call import dispatch, prepared_call
from tilewright.run.call.call_record import CallRecord
from tilewright.run.call.matrix_layout import contiguous_signature
from tilewright.run.call.request import Request
from tilewright.run.tuning import tuning_paths
from tilewright.target import device_spec as device_of


def request(m: int, n: int, k: int, dtype: str = "f16", batch: tuple[int, ...] = ()) -> Request:
    a, b = (
        contiguous_signature((*batch, m, k), dtype, "cpu"),
        contiguous_signature((*batch, k, n), dtype, "cpu"),
    )
    return Request(a, b, None, None, {"s8": "s32"}.get(dtype, dtype))


REQUESTS = {
    "tma": request(512, 384, 256),
    "split-K": request(128, 128, 16384, "bf16"),
    "batched, padded": request(33, 65, 17, batch=(3,)),
    "column-major": request(64, 64, 64)._replace(
        out=contiguous_signature((64, 64), "f16", "cpu")._replace(strides=(1, 64))
    ),
    "simt": request(100, 50, 30, "f32"),
    "integers": request(64, 96, 128, "s8"),
}


@pytest.fixture
def call_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> compile_cache.Cache:
    """A cache of this test alone."""
    made = compile_cache.Cache(tmp_path)
    monkeypatch.setattr(prepared_call, "store", lambda: made)
    return made


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("gpu", ["H200", "A100"])
def test_a_record_round_trips(request_: Request, gpu: str) -> None:
    made = dispatch.Dispatch(request_, device_of(gpu)).record()
    assert made.kernels and CallRecord.unpack(made.pack()) == made


def test_a_second_process_uses_the_record(
    call_cache: compile_cache.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    on = VmDevice()
    first = [prepared_call.PreparedCall(r, on).record for r in REQUESTS.values()]

    def refuse(*_: Any) -> None:
        raise AssertionError("planned again")

    monkeypatch.setattr(dispatch, "Dispatch", refuse)
    assert [prepared_call.PreparedCall(r, on).record for r in REQUESTS.values()] == first
    with pytest.raises(AssertionError, match="planned again"):  # another target, configuration
        prepared_call.PreparedCall(REQUESTS["tma"], VmDevice(device_of("A100")))
    with pytest.raises(AssertionError, match="planned again"):
        prepared_call.PreparedCall(REQUESTS["tma"], on, "tma:128x128x64:4:2")


def test_tuning_results_change_the_record(
    call_cache: compile_cache.Cache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TILEWRIGHT_TUNED", str(tmp_path / "tuned.sqlite"))
    before = tuning_paths.results_state()
    prepared_call.PreparedCall(REQUESTS["tma"], VmDevice())
    entries = call_cache.info().entries
    (tmp_path / "tuned.sqlite").write_bytes(b"")  # a database without results
    assert tuning_paths.results_state() != before
    prepared_call.PreparedCall(REQUESTS["tma"], VmDevice())
    assert (
        call_cache.info().entries == entries
    )  # what was read was read before the change: not kept
