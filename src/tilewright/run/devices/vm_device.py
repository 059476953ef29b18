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
from ...long_calls import long_call
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
    """The virtual machine in the role of a GPU, by default the H200.

    ``seed`` selects the order in which warps run and copies complete. ``threads`` limits the number
    of CPU cores. ``watch(started, total)`` is called with the number of CTAs started in a launch.
    ``checked`` reports races, and ``step_limit`` bounds a launch, see ``vm.Machine``.
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
        self._options: dict[str, Any] = {
            "threads": threads, "checked": checked, "step_limit": step_limit,
        }  # fmt: skip
        self._seed = seed
        self._home = self._machine(None)
        self.alloc, self.free = self._home.alloc, self._home.free
        self.compile = PerKernelCache(self._load)
        self._kernels: dict[str, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{self.name}: the virtual machine as {self.target.name}>"

    def __reduce__(self) -> Any:
        """A new machine with the same options; what is in its memory is not pickled."""
        return _with_options, (self.target, {**self._options, "seed": self._seed}, self.watch)

    def _machine(self, memory: Any) -> vm.Machine:
        arch = self.target.target.name
        return vm.Machine(arch, self._seed, memory=memory, **self._options)

    def _load(self, traced: Traced) -> tuple[vm.Machine, str]:
        """One machine for each module, so that entries may have the same name; all share memory."""
        machine = self._machine(self._home.memory)
        machine.load(traced.module)
        return machine, traced.name

    def kernel(self, kernel: KernelSource) -> tuple[Any, int]:
        with self._lock:
            if kernel.text not in self._kernels:
                self._kernels[kernel.text] = self._kernel(kernel)
            return self._kernels[kernel.text]

    def _kernel(self, kernel: KernelSource) -> tuple[Any, int]:
        """The kernel, from the compile cache or traced."""
        key = f"{source_key('gemm', 'vm.codegen.loaded_kernel')}\n{kernel.text}"
        cached = store().get("vm-kernel", key)
        if cached is None:
            traced = kernel.trace()
            machine, entry = self._load(traced)
            if not machine.variables:
                head = traced.dynamic_shared.to_bytes(4, "little")
                store().put("vm-kernel", key, head + machine.kernels[entry].pack())
            return (machine, entry), traced.dynamic_shared
        machine = self._machine(self._home.memory)
        loaded = vm.codegen.loaded_kernel.LoadedKernel.unpack(
            cached[4:], lambda: kernel.trace().module
        )
        machine.add(loaded)
        return (machine, loaded.name), int.from_bytes(cached[:4], "little")

    def _matrix(self, address: int, like: Matrix, pitch: int) -> Matrix:
        rows, columns = like.shape
        count = (rows - 1) * pitch + columns
        flat = self._home.memory.bytes(address, count * like.itemsize).view(like.dtype)
        steps = pitch * like.itemsize, like.itemsize
        return np.lib.stride_tricks.as_strided(flat, like.shape, steps)

    def upload(self, address: int, matrix: Matrix, pitch: int) -> None:
        if matrix.size:
            self._matrix(address, matrix, pitch)[:] = matrix

    def upload_in_stream(self, address: int, data: Matrix, stream: int) -> None:
        self.upload(address, data.reshape(1, -1), data.size)

    def set_read_only(self, address: int) -> None:
        self._home.memory.protect(address)

    def is_captured(self, stream: int) -> bool:
        return False

    def wait_outside_of_capture(self, stream: int) -> None:
        """Do nothing: uploads wait."""

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
        programmatic: bool = False,  # without effect: launches here are never concurrent
    ) -> PreparedLaunch:
        machine, entry = executable
        options: dict[str, Any] = {
            "shared": shared, "cluster": cluster, "programmatic": programmatic,
        }  # fmt: skip
        run = partial(machine.launch, entry, grid, block, **options)
        if self.watch is not None:
            return _VmLaunch(partial(run, watch=self.watch))

        def run_shown(params: ParameterBytes) -> None:
            with long_call(f"running {entry} on the CPU") as update:
                run(params, watch=update)

        return _VmLaunch(run_shown)

    def wait(self, stream: int = 0) -> None:
        """Do nothing: a launch returns when the kernel has ended."""


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
        self._stream = ctypes.c_uint64()  # the stream that machine code writes; unused
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
        """The launch as machine code calls it; ``start`` raises its error later."""
        try:
            self.start(0)
        except BaseException as error:
            self._error = error
            return 1
        return 0


def _with_options(
    like: target.DeviceSpec, options: dict[str, Any], watch: Watch | None
) -> VmDevice:
    return VmDevice(like, watch=watch, **options)
