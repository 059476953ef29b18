"""One protocol over the virtual machine and the GPU: memory, executables, launches.

``device("auto")`` is a GPU where there is one, else the virtual machine; ``"vm"``, ``"vm:A100"``,
``"cuda"`` and ``"cuda:1"`` decide. A device is one object a process, and threads may share it.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from ... import cuda, target, vm
from ...compile_cache import store
from ...errors import DeviceError, TargetError
from ...source_key import source_key
from .serialized_kernel import SerializedKernel, loaded, source

if TYPE_CHECKING:
    from ...builder import Traced

Dim3 = tuple[int, int, int]
Matrix = npt.NDArray[Any]  # two-dimensional, any strides
Watch = Callable[[int, int], object]

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)
_ON_VM = "device='vm' runs the same kernel, to the same bits, on the CPU"


class BoundLaunch(Protocol):
    """A launch with parameters of its own, for one thread: ``view`` is them, to be written;
    ``entry`` what ``native_launcher`` needs of it.
    """

    view: memoryview
    entry: tuple[int, ...]

    def start(self, stream: int) -> None:
        """Start the kernel."""


class PreparedLaunch(Protocol):
    """A launch, checked."""

    def __call__(self, params: bytes, stream: int) -> None:
        """Start the kernel with this parameter block."""

    def bind(self, data: bytes) -> BoundLaunch:
        """The launch with such a block of its own."""


class KernelSource(NamedTuple):
    """A kernel by its ``text``, all that decides it; ``trace()`` makes it."""

    text: str
    trace: Callable[[], Traced]


class ExecutionDevice(Protocol):
    """Where a kernel runs."""

    @property
    def name(self) -> str:
        """As ``device()`` takes it: ``vm``, ``cuda:0``."""

    @property
    def target(self) -> target.DeviceSpec:
        """What a configuration is chosen for."""

    def alloc(self, nbytes: int) -> int:
        """The address of new bytes."""

    def free(self, address: int) -> None:
        """Give back what ``alloc`` gave."""

    def upload(self, address: int, matrix: Matrix, pitch: int) -> None:
        """Write a matrix row by row, ``pitch`` elements apart."""

    def download(self, matrix: Matrix, address: int, pitch: int) -> None:
        """Fill a matrix from rows that lie ``pitch`` elements apart."""

    def compile(self, traced: Traced) -> Any:
        """The executable of a traced kernel, made once."""

    def kernel(self, kernel: KernelSource) -> tuple[Any, int]:
        """The executable of a GEMM's kernel, made once, and its bytes of dynamic shared memory."""

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
        """A launch, to be started once or often.

        ``programmatic``: it may begin before the kernel ahead of it has ended, and waits itself.
        """

    def wait(self, stream: int = 0) -> None:
        """Until all that was started on the stream is done."""


class _Once:
    """What was made for each traced kernel: it is kept by identity, a tree being long to hash."""

    def __init__(self, make: Callable[[Traced], Any]) -> None:
        self._make = make
        self._made: dict[int, tuple[Traced, Any]] = {}
        self._lock = threading.RLock()

    def __call__(self, traced: Traced) -> Any:
        found = self._made.get(id(traced))
        if found is None:
            with self._lock:
                if id(traced) not in self._made:
                    self._made[id(traced)] = traced, self._make(traced)
                found = self._made[id(traced)]
        return found[1]


# --- the virtual machine ----------------------------------------------------------------------


