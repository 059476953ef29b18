"""``matmul`` with an epilogue function: operands are classified, the function is traced, and the
call passes the same stages as any other.

An operand is static (None, a bool, text: the function sees it), a scalar (a number or one element)
or an array that broadcasts to D. Arrays on a GPU are read where they are, with any strides; arrays
on the CPU are uploaded without the dimensions along which they do not vary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...errors import DeviceError, EpilogueError
from ...gemm.epilogue.graph import EpilogueGraph, EpilogueInput, EpilogueOutput
from ...gemm.epilogue.tracing import Epilogue, epilogue
from ...gemm.problem import accumulator_type_of
from ..arrays import array_view
from ..arrays.array_kind import Shape
from ..arrays.array_view import ArrayView
from ..arrays.memory_overlap import overlap
from ..devices.array_placement import (
    device_for_arrays,
    stream_for_arrays,
    wait_for_hidden_streams,
)
from .alpha_beta import ScaleFactor, scale_factor
from .in_place import launch_in_place
from .matrix_layout import MAX_ALIGN, OperandViews, signature_of
from .prepared_call import Addresses, PreparedCall, prepare_call
from .request import (
    EpilogueRequest,
    OperandSignature,
    Request,
    check_output_overlap,
    check_request,
    common_device,
    default_result,
    format_name,
    make_request,
)
from .staging import StagedCall

INPUT_TYPES = ("f32", "f16", "bf16", "e4m3", "e5m2", "s8", "u8", "s32", "f64")
ONE, ZERO = ScaleFactor(1.0), ScaleFactor(0.0)
Strides3 = tuple[int, int, int]  # along M, N and the batch


class ArrayOperand(NamedTuple):
    """An input that varies: its view, the dimensions along which it does, and its strides."""

    view: ArrayView
    varies: str
    strides: Strides3


class Operands(NamedTuple):
    """The operands of a call, by name."""

    static: dict[str, Any]
    scalars: dict[str, ScaleFactor]
    arrays: dict[str, ArrayOperand]


def epilogue_matmul(
    a: Any,
    b: Any,
    function: Any,
    factors: Mapping[str, tuple[Any, Any]],
    given: Mapping[str, Any],
    options: Any,
    out: Any,
) -> Any:
    """``matmul`` with an epilogue: D, or a dict of its outputs. ``factors``: c, α and β and their
    defaults; ``given``: operands by name; ``options``: ``matmul.MatmulOptions``.

    Raises EpilogueError for operands that the function lacks or that do not broadcast to D.
    """
    if function is None:
        unexpected = ", ".join(given)
        raise TypeError(
            f"matmul() got unexpected arguments {unexpected}; operands need an epilogue"
        )
    traced_function = epilogue(function)
    b, b2 = b if isinstance(b, tuple | list) and len(b) == 2 else (b, None)
    accumulators = 1 if b2 is None else 2
    names = traced_function.parameters[accumulators:]
    given = _with_factors(traced_function, names, factors, given)
    kind = array_view.kind_of(a)
    va, vb, vout, vb2 = kind.view(a), array_view.view(b), _view_or_none(out), _view_or_none(b2)
    where = common_device(va, vb, vb2, vout)
    plain = make_request(va, vb, None, vout, None, False, options.precision, options.fast_accum)
    plain = plain._replace(b2=None if vb2 is None else signature_of(vb2))
    accumulator = accumulator_type_of(plain.mma_dtypes[0])
    probe = plain._replace(dtype=default_result(va.dtype), out=None)
    check_request(probe)
    operands = _classified(names, traced_function, given, probe, where)
    types = accumulator, va.dtype
    graph = _traced(traced_function, operands, types, accumulators, options, vout)
    request = _request(plain, graph, operands, where)
    prepared = prepare_call(request, device_for_arrays(where, options.device), options.config)
    results = _results(graph, request, lambda shape, type_: kind.empty(a, shape, type_), out)
    views = OperandViews(va, vb, None, array_view.view(results[graph.d.name]), vb2)
    inputs = [operands.arrays.get(i.name) for i in graph.inputs]
    if out is not None:
        _check_out(views, operands)
    scales = (ONE, ZERO, *(operands.scalars[i.name] for i in graph.inputs if not i.varies))
    more = [x for name, x in results.items() if name != graph.d.name]
    owners = [x.view.owner for x in inputs if x]
    EpilogueCall(prepared, views, scales, inputs, more).run((a, b, *owners, *results.values()))
    if out is None and kind.finish is not None:
        results = {name: kind.finish(a, x) for name, x in results.items()}
    if not graph.named:
        return results[graph.d.name]
    return {o.name: results[o.name] for o in graph.outputs}


def _view_or_none(array: Any) -> ArrayView | None:
    return None if array is None else array_view.view(array)


def _results(
    graph: EpilogueGraph, request: Request, empty: Callable[[Shape, str], Any], out: Any
) -> dict[str, Any]:
    """Arrays for all outputs: D, the other tensors, the reductions."""
    results = {graph.d.name: out}
    if out is None:
        results[graph.d.name] = empty(request.output_shape, request.dtype)
    for output in graph.tensors[1:]:
        results[output.name] = empty(request.output_shape, output.type)
    for output in graph.reductions:
        shape = _reduced_shape(output, request)
        if 0 in request.output_shape and 0 not in shape:
            raise EpilogueError(f"{output.name} reduces D, which has no elements")
        results[output.name] = empty(shape, output.type)
    return results


def _check_out(views: OperandViews, operands: Operands) -> None:
    """Raise an error if ``out`` overlaps an input in another way than element by element."""
    check_output_overlap(views.a, views.b, None, views.d)
    if views.b2 is not None and overlap(views.d, views.b2):
        raise EpilogueError("out must not share memory with b, which the kernel reads")
    for name, operand in operands.arrays.items():
        _check_apart(name, operand.view, views.d)


def _with_factors(
    function: Epilogue,
    names: tuple[str, ...],
    factors: Mapping[str, tuple[Any, Any]],
    given: Mapping[str, Any],
) -> dict[str, Any]:
    """The operands, and those of c, α and β that the function names."""
    operands = dict(given)
    for name, (value, default) in factors.items():
        if name in names:
            if value is not default or name not in function.defaults:
                operands[name] = value
        elif value is not default and not (isinstance(value, float | int) and value == default):
            raise EpilogueError(
                f"{name} is given, and {function} has no operand of this name",
                hint=f"add a parameter {name} to the function",
            )
    return operands


def _classified(
    names: tuple[str, ...],
    function: Epilogue,
    given: Mapping[str, Any],
    request: Request,
    where: str,
) -> Operands:
    """The operands by kind."""
    operands = Operands({}, {}, {})
    shape = (prod(request.batch), *request.mnk[:2])
    for name, value in _named(names, function, given).items():
        if value is None or isinstance(value, bool | str):
            operands.static[name] = value
        elif not array_view.is_array(value) or isinstance(value, np.generic):
            operands.scalars[name] = scale_factor(name, value, where, request.scale_dtype)
        else:
            view = array_view.view(value)
            if prod(view.shape) == 1:
                operands.scalars[name] = scale_factor(name, value, where, request.scale_dtype)
            else:
                operands.arrays[name] = _array_operand(name, view, shape, request, where)
    return operands


def _named(names: tuple[str, ...], function: Epilogue, given: Mapping[str, Any]) -> dict[str, Any]:
    """The operands by name; those left out have their defaults."""
    for name in given:
        if name not in names:
            known = ", ".join(names) or "none"
            raise EpilogueError(f"{function} has no operand {name}; its operands are {known}")
    missing = [name for name in names if name not in given and name not in function.defaults]
    if missing:
        raise EpilogueError(f"{function} needs the operand {missing[0]}, which is not given")
    return {name: given[name] for name in names if name in given}


def _array_operand(
    name: str, view: ArrayView, shape: tuple[int, int, int], request: Request, where: str
) -> ArrayOperand:
    """An array that broadcasts to D, whose shape is (batch, M, N)."""
    if view.device != where:
        raise DeviceError(f"{name} must be on {where}, where the matrices are, got {view.device}")
    if view.dtype not in INPUT_TYPES or (view.dtype == "f64") != (request.scale_dtype == "f64"):
        allowed = "f64" if request.scale_dtype == "f64" else ", ".join(INPUT_TYPES[:-1])
        raise EpilogueError(f"{name} must be one of {allowed}, got {view.dtype}")
    rank = len(request.output_shape)
    sizes = (1,) * (rank - len(view.shape)) + view.shape
    target = shape[-rank:]
    fits = len(sizes) == rank and all(s in (1, t) for s, t in zip(sizes, target, strict=True))
    if not fits:
        shown = "×".join(map(str, target))
        hint = f"a value per row has shape ({shape[1]}, 1)" if view.shape == (shape[1],) else ""
        raise EpilogueError(
            f"{name} must broadcast to D, {shown}, got shape {view.shape}", hint=hint
        )
    if view.address % view.itemsize:
        raise EpilogueError(f"{name} must be aligned to its elements, got {view.address:#x}")
    strides = (0,) * (rank - len(view.shape)) + view.strides
    kept = [0 if size == 1 else stride for size, stride in zip(sizes, strides, strict=True)]
    varies = "".join(d for d, size in zip("bmn"[-rank:], sizes, strict=True) if size > 1)
    return ArrayOperand(view, varies, (kept[-2], kept[-1], kept[0] if rank == 3 else 0))


def _traced(
    function: Epilogue,
    operands: Operands,
    types: tuple[str, str],
    accumulators: int,
    options: Any,
    out: ArrayView | None,
) -> EpilogueGraph:
    """The graph. D has ``out_dtype`` or the type of ``out``; else the type it is cast to, else the
    inputs' default. ``types``: of the accumulator and of A.
    """
    accumulator, a = types
    scalar = "f64" if accumulator == "f64" else "f32"
    inputs = [EpilogueInput(name, scalar, "") for name in operands.scalars]
    inputs += [EpilogueInput(n, x.view.dtype, x.varies) for n, x in operands.arrays.items()]
    default = default_result(a) if accumulator != "s32" else "f32"
    name, asked = "out_dtype", None
    if options.out_dtype is not None:
        asked = format_name(options.out_dtype)
    elif out is not None:
        name, asked = "out", out.dtype
    static = tuple(sorted(operands.static.items()))
    graph = function.trace(accumulator, tuple(inputs), static, asked or default, accumulators)
    if asked is not None and graph.d.type != asked:
        raise EpilogueError(f"{function} returns D as {graph.d.type}, got {name} of {asked}")
    return graph


def _request(plain: Request, graph: EpilogueGraph, operands: Operands, where: str) -> Request:
    """The request with the signatures of all arrays of the epilogue."""
    m, n = plain.mnk[:2]
    signatures: list[OperandSignature | None] = []
    for source in graph.inputs:
        operand = operands.arrays.get(source.name)
        signatures.append(operand and _signature(operand, m, n, where))
    row_major = (n, 1, m * n if plain.batch else 0)
    signatures += [OperandSignature(o.type, row_major) for o in graph.tensors[1:]]
    epilogue_request = EpilogueRequest(graph, tuple(signatures))
    return plain._replace(dtype=graph.d.type, epilogue=epilogue_request)


def _reduced_shape(output: EpilogueOutput, request: Request) -> tuple[int, ...]:
    """The shape of a reduction: D's without the reduced dimensions."""
    dimensions = "bmn"[-len(request.output_shape) :]
    sizes = zip(dimensions, request.output_shape, strict=True)
    return tuple(size for dimension, size in sizes if dimension not in output.reduced)


