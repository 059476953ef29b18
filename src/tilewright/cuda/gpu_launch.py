"""Launches: a loaded kernel, its parameter block, and a launch prepared once and called repeatedly.

``prepare`` checks and packs everything but parameters and stream. A call then neither allocates nor
waits, so it may be captured in a CUDA graph. Parameters are passed as one block
(``CU_LAUNCH_PARAM_BUFFER_POINTER``), each at the offset that the kernel expects
(``CudaFunction.param_offsets``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..errors import LaunchError
from .cubin import extent
from .driver import address_of, call, cu, error_of
from .stream import stream_handle

Dim3 = tuple[int, int, int]

STATIC_SHARED_LIMIT = 48 * 1024  # bytes without opt-in (CUDA programming guide)
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
PORTABLE_CLUSTER = 8
_ALIGN = 64  # of a tensor map, the largest alignment of a parameter
_STREAM = 32  # offset of hStream in a CUlaunchConfig
_WRONG_CONTEXT = {"CUDA_ERROR_INVALID_CONTEXT", "CUDA_ERROR_INVALID_HANDLE"}

_thread = threading.local()


class LaunchContext(Protocol):
    """The GPU of a launch."""

    shared_limit: int
    several: bool
    context: int

    def active(self) -> AbstractContextManager[object]: ...

    def is_current(self) -> bool: ...


class ParamBlock:
    """A kernel's parameters, written in place through ``view``: ``size`` bytes after ``lead`` bytes
    of padding.

    Keep one for each thread and plan: ``struct.pack_into("<QQii", params.view, 0, a, b, m, n)``.
    The driver copies it during the launch, so it may be overwritten after that.
    """

    __slots__ = ("_block", "_list", "extra", "lead", "size", "view")

    def __init__(self, size: int, data: bytes = b"", lead: int = 0) -> None:
        self.size, self.lead = size, lead
        raw = np.zeros(lead + size + _ALIGN, np.uint8)
        start = -raw.ctypes.data % _ALIGN
        self._block = raw[start : start + lead + size]
        self.view = memoryview(self._block[lead:])
        # the driver's list {POINTER, block, SIZE, &size, END}, then the size that it points to
        self._list = np.array([1, self._block.ctypes.data, 2, 0, 0, lead + size], np.uint64)
        self._list[3] = self._list.ctypes.data + 5 * 8
        self.extra = int(self._list.ctypes.data) if size else 0
        if data:
            self.view[:] = data

    @classmethod
    def of(cls, data: bytes | bytearray | memoryview, lead: int = 0) -> ParamBlock:
        """This thread's parameter block of the size of ``data``, filled with it."""
        blocks: dict[tuple[int, int], ParamBlock] = _thread.__dict__.setdefault("blocks", {})
        size = len(data)
        block = blocks.get((size, lead))
        if block is None:
            block = blocks[size, lead] = ParamBlock(size, lead=lead)
        if size:
            block.view[:] = data
        return block


