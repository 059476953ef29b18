"""What starts a repeated call's kernels, with a driver that writes down what it is asked."""

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
        self.asked: list[tuple[Any, ...]] = []
        self.status, self.context = 0, 7
        self.room = np.zeros(16, np.uint64)
        self.code = LAUNCH(self.launch), CURRENT(self.current)

    def launch(self, *given: Any) -> int:
        self.asked.append((*given, *self.room[:4].tolist(), threading.get_ident()))
        return self.status

    def current(self, to: Any) -> int:
        to[0] = self.context
        return 0

    def entry(self, number: int, stream: int = 3) -> tuple[int, ...]:
        launch, current = (ctypes.cast(c, ctypes.c_void_p).value for c in self.code)
        return launch, number, number + 1, number + 2, self.target(stream), current, 7

    def target(self, word: int) -> int:
        return self.room.ctypes.data + 8 * word


def test_addresses_are_written_and_kernels_started_in_order() -> None:
    driver = Driver()
    writes = [(1, driver.target(0)), (0, driver.target(1)), (1, driver.target(2))]
    start = native_launcher(2, 16, [], writes, [driver.entry(10), driver.entry(20)], driver)
    me = threading.get_ident()
    for a, b, stream in ((HIGH, HIGH + 16, 0), (16, 2**63 + 32, 2**48 + 1)):
        driver.asked.clear()
        assert start(a, b, stream) == 0
        words = b, a, b, stream, me
        assert driver.asked == [(10, 11, None, 12, *words), (20, 21, None, 22, *words)]


@pytest.mark.parametrize("wrong", [
    (HIGH + 8, HIGH + 4096, 0),  # not aligned
    (HIGH, HIGH + 4097, 0),
    (HIGH, HIGH + 112, 0),  # too near
    (HIGH, HIGH - 48, 0),
    (HIGH, HIGH + 4096),  # too few, too many
    (HIGH, HIGH + 4096, 0, 0),
])  # fmt: skip
def test_another_call_starts_nothing(wrong: tuple[int, ...]) -> None:
    driver = Driver()
    apart = [(0, 1, -128, 64)]
    start = native_launcher(2, 16, apart, [(0, driver.target(0))], [driver.entry(10)], driver)
    assert start(*wrong) == NOT_THIS_CALL and not driver.asked and not driver.room.any()
    assert start(HIGH, HIGH + 128, 0) == start(HIGH, HIGH - 64, 0) == 0
    assert [asked[4] for asked in driver.asked] == [HIGH, HIGH]


def test_addresses_that_must_be_the_same() -> None:
    driver = Driver()
    same = [(0, 1, 0, MAX_DISTANCE), (0, 1, -MAX_DISTANCE, 0)]
    start = native_launcher(2, 16, same, [], [driver.entry(10)], driver)
    assert start(HIGH, HIGH, 0) == 0
    assert start(HIGH, HIGH + 16, 0) == start(HIGH, HIGH - 16, 0) == NOT_THIS_CALL


def test_the_step_that_fails_is_named() -> None:
    driver, other = Driver(), Driver()
    start = native_launcher(0, 16, [], [], [driver.entry(10), other.entry(20)], (driver, other))
    other.status = 0x1_0000_0000  # a CUresult has 32 bits, above them is anything
    assert start(5) == 0
    other.status = 719
    assert start(5) == 2 and len(driver.asked) == 2
    driver.context = 8  # another GPU's
    assert start(5) == 1 and len(driver.asked) == 2


def test_what_is_no_address_is_an_error() -> None:
    driver = Driver()
    start = native_launcher(1, 16, [], [], [driver.entry(10)], driver)
    for wrong in (None, "a", 1.0, -16, 1 << 64):
        for given in ((wrong, 0), (16, wrong)):
            with pytest.raises((TypeError, OverflowError)):
                start(*given)
    assert not driver.asked


def test_it_keeps_what_it_needs_and_no_more() -> None:
    driver = Driver()
    gone = weakref.ref(driver)
    start = native_launcher(1, 16, [], [(0, driver.target(0))], [driver.entry(10)], driver)
    del driver
    gc.collect()
    assert start(HIGH, 0) == 0 and gone() is not None
    del start
    gc.collect()
    assert gone() is None


def test_another_thread_works_while_the_driver_does() -> None:
    there, done = threading.Event(), threading.Event()

    class Waits(Driver):
        def launch(self, *given: Any) -> int:
            there.set()
            return 0 if done.wait(20) else 1

    waits = Waits()
    start = native_launcher(0, 16, [], [], [waits.entry(10)], waits)
    other = threading.Thread(target=lambda: (there.wait(20), done.set()))
    other.start()
    assert start(0) == 0
    other.join()
