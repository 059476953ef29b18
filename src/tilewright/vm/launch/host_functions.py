"""What CUDA's own functions do, on the host: ``vprintf``, ``__assertfail``, ``malloc``, ``free``.

A launch's warps call back here with their arguments (``vm/engine/host_calls.py``), lane by lane in
order; texts and arguments are read through the machine's own bounds checks.
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
from .fault_report import index
from .launch_state import LaunchState
from .print_buffer import LIMIT, PrintBuffer
from .printf import render

NO_FORMAT = -1  # what CUDA's printf returns of a null format


class HostFunctions:
    """The functions outside of one launch; ``callback`` is the address that its warps call."""

    def __init__(self, run: LaunchState, code: BlockCode) -> None:
        self.run, self.library = run, code.library
        self.output = PrintBuffer()
        self._functions = {
            "vprintf": self._vprintf,
            "__assertfail": self._assertfail,
            "malloc": self._malloc,
            "free": self._free,
        }
        assert self._functions.keys() == EXTERNS.keys()
        self._callback = code.make_callback(self._call, 1)
        self.callback = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def _call(self, warp: Record) -> int:
        """A warp's call, for each of its lanes; 1 after a fault that native code has noted."""
        (_, name), *given = self.run.program.ops[warp.called].sources
        arguments = view(warp.address + WarpRecord.offset("operands"), u64, 32 * len(given))
        results = view(warp.address + WarpRecord.offset("results"), u64, 32)
        try:
            for number in lanes_of(warp.calling).nonzero()[0]:
                values = (int(a) for a in arguments.reshape(-1, 32)[:, number])
                lane = _Caller(self, warp, int(number))
                results[number] = lane.call(name, self._functions[name], *values)
        except Fault:
            return 1
        if name in HEAP_FUNCTIONS:
            self.run.renew()
        return 0

    def _vprintf(self, lane: _Caller, format_: int, arguments: int) -> int:
        """How many arguments there were."""
        if not format_:
            return NO_FORMAT % (1 << 64)
        found = parse_format(lane.text(format_))
        types = argument_types(found)
        places, _ = offsets(types)
        sizes = (bits(t) // 8 for t in types)
        values = [lane.number(arguments + at, n) for at, n in zip(places, sizes, strict=True)]
        share = Record(Worker, lane.warp.worker).first
        self.output.add(share, render(found, values, lane.text))
        return len(types)

    def _assertfail(
        self, lane: _Caller, message: int, file: int, line: int, function: int, size: int
    ) -> int:
        """The GPU's words: ``file:line: function: block: […], thread: […] Assertion … failed.``"""
        said, where, of = (lane.text(a).decode(errors="replace") for a in (message, file, function))
        who = f"block: [{_joined(lane.block)}], thread: [{_joined(lane.thread)}]"
        text = f"{of}: {who} Assertion `{said}` failed."
        raise lane.fault(text, "assertion", SourceLocation(where, line))

    def _malloc(self, lane: _Caller, size: int) -> int:
        """New memory is all ones, as other that nobody has written."""
        return lane.run.memory.heap.take(size)

    def _free(self, lane: _Caller, address: int) -> int:
        if address and not lane.run.memory.heap.give(address):
            raise lane.fault(f"free of {address:#x}, which malloc did not give", "invalid free")
        return 0


class _Caller:
    """A thread that calls, and its memory."""

    def __init__(self, externs: HostFunctions, warp: Record, lane: int) -> None:
        self.run, self.library = externs.run, externs.library
        self.warp, self.lane = warp, lane

    def call(self, name: str, function: Callable[..., int], *values: int) -> int:
        """The function's result for this thread; a fault for a format or text that is none."""
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
        """The text at a generic address, up to its 0 or ``most`` bytes. PtxError for one that is
        longer than what a launch keeps.
        """
        limit = min(most, LIMIT + 1) if most >= 0 else LIMIT + 1
        at = (address, limit, self.lane, self.warp.called)
        length = self.library.call(string_length, self.warp.address, *at)
        if length < 0:
            raise Fault
        if length > LIMIT:
            raise PtxError(f"the text at {address:#x} is longer than {LIMIT} bytes")
        return self._bytes(address, 1, length) if length else b""

    def number(self, address: int, size: int) -> int:
        return int.from_bytes(self._bytes(address, size, size), "little")

    def _bytes(self, address: int, align: int, size: int) -> bytes:
        at = (GENERIC, address, align, self.lane, self.warp.called)
        host = self.library.call(resolve, self.warp.address, *at)
        if not host:
            raise Fault
        return ctypes.string_at(host, size)

    def fault(self, message: str, kind: str, location: SourceLocation | None = None) -> VmFault:
        location = location or self.run.program.location(self.warp.called)
        return VmFault(message, kind=kind, thread=self.thread, block=self.block, location=location)


def _joined(at: tuple[int, int, int]) -> str:
    return ",".join(map(str, at))
