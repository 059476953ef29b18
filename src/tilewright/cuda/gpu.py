"""A GPU: its properties, its primary context, its memory, and kernels loaded into it.

The context is the device's primary one, the same that PyTorch, CuPy and JAX use, so that their
pointers and streams are valid here. Where another one is current, ours is so for the moment of a
call; a thread that has none keeps it.
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
from .cubin import Cubin, assembler_error, param_places, text_of
from .driver import call, check, cu
from .gpu_launch import CudaFunction, CudaLaunch, ParamBlock, dim3
from .stream import stream_handle

_ARCHITECTURE_SPECIFIC = (9, 0)  # from here on, sm_90a code is what a device runs best
_LOG_BYTES = 1 << 14


@dataclass(frozen=True, slots=True)
class Properties:
    """What a device has; memory sizes are bytes, clocks kHz."""

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
    """How many GPUs the driver shows."""
    return int(call("cuDeviceGetCount", doing="counting the GPUs"))


def devices() -> tuple[Properties, ...]:
    """The GPUs here; makes no context. DeviceError or MissingPackage where there is no CUDA."""
    return tuple(Properties.of(n) for n in range(count()))


def _device(ordinal: int) -> Any:
    here = count()
    if not 0 <= ordinal < here:
        there_are = f"there are {here}, numbered from 0" if here else "there is none"
        raise DeviceError(f"no GPU number {ordinal}: {there_are}")
    return call("cuDeviceGet", ordinal)


def ordinal_of(address: int) -> int:
    """The number of the GPU that ``address`` is memory of. CudaError where it is none's."""
    name = cu().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    doing = f"whose address {address:#x} is"
    with gpu().active():
        return int(call("cuPointerGetAttribute", name, address, doing=doing))


@cache
def _shared_gpu(ordinal: int) -> Gpu:
    return Gpu(ordinal)


def gpu(ordinal: int | None = None) -> Gpu:
    """The GPU of this number, one object a process; None is the current one, or else number 0."""
    if ordinal is None:
        current = call("cuCtxGetCurrent")
        ordinal = int(call("cuCtxGetDevice")) if int(current) else 0
    return _shared_gpu(ordinal)


class Gpu:
    """One device with its primary context, kept for the life of the process."""

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
        return int(check(self._current(), "asking for the context")) == self.context

    @contextmanager
    def active(self) -> Iterator[Gpu]:
        """This GPU's context is current within; what was current before is so again afterwards."""
        current = int(check(self._current(), "asking for the context"))
        if current in (0, self.context):
            if not current:  # a thread that has none keeps ours, so that launches find it
                call("cuCtxSetCurrent", self._context)
            yield self
            return
        call("cuCtxPushCurrent", self._context)
        try:
            yield self
        finally:
            call("cuCtxPopCurrent")

    def wait(self, stream: Any = None) -> None:
        """Wait for a stream (None: for all work on this GPU). Faults of kernels are raised here."""
        with self.active():
            if stream is None:
                call("cuCtxSynchronize", doing="waiting for the GPU")
            else:
                call("cuStreamSynchronize", stream_handle(stream), doing="waiting for a stream")

    # --- memory

    def alloc(self, nbytes: int) -> int:
        """The address of new bytes, not cleared, aligned to 256; ``free`` gives them back."""
        with self.active():
            return int(
                call("cuMemAlloc", max(nbytes, 1), doing=f"allocating {nbytes} bytes on the GPU")
            )

    def free(self, address: int) -> None:
        """Give back what ``alloc`` gave; waits for the kernels that use it."""
        with self.active():
            call("cuMemFree", address, doing=f"freeing {address:#x}")

    def upload(self, address: int, data: Any, stream: Any = None) -> None:
        """Copy a contiguous array or bytes to the GPU in the order of ``stream``; waits for it."""
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
                call("cuStreamSynchronize", handle, doing="copying to the GPU")

    def download(self, data: Any, address: int, stream: Any = None) -> None:
        """Fill a contiguous array from the GPU in the order of ``stream``; waits for it."""
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
        """Set bytes, in the order of ``stream``; does not wait."""
        if nbytes:
            with self.active():
                handle = stream_handle(stream)
                call(
                    "cuMemsetD8Async", address, byte, nbytes, handle, doing=f"setting {address:#x}"
                )

    # --- kernels

    def load(self, image: Cubin | bytes) -> LoadedModule:
        """Load a cubin, or PTX that the driver assembles, into this GPU.

        Raises CudaError with the loader's log where it can't be, for PTX with the line of it.
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
        """A launch checked and packed once, for calling often: ``launch(params, stream)``.

        A ``programmatic`` one may begin before the kernel ahead of it in the stream has ended: the
        kernel itself waits (``griddepcontrol.wait``) before it touches what that one writes or
        reads (programmatic dependent launch, from sm_90 on).
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
        """Start a kernel once; ``prepare`` is for starting it often."""
        self.prepare(function, grid, block, shared=shared, cluster=cluster)(params, stream)


class LoadedModule:
    """A module in a GPU's context; ``loaded["gemm"]`` is its kernel.

    It stays loaded until ``close`` (or the end of a ``with``), which waits for the GPU first. It is
    never unloaded behind the caller's back: a captured graph or a running kernel may still need it.
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
            raise DeviceError(f"kernel {entry!r}: its module was closed")
        with self.gpu.active():
            doing = f"looking for kernel {entry!r}"
            handle = call("cuModuleGetFunction", self._module, entry.encode(), doing=doing)
            image, limit = self.image, self.gpu.shared_limit
            params = _param_places(handle) if image.is_ptx else param_places(image.code, entry)
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
    """The module of a cubin, which is as it was."""
    error = bytearray(_LOG_BYTES)
    try:
        return _module(owner, image.code, {"ERROR_LOG_BUFFER": error}), image
    except DeviceError as refused:
        if said := text_of(error).strip():
            refused.add_note(said)
        raise


def _assemble(owner: Gpu, image: Cubin) -> tuple[Any, Cubin]:
    """The module of PTX, and the image with the driver's report (none where it had it cached)."""
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
    given: dict[str, Any] = dict(more)
    for name, log in logs.items():
        given |= {name: log, f"{name}_SIZE_BYTES": len(log)}
    option = cu().CUjit_option
    names = [getattr(option, f"CU_JIT_{name}") for name in given]
    with owner.active():
        doing = f"loading a module into {owner!r}"
        values = list(given.values())
        return call("cuModuleLoadDataEx", code, len(names), names, values, doing=doing)


def _param_places(handle: Any) -> list[tuple[int, int]]:
    """``cubin.param_places`` of a kernel whose machine code only the driver has."""
    places: list[tuple[int, int]] = []
    try:
        while True:
            places.append(call("cuFuncGetParamInfo", handle, len(places)))
    except CudaError:  # there are no more
        return places


def _host(data: Any, *, writable: bool) -> tuple[int, int, Any]:
    """Address, bytes and owner of a contiguous host buffer: an array of any dtype, or bytes."""
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if not array.flags.forc:
        raise LaunchError(
            "a host array for the GPU must be contiguous", hint="numpy.ascontiguousarray"
        )
    if writable and not array.flags.writeable:
        raise LaunchError("the host array to copy into is read-only")
    return int(array.ctypes.data), int(array.nbytes), array
