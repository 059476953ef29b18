"""The protocol that the virtual machine and a GPU share: memory, executables, launches."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy.typing as npt

from ...errors import DeviceError
from ...target import DeviceSpec

if TYPE_CHECKING:
    from ...builder import Traced

Dim3 = tuple[int, int, int]
Matrix = npt.NDArray[Any]  # two-dimensional, any strides

ParameterBytes = bytes | bytearray  # a kernel's parameter block


class BoundLaunch(Protocol):
    """A launch that owns its parameter block, for use by one thread.

    ``view`` is the block, to be written before a launch. ``entry`` holds the addresses that
    ``native_launcher`` needs to launch it.
    """

    view: memoryview
    entry: tuple[int, ...]

    def start(self, stream: int) -> None:
        """Launch the kernel."""


class PreparedLaunch(Protocol):
    """A launch whose grid, block and shared memory have been checked."""

    def __call__(self, params: ParameterBytes, stream: int) -> None:
        """Launch the kernel with this parameter block."""

    def bind(self, data: ParameterBytes) -> BoundLaunch:
        """The launch with a parameter block of its own, initially ``data``."""


class KernelSource(NamedTuple):
    """A kernel that is traced on demand. ``text`` determines the kernel, ``trace()`` builds it."""

    text: str
    trace: Callable[[], Traced]


class ExecutionDevice(Protocol):
    """A device that runs kernels."""

    def __hash__(self) -> int:
        """By identity: there is one object for each device."""

    @property
    def name(self) -> str:
        """The name that ``device()`` takes: ``vm``, ``cuda:0``."""

    @property
    def target(self) -> DeviceSpec:
        """The target that configurations are chosen for."""

    def alloc(self, nbytes: int) -> int:
        """Allocate bytes; returns their address."""

    def free(self, address: int) -> None:
        """Free what ``alloc`` returned."""

    def upload(self, address: int, matrix: Matrix, pitch: int) -> None:
        """Copy a matrix to the device, its rows ``pitch`` elements apart."""

    def upload_in_stream(self, address: int, data: Matrix, stream: int) -> None:
        """Copy contiguous bytes to the device in stream order; does not wait for the stream. In a
        captured graph ``data`` must live as long as the graph.
        """

    def set_read_only(self, address: int) -> None:
        """Promise that no kernel writes the allocation which has this address, so that kernels may
        read it while prior grids run. A checked virtual machine verifies that.
        """

    def is_captured(self, stream: int) -> bool:
        """Whether work on the stream becomes a part of a CUDA graph."""

    def wait_outside_of_capture(self, stream: int) -> None:
        """Wait for a stream that is not captured; this thread may be capturing another one."""

    def download(self, matrix: Matrix, address: int, pitch: int) -> None:
        """Fill a matrix from rows on the device that are ``pitch`` elements apart."""

    def compile(self, traced: Traced) -> Any:
        """The executable of a traced kernel, compiled once."""

    def kernel(self, kernel: KernelSource) -> tuple[Any, int]:
        """A GEMM kernel's executable, compiled once, and its bytes of dynamic shared memory."""

    def prepare(
        self,
        executable: Any,
        grid: Dim3,
        block: Dim3,
        shared: int = 0,
        *,
        cluster: Dim3 | None = None,
        programmatic: bool = False,
    ) -> PreparedLaunch:
        """Check a launch, to be started once or often.

        With ``programmatic`` the kernel may begin before the kernel ahead of it in the stream has
        ended, and waits for that kernel itself.
        """

    def wait(self, stream: int = 0) -> None:
        """Wait until all work on the stream has completed."""


class PerKernelCache:
    """A value for each traced kernel, made on first use.

    Keys are compared by identity: hashing a kernel's tree takes long.
    """

    def __init__(self, make: Callable[[Traced], Any]) -> None:
        self._make = make
        self._values: dict[int, tuple[Traced, Any]] = {}
        self._lock = threading.RLock()

    def __call__(self, traced: Traced) -> Any:
        entry = self._values.get(id(traced))
        if entry is None:
            with self._lock:
                if id(traced) not in self._values:
                    self._values[id(traced)] = traced, self._make(traced)
                entry = self._values[id(traced)]
        return entry[1]


@contextmanager
def device_allocations(on: ExecutionDevice) -> Iterator[list[int]]:
    """Free the addresses appended to the list on exit.

    An exception raised inside takes precedence over errors of ``free``.
    """
    addresses: list[int] = []
    try:
        yield addresses
    except BaseException:
        for address in addresses:
            with suppress(DeviceError):
                on.free(address)
        raise
    with ExitStack() as stack:  # frees every address, even where one call raises
        for address in addresses:
            stack.callback(on.free, address)
