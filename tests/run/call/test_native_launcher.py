"""The native launcher of the fast path, with a driver that records its calls."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from tilewright.run.call.native_launcher import MAX_DISTANCE, NOT_THIS_CALL, native_launcher

pytestmark = pytest.mark.vm

LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)
CURRENT = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_uint64))
HIGH = 0x7F00_0000_0000  # addresses as they are


class Driver:
    """``launch`` and ``current`` as machine code calls them; ``status`` is what launches give."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.status, self.context = 0, 7
        self.memory = np.zeros(16, np.uint64)
        self.code = LAUNCH(self.launch), CURRENT(self.current)

    def launch(self, *given: Any) -> int:
        self.calls.append((*given, *self.memory[:4].tolist(), threading.get_ident()))
        return self.status

    def current(self, to: Any) -> int:
        to[0] = self.context
        return 0

    def entry(self, number: int, stream: int = 3) -> tuple[int, ...]:
        launch, current = (ctypes.cast(c, ctypes.c_void_p).value for c in self.code)
        return launch, number, number + 1, number + 2, self.target(stream), current, 7

    def target(self, word: int) -> int:
        return self.memory.ctypes.data + 8 * word


def test_addresses_are_written_and_kernels_launched_in_order() -> None:
    driver = Driver()
    writes = [(1, driver.target(0)), (0, driver.target(1)), (1, driver.target(2))]
    start = native_launcher([(16, 0)] * 2, [], writes, [driver.entry(10), driver.entry(20)], driver)
    me = threading.get_ident()
    for a, b, stream in ((HIGH, HIGH + 16, 0), (16, 2**63 + 32, 2**48 + 1)):
        driver.calls.clear()
        assert start(a, b, stream) == 0
        words = b, a, b, stream, me
        assert driver.calls == [(10, 11, None, 12, *words), (20, 21, None, 22, *words)]


@pytest.mark.parametrize("wrong", [
    (HIGH + 8, HIGH + 4096, 0),  # not aligned
    (HIGH, HIGH + 4097, 0),
    (HIGH, HIGH + 112, 0),  # overlapping
    (HIGH, HIGH - 48, 0),
    (HIGH, HIGH + 4096),  # too few, too many
    (HIGH, HIGH + 4096, 0, 0),
])  # fmt: skip
def test_other_addresses_launch_nothing(wrong: tuple[int, ...]) -> None:
    driver = Driver()
    tests = [(0, 1, -128, 64)]
    start = native_launcher(
        [(16, 0)] * 2, tests, [(0, driver.target(0))], [driver.entry(10)], driver
    )
    assert start(*wrong) == NOT_THIS_CALL and not driver.calls and not driver.memory.any()
    assert start(HIGH, HIGH + 128, 0) == start(HIGH, HIGH - 64, 0) == 0
    assert [call[4] for call in driver.calls] == [HIGH, HIGH]


def test_each_address_has_an_alignment_of_its_own() -> None:
    driver = Driver()
    start = native_launcher([(16, 4), (4, 0)], [], [], [driver.entry(10)], driver)
    assert start(HIGH + 4, HIGH + 8, 0) == start(HIGH + 20, HIGH + 12, 0) == 0
    for wrong in ((HIGH, HIGH), (HIGH + 8, HIGH), (HIGH + 4, HIGH + 2)):
        assert start(*wrong, 0) == NOT_THIS_CALL


def test_addresses_that_must_be_the_same() -> None:
    driver = Driver()
    same = [(0, 1, 0, MAX_DISTANCE), (0, 1, -MAX_DISTANCE, 0)]
    start = native_launcher([(16, 0)] * 2, same, [], [driver.entry(10)], driver)
    assert start(HIGH, HIGH, 0) == 0
    assert start(HIGH, HIGH + 16, 0) == start(HIGH, HIGH - 16, 0) == NOT_THIS_CALL


def test_the_failed_step_is_returned() -> None:
    driver, other = Driver(), Driver()
    start = native_launcher(
        [(16, 0)] * 0, [], [], [driver.entry(10), other.entry(20)], (driver, other)
    )
    other.status = 0x1_0000_0000  # a CUresult has 32 bits, above them is anything
    assert start(5) == 0
    other.status = 719
    assert start(5) == 2 and len(driver.calls) == 2
    driver.context = 8  # another GPU's
    assert start(5) == 1 and len(driver.calls) == 2


def test_invalid_addresses_are_errors() -> None:
    driver = Driver()
    start = native_launcher([(16, 0)] * 1, [], [], [driver.entry(10)], driver)
    for wrong in (None, "a", 1.0, -16, 1 << 64):
        for given in ((wrong, 0), (16, wrong)):
            with pytest.raises((TypeError, OverflowError)):
                start(*given)
    assert not driver.calls


def test_lifetime_of_the_driver() -> None:
    gc.freeze()  # a collection visits what is made here, not all that earlier tests left
    driver = Driver()
    gone = weakref.ref(driver)
    start = native_launcher([(16, 0)] * 1, [], [(0, driver.target(0))], [driver.entry(10)], driver)
    del driver
    gc.collect()
    assert start(HIGH, 0) == 0 and gone() is not None
    del start
    gc.collect()
    assert gone() is None


def test_the_gil_is_released_while_the_driver_launches() -> None:
    there, done = threading.Event(), threading.Event()

    class Waits(Driver):
        def launch(self, *given: Any) -> int:
            there.set()
            return 0 if done.wait(20) else 1

    waits = Waits()
    start = native_launcher([(16, 0)] * 0, [], [], [waits.entry(10)], waits)
    other = threading.Thread(target=lambda: (there.wait(20), done.set()))
    other.start()
    assert start(0) == 0
    other.join()
