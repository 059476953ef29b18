"""The last steps of a fast call as machine code.

``native_launcher`` returns a built-in function ``start(address, …, stream)``. It checks that
addresses are aligned and do not overlap, writes them into the parameter blocks and launches the
kernels. Its machine code is compiled once a process; each function points to its own
``LauncherState``. It releases the GIL while the driver launches.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from ...native.aligned_memory import aligned_zeros
from ...native.compiled_function import compile_native
from ...native.intrinsics import address, at, indirect
from ...native.native_language import Array, Ptr, Struct, i64, native, u64
from ...native.native_record import Record

CONVERSION_ERROR, ERROR_SET = -1, 0
NOT_THIS_CALL = -1  # ``start``'s result for addresses that need another kernel or an error
MAX_ADDRESSES = 40
MAX_DISTANCE = (1 << 63) - 1  # greater than the difference of any two addresses
FASTCALL = 0x80  # METH_FASTCALL: a built-in function of (self, arguments, number of arguments)
STATUS = 0xFFFFFFFF  # the bits of a CUresult


class OverlapTest(Struct):
    """Addresses number ``one`` and ``other`` overlap if their difference is strictly between
    ``low`` and ``high``.
    """

    one: u64
    other: u64
    low: i64
    high: i64


class AddressWrite(Struct):
    """Address number ``which`` is written to ``target``."""

    which: u64
    target: Ptr[u64]


class LaunchStep(Struct):
    """A launch: ``launch(config, kernel, None, extra)`` after the stream is written to ``stream``.

    It requires that ``current(&context)`` gives this ``context``, unless ``current`` is 0.
    """

    launch: u64
    config: u64
    kernel: u64
    extra: u64
    stream: Ptr[u64]
    current: u64
    context: u64


class LauncherState(Struct):
    """What a ``start`` function checks, writes and launches; counts, then arrays."""

    addresses: u64
    tests: u64
    writes: u64
    steps: u64
    first_test: Ptr[OverlapTest]
    first_write: Ptr[AddressWrite]
    first_step: Ptr[LaunchStep]
    values: Ptr[u64] = Array(MAX_ADDRESSES)
    masks: Ptr[u64] = Array(MAX_ADDRESSES)  # the low bits of each address that must be …
    low_bits: Ptr[u64] = Array(MAX_ADDRESSES)  # … these
    context: u64
    to_u64: u64  # functions of Python's C API, see ``_PYTHON``
    to_int: u64
    release: u64
    acquire: u64


# --- the machine code -------------------------------------------------------------------------


@native
def start(itself: i64, arguments: Ptr[u64], count: i64) -> i64:
    """``start(address, …, stream)``: 0, NOT_THIS_CALL, or 1 + the number of the failed step."""
    call = at(LauncherState, at(u64, itself + PAYLOAD)[0])
    if count != call.addresses + 1:
        return indirect(call.to_int, NOT_THIS_CALL)
    bits = 0
    for i in range(call.addresses):
        call.values[i] = indirect(call.to_u64, arguments[i])
        if call.values[i] == CONVERSION_ERROR:
            return ERROR_SET
        bits |= (call.values[i] ^ call.low_bits[i]) & call.masks[i]
    if bits or overlapping(call):
        return indirect(call.to_int, NOT_THIS_CALL)
    stream = indirect(call.to_u64, arguments[call.addresses])
    if stream == CONVERSION_ERROR:
        return ERROR_SET
    for i in range(call.writes):
        write = call.first_write[i]
        write.target[0] = call.values[write.which]
    thread = indirect(call.release)
    failed = launch_all(call, stream)
    indirect(call.acquire, thread)
    return indirect(call.to_int, failed)


@native(inline=True)
def overlapping(call: LauncherState) -> i64:
    """Whether a test finds an overlap."""
    for i in range(call.tests):
        test = call.first_test[i]
        if test.low < call.values[test.one] - call.values[test.other] < test.high:
            return 1
    return 0


@native(inline=True)
def launch_all(call: LauncherState, stream: i64) -> i64:
    for i in range(call.steps):
        step = call.first_step[i]
        step.stream[0] = stream
        if step.current:
            call.context = 0
            indirect(step.current, address(call) + CONTEXT)
            if call.context != step.context:
                return i + 1
        if indirect(step.launch, step.config, step.kernel, 0, step.extra) & STATUS:
            return i + 1
    return 0


CONTEXT = LauncherState.offset("context")
PAYLOAD = bytes.__basicsize__ - 1  # offset of the bytes in a ``bytes`` object
_PYTHON = {
    "to_u64": "PyLong_AsUnsignedLongLong",  # CONVERSION_ERROR, with an exception set, for a non-int
    "to_int": "PyLong_FromLongLong",
    "release": "PyEval_SaveThread",  # releases the GIL
    "acquire": "PyEval_RestoreThread",
}


# --- from Python ------------------------------------------------------------------------------


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


class _StateHolder(bytes):
    """The address of a ``LauncherState``; ``held`` keeps the state and what it points to alive."""

    held: Any


@cache
def _method() -> Any:
    """The method's definition, the constructor of built-in functions, and the compiled code."""
    python = ctypes.pythonapi
    code = compile_native(start, (overlapping, launch_all), "run.call.native_launcher")
    method = _Method(b"start", code.address, FASTCALL, None)
    kind = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.POINTER(_Method), ctypes.py_object, ctypes.c_void_p
    )
    return method, kind(("PyCFunction_NewEx", python)), code


def native_launcher(
    alignments: Sequence[tuple[int, int]],
    tests: Sequence[tuple[int, int, int, int]],
    writes: Sequence[tuple[int, int]],
    entries: Sequence[tuple[int, ...]],
    held: Any,
) -> Any:
    """The function ``start(address, …, stream)``, for use by one thread; it keeps ``held`` alive.

    It returns 0 once the kernels of ``entries`` are launched, NOT_THIS_CALL if an address modulo
    ``align`` is not as in ``alignments``, a pair (``align``, remainder) for each address, or a test
    finds an overlap, else 1 + the number of the first entry that was not launched. ``tests``,
    ``writes`` and ``entries`` have the fields of ``OverlapTest``, ``AddressWrite`` and
    ``LaunchStep``.
    """
    addresses = len(alignments)
    assert addresses <= MAX_ADDRESSES
    lists = [(OverlapTest, tests), (AddressWrite, writes), (LaunchStep, entries)]
    call, arrays = Record(LauncherState), [_struct_array(kind, rows) for kind, rows in lists]
    call.addresses = addresses
    call.masks[:addresses] = [align - 1 for align, _ in alignments]
    call.low_bits[:addresses] = [remainder for _, remainder in alignments]
    call.tests, call.writes, call.steps = map(len, (tests, writes, entries))
    call.first_test, call.first_write, call.first_step = (x.ctypes.data for x in arrays)
    for name, function in _PYTHON.items():
        pointer = ctypes.cast(getattr(ctypes.pythonapi, function), ctypes.c_void_p)
        setattr(call, name, pointer.value)
    itself = _StateHolder(call.address.to_bytes(8, sys.byteorder))
    method, make, code = _method()
    itself.held = call, arrays, held, method, code
    return make(method, itself, None)


def _struct_array(kind: type[Struct], rows: Sequence[tuple[int, ...]]) -> Any:
    """An array of structs, one for each row of field values."""
    memory = aligned_zeros(max(len(rows), 1) * kind.size)
    for i, row in enumerate(rows):
        record = Record(kind, memory.ctypes.data + i * kind.size)
        for name, value in zip(kind.fields, row, strict=True):
            setattr(record, name, value)
    return memory
