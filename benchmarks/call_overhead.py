"""Measure what generated code and the native launcher save per call, compared with plain Python.

    python benchmarks/call_overhead.py        # needs no GPU

Prints nanoseconds per call. The "driver" is a C function that does nothing, so the figures are host
overhead alone. Each step of the fast path is timed as shipped and as plain Python with the same
result:

``launcher``: check alignment and overlap, write addresses and stream, launch (``native_launcher``).

``fast call``: compare the arrays, α and β, then the launcher; generated (``fast_path``) or general.
"""

from __future__ import annotations

import ctypes
import struct
import timeit
from collections.abc import Callable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np

from tilewright.run.call import fast_path
from tilewright.run.call.matrix_layout import MAX_ALIGN
from tilewright.run.call.native_launcher import NOT_THIS_CALL, native_launcher

CALLS, REPEATS = 10_000, 25
RANGE = 1 << 20  # bytes: an input closer to the output than this may overlap it
TESTS = [(0, 2, -RANGE, RANGE), (1, 2, -RANGE, RANGE)]
FACTORS = 1.0, 0.0  # α, β
A, B, D = 1 << 32, 2 << 32, 3 << 32


class Array:
    """An array of a library whose own comparison is one compiled call."""

    def __init__(self, address: int) -> None:
        self.address = address


def driver() -> tuple[int, Callable[..., int]]:
    """A C function that returns 0 for different arguments, as an address and for Python."""
    function = ctypes.CDLL(None).pthread_equal
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    return address, ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)(address)


def launchers() -> tuple[Callable[..., int], Callable[..., int]]:
    """``start(a, b, d, stream)`` in machine code and in Python."""
    entry, function = driver()
    block = np.zeros(64, np.uint8)
    stream = ctypes.c_uint64()
    writes = [(i, block.ctypes.data + 8 * i) for i in range(3)]
    launch = (entry, 1, 2, 3, ctypes.addressof(stream), 0, 0)
    native = native_launcher([(MAX_ALIGN, 0)] * 3, TESTS, writes, [launch], (block, stream))
    view, pack = memoryview(block), struct.Struct("<3Q").pack_into

    def start(*words: int) -> int:
        *addresses, handle = words
        for address in addresses:
            if address % MAX_ALIGN:
                return NOT_THIS_CALL
        for one, other, low, high in TESTS:
            if low < addresses[one] - addresses[other] < high:
                return NOT_THIS_CALL
        pack(view, 0, *addresses)
        stream.value = handle
        return function(1, 2, None, 3)

    return native, start


def fast_calls(start: Callable[..., int]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The fast call of ``matmul(a, b, out=d)``, generated and as a general Python function."""
    scales = SimpleNamespace(s0=FACTORS[0], s1=FACTORS[1], write=lambda *_: False)
    fits, address, stream = all_fit, attrgetter("address"), current_stream
    same_as = {name: name for name in "abd"}
    names: dict[str, Any] = {
        "fits": fits, "address": address, "stream": stream, "scales": scales, "start": start,
        "relaunch": lambda *_: True,
    }  # fmt: skip
    form = fast_path.CallForm("a, b, c, d, s0, s1", (), ("c is None",))
    exec(compile(fast_path._source(form, same_as, (), ("s0", "s1")), "<fast_call>", "exec"), names)

    absent, repeated, distinct, order = (2,), (), (0, 1, 3), (0, 1, 3)  # prepared per signature

    def fast_call(a: Any, b: Any, c: Any, out: Any, alpha: Any, beta: Any) -> Any:
        arrays = a, b, c, out
        for i in absent:
            if arrays[i] is not None:
                return None
        for i, j in repeated:
            if arrays[i] is not arrays[j]:
                return None
        if not fits(*[arrays[i] for i in distinct]):
            return None
        if (alpha is not scales.s0 or beta is not scales.s1) and not scales.write(alpha, beta):
            return None
        failed = start(*[address(arrays[i]) for i in order], stream())
        return out if not failed else None

    return names["fast_call"], fast_call


def all_fit(*_: Any) -> bool:
    return True


def current_stream() -> int:
    return 7


def ns(run: Callable[[], object]) -> float:
    """The minimum time of a call in nanoseconds."""
    return min(timeit.repeat(run, number=CALLS, repeat=REPEATS)) / CALLS * 1e9


def main() -> None:
    native, python = launchers()
    a, b, d = Array(A), Array(B), Array(D)
    assert native(A, B, D, 7) == python(A, B, D, 7) == 0
    assert native(A, B, A + 16, 7) == python(A, B, A + 16, 7) == NOT_THIS_CALL
    taken = ns(lambda: native(A, B, D, 7)), ns(lambda: python(A, B, D, 7))
    rows = [("launcher", "native", *taken)]
    for name, start in (("native", native), ("Python", python)):
        generated, general = (
            ns(lambda call=call: call(a, b, None, d, *FACTORS)) for call in fast_calls(start)
        )
        rows.append((f"fast call, {name} launcher", "generated", generated, general))
    print(f"{'step':<28}{'code':<12}{'ns':>7}{'plain Python ns':>17}{'saved ns':>10}")
    for step, code, taken_ns, plain in rows:
        print(f"{step:<28}{code:<12}{taken_ns:>7.0f}{plain:>17.0f}{plain - taken_ns:>10.0f}")


if __name__ == "__main__":
    main()
