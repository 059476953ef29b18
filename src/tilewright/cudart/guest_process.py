"""The requests of one process to its virtual GPU: modules, memory, launches, tensor maps.

A request is a number and a payload, defined in ``shim/shim.h``. The reply is bytes, or a
``RequestError`` with the number of a CUDA error.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from ..errors import (
    DeviceError,
    LaunchError,
    LayoutError,
    PtxError,
    TargetError,
    TilewrightError,
    VmFault,
)  # fmt: skip
from ..mma import TensorMap
from ..mma.tensor_maps.tensor_map_parameters import TYPES
from ..mma.tensor_maps.tensor_map_rules import FILLS, INTERLEAVES, PROMOTIONS, SWIZZLES
from ..target import LANES, Target
from ..vm import Machine
from ..vm.state.global_memory import GlobalMemory
from ..vm.state.records import GLOBAL_BASE
from . import fatbin
from .device_properties import COUNT, attributes, device_of, properties

INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONFIGURATION, INVALID_SYMBOL = 1, 2, 9, 13
INVALID_FUNCTION, NO_IMAGE, INVALID_PTX, TIMEOUT, FAILED = 98, 209, 218, 702, 719
_FAULTS = {
    "out of bounds": 700, "use after free": 700, "misaligned": 716, "assertion": 710,
    "step limit": TIMEOUT, "deadlock": TIMEOUT,
}  # fmt: skip
_STATUS: dict[type[TilewrightError], int] = {
    LaunchError: INVALID_CONFIGURATION,
    TargetError: NO_IMAGE,
    PtxError: INVALID_PTX,
    LayoutError: INVALID_VALUE,
    DeviceError: INVALID_VALUE,
}

_MAP = struct.Struct("<II Q5Q5Q 5I5I 3i3i 4I")
_LAUNCH = struct.Struct("<I3I3I3II")
_OCCUPANCY = struct.Struct("<III3I")
_FUNCTION = struct.Struct("<9I")


class RequestError(Exception):
    """A request that fails with the CUDA error of this number, without a message."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class GuestProcess:
    """One process: its memory, which the process maps from a file, its modules and its functions.

    ``machine`` makes a machine for a memory; there is one machine for each module, since kernels of
    several modules may have the same name. ``watch`` is called while a kernel runs.
    """

    machine: Callable[[GlobalMemory], Machine]
    watch: Callable[[int, int], object]
    modules: list[Machine] = field(default_factory=list)
    functions: list[tuple[Machine, str]] = field(default_factory=list)
    kinds: dict[int, int] = field(default_factory=dict)  # of allocations, by address
    printed: bytes = b""  # the output of the last launch
    fault: int = 0  # the number of the CUDA error of a kernel that failed

    def __post_init__(self) -> None:
        self.file = os.memfd_create(
            "tilewright", os.MFD_CLOEXEC
        )  # passed to the process, then closed
        self.memory = GlobalMemory(file=self.file)
        self.target = self.machine(self.memory).target

    def answer(self, what: int, payload: bytes) -> bytes:
        """The reply to a request. Raises RequestError, or an error that ``status`` numbers."""
        if what >= len(_REQUESTS):
            raise RequestError(INVALID_VALUE)
        return _REQUESTS[what](self, payload)

    # --- the GPU ---

    def hello(self, _: bytes) -> bytes:
        device = device_of(self.target)
        head = struct.pack("<QQ", GLOBAL_BASE, self.memory.size)
        words = struct.pack(f"<{COUNT}i", *attributes(device))
        return head + words + b"".join(properties(device, self.memory.size))

    # --- code ---

    def module(self, data: bytes) -> bytes:
        machine = self.machine(self.memory)
        machine.load(*self._texts(data))
        self.modules.append(machine)
        return struct.pack("<I", len(self.modules) - 1)

    def _texts(self, data: bytes) -> list[str]:
        """The PTX of fatbinaries, or the PTX itself."""
        if data.startswith(fatbin.MAGIC.to_bytes(4, "little")):
            return [fatbin.best_ptx(found, self.target) for found in fatbin.entries(data)]
        if data.startswith(b"\x7fELF"):
            raise TargetError("a module must be PTX, got machine code")
        return [data.decode(errors="replace")]

    def _named(self, payload: bytes) -> tuple[Machine, str]:
        number, name = struct.unpack("<I", payload[:4])[0], payload[4:].decode(errors="replace")
        return self.modules[number], name

    def function(self, payload: bytes) -> bytes:
        machine, name = self._named(payload)
        if name not in machine.kernels:
            raise RequestError(INVALID_FUNCTION)
        kernel = machine.kernels[name]
        program, limits = kernel.metadata(machine.library), machine.target.limits
        self.functions.append((machine, name))
        compiled_for = Target.parse(kernel.module.target[0])
        found = kernel.params.parameters
        head = _FUNCTION.pack(
            len(self.functions) - 1,
            program.shared_bytes,
            program.local_bytes,
            program.max_threads or limits.threads_per_block,
            max(limits.shared_per_block - program.shared_bytes, 0),
            0,
            compiled_for.number,
            machine.target.number,
            len(found),
        )
        return head + b"".join(struct.pack("<II", p.offset, p.size) for p in found)

    def variable(self, payload: bytes) -> bytes:
        machine, name = self._named(payload)
        if name not in machine.variables:
            raise RequestError(INVALID_SYMBOL)
        return struct.pack("<QQ", *machine.variables[name])

    # --- memory ---

    def allocate(self, payload: bytes) -> bytes:
        size, kind = struct.unpack("<QQ", payload)
        try:
            address = self.memory.allocate(size)
        except DeviceError:
            raise RequestError(OUT_OF_MEMORY) from None
        self.kinds[address] = kind
        return struct.pack("<Q", address)

    def release(self, payload: bytes) -> bytes:
        (address,) = struct.unpack("<Q", payload)
        if self.kinds.pop(address, None) is None:
            raise DeviceError(
                f"the address to free must be the start of an allocation, got {address:#x}"
            )
        self.memory.free(address)
        return b""

    def inside(self, payload: bytes) -> bytes:
        self.memory.bytes(*struct.unpack("<QQ", payload))
        return b""

    def pointer(self, payload: bytes) -> bytes:
        piece = self.memory.find(*struct.unpack("<Q", payload))
        kind = self.kinds.get(piece.start, 2) if piece and piece.live else 0
        return struct.pack("<Q", kind)

    def free_memory(self, _: bytes) -> bytes:
        used = sum(p.end - p.start for p in self.memory.allocations if p.live)
        return struct.pack("<QQ", self.memory.size - used, self.memory.size)

    # --- launches ---

    def launch(self, payload: bytes) -> bytes:
        """Launch a kernel; the reply is ``launched``, also if this raises."""
        self.printed = b""
        number, *sizes, shared = _LAUNCH.unpack_from(payload)
        machine, name = self.functions[number]
        grid, block, cluster = sizes[:3], sizes[3:6], sizes[6:]
        options: dict[str, Any] = {
            "shared": shared, "cluster": cluster if any(cluster) else None, "watch": self.watch,
        }  # fmt: skip
        printed = io.StringIO()
        if 0 in grid:
            raise LaunchError(f"the grid must have at least one CTA, got {tuple(grid)}")
        try:
            with redirect_stdout(printed):
                machine.launch(name, grid, block, payload[_LAUNCH.size :], **options)
        except VmFault as fault:
            self.fault = status(fault)
            raise
        finally:
            self.printed = printed.getvalue().encode()
        return self.launched

    @property
    def launched(self) -> bytes:
        """The reply to a launch: the fault so far, which fails all later calls of the process, and
        the kernel's output.
        """
        return struct.pack("<i", self.fault) + self.printed

    def occupancy(self, payload: bytes) -> bytes:
        """Resident CTAs per SM; for clusters, resident clusters on the GPU."""
        number, threads, dynamic, *cluster = _OCCUPANCY.unpack(payload)
        machine, name = self.functions[number]
        limits = machine.target.limits
        shared = machine.kernels[name].metadata(machine.library).shared_bytes + dynamic
        ctas = 0
        if 0 < threads <= limits.threads_per_block and shared <= limits.shared_per_block:
            by_threads = limits.threads_per_sm // (-(-threads // LANES) * LANES)
            by_shared = limits.shared_per_sm // max(1, shared + limits.shared_reserved)
            ctas = min(limits.blocks_per_sm, by_threads, by_shared)
        if any(cluster):
            ctas = ctas * device_of(self.target).sms // (cluster[0] * cluster[1] * cluster[2])
        return struct.pack("<i", ctas)

    # --- tensor maps ---

    def tiled(self, payload: bytes) -> bytes:
        m = _MapRequest.unpack(payload)
        box = m.box[: len(m.shape)]
        return TensorMap.tiled(
            m.address, m.dtype, m.shape, m.strides, box, m.element_strides, *m.modes
        ).encode()

    def im2col(self, payload: bytes) -> bytes:
        m = _MapRequest.unpack(payload)
        channels, pixels, *_ = m.box
        return TensorMap.im2col(
            m.address, m.dtype, m.shape, m.strides, m.lower, m.upper, channels, pixels,
            m.element_strides, *m.modes,
        ).encode()  # fmt: skip


