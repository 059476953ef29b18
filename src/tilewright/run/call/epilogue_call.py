"""``matmul`` with an epilogue function: results allocated, kernels launched, arrays staged.

The call passes the same stages as any other; ``epilogue_request`` is its first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import gemm
from ...errors import DeviceError, EpilogueError
from ...gemm.epilogue.graph import EpilogueGraph, EpilogueOutput
from ...gemm.epilogue.tracing import epilogue_key
from ..arrays import array_view
from ..arrays.array_kind import Shape
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlap
from ..devices.array_placement import (
    device_for_arrays,
    stream_for_arrays,
    wait_for_hidden_streams,
)
from . import two_products
from .alpha_beta import ScaleFactor
from .batching.batch_loop import (
    BatchArrays,
    UnfoldedBatch,
    batch_parts,
    check_outputs_apart,
)
from .epilogue_fast_call import LaunchedEpilogue, fast_matmul
from .epilogue_request import (
    EpilogueArguments,
    RequestedEpilogue,
    epilogue_arguments,
    request_with_epilogue,
)
from .fast_path import CallCache, FastCall
from .grouped.row_groups import RowGroups
from .in_place import launch_in_place
from .matrix_layout import OperandViews
from .operands.array_operand import ArrayOperand
from .operands.output_overlap import check_factors_apart, check_output_overlap, same_elements
from .prepared_call import Addresses, PreparedCall
from .request import (
    BlockScales,
    MatmulOptions,
    Request,
)
from .scaled.block_scale_views import request_with_scales
from .scaled.scaled_operands import has_quantized, without_scales
from .staging import StagedCall

_fast_calls = CallCache()


def matmul_with_epilogue(arguments: Sequence[Any], options: tuple[Any, ...], function: Any) -> Any:
    """``matmul`` with an epilogue: D, or a dict of its outputs. ``arguments``: a, b, c, out, α, β
    and the operands by name; ``options``: those of ``MatmulOptions``.

    Raises EpilogueError for operands that the function lacks or that do not broadcast to D.
    """
    a, b = arguments[:2]
    try:
        shapes = (b[0].shape, b[1].shape) if type(b) in (tuple, list) else b.shape
        key: Any = epilogue_key(function), type(a), a.shape, shapes, options
        candidates = _fast_calls.by_key.get(key, ())
    except (AttributeError, IndexError, RuntimeError, TypeError):  # no shape, or not hashable
        key, candidates = None, ()
    for fast_call in candidates:
        result = fast_call(*arguments)
        if result is not None:
            return result
    *_, c, out, alpha, beta, operands = arguments
    matrices = (a, *b) if isinstance(b, tuple | list) else (a, b)
    arrays = *matrices, c, out, alpha, beta, *operands.values()
    if function is not None and (own := array_view.operators(arrays)):
        named = {"c": c, "alpha": alpha, "beta": beta, **MatmulOptions(*options)._asdict()}
        return own.matmul(a, b, out=out, epilogue=function, **named, **operands)
    call, repeat = slow_epilogue_call(arguments, MatmulOptions(*options), function)
    known = key is not None and key[0] is not None and key[0] == epilogue_key(function)
    if known and repeat is not None:
        _fast_calls.add(key, repeat)
    return call.result


def slow_epilogue_call(
    arguments: Sequence[Any],
    options: MatmulOptions,
    function: Any,
    problem: gemm.Problem | None = None,
) -> tuple[LaunchedEpilogue, FastCall | None]:
    """All stages of a call, and a fast path for repeating it if there is one. ``problem``: the
    plan's; ProblemError for arrays that pose another. A and B may be Scaled matrices.
    """
    a, b, c, out, alpha, beta, operands = arguments
    scales = None
    static = options.static
    if function is not None and (static is not None or has_quantized(a, b)):
        found = without_scales(a, b, function, operands, static)
        a, b, function, operands, scales = found
    passed = epilogue_arguments(function, c, alpha, beta, operands)
    call = launch_with_epilogue(a, b, passed, options, out, problem, scales)
    if isinstance(out, Mapping):
        return call, None  # arrays for several outputs have no fast path
    return call, fast_matmul(call, arguments, static)


def launch_with_epilogue(
    a: Any,
    b: Any,
    arguments: EpilogueArguments,
    options: MatmulOptions,
    out: Any,
    problem: gemm.Problem | None = None,
    scales: BlockScales | None = None,
    groups: RowGroups | None = None,
) -> LaunchedEpilogue:
    """Stages 1 to 5 of a call. ``scales``: of blocks of A and B; ``groups``: of their rows."""
    if two_products.differ(a, b):
        return two_products.launch_two(launch_with_epilogue, a, b, arguments, options, out, groups)
    try:
        requested = request_with_epilogue(a, b, arguments, options, out, groups and groups.request)
    except UnfoldedBatch as unfolded:
        if scales is not None or problem is not None:
            raise
        return _launch_parts(a, b, arguments, options, out, unfolded)
    scale_views = None
    if scales is not None:
        request, scale_views = request_with_scales(requested.request, scales)
        requested = requested._replace(request=request)
    request, graph = requested.request, requested.graph
    if problem is not None:
        request = _as_planned(request, problem)
    device = device_for_arrays(requested.device, options.device)
    prepared = two_products.one_call(request, device, options.config)
    if prepared is None:
        return two_products.launch_two(launch_with_epilogue, a, b, arguments, options, out, groups)
    prepared.check_problem(problem)
    kind = array_view.kind_of(a)
    outs = requested.outs
    results = _results(requested, lambda shape, type_: kind.empty(a, shape, type_))
    d = requested.d_part(array_view.view(results[graph.d.name]))
    sizes = None if groups is None else groups.arrays
    views = OperandViews(requested.a, requested.b, None, d, requested.b2, scale_views, sizes)
    _check_outs(views, requested)
    if groups is not None:
        written = {name: array_view.view(x) for name, x in outs.items() if x is not None}
        copied = {name for name, x in prepared.layouts.items() if x.copied and not prepared.staged}
        groups.check(requested.device, written, copied)
        given = {name: x.view for name, x in requested.operands.arrays.items()}
        groups.check_operands(given, d)
    if scale_views is not None and out is not None:
        scale_views.check_apart(d)
    inputs = requested.inputs
    more = [x for name, x in results.items() if name != graph.d.name]
    read = [requested.b, requested.b2, *(x.view for x in inputs if x)]
    owners = [view.owner for view in (*read, *(scale_views or ()), *(sizes or ())) if view]
    call = EpilogueCall(prepared, views, requested.scales, inputs, more)
    call.run((a, *owners, *results.values()))
    if kind.finish is not None:
        new = {name: kind.finish(a, x) for name, x in results.items() if name not in outs}
        results |= new
    outputs = {o.name: results[o.name] for o in graph.outputs}
    return LaunchedEpilogue(requested, prepared, outputs, call.in_place)


def _launch_parts(
    a: Any, b: Any, arguments: EpilogueArguments, options: MatmulOptions, out: Any,
    unfolded: UnfoldedBatch,
) -> LaunchedEpilogue:  # fmt: skip
    """A launch for each index of the batch dimensions that do not fold, for outputs that all have
    D's shape; calls like this one have no fast path.
    """
    c, default = arguments.factors.get("c", (None, None))
    given = dict(arguments.operands) | ({"c": c} if c is not default else {})
    factors = {name: x for name, x in arguments.factors.items() if name != "c"}
    arguments = arguments._replace(factors=factors)
    named = dict(out) if isinstance(out, Mapping) else {} if out is None else {"out": out}
    arrays = BatchArrays(a, b, given, {name: x for name, x in named.items() if x is not None})
    first = next(batch_parts(arrays, unfolded))
    own = arguments._replace(operands=first.operands)
    into = first.outs if isinstance(out, Mapping) else first.outs.get("out")
    requested = request_with_epilogue(first.a, first.b, own, options, into)
    graph, kind = requested.graph, array_view.kind_of(a)
    if graph.reductions:
        raise unfolded
    check_outputs_apart(arrays)
    shape, outs = unfolded.folding.shape.result, arrays.outs
    if "out" in outs and not isinstance(out, Mapping):
        outs = {graph.d.name: out}
    _check_names(graph, outs)
    results = {
        o.name: outs[o.name] if o.name in outs else kind.empty(a, shape, o.type)
        for o in graph.tensors
    }
    calls = [
        launch_with_epilogue(
            part.a, part.b, arguments._replace(operands=part.operands), options, part.outs
        )
        for part in batch_parts(arrays._replace(outs=results), unfolded)
    ]
    array_view.mark_written(results.values())
    return calls[-1]._replace(outputs=results, in_place=False)


def _as_planned(request: Request, problem: gemm.Problem) -> Request:
    """The request, which reads D as an operand where the plan does not accumulate in place."""
    if problem.epilogue and problem.epilogue.accumulated:
        return request
    return request._replace(accumulated="")


def _results(requested: RequestedEpilogue, empty: Callable[[Shape, str], Any]) -> dict[str, Any]:
    """Arrays for all outputs, the caller's or new ones: D, the other tensors, the reductions."""
    graph, results = requested.graph, {}
    for output in (*graph.tensors, *graph.reductions):
        shape = requested.output_shape(output)
        if output.reduced and 0 in requested.request.output_shape and 0 not in shape:
            raise EpilogueError(f"{output.name} reduces D, which has no elements")
        if (x := requested.outs.get(output.name)) is None:
            x = empty(shape, output.type)
        results[output.name] = x
    return results