class CudaFunction:
    """A kernel loaded into a GPU's context, with its resource usage."""

    def __init__(
        self,
        handle: Any,
        name: str,
        limit: int,
        params: Sequence[tuple[int, int]] | None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        attribute = partial(_attribute, handle)
        self.handle = handle
        self.name = name
        self.warnings = warnings  # of its module's assembler
        self.registers = attribute("NUM_REGS")
        self.static_shared = attribute("SHARED_SIZE_BYTES")
        self.local = attribute("LOCAL_SIZE_BYTES")
        self.max_threads = attribute("MAX_THREADS_PER_BLOCK")
        self.param_lead = 0
        self.param_bytes: int | None = None  # None: not known
        if params is not None:
            self.param_lead, self.param_bytes = extent(params)
        # the offset of each parameter, relative to the first
        self.param_offsets = tuple(offset - self.param_lead for offset, _ in params or ())
        self.dynamic_limit = limit - self.static_shared
        self._allowed = STATIC_SHARED_LIMIT - self.static_shared
        self._large_clusters = False

    def __repr__(self) -> str:
        return f"<Function {self.name}: {self.registers} registers, {self.static_shared} B shared>"

    def allow_shared(self, dynamic: int) -> None:
        """Allow launches with ``dynamic`` bytes of dynamic shared memory."""
        if dynamic > self._allowed:
            name = cu().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(
                "cuFuncSetAttribute",
                self.handle,
                name,
                dynamic,
                doing=f"allowing {dynamic} bytes of dynamic shared memory",
            )
            self._allowed = dynamic

    def allow_cluster(self, ctas: int) -> None:
        """Allow launches with clusters of more than the portable eight CTAs."""
        if ctas > PORTABLE_CLUSTER and not self._large_clusters:
            name = cu().CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            call("cuFuncSetAttribute", self.handle, name, 1, doing=f"allowing clusters of {ctas}")
            self._large_clusters = True

    def occupancy(self, threads: int, dynamic: int = 0) -> int:
        """Resident CTAs per SM, for a number of threads and bytes of dynamic shared memory."""
        self.allow_shared(dynamic)
        query = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        return int(call(query, self.handle, threads, dynamic))


def _attribute(handle: Any, name: str) -> int:
    names = cu().CUfunction_attribute
    return int(call("cuFuncGetAttribute", getattr(names, f"CU_FUNC_ATTRIBUTE_{name}"), handle))


class CudaLaunch:
    """A kernel with grid, block, shared memory and cluster; ``launch(params, stream)`` starts it.

    ``programmatic``: it may start before the preceding kernel of the stream has ended.
    """

    def __init__(
        self,
        host: LaunchContext,
        function: CudaFunction,
        grid: Dim3,
        block: Dim3,
        shared: int = 0,
        cluster: Dim3 | None = None,
        programmatic: bool = False,
    ) -> None:
        _check(host, function, grid, block, shared, cluster)
        self.function = function
        self.host = host
        self._shape = (grid, block, shared, cluster)
        self._programmatic = programmatic
        with host.active():
            function.allow_shared(shared)
            if cluster:
                function.allow_cluster(cluster[0] * cluster[1] * cluster[2])
        self.empty = not (grid[0] and grid[1] and grid[2])
        self._local = threading.local()

    def __call__(self, params: ParamBlock | bytes | bytearray, stream: Any = 0) -> None:
        """Start the kernel on ``stream``; it runs asynchronously. An empty grid starts nothing.

        Raises CudaError if the driver refuses; a fault in the kernel is raised by the next wait.
        """
        if not isinstance(params, ParamBlock):
            params = ParamBlock.of(params)
        if type(stream) is not int:
            stream = stream_handle(stream)
        if params.size != self.function.param_bytes:
            self._check_params(params.size)
        if params.lead != self.function.param_lead:
            params = ParamBlock.of(params.view, self.function.param_lead)
        local = self._local
        try:
            config = local.config
        except AttributeError:
            config, local.stream = self.configured(), 0
            local.config = config
        if local.stream != stream:
            local.stream = config.hStream = stream
        self.start(partial(cu().cuLaunchKernelEx, config, self.function.handle, None, params.extra))

    def bind(self, data: bytes | bytearray) -> BoundCudaLaunch:
        """The launch with a parameter block of its own, initially ``data``."""
        self._check_params(len(data))
        return BoundCudaLaunch(self, data)

    def start(self, start: Callable[[], Any]) -> None:
        """Call the driver with the GPU's context current; do nothing for an empty grid."""
        if self.empty:
            return
        if self.host.several and not self.host.is_current():
            self._start_elsewhere(start)
        elif status := start()[0]:
            self.failed(status, start)

    def failed(self, status: Any, start: Callable[[], Any]) -> None:
        """Raise the driver's error, or start again if only the context was wrong."""
        if status.name not in _WRONG_CONTEXT or self.host.is_current():
            raise self._error(status)
        self._start_elsewhere(start)

    def _start_elsewhere(self, start: Callable[[], Any]) -> None:
        """Start with the GPU's context made current temporarily."""
        with self.host.active():
            status = start()[0]
        if status:
            raise self._error(status)

    def configured(self) -> Any:
        """A new CUlaunchConfig, for one thread: it holds the stream."""
        config = cu().CUlaunchConfig()
        (gx, gy, gz), (bx, by, bz), shared, _ = self._shape
        config.gridDimX, config.gridDimY, config.gridDimZ = gx, gy, gz
        config.blockDimX, config.blockDimY, config.blockDimZ = bx, by, bz
        config.sharedMemBytes = shared
        attributes = self._attributes()
        config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def _attributes(self) -> list[Any]:
        new, names, attributes = cu().CUlaunchAttribute, cu().CUlaunchAttributeID, []
        cluster = self._shape[3]
        if cluster and cluster != (1, 1, 1):
            attributes.append(new())
            attributes[-1].id = names.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            dims = attributes[-1].value.clusterDim
            dims.x, dims.y, dims.z = cluster
        if self._programmatic:
            attributes.append(new())
            attributes[-1].id = names.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attributes[-1].value.programmaticStreamSerializationAllowed = 1
        return attributes

    def _check_params(self, size: int) -> None:
        expected = self.function.param_bytes
        if expected is not None and size != expected:
            raise LaunchError(
                f"the parameter block of kernel {self.function.name!r} must have {expected} bytes, "
                f"got {size}",
                hint=f"the parameters' offsets are {self.function.param_offsets}",
            )

    def _error(self, status: Any) -> Exception:
        grid, block, shared, cluster = self._shape
        what = f"grid {grid}, block {block}, {shared} B shared" + (
            f", cluster {cluster}" if cluster else ""
        )
        return error_of(cu(), status, f"launching {self.function.name!r} ({what})")


class BoundCudaLaunch:
    """A launch with a parameter block of its own, written through ``view``, for use by one thread.

    ``entry`` is what machine code needs to start it: the addresses of ``cuLaunchKernelEx``, of the
    CUlaunchConfig, of the kernel, of ``extra``, of the config's stream and of ``cuCtxGetCurrent``,
    and the context that must be current.
    """

    __slots__ = ("_config", "_go", "_launch", "_params", "entry", "view")

    def __init__(self, launch: CudaLaunch, data: bytes | bytearray) -> None:
        function, host = launch.function, launch.host
        self._launch = launch
        self._params = ParamBlock(len(data), bytes(data), function.param_lead)
        self.view = self._params.view
        self._config = launch.configured()
        config, extra = int(self._config.getPtr()), self._params.extra
        self._go = partial(cu().cuLaunchKernelEx, self._config, function.handle, None, extra)
        self.entry: tuple[int, ...] = (
            address_of("cuLaunchKernelEx"), config, int(function.handle), extra,
            config + _STREAM, address_of("cuCtxGetCurrent"), host.context,
        )  # fmt: skip

    def start(self, stream: int) -> None:
        """Start the kernel, as ``CudaLaunch`` does."""
        self._config.hStream = stream
        self._launch.start(self._go)


def dim3(size: int | tuple[int, ...], what: str) -> Dim3:
    """``8`` or ``(8,)`` or ``(8, 2)`` as (8, 2, 1)."""
    sizes = (size,) if isinstance(size, int) else tuple(size)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(s, int) for s in sizes):
        raise LaunchError(f"{what} must be one to three integers, got {size!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def _check(
    host: LaunchContext,
    function: CudaFunction,
    grid: Dim3,
    block: Dim3,
    shared: int,
    cluster: Dim3 | None,
) -> None:
    if any(not 0 <= g <= most for g, most in zip(grid, MAX_GRID, strict=True)):
        raise LaunchError(f"grid must be at most {MAX_GRID} and not negative, got {grid}")
    if any(not 1 <= b <= most for b, most in zip(block, MAX_BLOCK, strict=True)):
        raise LaunchError(f"block must be from (1, 1, 1) to {MAX_BLOCK}, got {block}")
    threads = block[0] * block[1] * block[2]
    if threads > function.max_threads:
        raise LaunchError(
            f"a block of kernel {function.name!r} must have at most {function.max_threads} "
            f"threads, got {threads}",
            hint=f"it uses {function.registers} registers per thread; .maxntid may also limit it",
        )
    if not 0 <= shared <= function.dynamic_limit:
        raise LaunchError(
            f"dynamic shared memory of kernel {function.name!r} must be at most "
            f"{function.dynamic_limit} bytes ({host.shared_limit} less {function.static_shared} "
            f"static), got {shared}"
        )
    if cluster and any(c < 1 or g % c for g, c in zip(grid, cluster, strict=True)):
        raise LaunchError(f"grid must be a multiple of the cluster {cluster}, got {grid}")
