"""What a launch takes for a kernel's parameters: numbers, arrays, tensor maps."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from pages import ROOT
from tilewright.errors import DtypeError, LaunchError, LayoutError, VmFault
from tilewright.vm import Machine

pytestmark = pytest.mark.vm

PTX = ROOT / "tests" / "data" / "ptx"
N = 20
RNG = np.random.default_rng(0)
A, B = (RNG.integers(-9, 9, (N, N)).astype(np.float32) for _ in range(2))


def loaded(name: str) -> Machine:
    machine = Machine()
    machine.load((PTX / f"{name}.ptx").read_text())
    return machine


def sgemm(*args: Any, machine: Machine | None = None) -> None:
    (machine or loaded("sgemm")).launch("sgemm", (2, 2), (16, 16), args)


def live(machine: Machine) -> int:
    return sum(piece.live for piece in machine.memory.allocations)


def test_arrays_are_allocated_only_during_the_launch() -> None:
    machine, c = loaded("sgemm"), np.zeros((N, N), np.float32)
    before = live(machine)
    sgemm(A, B, c, np.uint32(N), machine=machine)
    assert np.array_equal(c, A @ B) and live(machine) == before


@pytest.mark.parametrize("place", [np.s_[::2, 1::2], np.s_[::-1, :N]], ids=["strided", "reversed"])
def test_a_view_is_written_in_place(place: Any) -> None:
    whole = np.zeros((2 * N, 2 * N), np.float32)
    sgemm(A.T.copy().T, B, whole[place][:N, :N], N)
    assert np.array_equal(whole[place][:N, :N], A @ B)
    assert np.count_nonzero(whole) == np.count_nonzero(A @ B)


LINE = np.ones(2 * N, np.float32)
NO_RESULTS = {
    "read-only": np.broadcast_to(np.float32(1), (N, N)),
    "of bytes": np.frombuffer(np.ones(N * N, np.float32).tobytes(), np.float32).reshape(N, N),
    "one line": np.lib.stride_tricks.as_strided(LINE, (N, N), (0, 4)),
    "lines that overlap": np.lib.stride_tricks.as_strided(LINE, (N, N), (4, 4)),
}


@pytest.mark.parametrize("name", NO_RESULTS)
def test_array_that_cannot_be_written_is_read_only(name: str) -> None:
    fixed, c = NO_RESULTS[name], np.zeros((N, N), np.float32)
    sgemm(A, fixed, c, N)
    assert np.array_equal(c, A @ fixed)
    with pytest.raises(VmFault, match=r"read-only: st\.f32 .* an array that") as caught:
        sgemm(A, B, fixed, N)
    assert caught.value.kind == "read-only" and caught.value.address and (fixed == 1).all()


def test_same_array_twice_is_copied_once() -> None:
    machine, c = loaded("sgemm"), 2 * np.eye(16, dtype=np.float32)
    more: list[int] = []
    before = live(machine)
    watch = lambda *_: more.append(live(machine) - before)  # noqa: E731
    machine.launch("sgemm", 1, (16, 16), [c, c[:], c, 16], watch=watch)
    assert np.array_equal(c, 4 * np.eye(16)) and set(more) == {1}


def test_overlapping_arrays_are_refused() -> None:
    whole = np.zeros((N + 1, N), np.float32)
    with pytest.raises(LaunchError, match="same array or not overlap"):
        sgemm(whole[:N], B, whole[1:], N)


def test_faulting_kernel_does_not_change_arrays() -> None:
    machine, c = loaded("sgemm"), np.ones((N, N), np.float32)
    before = live(machine)
    with pytest.raises(VmFault, match="out of bounds"):
        sgemm(A, B, c, 1000, machine=machine)
    assert (c == 1).all() and live(machine) == before


WRONG = {
    "an array for a number": ((A, A, A, A), LaunchError, r"_param_3 \(.u32\) .* is not an address"),
    "a number of another size": ((A, A, A, np.int64(1)), LaunchError, "sgemm_param_3 .* got 8"),
    "a float for an address": ((A, 0.5, A, N), LaunchError, "sgemm_param_1 .* can't be 0.5"),
    "a list": ((A, [1.0], A, N), LaunchError, r"sgemm_param_1 .* \[1.0\]"),
    "one too few": ((A, A, N), LaunchError, "4 parameters, got 3 arguments"),
    "objects": ((np.array([{}]), A, A, N), DtypeError, "an array of numbers, got"),
}


@pytest.mark.parametrize(("args", "error", "words"), WRONG.values(), ids=WRONG)
def test_wrong_arguments_are_named(args: Any, error: Any, words: str) -> None:
    machine = loaded("sgemm")
    before = live(machine)
    with pytest.raises(error, match=words):
        sgemm(*args, machine=machine)
    assert live(machine) == before


# --- tensor maps -------------------------------------------------------------------------------

X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
LINES = 16  # of 128 bytes


def boxed(swizzle: int, column: int, row: int, **options: Any) -> np.ndarray[Any, Any]:
    machine, out = loaded("box"), np.zeros((LINES, 32), np.float32)
    x = machine.upload(X)
    m = machine.tensor_map(x, "f32", (64, 64), (256,), (32, LINES), swizzle=swizzle, **options)
    machine.launch("box", 1, 512, [m, out, column, row])
    return out


def test_a_tensor_map_is_an_argument() -> None:
    assert np.array_equal(boxed(0, 32, 8), X[8:24, 32:])
    assert np.array_equal(boxed(0, 8, 60)[:4, :32], X[60:, 8:40])
    assert np.isnan(boxed(0, 8, 60, oob_fill="nan")[4:]).all()


def test_tensor_map_with_swizzle() -> None:
    rows, pieces = np.indices((LINES, 8))
    given = X[8:24, 32:].reshape(LINES, 8, 4)
    assert np.array_equal(boxed(128, 32, 8).reshape(LINES, 8, 4), given[rows, pieces ^ rows % 8])


def test_tensor_map_that_the_driver_refuses() -> None:
    with pytest.raises(LayoutError, match="element stride 0"):
        boxed(128, 0, 0, element_strides=(9, 1))


def test_tensor_map_needs_a_tensor_map_parameter() -> None:
    machine = loaded("sgemm")
    m = machine.tensor_map(machine.upload(X), "f32", (64, 64), (256,), (32, 16))
    with pytest.raises(LaunchError, match=re.escape("has 8 bytes, a tensor map 128")):
        sgemm(A, m, A, N, machine=machine)