class VmDevice:
    """The virtual machine, standing in for a GPU (by default the H200).

    ``seed`` picks another order of warps and copies; ``threads`` limits the cores; ``watch`` hears
    how many CTAs of how many a launch has started; a ``checked`` one names races, ``step_limit``
    bounds a launch (``vm.Machine`` says more of both).
    """

    def __init__(
        self,
        like: target.DeviceSpec = target.DEFAULT_DEVICE,
        *,
        seed: int = 0,
        threads: int | None = None,
        watch: Watch | None = None,
        checked: bool = False,
        step_limit: int = 0,
    ) -> None:
        if not isinstance(like, target.DeviceSpec):
            hint = 'target.device_spec("A100") is one; device("vm:A100") takes a name'
            raise DeviceError(f"like must be a target.DeviceSpec, got {like!r:.60}", hint=hint)
        self.target = like
        self.name = "vm" if like == target.DEFAULT_DEVICE else f"vm:{like.name}"
        self.watch = watch
        self._how: dict[str, Any] = {"threads": threads, "checked": checked}
        self._how["step_limit"] = step_limit
        self._seed = seed
        self._home = self._machine(None)
        self.alloc, self.free = self._home.alloc, self._home.free
        self.compile = _Once(self._load)
        self._kernels: dict[str, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{self.name}: the virtual machine as {self.target.name}>"

    def _machine(self, memory: Any) -> vm.Machine:
        arch = self.target.target.name
        return vm.Machine(arch, self._seed, memory=memory, **self._how)

    def _load(self, traced: Traced) -> tuple[vm.Machine, str]:
        """A machine for each module, so that entries may share a name; all have one memory."""
        machine = self._machine(self._home.memory)
        machine.load(traced.module)
        return machine, traced.name

    def kernel(self, kernel: KernelSource) -> tuple[Any, int]:
        with self._lock:
            if kernel.text not in self._kernels:
                self._kernels[kernel.text] = self._kernel(kernel)
            return self._kernels[kernel.text]

    def _kernel(self, kernel: KernelSource) -> tuple[Any, int]:
        """From the cache, by what decides the kernel: it is traced where code of it is missing."""
        key = f"{source_key('gemm', 'vm.codegen.loaded_kernel')}\n{kernel.text}"
        kept = store().get("vm-kernel", key)
        if kept is None:
            traced = kernel.trace()
            machine, entry = self._load(traced)
            if not machine.variables:
                head = traced.dynamic_shared.to_bytes(4, "little")
                store().put("vm-kernel", key, head + machine.kernels[entry].pack())
            return (machine, entry), traced.dynamic_shared
        machine = self._machine(self._home.memory)
        found = vm.codegen.loaded_kernel.LoadedKernel.unpack(
            kept[4:], lambda: kernel.trace().module
        )
        machine.add(found)
        return (machine, found.name), int.from_bytes(kept[:4], "little")

    def _matrix(self, address: int, like: Matrix, pitch: int) -> Matrix:
        rows, columns = like.shape
        count = (rows - 1) * pitch + columns
        flat = self._home.memory.bytes(address, count * like.itemsize).view(like.dtype)
        steps = pitch * like.itemsize, like.itemsize
        return np.lib.stride_tricks.as_strided(flat, like.shape, steps)

    def upload(self, address: int, matrix: Matrix, pitch: int) -> None:
        if matrix.size:
            self._matrix(address, matrix, pitch)[:] = matrix

    def download(self, matrix: Matrix, address: int, pitch: int) -> None:
        if matrix.size:
            matrix[:] = self._matrix(address, matrix, pitch)

    def prepare(
        self,
        executable: Any,
        grid: Dim3,
        block: Dim3,
        shared: int = 0,
        *,
        cluster: Dim3 | None = None,
        programmatic: bool = False,  # launches here begin when the one ahead has ended
    ) -> PreparedLaunch:
        machine, entry = executable
        more: dict[str, Any] = {"shared": shared, "cluster": cluster, "watch": self.watch}
        more["programmatic"] = programmatic
        return _VmStart(partial(machine.launch, entry, grid, block, **more))

    def wait(self, stream: int = 0) -> None:
        """Launches here have ended when they return."""


class _VmStart:
    """Runs ``run(parameters)``; there are no streams."""

    def __init__(self, run: Callable[[bytes], None]) -> None:
        self._run = run

    def __call__(self, params: bytes, stream: int = 0) -> None:
        self._run(params)

    def bind(self, data: bytes) -> BoundLaunch:
        return _VmBound(self._run, memoryview(bytearray(data)))


class _VmBound:
    def __init__(self, run: Callable[[bytes], None], view: memoryview) -> None:
        self._run, self.view = run, view
        self._stream = ctypes.c_uint64()  # there to be written
        self._code = _LAUNCH(self._launch)
        code, stream = ctypes.cast(self._code, ctypes.c_void_p), ctypes.addressof(self._stream)
        self.entry = (code.value or 0, 0, 0, 0, stream, 0, 0)
        self._error: BaseException | None = None

    def start(self, stream: int) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
        self._run(bytes(self.view))

    def _launch(self, *_: Any) -> int:
        """As machine code calls it; what it raised, ``start`` will raise."""
        try:
            self.start(0)
        except BaseException as error:
            self._error = error
            return 1
        return 0


# --- the GPU ----------------------------------------------------------------------------------


class CudaDevice:
    """An NVIDIA GPU; ``gpu`` is what `tilewright.cuda` knows of it."""

    def __init__(self, gpu: cuda.Gpu) -> None:
        self.gpu = gpu
        self.name = f"cuda:{gpu.ordinal}"
        self.target = target_of(gpu.properties)
        self.alloc, self.free = gpu.alloc, gpu.free
        self.compile = _Once(self._load)
        self._kernels: dict[str, tuple[cuda.CudaFunction, int]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.gpu.name}>"

    def _load(self, traced: Traced) -> cuda.CudaFunction:
        return self.gpu.load(self.assemble(traced))[traced.name]

    def kernel(self, kernel: KernelSource) -> tuple[cuda.CudaFunction, int]:
        with self._lock:
            if kernel.text not in self._kernels:
                built = self._built(kernel)
                self._kernels[kernel.text] = self.gpu.load(built.cubin)[built.entry], built.shared
            return self._kernels[kernel.text]

    def _built(self, kernel: KernelSource) -> SerializedKernel:
        """The kernel's machine code, by what decides it; it is traced where it is not there."""
        if built := loaded(self.gpu.arch, kernel.text):
            return built

        def make() -> bytes:
            traced = kernel.trace()
            return SerializedKernel(
                traced.name, traced.dynamic_shared, self.assemble(traced)
            ).pack()

        # an older driver can't load what newer tools made
        tools = f"CUDA {cuda.version()}, {os.environ.get('TILEWRIGHT_PTXAS', '')}"
        key = f"{self.gpu.arch}\n{tools}\n{source()}\n{kernel.text}"
        return SerializedKernel.unpack(store().get_or_make("kernel", key, make))

    def assemble(self, traced: Traced) -> cuda.Cubin:
        """Machine code, from the cache where it is there."""
        ptx, arch = traced.ptx, self.gpu.arch
        key = f"{arch}\n{cuda.compiler(ptx)}\n{ptx}"
        return cuda.Cubin.unpack(
            store().get_or_make("cubin", key, lambda: cuda.compile(ptx, arch).pack())
        )

    def upload(self, address: int, matrix: Matrix, pitch: int) -> None:
        if matrix.size:
            rows, columns = matrix.shape
            staged = matrix
            if pitch != columns or not matrix.flags.c_contiguous:
                staged = np.zeros((rows, pitch), matrix.dtype)
                staged[:, :columns] = matrix
                staged = staged.reshape(-1)[: (rows - 1) * pitch + columns]
            self.gpu.upload(address, staged)

    def download(self, matrix: Matrix, address: int, pitch: int) -> None:
        if matrix.size:
            rows, columns = matrix.shape
            if pitch == columns and matrix.flags.c_contiguous:
                self.gpu.download(matrix, address)
                return
            staged = np.empty(rows * pitch, matrix.dtype)
            self.gpu.download(staged[: (rows - 1) * pitch + columns], address)
            matrix[:] = staged.reshape(rows, pitch)[:, :columns]

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
        more: dict[str, Any] = {"cluster": cluster, "programmatic": programmatic}
        return self.gpu.prepare(executable, grid, block, shared=shared, **more)

    def wait(self, stream: int = 0) -> None:
        self.gpu.wait(stream)


def target_of(properties: cuda.Properties) -> target.DeviceSpec:
    """A GPU as a target: the row of its name, so that it and the virtual machine choose alike."""
    found = target.Target.parse(properties.arch)
    words = re.split(r"[\s-]+", properties.name)
    for row in target.DEVICES.values():
        named = all(word in words for word in row.name.split())
        if named and row.target == found and row.sms == properties.sms:
            return row
    return target.DeviceSpec(properties.name, found, properties.sms, properties.l2)


# --- by name ----------------------------------------------------------------------------------


def device(name: Any = "auto") -> ExecutionDevice:
    """The device of a name: ``auto``, ``vm``, ``vm:A100``, ``cuda``, ``cuda:1``; None is ``auto``.

    An ``ExecutionDevice`` is returned unchanged. Raises DeviceError if there is no such device.
    """
    if name is None or str(name) == "auto":
        return _cuda(None) if cuda.available() else _vm("")
    if hasattr(name, "prepare") and hasattr(name, "upload"):
        return name
    where, _, which = str(name).partition(":")  # a torch.device, too
    if where == "vm":
        return _vm(which)
    if where == "cuda" and (which.isdecimal() or not which):
        return _cuda(int(which) if which else None)
    raise DeviceError(
        f"unknown device {str(name)!r}",
        hint="devices are 'auto', 'vm', 'vm:A100' and the like, 'cuda', 'cuda:1'"
        + ("; 'vm' is what runs on the CPU" if where == "cpu" else ""),
    )


@cache
def _vm(like: str) -> VmDevice:
    if not like:
        return VmDevice()
    try:
        return VmDevice(target.device_spec(like))
    except TargetError as error:
        raise DeviceError(f"no virtual machine like {like!r}", hint=error.hint) from error


def _cuda(ordinal: int | None) -> CudaDevice:
    reason = cuda.why_not()
    if reason:
        raise DeviceError(f"no GPU can be used: {reason}", hint=_ON_VM)
    if ordinal is None:
        ordinal = cuda.gpu().ordinal
    return _opened(ordinal)


@cache
def _opened(ordinal: int) -> CudaDevice:
    return CudaDevice(cuda.gpu(ordinal))
