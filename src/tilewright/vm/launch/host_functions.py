"""CUDA's system functions on the host: ``vprintf``, ``__assertfail``, ``malloc``, ``free``.

The warps of a launch call back here (``vm/engine/host_calls.py``), lane by lane in order. Strings
and arguments are read with the machine's bounds checks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ...errors import PtxError, SourceLocation, VmFault
from ...native.native_language import u64
from ...native.native_record import Record, view
from ...ptx.printf_format import argument_types, offsets, parse_format
from ...ptx.system_functions import EXTERNS
from ...ptx.types import bits
from ..codegen.block_code import BlockCode
from ..engine.host_calls import string_length
from ..engine.memory_access import resolve
from ..program.program_analysis import HEAP_FUNCTIONS
from ..state.records import GENERIC, Cta, WarpRecord, Worker
from ..step.step_context import Fault, lanes_of
from .deadlock_report import index
from .launch_state import LaunchState
from .print_buffer import LIMIT, PrintBuffer
from .printf import render

NO_FORMAT = -1  # the result of CUDA's printf for a null format


class HostFunctions:
    """The host functions of one launch; ``callback`` is the address that its warps call."""

    def __init__(self, run: LaunchState, code: BlockCode) -> None:
        self.run, self.library = run, code.library
        self.output = PrintBuffer()
        self._functions: dict[str, Callable[..., int]] = {
            "vprintf": self._vprintf,
            "__assertfail": self._assertfail,
            "malloc": self._malloc,
            "free": self._free,
        }
        assert self._functions.keys() == EXTERNS.keys()
        self._callback = code.make_callback(self._call, 1)
        self.callback = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _call(self, warp: Record) -> int:
        """Execute a warp's call for each of its lanes. 1 after a fault in native code."""
        (_, name), *parameters = self.run.program.ops[warp.called].sources
        assert isinstance(name, str)
        arguments = view(warp.address + WarpRecord.offset("operands"), u64, 32 * len(parameters))
        results = view(warp.address + WarpRecord.offset("results"), u64, 32)
        try:
            for lane in lanes_of(warp.calling).nonzero()[0]:
                values = (int(a) for a in arguments.reshape(-1, 32)[:, lane])
                caller = _Caller(self, warp, int(lane))
                results[lane] = caller.call(name, self._functions[name], *values)
        except Fault:
            return 1
        if name in HEAP_FUNCTIONS:
            self.run.renew()
        return 0

    def _vprintf(self, caller: _Caller, format_: int, arguments: int) -> int:
        """Print; returns the number of arguments."""
        if not format_:
            return NO_FORMAT % (1 << 64)
        items = parse_format(caller.text(format_))
        types = argument_types(items)
        starts, _ = offsets(types)
        sizes = (bits(t) // 8 for t in types)
        values = [caller.number(arguments + n, size) for n, size in zip(starts, sizes, strict=True)]
        share = Record(Worker, caller.warp.worker).first
        self.output.add(share, render(items, values, caller.text))
        return len(types)

    def _assertfail(
        self, caller: _Caller, message: int, file: int, line: int, function: int, size: int
    ) -> int:
        """Raise with the message of a GPU:
        ``file:line: function: block: […], thread: […] Assertion … failed.``
        """
        condition, path, name = (
            caller.text(a).decode(errors="replace") for a in (message, file, function)
        )
        thread = f"block: [{_joined(caller.block)}], thread: [{_joined(caller.thread)}]"
        text = f"{name}: {thread} Assertion `{condition}` failed."
        raise caller.fault(text, "assertion", SourceLocation(path, line))

    def _malloc(self, caller: _Caller, size: int) -> int:
        """Allocate; like all uninitialized memory, the bytes are all ones."""
        return caller.run.memory.heap.allocate(size)

    def _free(self, caller: _Caller, address: int) -> int:
        if address and not caller.run.memory.heap.free(address):
            message = f"free of {address:#x}, which malloc did not return"
            raise caller.fault(message, "invalid free")
        return 0


class _Caller:
    """The thread that calls, and access to its memory."""

    def __init__(self, functions: HostFunctions, warp: Record, lane: int) -> None:
        self.run, self.library = functions.run, functions.library
        self.warp, self.lane = warp, lane

    def call(self, name: str, function: Callable[..., int], *values: int) -> int:
        """The function's result for this thread. An invalid format or string is a fault."""
        try:
            return function(self, *values)
        except PtxError as error:
            raise self.fault(f"{name}: {error.message}", "printf format") from None

    @property
    def thread(self) -> tuple[int, int, int]:
        return index(self.warp.index * 32 + self.lane, self.run.setup.block)

    @property
    def block(self) -> tuple[int, int, int]:
        return index(Record(Cta, self.warp.cta).linear, self.run.setup.grid)

    def text(self, address: int, most: int = -1) -> bytes:
        """The string at a generic address, up to its 0 byte or ``most`` bytes. Raises PtxError if
        it is longer than the print buffer.
        """
        limit = min(most, LIMIT + 1) if most >= 0 else LIMIT + 1
        arguments = (address, limit, self.lane, self.warp.called)
        length = self.library.call(string_length, self.warp.address, *arguments)
        if length < 0:
            raise Fault
        if length > LIMIT:
            raise PtxError(f"the text at {address:#x} is longer than {LIMIT} bytes")
        return self._bytes(address, 1, length) if length else b""

    def number(self, address: int, size: int) -> int:
        return int.from_bytes(self._bytes(address, size, size), "little")

    def _bytes(self, address: int, align: int, size: int) -> bytes:
        arguments = (GENERIC, address, align, self.lane, self.warp.called)
        host = self.library.call(resolve, self.warp.address, *arguments)
        if not host:
            raise Fault
        return ctypes.string_at(host, size)

    def fault(self, message: str, kind: str, location: SourceLocation | None = None) -> VmFault:
        location = location or self.run.program.location(self.warp.called)
        return VmFault(message, kind=kind, thread=self.thread, block=self.block, location=location)


def _joined(xyz: tuple[int, int, int]) -> str:
    return ",".join(map(str, xyz))