class _MapRequest(NamedTuple):
    """A tensor map that a program encodes. ``modes``: interleave, swizzle, L2 promotion, fill."""

    address: int
    dtype: str
    shape: Sequence[int]
    strides: Sequence[int]
    box: Sequence[int]
    lower: Sequence[int]
    upper: Sequence[int]
    element_strides: Sequence[int]
    modes: tuple[int, int, int, str]

    @classmethod
    def unpack(cls, payload: bytes) -> _MapRequest:
        """The request of ``shim/driver.c``. Raises LayoutError for an unknown enumerator."""
        type_, rank, address, *rest = _MAP.unpack(payload)
        dims, strides, box, steps = (rest[i : i + 5] for i in (0, 5, 10, 15))
        lower, upper = (rest[i : i + max(rank - 2, 0)] for i in (20, 23))
        if type_ >= len(TYPES) or not 1 <= rank <= 5:
            raise LayoutError(
                f"a tensor map must have 1 to 5 dimensions of data type 0 to {len(TYPES) - 1}, got "
                f"{rank} of data type {type_}"
            )
        interleave, swizzle, promotion, fill = rest[26:]
        modes = (
            _enumerator("interleave", INTERLEAVES, interleave),
            _enumerator("swizzle", SWIZZLES, swizzle),
            _enumerator("l2_promotion", PROMOTIONS, promotion),
            _enumerator("oob_fill", FILLS, fill),
        )
        dtype = list(TYPES)[type_]
        return cls(
            address, dtype, dims[:rank], strides[: rank - 1], box, lower, upper, steps[:rank], modes
        )


_T = TypeVar("_T")


def _enumerator(name: str, values: Sequence[_T], number: int) -> _T:
    """The value that an enumerator of the driver's API stands for."""
    if number >= len(values):
        raise LayoutError(
            f"a tensor map's {name} must be an enumerator from 0 to {len(values) - 1}, got {number}"
        )
    return values[number]


def status(error: TilewrightError) -> int:
    """The number of the CUDA error for a typed error."""
    if isinstance(error, VmFault):
        return _FAULTS.get(error.kind, FAILED)
    return next((number for kind, number in _STATUS.items() if isinstance(error, kind)), FAILED)


_REQUESTS = (
    GuestProcess.hello,
    GuestProcess.module,
    GuestProcess.function,
    GuestProcess.variable,
    GuestProcess.allocate,
    GuestProcess.release,
    GuestProcess.inside,
    GuestProcess.pointer,
    GuestProcess.free_memory,
    GuestProcess.launch,
    GuestProcess.occupancy,
    GuestProcess.tiled,
    GuestProcess.im2col,
)
LAUNCH = _REQUESTS.index(GuestProcess.launch)
