"""Stage 4 of a call, launch: kernels loaded on the device, launched at given addresses.

A ``PreparedCall`` is made once for each request, device and configuration. A call then packs
addresses, α and β into parameter blocks and launches. What it launches (``CallRecord``) is computed
by ``dispatch`` once and read from the compile cache after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ...compile_cache import store
from ...errors import ProblemError
from ...gemm.kernel_launch import INDEX_ADDRESSES, MATRICES, SCALE_ADDRESSES
from ...lazy_imports import deferred
from ...source_key import source_key
from ..devices.device_protocol import BoundLaunch, ExecutionDevice, KernelSource, PreparedLaunch
from ..tuning.tuning_paths import results_state
from .alpha_beta import ScaleFactor, ScaleFactors
from .call_record import CallRecord
from .matrix_layout import MAX_ALIGN, OperandLayout
from .request import Request

if TYPE_CHECKING:
    from ... import gemm
    from ...builder import Traced
    from ..tuning.tuning_result import TuningResult
    from . import dispatch
    from .operands import planned_problem
else:
    dispatch = deferred(".dispatch", __package__)
    planned_problem = deferred(".operands.planned_problem", __package__)


class Addresses(NamedTuple):
    """Device addresses of a call's matrices and workspace; 0 for what the kernel does not read.
    ``b2``: of the second matrix B of a pair; ``operands``: of the arrays of an epilogue;
    ``scales``: of the block scales of A, B and ``b2``; ``metadata``: of a sparse A or B, and of
    ``b2``; ``groups``: of the sizes of groups, and of the indices of rows of A and D.
    """

    a: int
    b: int
    c: int
    d: int
    workspace: int = 0
    b2: int = 0
    operands: tuple[int, ...] = ()
    scales: tuple[int, int, int] = (0, 0, 0)
    metadata: tuple[int, int] = (0, 0)
    groups: tuple[int, ...] = (0,) * (1 + len(INDEX_ADDRESSES))


AddressSlots = tuple[tuple[int, str], ...]
"""(which 8 bytes of a parameter block, which of ``MATRICES``)."""


class BoundKernel(NamedTuple):
    """A kernel with a parameter block of its own, and where its addresses are written."""

    launch: BoundLaunch
    slots: AddressSlots
    arguments: gemm.KernelArguments


class PreparedCall:
    """The kernels of a request, ready to launch.

    ``staged``: the arrays are on the CPU and are copied to device memory. They keep their
    alignment, so the kernel is the one that would read them in place.
    """

    def __init__(self, request: Request, device: ExecutionDevice, config: Any = None) -> None:
        self.request, self.device, self._config = request, device, config
        self.staged = request.a.device == "cpu"
        self.record = self._record()
        self.layouts: dict[str, OperandLayout] = self.record.layouts
        self.swapped, self.workspace = self.record.swapped, self.record.workspace

    def _record(self) -> CallRecord:
        """From the compile cache, keyed by the tuning database's state too, or dispatched."""
        before = results_state() if self._config is None else ""
        if not isinstance(self._config, str | None) or not store().enabled:
            return self.dispatched.record()
        source = source_key("run.call.dispatch")
        key = f"{source}\n{before}\n{self.request!r}\n{self.device.target!r}\n{self._config}"
        if (cached := store().get("launches", key)) is not None:
            return CallRecord.unpack(cached)
        record = self.dispatched.record()
        if before in ("", self.dispatched.tuning_state):
            store().put("launches", key, record.pack())
        return record

    @cached_property
    def dispatched(self) -> dispatch.Dispatch:
        """The dispatch; not computed for a call whose record is in the compile cache."""
        return dispatch.Dispatch(self.request, self.device.target, self._config)

    @property
    def problem(self) -> gemm.Problem:
        return self.dispatched.problem

    @property
    def original_problem(self) -> gemm.Problem:
        return self.dispatched.original_problem

    @property
    def accumulated(self) -> str:
        """The operand that is D, to which a kernel adds in place; empty: none does."""
        return self.request.accumulated if self.record.accumulates else ""

    @property
    def config(self) -> gemm.AnyConfig:
        return self.dispatched.config

    @property
    def tuning_result(self) -> TuningResult | None:
        return self.dispatched.tuning_result

    @property
    def traced(self) -> Traced:
        """The traced GEMM kernel."""
        return self.dispatched.traced

    @cached_property
    def _kernels(self) -> tuple[tuple[PreparedLaunch, gemm.KernelArguments], ...]:
        """The kernels, loaded on the device, and their parameters."""
        kernels = []
        for i, record in enumerate(self.record.kernels):
            source = KernelSource(record.kernel, partial(self._trace, i))
            executable, shared = self.device.kernel(source)
            grid, block, cluster, programmatic, unused = record.shape
            launch = self.device.prepare(
                executable, grid, block, shared + unused, cluster=cluster, programmatic=programmatic
            )
            kernels.append((launch, record.arguments))
        return tuple(kernels)

    def _trace(self, i: int) -> Traced:
        return self.dispatched.steps[i].kernel.trace()

    def launch(self, at: Addresses, scales: Sequence[ScaleFactor], stream: int) -> None:
        """Launch all kernels for matrices at these addresses. ``scales``: α and β, then the scalars
        of an epilogue.
        """
        # a tensor map needs an aligned address even for a matrix that is not read
        unread = at.d & -MAX_ALIGN
        a, b = at.a or unread, at.b or unread
        ab = (b, a) if self.swapped else (a, b)
        of_a, of_b, of_b2 = at.scales
        factors = (of_b, of_a, of_b2) if self.swapped else at.scales
        for launch, arguments in self._kernels:
            own = at.c, at.d, at.workspace, at.b2 or unread, *factors, *at.metadata
            addresses = (*ab, *own, *at.groups, *at.operands)
            launch(arguments.pack(addresses, scales), stream)

    def check_problem(self, planned: gemm.Problem | None) -> None:
        """Raise ProblemError unless this call poses the problem of a plan; None: of no plan."""
        if planned is not None:
            planned_problem.check_planned(planned, self.problem)

    def check_scales(self, scales: ScaleFactors) -> None:
        """Raise ProblemError for factors that an s32 accumulator can't have."""
        if self.record.accumulator == "s32":
            _check_integer_scales(*scales)

    def bind(self) -> list[BoundKernel]:
        """The kernels with parameter blocks of their own, for one thread.

        The slots name the caller's A and B, also where the kernel swaps them.
        """
        names = list(MATRICES)
        if self.swapped:
            for one, other in (MATRICES[:2], SCALE_ADDRESSES[:2]):
                i, j = MATRICES.index(one), MATRICES.index(other)
                names[i], names[j] = other, one
        return [
            BoundKernel(
                launch.bind(bytes(arguments.block)),
                tuple((word, names[i]) for word, i in arguments.slots),
                arguments,
            )
            for launch, arguments in self._kernels
        ]


def _check_integer_scales(alpha: ScaleFactor, beta: ScaleFactor) -> None:
    for name, factor in (("alpha", alpha), ("beta", beta)):
        if factor.address or factor.value not in (0.0, 1.0):
            shown = "one on the GPU" if factor.address else f"{factor.value:g}"
            raise ProblemError(f"{name} must be the number 0 or 1 for an s32 result, got {shown}")


_PREPARED: dict[Any, PreparedCall] = {}
_MAX_PREPARED = 1024


def prepare_call(request: Request, device: ExecutionDevice, config: Any = None) -> PreparedCall:
    """The prepared call of a request, made once."""
    key = request, device, config
    try:
        prepared = _PREPARED.get(key)
    except TypeError:  # a list, a dict, an array: not hashable
        dispatch.raise_unhashable_config(request, config)
        raise
    if prepared is None:
        prepared = PreparedCall(request, device, config)
        if len(_PREPARED) >= _MAX_PREPARED:
            _PREPARED.clear()
        _PREPARED[key] = prepared
    return prepared
