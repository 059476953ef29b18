"""Stage 4 of a call, launch: kernels loaded on the device, launched at given addresses.

A ``PreparedCall`` is made once for each request, device and configuration. A call then packs
addresses, α and β into parameter blocks and launches. What it launches (``CallRecord``) is computed
by ``dispatch`` once and read from the compile cache after that.
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...compile_cache import store
from ...errors import ProblemError
from ...lazy_imports import deferred
from ...source_key import source_key
from ..devices.device import BoundLaunch, ExecutionDevice, KernelSource, PreparedLaunch
from ..tuning.tuning_paths import state
from .call_record import CallRecord, OperandLayout
from .matrix_layout import ALIGN
from .request import Request

if TYPE_CHECKING:
    from ... import gemm
    from ...builder import Traced
    from ..tuning.tuning_result import TuningResult
    from . import dispatch
else:
    dispatch = deferred(".dispatch", __package__)


class ScaleFactor(NamedTuple):
    """A factor: a number, or the address of one on the device."""

    value: float
    address: int = 0


ScaleFactors = tuple[ScaleFactor, ScaleFactor]  # α, β
AddressSlots = tuple[tuple[int, int], ...]  # which 8 bytes of a parameter block, which address


class PreparedCall:
    """How a call is run. ``uploaded``: the arrays are on the CPU and go to device memory, with the
    alignment that they have here, so that the kernel is the one that would read them.
    """

    def __init__(self, request: Request, device: ExecutionDevice, config: Any = None) -> None:
        self.request, self.device, self._given = request, device, config
        self.uploaded = request.a.device == "cpu"
        self.launches = self._launches()
        self.parts: dict[str, OperandLayout] = self.launches.parts
        self.swapped, self.workspace = self.launches.swapped, self.launches.workspace

    def _launches(self) -> CallRecord:
        """From the disk, or planned. The key has the state of the tuning results that the plan was
        made with.
        """
        before = state() if self._given is None else ""
        if not isinstance(self._given, str | None) or not store().enabled:
            return self.planned.launches()
        source = source_key("run.call.dispatch")
        key = f"{source}\n{before}\n{self.request!r}\n{self.device.target!r}\n{self._given}"
        if (kept := store().get("launches", key)) is not None:
            return CallRecord.unpack(kept)
        made = self.planned.launches()
        if before in ("", self.planned.tuned_state):
            store().put("launches", key, made.pack())
        return made

    @cached_property
    def planned(self) -> dispatch.Dispatch:
        """The plan: made again where its launches were found on disk."""
        return dispatch.Dispatch(self.request, self.device.target, self._given)

    @property
    def problem(self) -> gemm.Problem:
        return self.planned.problem

    @property
    def original_problem(self) -> gemm.Problem:
        return self.planned.original_problem

    @property
    def config(self) -> gemm.AnyConfig:
        return self.planned.config

    @property
    def tuning_result(self) -> TuningResult | None:
        return self.planned.tuning_result

    @cached_property
    def traced(self) -> Traced:
        """The kernel."""
        return self.planned.traced

    @cached_property
    def _steps(self) -> tuple[tuple[PreparedLaunch, gemm.KernelArguments], ...]:
        """The kernels on the device, ready, and their parameters."""
        made = []
        for i, launch in enumerate(self.launches.kernels):
            kernel = KernelSource(launch.kernel, partial(self._kernel, i))
            executable, shared = self.device.kernel(kernel)
            grid, block, cluster, programmatic, unused = launch.shape
            more = {"cluster": cluster, "programmatic": programmatic}
            start = self.device.prepare(executable, grid, block, shared + unused, **more)
            made.append((start, launch.arguments))
        return tuple(made)

    def _kernel(self, i: int) -> Traced:
        return self.planned.steps[i].kernel.trace()

    def start(
        self, a: int, b: int, c: int, d: int, workspace: int, scales: ScaleFactors, stream: int
    ) -> None:
        """Start it all for matrices at these addresses."""
        nowhere = d & -ALIGN  # for what is not read: a tensor map wants an address, and aligned
        a, b = a or nowhere, b or nowhere
        places = (b, a, c, d, workspace) if self.swapped else (a, b, c, d, workspace)
        for start, arguments in self._steps:
            start(arguments.pack(places, scales), stream)

    def check(self, scales: ScaleFactors) -> None:
        """Raises ProblemError for factors that this accumulator can't have."""
        if self.launches.accumulator == "s32":
            _check_whole(*scales)

    def bind(self) -> list[tuple[BoundLaunch, AddressSlots, gemm.KernelArguments]]:
        """The kernels with parameter blocks of their own, for one thread, and where the addresses
        of the caller's A, B, C, D and of a workspace are to be written.
        """
        turned = (1, 0, 2, 3, 4) if self.swapped else range(5)
        return [
            (start.bind(bytes(given.block)), tuple((w, turned[i]) for w, i in given.slots), given)
            for start, given in self._steps
        ]


def _check_whole(alpha: ScaleFactor, beta: ScaleFactor) -> None:
    """Sums of integers are not scaled: α is 1 (or 0), β is 0 or 1."""
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if factor.address or factor.value not in (0.0, 1.0):
            given = "on the GPU" if factor.address else f"{factor.value:g}"
            raise ProblemError(f"{name} is {given}; with a result of s32 it is the number 0 or 1")


_KNOWN: dict[Any, PreparedCall] = {}
_MOST = 1024


def route(request: Request, device: ExecutionDevice, config: Any = None) -> PreparedCall:
    """The route for a call, made once for all that are alike."""
    key = request, device, config
    try:
        found = _KNOWN.get(key)
    except TypeError:  # a list, a dict, an array: what has no hash
        dispatch.refuse(request, config)
        raise
    if found is None:
        found = PreparedCall(request, device, config)
        if len(_KNOWN) >= _MOST:
            _KNOWN.clear()
        _KNOWN[key] = found
    return found
