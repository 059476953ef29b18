"""Calls of ``grouped_matmul`` with lists: matrices placed, tables uploaded, kernels launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....lazy_imports import deferred
from ...arrays import array_view
from ...arrays.array_view import ArrayView
from ...devices.array_placement import (
    device_for_arrays,
    stream_for_arrays,
    wait_for_hidden_streams,
)
from ...devices.device_protocol import ExecutionDevice, device_allocations
from ..in_place import allocate_copy, relayout_spec
from ..matrix_layout import (
    ArraySignature,
    OperandLayout,
    contiguous_signature,
    signature_of,
)
from ..operands.array_operand import ArrayOperand
from ..request import MatmulOptions, Request, check_request, default_result, make_request
from .list_epilogue import ListEpilogue, list_epilogue
from .list_fast_call import ListArguments, remember
from .list_outputs import check_outputs
from .list_plan import ListPlan, ListSignatures
from .problem_arrays import ProblemArrays, problem_arrays
from .table_memory import DeviceTables, MakeTable, UploadedTable

if TYPE_CHECKING:
    from ...relayout import relayout
else:
    relayout = deferred("...relayout.relayout", __package__)

_plans: dict[Any, ListPlan] = {}
_MAX_PLANS = 64


def multiply_list(
    arguments: ListArguments, function: Any, options: MatmulOptions, key: Any = None
) -> list[Any]:
    """The product of each pair of matrices, in the list ``out`` or new arrays. ``key``: of the call
    among those with a fast path.
    """
    a, b, out, operands = arguments
    problems = problem_arrays(a, b, out)
    request = _request(problems[0], options)
    epilogue = list_epilogue(function, operands, problems, request, options)
    check_outputs(problems, epilogue)
    on = device_for_arrays(request.a.device, options.device)
    plan = _plan(problems, request, epilogue, options, on)
    kind, type_ = array_view.kind_of(a[0]), epilogue.graph.d.type
    results = list(out) if out is not None else [
        kind.empty(a[0], (p.mnk[0], p.mnk[1]), type_) for p in problems
    ]  # fmt: skip
    d = [array_view.view(x) for x in results]
    run = _run_staged if request.a.device == "cpu" else _run_in_place
    run(plan, epilogue, problems, d)
    array_view.mark_written(results)
    if request.a.device != "cpu":
        remember(key, arguments, plan, epilogue)
    if kind.finish is not None and out is None:
        results = [kind.finish(a[0], x) for x in results]
    return results


def _request(first: ProblemArrays, options: MatmulOptions) -> Request:
    """The request of the first problem, without its epilogue, checked."""
    precision, fast = options.precision, options.fast_accum
    request = make_request(first.a, first.b, None, None, None, False, precision, fast)
    request = request._replace(dtype=default_result(first.a.dtype))
    check_request(request)
    return request


def _plan(
    problems: Sequence[ProblemArrays], request: Request, epilogue: ListEpilogue,
    options: MatmulOptions, on: ExecutionDevice,
) -> ListPlan:  # fmt: skip
    """The plan for matrices and operands like these, made once."""
    signatures = ListSignatures(
        tuple(signature_of(p.a) for p in problems),
        tuple(signature_of(p.b) for p in problems),
        tuple(_signature_of_d(p, epilogue.graph.d.type) for p in problems),
    )
    key = signatures, epilogue.graph, epilogue.key, request[5:8], str(options.config), on
    plan = _plans.get(key)
    if plan is None:
        if len(_plans) >= _MAX_PLANS:
            _plans.clear()
        plan = _plans[key] = ListPlan(signatures, request, epilogue, options, on)
    return plan


def _signature_of_d(problem: ProblemArrays, type_: str) -> ArraySignature:
    """D's: a new array's is contiguous, and so is that which is downloaded."""
    if problem.out is not None and problem.out.device != "cpu":
        return signature_of(problem.out)
    return contiguous_signature(problem.mnk[:2], type_, problem.a.device)


# --- arrays on a GPU ------------------------------------------------------------------------------


def _run_in_place(
    plan: ListPlan, epilogue: ListEpilogue, problems: Sequence[ProblemArrays], d: list[ArrayView]
) -> None:
    """Launch with the arrays where they are; matrices that tensor copies cannot read are copied."""
    inputs = [[p.a for p in problems], [p.b for p in problems]]
    operands = [None if x is None or x.numbers else x.arrays for x in epilogue.inputs]
    views = [*inputs[0], *inputs[1], *d, *(x.view for own in operands if own for x in own)]
    owners = [view.owner for view in views if view.owner is not None]
    stream = stream_for_arrays(plan.on, *owners)
    copies: list[Any] = []
    matrices = [
        _read_in_place(plan, *x, copies, stream) for x in zip(inputs, plan.layouts, strict=True)
    ]

    memory = DeviceTables(plan.on, problems[0].a.owner, stream)
    addresses = [
        None if own is None else np.array([x.view.address for x in own], np.int64)
        for own in operands
    ]
    own = [*matrices, np.array([view.address for view in d], np.int64)]
    for launch in plan.launches:
        launch.start(own, addresses, epilogue.scales, memory, stream)
    wait_for_hidden_streams(plan.on, stream, tuple(owners))


def _read_in_place(
    plan: ListPlan, views: Sequence[ArrayView], layouts: Sequence[OperandLayout],
    copies: list[Any], stream: int,
) -> Any:  # fmt: skip
    """The addresses of matrices, or of their copies, which are launched here."""
    at, specs, ends = [], [], []
    for view, layout in zip(views, layouts, strict=True):
        if not layout.copied or 0 in view.shape:
            at.append(view.address)
            continue
        at.append(allocate_copy(view, layout, copies))
        specs.append(relayout_spec(view, layout))
        ends += [view.address, at[-1]]
    if specs:
        relayout.prepare(plan.on, tuple(specs))(ends, stream)
    return np.array(at, np.int64)


# --- arrays on the CPU ----------------------------------------------------------------------------


def _run_staged(
    plan: ListPlan, epilogue: ListEpilogue, problems: Sequence[ProblemArrays], d: list[ArrayView]
) -> None:
    """Upload the arrays, launch, download D."""
    with device_allocations(plan.on) as allocations:
        staging = _Staging(plan.on, allocations)
        matrices = [
            [staging.matrix(view, layout) for view, layout in zip(views, layouts, strict=True)]
            for views, layouts in zip(
                ([p.a for p in problems], [p.b for p in problems]), plan.layouts, strict=True
            )
        ]
        results = [staging.alloc(view.shape[0] * view.shape[1] * view.itemsize) for view in d]
        operands = [
            None
            if x is None or x.numbers
            else np.array([staging.operand(y) for y in x.arrays], np.int64)
            for x in epilogue.inputs
        ]
        own = [np.array(x, np.int64) for x in (*matrices, results)]
        for launch in plan.launches:
            launch.start(own, operands, epilogue.scales, staging, 0)
        plan.on.wait()
        for view, address in zip(d, results, strict=True):
            plan.on.download(array_view.bits(view), address, max(view.shape[1], 1))


class _Staging:
    """Uploads of a call; ``allocations`` are freed behind it."""

    kept = False

    def __init__(self, on: ExecutionDevice, allocations: list[int]) -> None:
        self.on, self.allocations = on, allocations
        self._operands: dict[Any, int] = {}

    def alloc(self, nbytes: int) -> int:
        """Device memory."""
        self.allocations.append(self.on.alloc(nbytes))
        return self.allocations[-1]

    def matrix(self, view: ArrayView, layout: OperandLayout) -> int:
        """Upload a matrix in the kernel's layout."""
        bits = array_view.bits(view)
        address = self.alloc(layout.elements(view.shape) * view.itemsize)
        self.on.upload(address, bits if layout.row_major else bits.T, layout.leading_dim)
        return address

    def operand(self, operand: ArrayOperand) -> int:
        """Upload an array of the epilogue without the dimensions along which it does not vary; one
        that several problems share once.
        """
        view = operand.view
        key = view.address, view.shape, view.strides, view.dtype, operand.varies
        if key not in self._operands:
            bits = array_view.bits(view)
            bits = bits[(None,) * (2 - bits.ndim)]
            index = tuple(slice(None) if d in operand.varies else slice(1) for d in "mn")
            rows = np.ascontiguousarray(bits[index]).reshape(1, -1)
            self._operands[key] = self.alloc(rows.nbytes)
            self.on.upload(self._operands[key], rows, rows.size)
        return self._operands[key]

    def find(self, tables: Mapping[int, UploadedTable]) -> UploadedTable | None:
        """Find nothing: tables are freed behind the call."""

    def upload(self, nbytes: int, made: MakeTable) -> UploadedTable:
        """Upload a table."""
        address = self.alloc(nbytes)
        data = made(address)
        self.on.upload(address, data.reshape(1, -1), nbytes)
        self.on.set_read_only(address)
        return UploadedTable(address, None, data)

    def use(self, table: UploadedTable) -> None:
        """Do nothing: ``upload`` has waited."""