def _check_outs(views: OperandViews, requested: RequestedEpilogue) -> None:
    """Raise an error if the caller's arrays for outputs are no outputs or do not fit, or if they
    overlap the inputs; D may overlap an operand element by element.
    """
    graph, outs = requested.graph, requested.outs
    _check_names(graph, outs)
    if graph.d.name in outs:
        _check_out(views, requested)
    written = {name: array_view.view(x) for name, x in outs.items() if x is not None}
    for output in graph.outputs:
        if output.name in written and output is not graph.d:
            _check_more(output, written, views, requested)


def _check_names(graph: EpilogueGraph, outs: Mapping[str, Any]) -> None:
    """Raise EpilogueError for an array for what is no output."""
    names = [o.name for o in graph.outputs]
    if unknown := [name for name in outs if name not in names]:
        what = f"out has {unknown[0]!r:.40}, which is no output of {', '.join(names)}"
        raise EpilogueError(what)


def _check_more(
    output: EpilogueOutput, written: Mapping[str, ArrayView], views: OperandViews,
    requested: RequestedEpilogue,
) -> None:  # fmt: skip
    """Raise EpilogueError or DeviceError for an array for an output after D."""
    name, view = output.name, written[output.name]
    if view.readonly:
        raise EpilogueError(f"out[{name!r}] must be writable, got a read-only array")
    shape = requested.output_shape(output)
    contiguous = tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
    if (view.dtype, view.shape) != (output.type, shape) or any(
        size > 1 and got != stride
        for size, got, stride in zip(shape, view.strides, contiguous, strict=True)
    ):
        text = f"got {view.dtype} of shape {view.shape} with strides {view.strides}"
        raise EpilogueError(
            f"out[{name!r}] must be contiguous, {output.type} of shape {shape}, {text}"
        )
    if view.device != requested.device:
        where = requested.device
        raise DeviceError(f"out[{name!r}] must be on {where}, where a is, got {view.device}")
    inputs = {"a": views.a, "b": views.b, "b2": views.b2, requested.graph.d.name: views.d}
    inputs |= {key: x.view for key, x in requested.operands.arrays.items()}
    inputs |= {key: other for key, other in written.items() if key != name}
    for key, other in inputs.items():
        if other is not None and overlap(view, other):
            raise EpilogueError(f"out[{name!r}] must not share memory with {key}")
    check_factors_apart(
        requested.operands.scalars, requested.request.scale_dtype, requested.device, view
    )


