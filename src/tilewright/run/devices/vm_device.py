"""The virtual machine as a device."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import target, vm
from ...compile_cache import store
from ...errors import DeviceError
from ...source_key import source_key
from .device_protocol import (
    BoundLaunch,
    Dim3,
    KernelSource,
    Matrix,
    ParameterBytes,
    PerKernelCache,
    PreparedLaunch,
)

if TYPE_CHECKING:
    from ...builder import Traced

Watch = Callable[[int, int], object]

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)


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
            raise DeviceError(
                f"like must be a target.DeviceSpec, got {like!r:.60}",
                hint='target.device_spec("A100") is one; device("vm:A100") takes a name',
            )
        self.target = like
        self.name = "vm" if like == target.DEFAULT_DEVICE else f"vm:{like.name}"
        self.watch = watch
        self._how: dict[str, Any] = {"threads": threads, "checked": checked}
        self._how["step_limit"] = step_limit
        self._seed = seed
        self._home = self._machine(None)
        self.alloc, self.free = self._home.alloc, self._home.free
        self.compile = PerKernelCache(self._load)
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
        return _VmLaunch(partial(machine.launch, entry, grid, block, **more))

    def wait(self, stream: int = 0) -> None:
        """Launches here have ended when they return."""


class _VmLaunch:
    """Runs ``run(parameters)``; there are no streams."""

    def __init__(self, run: Callable[[ParameterBytes], None]) -> None:
        self._run = run

    def __call__(self, params: ParameterBytes, stream: int = 0) -> None:
        self._run(params)

    def bind(self, data: ParameterBytes) -> BoundLaunch:
        return _BoundVmLaunch(self._run, memoryview(bytearray(data)))


class _BoundVmLaunch:
    def __init__(self, run: Callable[[ParameterBytes], None], view: memoryview) -> None:
        self._run, self.view = run, view
        self._stream = ctypes.c_uint64()  # there to be written
        self._code = _LAUNCH(self._launch)
        code, stream = ctypes.cast(self._code, ctypes.c_void_p), ctypes.addressof(self._stream)
        self.entry: tuple[int, ...] = (code.value or 0, 0, 0, 0, stream, 0, 0)
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
