"""An NVIDIA GPU as a device."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import cuda, target
from ...compile_cache import store
from ...long_calls import long_call
from .device_protocol import Dim3, KernelSource, Matrix, PerKernelCache, PreparedLaunch
from .serialized_kernel import SerializedKernel, loaded, rescheduled, source

if TYPE_CHECKING:
    from ...builder import Traced


class CudaDevice:
    """An NVIDIA GPU; ``gpu`` is its `tilewright.cuda.Gpu`."""

    def __init__(self, gpu: cuda.Gpu) -> None:
        self.gpu = gpu
        self.name = f"cuda:{gpu.ordinal}"
        self.target = target_of(gpu.properties)
        self.alloc, self.free = gpu.alloc, gpu.free
        self.compile = PerKernelCache(self._load)
        self._kernels: dict[str, tuple[cuda.CudaFunction, int]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<{self.name}: {self.gpu.name}>"

    def _load(self, traced: Traced) -> cuda.CudaFunction:
        return self.gpu.load(self.assemble(traced))[traced.name]

    def kernel(self, kernel: KernelSource) -> tuple[cuda.CudaFunction, int]:
        with self._lock:
            if kernel.text not in self._kernels:
                s = self._serialized(kernel)
                self._kernels[kernel.text] = self.gpu.load(s.cubin)[s.entry], s.shared
            return self._kernels[kernel.text]

    def _serialized(self, kernel: KernelSource) -> SerializedKernel:
        """The kernel's machine code: loaded from a file, from the compile cache, or compiled."""
        if serialized := loaded(self.gpu.arch, kernel.text):
            return serialized

        def build() -> bytes:
            traced = kernel.trace()
            cubin = rescheduled(self.assemble(traced), traced.name)
            return SerializedKernel(traced.name, traced.dynamic_shared, cubin).pack()

        # the tools are in the key: an older driver can't load code of newer tools
        tools = f"CUDA {cuda.version()}, {os.environ.get('TILEWRIGHT_PTXAS', '')}"
        key = f"{self.gpu.arch}\n{tools}\n{source()}\n{kernel.text}"
        return SerializedKernel.unpack(store().get_or_make("kernel", key, build))

    def assemble(self, traced: Traced) -> cuda.Cubin:
        """The kernel's machine code, cached by its PTX."""
        ptx, arch = traced.ptx, self.gpu.arch
        key = f"{arch}\n{cuda.compiler(ptx)}\n{ptx}"

        def build() -> bytes:
            with long_call(f"compiling {traced.name}"):
                return cuda.compile(ptx, arch).pack()

        return cuda.Cubin.unpack(store().get_or_make("cubin", key, build))

    def upload(self, address: int, matrix: Matrix, pitch: int) -> None:
        if matrix.size:
            rows, columns = matrix.shape
            staged = matrix
            if pitch != columns or not matrix.flags.c_contiguous:
                staged = np.zeros((rows, pitch), matrix.dtype)
                staged[:, :columns] = matrix
                staged = staged.reshape(-1)[: (rows - 1) * pitch + columns]
            self.gpu.upload(address, staged)

    def upload_in_stream(self, address: int, data: Matrix, stream: int) -> None:
        self.gpu.upload(address, data, stream, wait=False)

    def set_read_only(self, address: int) -> None:
        """Do nothing: a GPU does not check it."""

    def is_captured(self, stream: int) -> bool:
        return self.gpu.is_captured(stream)

    def wait_outside_of_capture(self, stream: int) -> None:
        self.gpu.wait_outside_of_capture(stream)

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
    """The target of a GPU: the known device of its name, so that the virtual machine as that device
    chooses the same configurations.
    """
    arch = target.Target.parse(properties.arch)
    words = re.split(r"[\s-]+", properties.name)
    for row in target.DEVICES.values():
        named = all(word in words for word in row.name.split())
        if named and row.target == arch and row.sms == properties.sms:
            return row
    return target.DeviceSpec(properties.name, arch, properties.sms, properties.l2)