def _check_out(views: OperandViews, requested: RequestedEpilogue) -> None:
    """Raise an error if D's array overlaps an input in another way than element by element."""
    operands, dtype = requested.operands, requested.request.scale_dtype
    check_output_overlap(views.a, views.b, None, views.d)
    if views.b2 is not None and overlap(views.d, views.b2):
        raise EpilogueError("out must not share memory with b, which the kernel reads")
    for name, operand in operands.arrays.items():
        _check_apart(name, operand.view, views.d)
    check_factors_apart(operands.scalars, dtype, requested.device, views.d)


def _check_apart(name: str, view: ArrayView, out: ArrayView) -> None:
    """Raise EpilogueError if ``out`` overlaps an operand, unless both are the same elements."""
    if overlap(view, out) and not same_elements(view, out):
        hint = "pass the same array as operand and as out, or separate ones"
        raise EpilogueError(
            f"out must not share memory with {name}, got a partial overlap", hint=hint
        )


class EpilogueCall:
    """The launch of a call with an epilogue. ``inputs``: the array operands in the graph's order,
    None for scalars; ``outputs``: the tensor outputs after D.
    """

    def __init__(
        self,
        prepared: PreparedCall,
        views: OperandViews,
        scales: Sequence[ScaleFactor],
        inputs: Sequence[ArrayOperand | None],
        outputs: Sequence[Any],
    ) -> None:
        self.prepared, self.views, self.scales = prepared, views, scales
        self.inputs = inputs
        self.outputs = [array_view.view(x) for x in outputs]

    @property
    def in_place(self) -> bool:
        """Whether kernels are launched, and read and write the arrays where they are."""
        return not self.prepared.staged and 0 not in self.views.d.shape

    def run(self, arrays: Sequence[Any]) -> None:
        """Launch the kernels; arrays on the CPU are staged. ``arrays``: all arrays of the call."""
        prepared, views = self.prepared, self.views
        if not self.in_place:
            staged = StagedEpilogueCall(prepared, views, self.scales, self.inputs, self.outputs)
            with staged:
                staged.start()
                staged.download()
            return
        stream = stream_for_arrays(prepared.device, *arrays)
        operands = (*(x.view.address if x else 0 for x in self.inputs),)
        operands += tuple(view.address for view in self.outputs)
        launch_in_place(prepared, views, self.scales, stream, operands)
        array_view.mark_written([views.d.owner, *(view.owner for view in self.outputs)])
        wait_for_hidden_streams(prepared.device, stream, tuple(arrays))


