"""A GPU: its properties, its primary context, its memory, and kernels loaded into it.

The context is the device's primary one, which PyTorch, CuPy and JAX use too, so that their
pointers and streams are valid here. If another context is current, a call makes this one current
temporarily; in a thread without a context it stays current.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from types import TracebackType
from typing import Any

import numpy as np

from ..errors import CudaError, DeviceError, LaunchError
from .cubin import Cubin, assembler_error, param_layout, text_of
from .driver import call, check, cu
from .gpu_launch import CudaFunction, CudaLaunch, ParamBlock, dim3
from .stream import stream_handle

_ARCHITECTURE_SPECIFIC = (9, 0)  # the first compute capability with sm_…a targets
_LOG_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties of a device; memory sizes are bytes, clocks kHz."""

    ordinal: int
    name: str
    cc: tuple[int, int]
    sms: int
    shared_optin: int
    shared_sm: int
    l2: int
    memory: int
    clock: int

    @property
    def arch(self) -> str:
        """The architecture to compile for: ``sm_86``, ``sm_90a``."""
        major, minor = self.cc
        return f"sm_{major}{minor}" + ("a" if self.cc >= _ARCHITECTURE_SPECIFIC else "")

    @classmethod
    def of(cls, ordinal: int) -> Properties:
        device = _device(ordinal)
        names = cu().CUdevice_attribute

        def get(name: str) -> int:
            return int(
                call("cuDeviceGetAttribute", getattr(names, f"CU_DEVICE_ATTRIBUTE_{name}"), device)
            )

        return cls(
            ordinal,
            call("cuDeviceGetName", 256, device).split(b"\0", 1)[0].decode(),
            (get("COMPUTE_CAPABILITY_MAJOR"), get("COMPUTE_CAPABILITY_MINOR")),
            get("MULTIPROCESSOR_COUNT"),
            get("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            get("L2_CACHE_SIZE"),
            int(call("cuDeviceTotalMem", device)),
            get("CLOCK_RATE"),
        )


def count() -> int:
    """Number of GPUs that the driver reports."""
    return int(call("cuDeviceGetCount", doing="counting the GPUs"))


def devices() -> tuple[Properties, ...]:
    """The properties of all GPUs; creates no context. Raises DeviceError or MissingPackage."""
    return tuple(Properties.of(n) for n in range(count()))


def _device(ordinal: int) -> Any:
    total = count()
    if not 0 <= ordinal < total:
        allowed = f"from 0 to {total - 1}" if total else "that of a GPU, and there is none"
        raise DeviceError(f"the GPU's number must be {allowed}, got {ordinal}")
    return call("cuDeviceGet", ordinal)


def ordinal_of(address: int) -> int:
    """The number of the GPU whose memory ``address`` is in. Raises CudaError if there is none."""
    name = cu().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    doing = f"looking up the GPU of address {address:#x}"
    with gpu().active():
        return int(call("cuPointerGetAttribute", name, address, doing=doing))


@cache
def _shared_gpu(ordinal: int) -> Gpu:
    return Gpu(ordinal)


def gpu(ordinal: int | None = None) -> Gpu:
    """The GPU of this number, one object per process; None is the current GPU, else number 0."""
    if ordinal is None:
        current = call("cuCtxGetCurrent")
        ordinal = int(call("cuCtxGetDevice")) if int(current) else 0
    return _shared_gpu(ordinal)


class Gpu:
    """A GPU with its primary context, which is retained until the process ends."""

    def __init__(self, ordinal: int = 0) -> None:
        self.properties = Properties.of(ordinal)
        self.ordinal = ordinal
        self.name = self.properties.name
        self.arch = self.properties.arch
        self.shared_limit = self.properties.shared_optin
        self.several = count() > 1
        device = call("cuDeviceGet", ordinal)
        self._context = call("cuDevicePrimaryCtxRetain", device, doing=f"starting GPU {ordinal}")
        self.context = int(self._context)
        self._current = cu().cuCtxGetCurrent

    def __repr__(self) -> str:
        return f"<Gpu cuda:{self.ordinal} {self.name} {self.arch}>"

    # --- context

    def is_current(self) -> bool:
        """Whether this GPU's context is current in the calling thread."""
        return int(check(self._current(), "querying the current context")) == self.context

    @contextmanager
    def active(self) -> Iterator[Gpu]:
        """Make this GPU's context current within the block, and restore the one before."""
        current = int(check(self._current(), "querying the current context"))
        if current in (0, self.context):
            if not current:  # stays current in this thread, so that launches find it
                call("cuCtxSetCurrent", self._context)
            yield self
            return
        call("cuCtxPushCurrent", self._context)
        try:
            yield self
        finally:
            call("cuCtxPopCurrent")

    def wait(self, stream: Any = None) -> None:
        """Wait for a stream (None: for all work on this GPU). Raises the faults of kernels."""
        with self.active():
            if stream is None:
                call("cuCtxSynchronize", doing="waiting for the GPU")
            else:
                call("cuStreamSynchronize", stream_handle(stream), doing="waiting for a stream")

    def is_captured(self, stream: Any) -> bool:
        """Whether work on the stream becomes a part of a CUDA graph."""
        status = call("cuStreamIsCapturing", stream_handle(stream), doing="querying a stream")
        return bool(int(status))

    def wait_outside_of_capture(self, stream: Any) -> None:
        """Wait for a stream that is not captured; this thread may be capturing another one."""
        modes = cu().CUstreamCaptureMode
        before = call("cuThreadExchangeStreamCaptureMode", modes.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            self.wait(stream)
        finally:
            call("cuThreadExchangeStreamCaptureMode", before)

    # --- memory

    def alloc(self, nbytes: int) -> int:
        """Allocate uninitialised memory, aligned to 256 bytes; returns its address."""
        with self.active():
            return int(
                call("cuMemAlloc", max(nbytes, 1), doing=f"allocating {nbytes} bytes on the GPU")
            )

    def free(self, address: int) -> None:
        """Free what ``alloc`` returned; waits for the kernels that use it."""
        with self.active():
            call("cuMemFree", address, doing=f"freeing {address:#x}")

    def upload(self, address: int, data: Any, stream: Any = None, *, wait: bool = True) -> None:
        """Copy a contiguous array or bytes to the GPU in stream order, and wait. The driver has
        read the data also if there is no ``wait``, unless the stream is captured.
        """
        source, nbytes, _keep = _host(data, writable=False)
        if nbytes:
            with self.active():
                handle = stream_handle(stream)
                call(
                    "cuMemcpyHtoDAsync",
                    address,
                    source,
                    nbytes,
                    handle,
                    doing=f"copying to {address:#x}",
                )
                if wait:
                    call("cuStreamSynchronize", handle, doing="copying to the GPU")

    def download(self, data: Any, address: int, stream: Any = None) -> None:
        """Fill a contiguous array from the GPU in stream order, and wait."""
        target, nbytes, _keep = _host(data, writable=True)
        if nbytes:
            with self.active():
                handle = stream_handle(stream)
                call(
                    "cuMemcpyDtoHAsync",
                    target,
                    address,
                    nbytes,
                    handle,
                    doing=f"copying {address:#x}",
                )
                call("cuStreamSynchronize", handle, doing="copying from the GPU")

    def memset(self, address: int, byte: int, nbytes: int, stream: Any = None) -> None:
        """Set bytes in stream order, without waiting."""
        if nbytes:
            with self.active():
                handle = stream_handle(stream)
                call(
                    "cuMemsetD8Async", address, byte, nbytes, handle, doing=f"setting {address:#x}"
                )

    # --- kernels

    def load(self, image: Cubin | bytes) -> LoadedModule:
        """Load a cubin, or PTX that the driver assembles.

        Raises CudaError with the loader's log in its notes, for PTX also with its line.
        """
        return LoadedModule(self, image if isinstance(image, Cubin) else Cubin(image, self.arch))

    def prepare(
        self,
        function: CudaFunction,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *,
        shared: int = 0,
        cluster: int | tuple[int, ...] | None = None,
        programmatic: bool = False,
    ) -> CudaLaunch:
        """A launch that is checked once and called repeatedly: ``launch(params, stream)``.

        With ``programmatic`` (programmatic dependent launch, from sm_90 on) the kernel may start
        before the preceding kernel of the stream has ended. It must execute
        ``griddepcontrol.wait`` before it accesses what that kernel writes or reads.
        """
        ctas = None if cluster is None else dim3(cluster, "cluster")
        sizes = dim3(grid, "grid"), dim3(block, "block")
        return CudaLaunch(self, function, *sizes, shared, ctas, programmatic)

    def launch(
        self,
        function: CudaFunction,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        params: ParamBlock | bytes = b"",
        *,
        shared: int = 0,
        stream: Any = None,
        cluster: int | tuple[int, ...] | None = None,
    ) -> None:
        """Launch a kernel once; use ``prepare`` to launch it repeatedly."""
        self.prepare(function, grid, block, shared=shared, cluster=cluster)(params, stream)


class LoadedModule:
    """A module in a GPU's context; ``loaded["gemm"]`` is its kernel.

    It stays loaded until ``close`` or the end of a ``with`` block, which first wait for the GPU. It
    is never unloaded implicitly, since a captured graph or a running kernel may need it.
    """

    def __init__(self, owner: Gpu, image: Cubin) -> None:
        self.gpu = owner
        self._functions: dict[str, CudaFunction] = {}
        self._lock = threading.Lock()
        load = _assemble if image.is_ptx else _load
        self._module: Any
        self._module, self.image = load(owner, image)

    def __getitem__(self, entry: str) -> CudaFunction:
        with self._lock:
            if entry not in self._functions:
                self._functions[entry] = self._get(entry)
            return self._functions[entry]

    def _get(self, entry: str) -> CudaFunction:
        if self._module is None:
            raise DeviceError(f"kernel {entry!r} can't be loaded: its module is closed")
        with self.gpu.active():
            doing = f"looking up kernel {entry!r}"
            handle = call("cuModuleGetFunction", self._module, entry.encode(), doing=doing)
            image, limit = self.image, self.gpu.shared_limit
            params = _param_layout(handle) if image.is_ptx else param_layout(image.code, entry)
            return CudaFunction(handle, entry, limit, params, image.warnings)

    def close(self) -> None:
        """Wait for the GPU, then unload; calling twice is harmless."""
        with self._lock:
            module, self._module = self._module, None
            self._functions.clear()
        if module is not None:
            self.gpu.wait()
            with self.gpu.active():
                call("cuModuleUnload", module, doing="unloading a module")

    def __enter__(self) -> LoadedModule:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _load(owner: Gpu, image: Cubin) -> tuple[Any, Cubin]:
    """The module of a cubin, and the cubin."""
    error = bytearray(_LOG_BYTES)
    try:
        return _module(owner, image.code, {"ERROR_LOG_BUFFER": error}), image
    except DeviceError as refused:
        if log := text_of(error).strip():
            refused.add_note(log)
        raise


def _assemble(owner: Gpu, image: Cubin) -> tuple[Any, Cubin]:
    """The module of PTX, and the image with the driver's report (empty if the driver cached it)."""
    info, error = bytearray(_LOG_BYTES), bytearray(_LOG_BYTES)
    logs = {"INFO_LOG_BUFFER": info, "ERROR_LOG_BUFFER": error}
    ptx = image.code.rstrip(b"\0")
    try:
        module = _module(owner, ptx + b"\0", logs, LOG_VERBOSE=1)
    except CudaError as refused:
        if not (log := text_of(error)):
            raise
        text = ptx.decode(errors="replace")
        raise assembler_error(log, text, "<ptx>", code=refused.code, name=refused.name) from refused
    return module, replace(image, log=text_of(info))


def _module(owner: Gpu, code: bytes, logs: dict[str, bytearray], **more: int) -> Any:
    options: dict[str, Any] = dict(more)
    for name, log in logs.items():
        options |= {name: log, f"{name}_SIZE_BYTES": len(log)}
    option = cu().CUjit_option
    names = [getattr(option, f"CU_JIT_{name}") for name in options]
    with owner.active():
        doing = f"loading a module into {owner!r}"
        values = list(options.values())
        return call("cuModuleLoadDataEx", code, len(names), names, values, doing=doing)


def _param_layout(handle: Any) -> list[tuple[int, int]]:
    """``cubin.param_layout`` of a kernel whose machine code only the driver has."""
    params: list[tuple[int, int]] = []
    try:
        while True:
            params.append(call("cuFuncGetParamInfo", handle, len(params)))
    except CudaError:  # no more parameters
        return params


def _host(data: Any, *, writable: bool) -> tuple[int, int, Any]:
    """Address, bytes and owner of a contiguous host buffer: an array of any dtype, or bytes."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if not array.flags.forc:
        raise LaunchError(
            f"a host array must be contiguous, got shape {array.shape} and strides {array.strides}",
            hint="numpy.ascontiguousarray",
        )
    if writable and not array.flags.writeable:
        raise LaunchError("the host array to copy into must be writable, got a read-only array")
    return int(array.ctypes.data), int(array.nbytes), array
