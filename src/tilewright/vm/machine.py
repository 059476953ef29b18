"""The virtual machine as a device: memory, modules, launches.

    m = Machine()
    m.load(ptx_text)
    m.launch("saxpy", grid=4, block=256, args=[1000, 2.0, x, y])    # arrays; y is written
    p, q = m.upload(x), m.upload(y)                                 # or their addresses
    m.launch("saxpy", grid=4, block=256, args=[1000, 2.0, p, q])
    y = m.download(q, like=y)

Deterministic: the same launch gives the same bits on any number of cores; ``seed`` picks other
orders of warps and of asynchronous copies.
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
from ..target import DEFAULT_DEVICE, Target
from .codegen.block_code import CompiledKernel
from .codegen.code_library import Library, Store
from .codegen.gc_pause import uncollected
from .codegen.loaded_kernel import LoadedKernel
from .launch.launch_arguments import array_bytes, packed_arguments
from .launch.launch_sizes import (
    MAX_BLOCK,
    MAX_GRID,
    Dim,
    Dim3,
    available_cores,
    check_count,
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

MAX_CLUSTER = 16  # with more than the portable eight, hardware wants to be asked
MAX_LOCAL = 512 * 1024  # bytes of local memory of a thread
STACK = 16 * 1024  # bytes of a thread's stack


_making = threading.Lock()  # of libraries


@lru_cache(maxsize=8)
def _library(features: str | None, store: Store | Literal[False]) -> Library:
    return Library(features, None if store is False else store)


class Machine:
    """A virtual GPU.

    ``arch`` decides the matrix arithmetic and the limits; ``threads`` is the number of host threads
    (default: the cores this process may use); ``features`` restricts the processor's instructions
    (LLVM's notation, for tests); ``store`` keeps compiled code between processes (None: the user's
    cache on disk, which ``TILEWRIGHT_CACHE=off`` turns off; False: nothing is kept); ``step_limit``
    bounds a launch (about the operations in loops of a host thread, and a step for each warp that
    begins; 0: no bound); ``memory`` is
    another machine's, to be shared; ``stack`` are the bytes that each thread has for functions that
    call themselves and for ``alloca``, ``heap`` those that ``malloc`` can give to all of them
    (8 MiB, as in CUDA). Several threads may launch loaded kernels at once.

    ``kernels`` is what can be launched, ``variables`` each global variable's address and bytes.

    Registers, shared and local memory that nobody has written are all ones: NaN, or -1.

    A ``checked`` machine refuses what only luck makes right: accesses to shared memory that nothing
    orders, whichever came first, fences that are missing, CTAs that end before what uses them,
    global memory that a ``programmatic`` launch touches before it has waited for the grid ahead,
    an mbarrier that is initialised where there is one; and what nobody can have meant: operands of
    products that are brought and not read, sums that give way before they were waited for.
    """

    def __init__(
        self,
        arch: str = DEFAULT_DEVICE.target.name,
        seed: int = 0,
        *,
        threads: int | None = None,
        features: str | None = None,
        store: Store | Literal[False] | None = None,
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
        """The compiled code that all machines with these features and this store share."""
        with _making:
            return _library(self.features, self.store)

    # --- memory ---

    def alloc(self, size: int) -> int:
        """The device address of ``size`` bytes (zeros)."""
        return self.memory.allocate(size)

    def free(self, address: int) -> None:
        """Give back what ``alloc`` or ``upload`` gave."""
        self.memory.free(address)

    def upload(self, array: npt.ArrayLike, *, read_only: bool = False) -> int:
        """A copy of the array (C order) in device memory; its address. A kernel that writes to a
        ``read_only`` one faults. DtypeError for what is no array of numbers.
        """
        data = array_bytes(array)
        address = self.memory.allocate(data.nbytes, read_only)
        self.write(address, data)
        return address

    def write(self, address: int, array: npt.ArrayLike) -> None:
        """Copy an array's bytes (C order) to an address. DtypeError for what is no array of
        numbers, DeviceError for bytes that are not allocated.
        """
        data = array_bytes(array)
        self.memory.bytes(address, data.nbytes)[:] = data

    def download(self, address: int, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A new array of ``like``'s shape and type from an address. Errors as for ``write``."""
        if not isinstance(like, np.ndarray | np.generic):
            hint = "an array of the shape and type that is wanted: np.empty(shape, dtype)"
            raise DtypeError(f"like must be a NumPy array, not {type(like).__name__}", hint=hint)
        made = np.empty(like.shape, like.dtype)
        array_bytes(made)[:] = self.memory.bytes(address, made.nbytes)
        return made

    @staticmethod
    def tensor_map(*args: Any, **more: Any) -> mma.TensorMap:
        """For ``launch``: what lies at an address, in the order of cuTensorMapEncodeTiled. The
        arguments are those of ``mma.TensorMap.tiled``.
        """
        return mma.TensorMap.tiled(*args, **more)

    # --- code ---

    def load(self, module: tree.Module | str, *more: tree.Module | str) -> tree.Module:
        """Make a module's kernels launchable (text is parsed first); its global variables get their
        memory. Several modules are linked, to the one that is returned.

        A kernel's instructions are read when it is first launched, so other kernels of the module
        may have unknown or unsupported ones. ``ptx.check`` finds them without a launch.

        Raises PtxSyntaxError for text that can't be parsed, TargetError for a module that the
        machine's architecture does not run, PtxError for a kernel's name that is loaded already and
        for what can't be linked.
        """
        modules = [self._read(m) for m in (module, *more)]
        module = ptx.link(modules) if more else modules[0]
        for entry in module.entries:
            if entry.name in self.kernels:
                raise PtxError(f"a kernel {entry.name!r} is loaded already")
        addresses = self._place(module)
        for entry in module.entries:
            self.kernels[entry.name] = LoadedKernel(entry.name, module, addresses)
        return module

    def add(self, kernel: LoadedKernel) -> None:
        """Make a kernel launchable whose module is not read yet (``LoadedKernel.unpack``)."""
        self._runs(kernel.target)
        self.kernels[kernel.name] = kernel

    def _read(self, module: tree.Module | str) -> tree.Module:
        if not isinstance(module, str | ptx.Module):
            raise PtxError(f"a module is its text or its tree, not {type(module).__name__}")
        if isinstance(module, str):
            with uncollected():
                module = ptx.parse(module)
        if module.target:
            self._runs(module.target[0])
        return module

    def _runs(self, target: str) -> None:
        if target and not self.target.runs(target):
            raise TargetError(f"{self.arch} does not run a module for {target}")

    def _place(self, module: tree.Module) -> dict[str, int]:
        """Memory for the module's global and constant variables, with what they begin with."""
        spaces = ("global", "const")
        variables = (v for v in module.items if isinstance(v, ptx.tree.Variable))
        found = [v for v in variables if v.space in spaces]
        for v in found:
            if v.linkage == "extern":
                hint = "load takes several modules and links them"
                why = f"{v.name} is extern, and no module has it"
                raise PtxCheckError(why, location=module.location(v.pos), hint=hint)
        sizes = {v.name: ptx.parameter_block.size_and_align(v)[0] for v in found}
        addresses: dict[str, int] = {}
        try:
            for v in found:
                addresses[v.name] = self.memory.allocate(sizes[v.name], v.space == "const")
            for v in (v for v in found if v.init):  # the others are zeros, as new memory is
                known = call_graph.code_addresses(module) | addresses
                for at, data in initializers.initial_bytes(v, known):
                    there = self.memory.bytes(addresses[v.name] + at, len(data))
                    there[:] = np.frombuffer(data, np.uint8)
        except TilewrightError:
            for address in addresses.values():
                self.memory.free(address)
            raise
        self.variables |= {name: (at, sizes[name]) for name, at in addresses.items()}
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
        """Run a kernel to its end. A grid without CTAs runs nothing.

        ``args`` are addresses, numbers, raw bytes, tensor maps or NumPy arrays, one for each
        parameter, or the packed parameter block. An array is copied to the machine for the launch,
        and what is there when the kernel has ended is copied back, unless the array is read-only.
        ``shared`` is the dynamic shared memory in bytes, ``cluster`` the CTAs of a cluster
        (default: as the kernel says, else one). The CTAs of a ``cooperative`` launch can wait for
        all others (default: where the kernel asks how, as ``grid.sync()`` does). A ``programmatic``
        one may begin on a GPU before the kernel ahead of it has ended: a checked machine sees that
        it touches no global memory before ``griddepcontrol.wait``. With ``on_step``
        the NumPy evaluator runs one instruction at a time and shows each ``Step`` before it
        happens. ``watch`` hears how many CTAs of how many were started.

        Raises PtxCheckError and UnknownInstruction for a kernel that can't be run, LaunchError for
        what can't be launched, VmFault for what the kernel did; what ``on_step`` and ``watch``
        raise ends the launch.
        """
        if not isinstance(entry, str) or entry not in self.kernels:
            known = ", ".join(self.kernels) or "none"
            raise LaunchError(f"no kernel {entry!r} is loaded; there are: {known}")
        for name, given in (("on_step", on_step), ("watch", watch)):
            if given is not None and not callable(given):
                raise LaunchError(f"{name} must be a function, got {given!r:.80}")
        kernel = self.kernels[entry]
        metadata = kernel.metadata(self.library)
        with packed_arguments(self, kernel.params, args) as params:
            wanted = metadata.uses_grid_barrier if cooperative is None else bool(cooperative)
            early = bool(programmatic)
            setup = self._setup(metadata, grid, block, params, shared, cluster, wanted, early)
            run = RunningLaunch(self.memory, kernel, metadata, setup)
            if on_step is not None:
                evaluator = stepper.Stepper(kernel.program, self.library, self.arch, on_step)
                run.execute(evaluator, 1, watch)
            else:
                run.execute(self._compiled(entry), self.threads, watch)

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
        grid3, block3 = (
            parse_dims(grid, "grid", 0, MAX_GRID),
            parse_dims(block, "block", 1, MAX_BLOCK),
        )
        self._fits(kernel, block3, shared)
        if programmatic and not self.target.runs("sm_90"):
            raise LaunchError(f"programmatic launches begin with sm_90; this is {self.arch}")
        limits, number = self.target.limits, sm_count(self.target)
        ctas, explicit = self._cluster(kernel, grid3, cluster)
        how = (self.seed, self.step_limit, ctas, explicit, self.checked, self.stack)
        own = (next(self._numbers), cooperative, programmatic)
        setup = LaunchSetup(grid3, block3, params, shared, limits, number, *how, *own)
        most = setup.resident(kernel.shared_bytes + shared)
        if cooperative and setup.ctas > most:
            raise LaunchError(
                f"the {setup.ctas} CTAs of a cooperative launch of {kernel.name!r} have to be "
                f"there at once; {self.arch} holds {most} of them"
            )
        return setup

    def _cluster(self, kernel: KernelMetadata, grid: Dim3, given: Dim | None) -> tuple[Dim3, bool]:
        """The CTAs of a cluster, and whether anybody said so."""
        own = (*kernel.cluster, 1, 1)[:3] if kernel.cluster else None
        if given is None and own is None:
            return (1, 1, 1), False
        ctas = own if given is None else parse_dims(given, "cluster", 1, MAX_GRID)
        assert ctas is not None
        if own is not None and ctas != own:
            raise LaunchError(f"kernel {kernel.name!r} needs clusters of {own}, not {ctas}")
        size, most = ctas[0] * ctas[1] * ctas[2], self.target.limits.cluster
        most = MAX_CLUSTER if most > 1 else 1
        if size > most:
            raise LaunchError(f"a cluster of {size} CTAs; {self.arch} has at most {most}")
        if any(n % c for n, c in zip(grid, ctas, strict=True)):
            raise LaunchError(f"grid {grid} is not made of whole clusters of {ctas}")
        return ctas, True

    def _fits(self, kernel: KernelMetadata, block: Dim3, shared: int) -> None:
        limits = self.target.limits
        threads = block[0] * block[1] * block[2]
        most = kernel.max_threads or limits.threads_per_block
        if threads > most:
            raise LaunchError(
                f"a block of {threads} threads is more than kernel {kernel.name!r} can have: {most}"
            )
        exact = (*kernel.exact_block, 1, 1)[:3]
        if kernel.exact_block and block != exact:
            raise LaunchError(f"kernel {kernel.name!r} needs blocks of {exact}, not {block}")
        local = kernel.local_bytes + (self.stack if kernel.uses_dynamic_stack else 0)
        if local > MAX_LOCAL:
            raise LaunchError(
                f"kernel {kernel.name!r} has {local} bytes of local memory; a "
                f"thread can have {MAX_LOCAL}"
            )
        most = limits.shared_per_block - kernel.shared_bytes
        if most < 0:
            raise LaunchError(
                f"kernel {kernel.name!r} has {kernel.shared_bytes} bytes of static shared "
                f"memory; a CTA can have {limits.shared_per_block}"
            )
        if not isinstance(shared, int | np.integer) or not 0 <= shared <= most:
            raise LaunchError(
                f"{shared} bytes of dynamic shared memory: kernel {kernel.name!r} can have {most} "
                f"({limits.shared_per_block} less {kernel.shared_bytes} static)"
            )


def _check_options(features: object, store: object, memory: object) -> None:
    """LaunchError for any other value."""
    if features is not None and not isinstance(features, str):
        raise LaunchError(f"features must be text in LLVM's notation, got {features!r:.80}")
    if not (store is None or store is False or (hasattr(store, "get") and hasattr(store, "put"))):
        why = "store must be False, or have get and put as a Cache has"
        raise LaunchError(f"{why}, got {store!r:.80}")
    if memory is not None and not isinstance(memory, GlobalMemory):
        hint = "Machine(memory=other.memory) shares another machine's; heap= limits malloc"
        raise LaunchError(f"memory must be a machine's memory, got {memory!r:.80}", hint=hint)