class StagedEpilogueCall(StagedCall):
    """A staged call whose epilogue's arrays are in device memory, too."""

    def __init__(
        self,
        prepared: PreparedCall,
        views: OperandViews,
        scales: Sequence[ScaleFactor],
        inputs: Sequence[ArrayOperand | None],
        outputs: Sequence[ArrayView],
    ) -> None:
        super().__init__(prepared, views, scales)
        self._inputs, self._outputs = inputs, outputs

    def _upload(self) -> Addresses:
        addresses = super()._upload()
        epilogue, accumulated = self.prepared.request.epilogue, self.prepared.accumulated
        assert epilogue is not None
        operands = [
            addresses.d if source.name == accumulated else self._upload_input(x) if x else 0
            for source, x in zip(epilogue.graph.inputs, self._inputs, strict=True)
        ]
        operands += [self._alloc_output(view) for view in self._outputs]
        return addresses._replace(operands=tuple(operands))

    def _alloc_output(self, view: ArrayView) -> int:
        """Memory for an output after D; with groups its contents, as of D."""
        if self.views.groups:
            return self._upload_compact(view)
        return self._alloc(prod(view.shape) * view.itemsize)

    def _upload_input(self, operand: ArrayOperand) -> int:
        """Upload an array without the dimensions along which it does not vary."""
        bits = array_view.bits(operand.view)
        bits = bits[(None,) * (3 - bits.ndim)]
        index = tuple(slice(None) if d in operand.varies else 0 for d in "bmn")
        rows = np.ascontiguousarray(bits[index]).reshape(1, -1)
        address = self._alloc(rows.nbytes)
        self.prepared.device.upload(address, rows, rows.size)
        return address

    def download(self) -> None:
        """Wait for the kernels and copy D and the other outputs to their arrays."""
        super().download()
        if self._empty:
            return
        addresses = self._at.operands[len(self._inputs) :]
        for view, address in zip(self._outputs, addresses, strict=True):
            flat = array_view.bits(view).reshape(1, -1)
            self.prepared.device.download(flat, address, flat.size)
            array_view.mark_written([view.owner])
