"""Executable code of a program's basic blocks: compiled regions, or the stepping evaluator.

The scheduler looks up the address of a block in ``table`` and calls it with the warp's frame.
Exceptions of Python callbacks are stored until the launch raises them.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...lazy_imports import deferred
from ...native.native_record import Record
from ..program.kernel_metadata import region_name
from ..state.records import WarpRecord
from .code_library import CALL, Library
from .loaded_kernel import LoadedKernel

if TYPE_CHECKING:
    import llvmlite.binding as llvm

    from . import module_codegen
else:
    module_codegen = deferred(".module_codegen", __package__)


class BlockCode:
    """The blocks of a program as callable code. ``table`` has the address of each block, or 0."""

    failed = 0  # returned by the callback after an exception

    def __init__(self, library: Library, arch: str, blocks: int, frame_bytes: int) -> None:
        self.library, self.arch = library, arch
        self.frame_bytes = -(-frame_bytes // 64) * 64
        self.table: npt.NDArray[np.int64] = np.zeros(blocks, np.int64)
        self.errors: dict[int, BaseException] = {}
        self._callback = self.make_callback(self.run_block, self.failed)
        self.callback = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def run_block(self, warp: Record) -> int:
        """Called by the scheduler; returns the address of the warp's block, or its exit code."""
        raise NotImplementedError

    def make_callback(self, function: Callable[[Record], int], failed: int) -> Any:
        """A native callback that calls ``function`` with a warp. An exception is stored
        until the launch raises it; the callback then returns ``failed``.
        """

        def called(address: int) -> int:
            try:
                return function(Record(WarpRecord, address))
            except BaseException as error:
                self.errors[threading.get_ident()] = error
                return failed

        return CALL(called)

    def error(self) -> BaseException | None:
        """Remove and return the exception that stopped this thread, or None."""
        return self.errors.pop(threading.get_ident(), None)


class CompiledKernel(BlockCode):
    """A kernel's regions, compiled when first reached."""

    def __init__(self, kernel: LoadedKernel, library: Library, arch: str) -> None:
        self.kernel, self.metadata = kernel, kernel.metadata(library)
        self.regions: list[llvm.ResourceTracker] = []
        super().__init__(library, arch, self.metadata.blocks, self.metadata.frame_bytes)

    def run_block(self, warp: Record) -> int:
        """Compile the region that contains the warp's block; returns its address."""
        regions = self.metadata.regions
        number = bisect_right(regions, warp.block, key=lambda region: region[0]) - 1
        first, opcodes = regions[number]
        last = regions[number + 1][0] if number + 1 < len(regions) else self.metadata.blocks
        key = f"{self.kernel.digest} {self.arch} {first}-{last}"
        name = region_name(first)
        region = self.library.function(
            key,
            name,
            lambda: module_codegen.region(self.kernel.program, first, last, self.arch),
            lambda name: module_codegen.matrix(name, opcodes, self.arch),
            level=0,
        )
        self.regions.append(region)
        address = int(region[name])
        self.table[first:last] = address
        return address