def _signature(operand: ArrayOperand, m: int, n: int, where: str) -> OperandSignature:
    if where != "cpu":
        misalignment = operand.view.address % MAX_ALIGN
        return OperandSignature(operand.view.dtype, operand.strides, misalignment)
    columns = n if "n" in operand.varies else 1
    rows = m if "m" in operand.varies else 1
    strides = (
        columns if "m" in operand.varies else 0,
        1 if "n" in operand.varies else 0,
        rows * columns if "b" in operand.varies else 0,
    )
    return OperandSignature(operand.view.dtype, strides)


def _check_apart(name: str, view: ArrayView, out: ArrayView) -> None:
    """Raise EpilogueError if ``out`` overlaps an operand, unless both are the same elements."""
    same = (view.address, view.shape, view.strides) == (out.address, out.shape, out.strides)
    if overlap(view, out) and not (same and view.itemsize == out.itemsize):
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

    def run(self, arrays: Sequence[Any]) -> None:
        """Launch the kernels; arrays on the CPU are staged. ``arrays``: all arrays of the call."""
        prepared, views = self.prepared, self.views
        if prepared.staged or 0 in views.d.shape:
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
        operands = [self._upload_input(x) if x else 0 for x in self._inputs]
        operands += [self._alloc(prod(view.shape) * view.itemsize) for view in self._outputs]
        return addresses._replace(operands=tuple(operands))

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
        pairs = zip(self._outputs, self._at.operands[len(self._inputs) :], strict=True)
        for view, address in () if self._empty else pairs:
            flat = array_view.bits(view).reshape(1, -1)
            self.prepared.device.download(flat, address, flat.size)
            array_view.mark_written([view.owner])
