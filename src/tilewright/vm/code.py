"""What runs a program's blocks on behalf of the scheduler: compiled regions, or a stepper.

The scheduler looks a block's code up in ``table`` and calls it with the warp's frame. Python is
called back through functions whose exceptions wait here for the launch to raise them.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np
import numpy.typing as npt

from .. import mma
from .library import CALL, Library
from .program import Program
from .record import Record
from .region import Region, region_name
from .state import Warp

REGION = 512  # operations in a region, unless one block has more
LEVEL = 1  # of optimisation: more takes longer than it saves


class Code:
    """A program's blocks as callable code; ``table`` has an address for each block or 0."""

    failed = 0  # what the callback returns after an exception

    def __init__(self, program: Program, library: Library, arch: str, frame_bytes: int) -> None:
        self.program, self.library, self.arch = program, library, arch
        self.frame_bytes = -(-frame_bytes // 64) * 64
        self.table: npt.NDArray[np.int64] = np.zeros(len(program.blocks), np.int64)
        self.errors: dict[int, BaseException] = {}
        self._callback = self.called_back(self.enter, self.failed)
        self.callback = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def enter(self, warp: Record) -> int:
        """What the scheduler calls: the code of the warp's block, or what running it gave."""
        raise NotImplementedError

    def called_back(self, function: Callable[[Record], int], failed: int) -> Any:
        """A function of a warp as native code calls it; ``failed``: what that hears after an
        exception, which waits here.
        """

        def called(address: int) -> int:
            try:
                return function(Record(Warp, address))
            except BaseException as error:
                self.errors[threading.get_ident()] = error
                return failed

        return CALL(called)

    def error(self) -> BaseException | None:
        """The exception that stopped this thread, if one did; it is forgotten here."""
        return self.errors.pop(threading.get_ident(), None)


class CompiledKernel(Code):
    """A program's regions, compiled when first reached."""

    def __init__(self, program: Program, library: Library, arch: str) -> None:
        super().__init__(program, library, arch, program.frame_bytes)
        self.starts = _regions(program)

    def enter(self, warp: Record) -> int:
        """Compile the region that holds the warp's block; its address."""
        block = warp.block
        first = max(s for s in self.starts if s <= block)
        last = min((s for s in self.starts if s > first), default=len(self.program.blocks))
        for row in self._matrices(first, last):
            (self.library.warpgroup if row.asynchronous else self.library.matrix)(row)
        key = f"{self.program.digest} {self.arch} {first}-{last}"
        name = region_name(first)
        address = self.library.function(key, name, lambda: self._module(first, last), LEVEL)
        self.table[first:last] = address
        return address

    def _module(self, first: int, last: int) -> ir.Module:
        module = ir.Module(f"{self.program.name}.{first}")
        Region(self.program, module, first, last, self.arch).compile()
        return module

    def _matrices(self, first: int, last: int) -> list[mma.Instruction]:
        ops = (op for b in self.program.blocks[first:last] for op in b.ops)
        found = {op.form.entry for op in ops if isinstance(op.form.entry, mma.Instruction)}
        rows = (row.on(self.arch) for row in sorted(found, key=str))
        return [row for row in rows if not isinstance(row.arithmetic, mma.Rounded)]


def _regions(program: Program) -> list[int]:
    """The first blocks of the regions."""
    starts, size = [0], 0
    for block in program.blocks:
        if size and size + len(block.ops) > REGION:
            starts.append(block.index)
            size = 0
        size += len(block.ops)
    return starts
