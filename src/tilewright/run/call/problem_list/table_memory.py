"""Tables of problems in device memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ....gemm.tma.problem_list.problem_record import MAP_BYTES
from ...arrays import array_view
from ...devices.device_protocol import ExecutionDevice

MakeTable = Callable[[int], Any]  # the bytes of the table for an address

_of_graphs: dict[int, UploadedTable] = {}  # a captured graph may read its tables at any time


@dataclass
class UploadedTable:
    """A table in device memory; ``owner`` and ``data`` keep memory alive. The upload is ordered
    before later work on ``stream``, or if it is ``complete``, on all streams. Only launches on
    ``stream``, and graphs, use it: an array library gives freed memory to later work on the stream
    on which it was allocated, and does not wait for others.
    """

    address: int
    owner: Any
    data: Any
    stream: int = 0
    complete: bool = True


class TableMemory(Protocol):
    """Where the tables of a call go. ``kept``: whether they outlive the call."""

    @property
    def kept(self) -> bool:
        """Whether later calls may use a table."""

    def find(self, tables: Mapping[int, UploadedTable]) -> UploadedTable | None:
        """The table, of those by stream, that a launch may use."""

    def upload(self, nbytes: int, made: MakeTable) -> UploadedTable:
        """Upload a table to memory that is allocated here."""

    def use(self, table: UploadedTable) -> None:
        """Order the upload of a table before the launch that follows."""


class DeviceTables:
    """Tables in memory of the library of ``like``, uploaded in the order of ``stream``. Of a stream
    that is captured the upload is a part of the graph, so other calls have tables of their own.
    """

    def __init__(self, on: ExecutionDevice, like: Any, stream: int) -> None:
        self.on, self.like, self.stream = on, like, stream
        self.captured = on.is_captured(stream)
        self.kept = not self.captured

    def find(self, tables: Mapping[int, UploadedTable]) -> UploadedTable | None:
        """That of this stream; in a graph, which keeps it, any."""
        own = tables.get(self.stream)
        if own is None and self.captured:
            own = next(iter([*tables.values()]), None)
        return own

    def upload(self, nbytes: int, made: MakeTable) -> UploadedTable:
        """Upload a table; the host does not wait."""
        owner = array_view.empty_like_kind(self.like, (nbytes + MAP_BYTES,), "u8")
        address = -(-array_view.view(owner).address // MAP_BYTES) * MAP_BYTES
        data = made(address)
        self.on.upload_in_stream(address, data, self.stream)
        self.on.set_read_only(address)
        return UploadedTable(address, owner, data, self.stream, complete=False)

    def use(self, table: UploadedTable) -> None:
        """Wait for an upload on another stream, once."""
        if table.stream != self.stream and not table.complete:
            self.on.wait_outside_of_capture(table.stream)
            table.complete = True
        if self.captured:
            _of_graphs[id(table)] = table
