"""The request of a call with an epilogue function: operands classified, the function traced.

An operand is static (None, a bool, text: the function sees it), a scalar (a number or one element)
or an array that broadcasts to D. Arrays on a GPU are read where they are, with any strides; arrays
on the CPU are uploaded without the dimensions along which they do not vary.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...errors import EpilogueError, ProblemError
from ...gemm.epilogue.graph import (
    BIT,
    BITMASK,
    EpilogueGraph,
    EpilogueInput,
    EpilogueOutput,
)
from ...gemm.epilogue.tracing import Epilogue, epilogue
from ...gemm.problem import accumulator_type_of, scalar_type_of
from ..arrays import array_view
from ..arrays.array_kind import Shape
from ..arrays.array_view import ArrayView
from .alpha_beta import ALPHA, BETA, ScaleFactor, scale_factor
from .batching.batch_dimensions import is_one_product
from .batching.epilogue_batch import EpilogueBatch, epilogue_batches
from .matrix_layout import MAX_ALIGN, signature_of
from .operands.accumulated_operand import accumulated_operand
from .operands.array_operand import INTEGER_TYPES, ArrayOperand, array_operand
from .operands.output_overlap import common_device
from .request import (
    EpilogueRequest,
    GroupRequest,
    OperandSignature,
    Request,
    check_request,
    default_result,
    format_name,
    make_request,
)

OWN = ("a", "b", "out", "out_dtype", "precision", "fast_accum", "device", "config", "epilogue")
_SCALES = frozenset(("a_scales", "b_scales"))  # of Scaled matrices, whose products are not s32
ONE, ZERO = ScaleFactor(1.0), ScaleFactor(0.0)


class Operands(NamedTuple):
    """The operands of a call, by name."""

    static: dict[str, Any]
    scalars: dict[str, ScaleFactor]
    arrays: dict[str, ArrayOperand]


class EpilogueArguments(NamedTuple):
    """What a call passes besides A, B and ``out``: the function, ``factors`` (c, α and β, each with
    its default) and ``operands`` by name.
    """

    function: Any
    factors: Mapping[str, tuple[Any, Any]]
    operands: Mapping[str, Any]


def epilogue_arguments(
    function: Any, c: Any, alpha: Any, beta: Any, operands: Mapping[str, Any]
) -> EpilogueArguments:
    """The arguments of a call that concern its epilogue."""
    factors = {"c": (c, None), "alpha": (alpha, ALPHA), "beta": (beta, BETA)}
    return EpilogueArguments(function, factors, operands)


class RequestedEpilogue(NamedTuple):
    """A request with its arrays, on ``device``. ``b2``: the second matrix B, or None; ``given``:
    the operands that the caller passed; ``outs``: the arrays for outputs, by their names;
    ``batch``: how batch dimensions are folded, None for two matrices or two stacks of them.
    """

    request: Request
    graph: EpilogueGraph
    a: ArrayView
    b: ArrayView
    b2: ArrayView | None
    operands: Operands
    device: str
    given: Mapping[str, Any]
    outs: Mapping[str, Any]
    batch: EpilogueBatch | None = None

    def d_part(self, d: ArrayView) -> ArrayView:
        """The caller's D as a matrix or a stack of matrices."""
        return d if self.batch is None else self.batch.part("out", d)

    def output_shape(self, output: EpilogueOutput) -> Shape:
        """The shape of an output: D's, without the dimensions that a reduction combines; bytes of
        a row of a bitmask.
        """
        if self.batch is not None:
            return self.batch.output_shape(output)
        shape = self.request.output_shape
        if output.reduction == BITMASK:
            return (*shape[:-1], -(-shape[-1] // 8))
        sizes = zip("bmn"[-len(shape) :], shape, strict=True)
        return tuple(size for dimension, size in sizes if dimension not in output.reduced)

    @property
    def inputs(self) -> list[ArrayOperand | None]:
        """The array operands in the graph's order, None for scalars."""
        return [self.operands.arrays.get(source.name) for source in self.graph.inputs]

    @property
    def scales(self) -> tuple[ScaleFactor, ...]:
        """α and β, which have no effect, then the scalars in the graph's order."""
        scalars = (i.name for i in self.graph.inputs if not i.varies)
        return (ONE, ZERO, *(self.operands.scalars[name] for name in scalars))


def request_with_epilogue(
    a: Any,
    b: Any,
    arguments: EpilogueArguments,
    options: Any,
    out: Any,
    groups: GroupRequest | None = None,
) -> RequestedEpilogue:
    """The request of ``matmul`` with an epilogue; ``b`` may be two matrices, ``out`` a dict of
    arrays by outputs. ``options``: ``matmul.MatmulOptions``; ``groups``: of rows or along K.

    Raises EpilogueError for operands that the function lacks or that do not broadcast to D,
    ProblemError for more than two matrices b.
    """
    if arguments.function is None:
        unexpected = ", ".join(arguments.operands)
        what = f"matmul() got unexpected arguments {unexpected}"
        raise TypeError(f"{what}; operands need an epilogue")
    function = epilogue(arguments.function)
    if isinstance(out, tuple | list):
        what = f"out must be an array, which D is written to, got {type(out).__name__}"
        raise EpilogueError(what, hint="a dict has arrays for several outputs, by their names")
    if isinstance(b, tuple | list) and len(b) != 2:
        raise ProblemError(f"b must be one matrix or two, got {len(b)}")
    b, b2 = b if isinstance(b, tuple | list) else (b, None)
    accumulators = 1 if b2 is None else 2
    if len(function.parameters) < accumulators:
        raise EpilogueError(f"{function} must take two accumulators for two matrices b")
    names = function.parameters[accumulators:]
    given = _with_factors(function, names, arguments.factors, arguments.operands)
    matrices = {"a": a, "b": b} | ({} if b2 is None else {"b2": b2})
    views = {name: array_view.view(x) for name, x in matrices.items()}
    call = _Call(function, names, given, options, out)
    if groups is not None:
        return _requested(call, views, groups=groups)
    if is_one_product(views["a"].shape, views["b"].shape):
        return _requested(call, views)
    arrays = _array_operands(call, scalar_type_of(default_result(views["a"].dtype)))
    d = {} if out is None or isinstance(out, Mapping) else {"out": array_view.view(out)}
    for batch in epilogue_batches(views | d, arrays):
        requested = _requested(call, views, batch)
        if batch.keeps(requested.graph):
            return requested
    raise AssertionError("a batch of matrices keeps every graph")


class _Call(NamedTuple):
    """What a call passes besides A and B: the function, the names of its operands, those that are
    given, the ``MatmulOptions``, and ``out``.
    """

    function: Epilogue
    names: tuple[str, ...]
    given: Mapping[str, Any]
    options: Any
    out: Any

    @property
    def named(self) -> dict[str, Any]:
        """The operands by name; those left out have their defaults."""
        return named_operands(self.names, self.function, self.given)


def _array_operands(call: _Call, scalar_type: str) -> dict[str, ArrayView]:
    """The operands that are arrays of several elements, or of integers."""
    return {
        name: array_view.view(x)
        for name, x in call.named.items()
        if array_view.is_array(x) and not is_scalar(x, scalar_type)
    }


def _requested(
    call: _Call,
    views: Mapping[str, ArrayView],
    batch: EpilogueBatch | None = None,
    groups: GroupRequest | None = None,
) -> RequestedEpilogue:
    """The request of one product, whose batch dimensions are folded by ``batch``."""
    if batch is not None:
        views = {name: batch.part(name, view) for name, view in views.items()}
    va, vb, vb2 = views["a"], views["b"], views.get("b2")
    options, out = call.options, call.out
    where = common_device(va, vb, vb2)
    plain = make_request(va, vb, None, None, None, False, options.precision, options.fast_accum)
    plain = plain._replace(b2=None if vb2 is None else signature_of(vb2), groups=groups)
    accumulator = accumulator_type_of(plain.mma_dtypes[0], plain.weights is not None)
    probe = plain._replace(dtype=default_result(va.dtype, plain.weights is not None))
    check_request(probe)
    operands = _classified(call, probe, where, batch)
    accumulators = 1 if vb2 is None else 2
    traced = call.function, operands, (accumulator, va.dtype), accumulators, options
    outs: dict[str, Any] = {}
    if isinstance(out, Mapping):
        outs = dict(out)
        out = outs.get(traced_graph(*traced, None).d.name)
    vout = None if out is None else array_view.view(out)
    graph = traced_graph(*traced, vout)
    part = None
    if vout is not None:
        common_device(va, vb, vb2, vout)
        part = vout if batch is None else batch.part("out", vout)
        plain = plain._replace(out=signature_of(part))
        outs[graph.d.name] = out
    accumulated = accumulated_operand(graph, operands.arrays, part, groups)
    request = _request(plain, graph, operands, where, outs)._replace(accumulated=accumulated)
    return RequestedEpilogue(request, graph, va, vb, vb2, operands, where, call.given, outs, batch)


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


def _classified(call: _Call, request: Request, where: str, batch: EpilogueBatch | None) -> Operands:
    """The operands by kind."""
    operands = Operands({}, {}, {})
    shape = (request.matrices, *request.mnk[:2])
    for name, value in call.named.items():
        if value is None or isinstance(value, bool | str):
            operands.static[name] = value
        elif is_scalar(value, request.scale_dtype):
            operands.scalars[name] = scale_factor(name, value, where, request.scale_dtype)
        else:
            view = array_view.view(value)
            if batch is not None:
                view = batch.operand(name, view)
            own = shape
            if request.groups is not None and name in request.groups.gathered:
                own = shape[0], request.a.matrix_shape[-2], shape[2]
            operands.arrays[name] = array_operand(name, view, own, request, where)
    return operands


def is_scalar(value: Any, dtype: str) -> bool:
    """Whether an operand is a scalar of the kernel, whose scalars have this type: a number, or one
    element, which in device memory must have the type. One element of an integer type is an array.
    """
    if value is None or isinstance(value, bool | str):
        return False
    if not array_view.is_array(value) or isinstance(value, np.generic):
        return True
    view = array_view.view(value)
    if prod(view.shape) != 1 or view.dtype in INTEGER_TYPES:
        return False
    return view.device == "cpu" or view.dtype == dtype


def named_operands(
    names: tuple[str, ...], function: Epilogue, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The operands by name; those left out have their defaults."""
    for name in given:
        if name not in names:
            known = ", ".join(names) or "none"
            raise EpilogueError(f"{function} has no operand {name}; its operands are {known}")
    missing = [name for name in names if name not in given and name not in function.defaults]
    if missing:
        raise EpilogueError(
            f"{function} needs the operand {missing[0]}, which is not given",
            hint="the arguments of matmul itself are no operands" if missing[0] in OWN else "",
        )
    arrays = {n: x for n, x in function.defaults.items() if n in names and array_view.is_array(x)}
    return {name: given.get(name, arrays.get(name)) for name in names if name in {*given, *arrays}}


def traced_graph(
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
    inputs += [EpilogueInput(n, x.type, x.varies) for n, x in operands.arrays.items()]
    default = default_result(a, accumulator == "f32")
    if default == "s32":
        scaled = not _SCALES.isdisjoint({*operands.scalars, *operands.arrays})
        default = "bf16" if scaled else "f32"
    name, requested = "out_dtype", None
    if options.out_dtype is not None:
        requested = format_name(options.out_dtype)
    elif out is not None:
        name, requested = "out", out.dtype
    static = tuple(sorted(operands.static.items()))
    graph = function.trace(accumulator, tuple(inputs), static, requested or default, accumulators)
    if requested is not None and graph.d.type != requested:
        raise EpilogueError(f"{function} returns D as {graph.d.type}, got {name} of {requested}")
    return graph


def _request(
    plain: Request, graph: EpilogueGraph, operands: Operands, where: str, outs: Mapping[str, Any]
) -> Request:
    """The request with the signatures of all arrays of the epilogue."""
    m, n = plain.mnk[:2]
    signatures: list[OperandSignature | None] = []
    for source in graph.inputs:
        operand = operands.arrays.get(source.name)
        signatures.append(operand and _signature(operand, m, n, where))
    row_major = (n, 1, m * n if plain.batch else 0)
    for output in graph.tensors[1:]:
        array = outs.get(output.name) if where != "cpu" else None
        misalignment = 0 if array is None else array_view.view(array).address % MAX_ALIGN
        signatures.append(OperandSignature(output.type, row_major, misalignment))
    epilogue = EpilogueRequest(graph, tuple(signatures))
    return plain._replace(dtype=graph.d.type, epilogue=epilogue)


def _signature(operand: ArrayOperand, m: int, n: int, where: str) -> OperandSignature:
    if where != "cpu":
        misalignment = operand.view.address % MAX_ALIGN
        return OperandSignature(operand.view.dtype, operand.strides, misalignment)
    if not any(operand.strides):  # one element
        return OperandSignature(operand.view.dtype, (0, 0, 0))
    columns = n if "n" in operand.varies else 1
    if operand.type == BIT:
        columns = operand.view.shape[-1]
    rows = m if "m" in operand.varies else 1
    strides = (
        columns if "m" in operand.varies else 0,
        1 if "n" in operand.varies else 0,
        rows * columns if "b" in operand.varies else 0,
    )
    return OperandSignature(operand.view.dtype, strides)
