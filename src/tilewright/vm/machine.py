"""The virtual machine as a device: memory, modules, launches.

    m = Machine()
    p = m.upload(array)                          # an address
    m.load(ptx_text)
    m.launch("saxpy", grid=(4,), block=(256,), args=[1000, 2.0, p, q])
    m.download(q, like=array)

Deterministic: the same launch gives the same bits on any number of cores; ``seed`` picks other orders of warps and
of asynchronous copies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import LaunchError, PtxError
from ..ptx import abi, parse, tree
from ..target import Target
from . import program as programs
from .initial import initial_bytes
from .launch import Run
from .library import CompiledKernel, Library, Store
from .memory import Memory
from .program import Program
from .step import Step, Stepper

DEFAULT_ARCH = "sm_90a"
MAX_THREADS = 1024
GRID = (2**31 - 1, 65535, 65535)

Dim = int | Sequence[int]


@lru_cache(maxsize=8)
def _library(features: str | None, store: Store | None) -> Library:
    return Library(features, store)


class Machine:
    """A virtual GPU.

    ``arch`` decides the matrix arithmetic and the limits; ``threads`` is the number of host threads (default: the
    cores this process may use); ``features`` restricts the processor's instructions (LLVM's notation, for tests);
    ``store`` keeps compiled code between processes; ``step_limit`` bounds a launch (0: no bound);
    ``memory`` is another machine's, to be shared. Launches of loaded kernels may be made by several threads at once.
    """

    def __init__(
        self,
        arch: str = DEFAULT_ARCH,
        seed: int = 0,
        *,
        threads: int | None = None,
        features: str | None = None,
        store: Store | None = None,
        step_limit: int = 0,
        memory: Memory | None = None,
    ) -> None:
        self.target = Target.parse(arch)
        self.arch, self.seed = arch, seed
        self.threads = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        self.features, self.store = features, store
        self.step_limit = step_limit
        self.memory = memory or Memory()
        self.modules: list[tuple[tree.Module, dict[str, int]]] = []
        self.kernels: dict[str, Program] = {}
        self.compiled: dict[str, CompiledKernel] = {}

    @property
    def library(self) -> Library:
        return _library(self.features, self.store)

    # --- memory ---

    def alloc(self, size: int) -> int:
        """The device address of ``size`` bytes."""
        return self.memory.allocate(size)

    def free(self, address: int) -> None:
        self.memory.free(address)

    def upload(self, array: npt.ArrayLike) -> int:
        """A copy of the array (C order) in device memory; its address."""
        data = np.ascontiguousarray(array)
        address = self.memory.allocate(data.nbytes)
        self.write(address, data)
        return address

    def write(self, address: int, array: npt.NDArray[Any]) -> None:
        """Copy an array's bytes (C order) to an address."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.memory.bytes(address, data.nbytes)[:] = data

    def download(self, address: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A new array of ``like``'s shape and type from an address."""
        made = np.empty(like.shape, like.dtype)
        made.reshape(-1).view(np.uint8)[:] = self.memory.bytes(address, made.nbytes)
        return made

    # --- code ---

    def load(self, module: tree.Module | str) -> tree.Module:
        """Make a module's kernels launchable (text is parsed first); its global variables get their memory.

        Raises PtxError for text that can't be parsed, unknown instructions, and kernels loaded twice.
        """
        module = parse(module) if isinstance(module, str) else module
        for entry in module.entries:
            if entry.name in self.kernels:
                raise PtxError(f"a kernel {entry.name!r} is loaded already")
        addresses = {v.name: self._variable(v) for v in module.items if _is_global(v)}
        for entry in module.entries:
            self.kernels[entry.name] = programs.build(module, entry.name, addresses)
        return module

    def _variable(self, v: tree.Variable) -> int:
        data = initial_bytes(v)
        address = self.memory.allocate(len(data))
        self.memory.bytes(address, len(data))[:] = np.frombuffer(data, np.uint8)
        return address

    # --- launching ---

    def launch(
        self,
        entry: str,
        grid: Dim,
        block: Dim,
        args: Sequence[object] | bytes = (),
        *,
        shared: int = 0,
        on_step: Callable[[Step], object] | None = None,
        watch: Callable[[int, int], object] | None = None,
    ) -> None:
        """Run a kernel to its end.

        ``args`` are addresses, numbers or raw bytes, one for each parameter, or the packed parameter block;
        ``shared`` is the dynamic shared memory in bytes. With ``on_step`` the NumPy evaluator runs one
        instruction at a time and shows each before it happens. ``watch`` hears how many CTAs of how many were started.

        Raises LaunchError for what can't be launched, VmFault for what the kernel did.
        """
        program = self._program(entry)
        grid3, block3 = _dims(grid, "grid", GRID), _dims(block, "block", (1024, 1024, 64))
        self._fits(program, block3, shared)
        params = args if isinstance(args, bytes) else abi.pack(program.function, args)
        if len(params) != program.param_bytes:
            raise LaunchError(f"{entry} takes {program.param_bytes} bytes of parameters, not {len(params)}")
        run = Run(self.memory, program, grid3, block3, params, shared, self.seed, self.step_limit)
        if on_step is not None:
            run.execute(Stepper(program, self.library, self.arch, on_step), threads=1)
        elif min(grid3) > 0:
            run.execute(self._compiled(entry), 1 if program.communicates else self.threads, watch)

    def _program(self, entry: str) -> Program:
        if entry not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise LaunchError(f"no kernel {entry!r} is loaded; there are: {known}")
        return self.kernels[entry]

    def _compiled(self, entry: str) -> CompiledKernel:
        if entry not in self.compiled:
            self.compiled.setdefault(entry, CompiledKernel(self.kernels[entry], self.library, self.arch))
        return self.compiled[entry]

    def _fits(self, program: Program, block: tuple[int, int, int], shared: int) -> None:
        threads = block[0] * block[1] * block[2]
        if threads > MAX_THREADS or threads == 0:
            raise LaunchError(f"a block of {block} has {threads} threads; 1 to {MAX_THREADS} are allowed")
        limit = self.target.limits.shared_per_block
        if program.shared_bytes + shared > limit:
            raise LaunchError(
                f"{program.name} wants {program.shared_bytes} + {shared} bytes of shared memory; "
                f"{self.arch} has {limit} for a block"
            )


def _is_global(item: object) -> bool:
    return isinstance(item, tree.Variable) and item.space in ("global", "const")


def _dims(given: Dim, what: str, limits: tuple[int, int, int]) -> tuple[int, int, int]:
    values = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(values) <= 3 or not all(isinstance(v, int | np.integer) and v >= 0 for v in values):
        raise LaunchError(f"{what} is one to three whole numbers, not {given!r}")
    full = tuple(int(v) for v in (*values, 1, 1)[:3])
    if any(v > limit for v, limit in zip(full, limits, strict=True)):
        raise LaunchError(f"{what} {full} is larger than {limits}")
    return full  # type: ignore[return-value]
