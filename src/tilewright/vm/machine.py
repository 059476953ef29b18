"""The virtual machine as a device: memory, modules, launches.

    m = Machine()
    m.load(ptx_text)
    m.launch("saxpy", grid=4, block=256, args=[1000, 2.0, x, y])    # arrays; y is written
    p, q = m.upload(x), m.upload(y)                                 # or their addresses
    m.launch("saxpy", grid=4, block=256, args=[1000, 2.0, p, q])
    y = m.download(q, like=y)

Results are deterministic: the same launch gives the same bits on any number of cores. ``seed``
picks other orders of warps and of asynchronous copies.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .. import compile_cache, mma, ptx
from ..errors import (
    DtypeError,
    LaunchError,
    PtxCheckError,
    PtxError,
    TargetError,
    TilewrightError,
)
from ..lazy_imports import deferred
from ..notebook_display import facts_html
from ..target import DEFAULT_DEVICE, Target
from .codegen.block_code import CompiledKernel
from .codegen.code_library import CodeStore, Library
from .codegen.gc_pause import uncollected
from .codegen.loaded_kernel import LoadedKernel
from .launch.launch_arguments import array_bytes, packed_arguments
from .launch.launch_sizes import (
    MAX_BLOCK,
    MAX_GRID,
    Dim,
    available_cores,
    check_count,
    check_limits,
    cluster_dims,
    parse_dims,
    sm_count,
)
from .launch.launch_state import LaunchSetup
from .launch.launcher import Progress, RunningLaunch
from .program.kernel_metadata import KernelMetadata
from .state.global_memory import GlobalMemory

if TYPE_CHECKING:
    from ..ptx import tree
    from .program import call_graph, initializers
    from .step import stepper
    from .step.stepper import Step
else:
    call_graph = deferred(".program.call_graph", __package__)
    initializers = deferred(".program.initializers", __package__)
    stepper = deferred(".step.stepper", __package__)

STACK = 16 * 1024  # default bytes of stack per thread


_library_lock = threading.Lock()


@lru_cache(maxsize=8)
def _library(features: str | None, store: CodeStore | Literal[False]) -> Library:
    return Library(features, None if store is False else store)


class Machine:
    """A virtual GPU.

    ``arch``: the architecture, which decides the matrix arithmetic and the limits. ``seed``: picks
    the order of warps and of asynchronous copies. ``threads``: the number of host threads (default:
    the cores that this process may use). ``features``: restricts the host's instructions (LLVM's
    notation, for tests). ``store``: keeps compiled code between processes (None: the user's cache
    on disk, which ``TILEWRIGHT_CACHE=off`` turns off; False: no store). ``step_limit``: the most
    steps of a launch (approximately: operations in loops per host thread, and one step for each
    warp started; 0: no limit). ``memory``: the memory of another machine, to share it. ``stack``:
    bytes per thread for recursive functions and ``alloca``. ``heap``: bytes for ``malloc`` in all
    threads together (default: 8 MiB, as in CUDA). Several host threads may launch loaded kernels at
    the same time.

    ``kernels``: the loaded kernels by name. ``variables``: address and size of each global
    variable.

    Uninitialized registers, shared and local memory are all ones: NaN, or -1.

    A ``checked`` machine also reports synchronization errors as faults, even where the result is
    right: data races in shared memory, missing fences, CTAs that exit while others use their shared
    memory, accesses of a ``programmatic`` launch before ``griddepcontrol.wait`` to global memory
    that is not ``read_only``, and initialization of an mbarrier that is already initialized. It
    reports likely mistakes too: copied operands that no ``wgmma`` reads, and accumulators that are
    overwritten before they were waited for.
    """

    def __init__(
        self,
        arch: str = DEFAULT_DEVICE.target.name,
        seed: int = 0,
        *,
        threads: int | None = None,
        features: str | None = None,
        store: CodeStore | Literal[False] | None = None,
        step_limit: int = 0,
        memory: GlobalMemory | None = None,
        checked: bool = False,
        stack: int = STACK,
        heap: int | None = None,
    ) -> None:
        _check_options(features, store, memory)
        self.target = Target.parse(arch)
        self.arch, self.seed = arch, check_count("seed", seed, 0)
        self.threads = available_cores() if threads is None else check_count("threads", threads, 1)
        self.features = features
        self.store = compile_cache.store() if store is None else store
        self.step_limit = check_count("step_limit", step_limit, 0)
        self.memory = GlobalMemory() if memory is None else memory
        self.checked = bool(checked)
        self.stack = -(-check_count("stack", stack, 0) // 16) * 16
        if heap is not None:
            self.memory.heap.limit = check_count("heap", heap, 0)
        self.kernels: dict[str, LoadedKernel] = {}
        self.compiled: dict[str, CompiledKernel] = {}
        self._numbers = itertools.count(1)
        self.variables: dict[str, tuple[int, int]] = {}

    @property
    def library(self) -> Library:
        """The compiled code, shared by all machines with these features and this store."""
        with _library_lock:
            return _library(self.features, self.store)

    def _repr_html_(self) -> str:
        sizes = (f"{name} ({size} B)" for name, (_, size) in self.variables.items())
        facts = {
            "architecture": self.arch, "kernels": ", ".join(self.kernels) or "none",
            "variables": ", ".join(sizes) or "none", "seed": self.seed,
            "host threads": self.threads, "checked": self.checked,
        }  # fmt: skip
        return facts_html("virtual machine", facts.items())

    # --- memory ---

    def alloc(self, size: int) -> int:
        """The device address of ``size`` bytes (zeros)."""
        return self.memory.allocate(size)

    def free(self, address: int) -> None:
        """Free an allocation of ``alloc`` or ``upload``."""
        self.memory.free(address)

    def upload(self, array: npt.ArrayLike, *, read_only: bool = False) -> int:
        """Copy an array (C order) to new device memory and return its address. A kernel that writes
        to ``read_only`` memory faults. Raises DtypeError for anything but an array of numbers.
        """
        data = array_bytes(array)
        address = self.memory.allocate(data.nbytes, read_only)
        self.write(address, data)
        return address

    def write(self, address: int, array: npt.ArrayLike) -> None:
        """Copy the bytes of an array (C order) to an address. Raises DtypeError for anything but an
        array of numbers, DeviceError if the bytes are not in one allocation.
        """
        data = array_bytes(array)
        self.memory.bytes(address, data.nbytes)[:] = data

    def download(self, address: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A new array with the shape and dtype of ``like``, copied from an address. Errors as for
        ``write``.
        """
        shape, dtype = _shape_and_dtype(like)
        result: npt.NDArray[Any] = np.empty(shape, dtype)
        array_bytes(result)[:] = self.memory.bytes(address, result.nbytes)
        return result

    @staticmethod
    def tensor_map(*args: Any, **more: Any) -> mma.TensorMap:
        """A tensor map as an argument of ``launch``. The parameters are those of
        ``mma.TensorMap.tiled``, in the order of cuTensorMapEncodeTiled.
        """
        return mma.TensorMap.tiled(*args, **more)

    # --- code ---

    def load(self, module: tree.Module | str, *more: tree.Module | str) -> tree.Module:
        """Load a module (or PTX text, which is parsed first): its kernels can be launched, and its
        global variables are allocated. Several modules are linked to one. Returns the module.

        The instructions of a kernel are checked at its first launch, so other kernels of the module
        may have unknown or unsupported ones. ``ptx.check`` finds them without a launch.

        Raises PtxSyntaxError for text that can't be parsed, TargetError for a module that the
        machine's architecture does not run, PtxError for a kernel name that is already loaded and
        for modules that can't be linked.
        """
        modules = [self._parse(m) for m in (module, *more)]
        module = ptx.link(modules) if more else modules[0]
        for entry in module.entries:
            if entry.name in self.kernels:
                raise PtxError(f"kernel {entry.name!r} is already loaded")
        addresses = self._allocate_variables(module)
        for entry in module.entries:
            self.kernels[entry.name] = LoadedKernel(entry.name, module, addresses)
        return module

    def add(self, kernel: LoadedKernel) -> None:
        """Add a kernel whose module is not parsed yet (``LoadedKernel.unpack``)."""
        self._check_target(kernel.target)
        self.kernels[kernel.name] = kernel

    def _parse(self, module: object) -> tree.Module:
        if isinstance(module, str):
            with uncollected():
                module = ptx.parse(module)
        elif not isinstance(module, ptx.Module):
            raise PtxError(f"module must be PTX text or a ptx.Module, got {type(module).__name__}")
        if module.target:
            self._check_target(module.target[0])
        return module

    def _check_target(self, target: str) -> None:
        if target and not self.target.runs(target):
            raise TargetError(f"{self.arch} does not run a module for {target}")

    def _allocate_variables(self, module: tree.Module) -> dict[str, int]:
        """Allocate and initialize the global and constant variables; their addresses."""
        items = (v for v in module.items if isinstance(v, ptx.tree.Variable))
        variables = [v for v in items if v.space in ("global", "const")]
        for v in variables:
            if v.linkage == "extern":
                hint = "link the module that defines it: load takes several"
                message = f"{v.name} is extern, and no module defines it"
                raise PtxCheckError(message, location=module.location(v.pos), hint=hint)
        sizes = {v.name: ptx.parameter_block.size_and_align(v)[0] for v in variables}
        addresses: dict[str, int] = {}
        try:
            for v in variables:
                addresses[v.name] = self.memory.allocate(sizes[v.name], v.space == "const")
            for v in (v for v in variables if v.init):  # new memory is zeros, as the others are
                symbols = call_graph.code_addresses(module) | addresses
                for offset, data in initializers.initial_bytes(v, symbols):
                    target = self.memory.bytes(addresses[v.name] + offset, len(data))
                    target[:] = np.frombuffer(data, np.uint8)
        except TilewrightError:
            for address in addresses.values():
                self.memory.free(address)
            raise
        self.variables |= {name: (address, sizes[name]) for name, address in addresses.items()}
        return addresses

    # --- launching ---

    def launch(
        self,
        entry: str,
        grid: Dim,
        block: Dim,
        args: Sequence[object] | bytes = (),
        *,
        shared: int = 0,
        cluster: Dim | None = None,
        cooperative: bool | None = None,
        programmatic: bool = False,
        on_step: Callable[[Step], object] | None = None,
        watch: Progress | None = None,
    ) -> None:
        """Run a kernel to its end. A grid with no CTAs runs nothing.

        ``args``: addresses, numbers, raw bytes, tensor maps or NumPy arrays, one for each
        parameter; or the packed parameter block. An array is copied to the machine for the launch
        and copied back after it, unless the array is read-only. ``shared``: the dynamic shared
        memory in bytes. ``cluster``: the CTAs of a cluster (default: as the kernel declares, else
        1). ``cooperative``: all CTAs are co-resident and may wait for each other (default: if the
        kernel uses the grid barrier, as ``grid.sync()`` does). ``programmatic``: on a GPU the
        launch may begin before the previous grid has ended; a checked machine reports an access
        before ``griddepcontrol.wait`` to global memory that is not read-only (``upload``).
        ``on_step``: the NumPy evaluator runs one instruction at a time and calls it with each
        ``Step`` before the step is executed. ``watch``: is called with the number of CTAs started
        and the number of all CTAs.

        Raises PtxCheckError and UnknownInstruction for a kernel that can't be run, LaunchError for
        wrong launch arguments, VmFault for errors of the kernel. An exception of ``on_step`` or
        ``watch`` ends the launch.
        """
        kernel = self._kernel(entry)
        for name, function in (("on_step", on_step), ("watch", watch)):
            if function is not None and not callable(function):
                raise LaunchError(f"{name} must be a function, got {function!r:.80}")
        metadata = kernel.metadata(self.library)
        with packed_arguments(self, kernel.params, args) as params:
            grid_sync = metadata.uses_grid_barrier if cooperative is None else bool(cooperative)
            early = bool(programmatic)
            setup = self._setup(metadata, grid, block, params, shared, cluster, grid_sync, early)
            run = RunningLaunch(self.memory, kernel, metadata, setup)
            if on_step is not None:
                evaluator = stepper.Stepper(kernel.program, self.library, self.arch, on_step)
                run.execute(evaluator, 1, watch)
            else:
                run.execute(self._compiled(entry), self.threads, watch)

    def _kernel(self, entry: object) -> LoadedKernel:
        if not isinstance(entry, str) or entry not in self.kernels:
            loaded = ", ".join(self.kernels) or "none"
            raise LaunchError(f"no kernel {entry!r} is loaded; loaded kernels: {loaded}")
        return self.kernels[entry]

    def _compiled(self, entry: str) -> CompiledKernel:
        if entry not in self.compiled:
            self.compiled[entry] = CompiledKernel(self.kernels[entry], self.library, self.arch)
        return self.compiled[entry]

    def _setup(
        self,
        kernel: KernelMetadata,
        grid: Dim,
        block: Dim,
        params: bytes,
        shared: int,
        cluster: Dim | None,
        cooperative: bool,
        programmatic: bool,
    ) -> LaunchSetup:
        grid3 = parse_dims(grid, "grid", 0, MAX_GRID)
        block3 = parse_dims(block, "block", 1, MAX_BLOCK)
        check_limits(kernel, self.target, self.stack, block3, shared)
        if programmatic and not self.target.runs("sm_90"):
            raise LaunchError(f"a programmatic launch needs sm_90 or later, got {self.arch}")
        cluster3, explicit = cluster_dims(kernel, self.target, grid3, cluster)
        setup = LaunchSetup(
            grid3,
            block3,
            params,
            shared,
            self.target.limits,
            sm_count(self.target),
            seed=self.seed,
            step_limit=self.step_limit,
            cluster=cluster3,
            explicit=explicit,
            checked=self.checked,
            stack=self.stack,
            number=next(self._numbers),
            cooperative=cooperative,
            programmatic=programmatic,
        )
        resident = setup.resident(kernel.shared_bytes + shared)
        if cooperative and setup.ctas > resident:
            raise LaunchError(
                f"a cooperative launch of {kernel.name!r} on {self.arch} must have at most "
                f"{resident} CTAs, which are co-resident, got {setup.ctas}"
            )
        return setup


def _shape_and_dtype(like: object) -> tuple[tuple[int, ...], np.dtype[Any]]:
    if not isinstance(like, np.ndarray | np.generic):
        hint = "pass an array of the shape and dtype of the result: np.empty(shape, dtype)"
        raise DtypeError(f"like must be a NumPy array, got {type(like).__name__}", hint=hint)
    return like.shape, like.dtype


def _check_options(features: object, store: object, memory: object) -> None:
    """Raise LaunchError for options of a wrong type."""
    if features is not None and not isinstance(features, str):
        raise LaunchError(f"features must be text in LLVM's notation, got {features!r:.80}")
    if not (store is None or store is False or (hasattr(store, "get") and hasattr(store, "put"))):
        message = f"store must be False, or have the methods get and put, got {store!r:.80}"
        raise LaunchError(message)
    if memory is not None and not isinstance(memory, GlobalMemory):
        hint = "Machine(memory=other.memory) shares another machine's; heap= limits malloc"
        raise LaunchError(f"memory must be a machine's memory, got {memory!r:.80}", hint=hint)
