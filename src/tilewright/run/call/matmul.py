"""The call ``matmul``: arrays in, an array out.

A call passes the stages request → layout → dispatch → launch → staging, one module each. Stages 1
to 3 depend on shapes, strides and types alone and run once for each distinct request. Arrays on a
GPU are multiplied in place on their library's current stream, without waiting. Arrays on the CPU
are staged in the device's memory. A repeated call takes the fast path (``fast_path``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ... import gemm
from ...errors import ProblemError
from ...lazy_imports import calling, deferred
from ...quantization.packed import is_quantized
from ..arrays import array_view
from ..arrays.array_kind import Shape
from ..devices.array_placement import stream_for_arrays, wait_for_hidden_streams
from .alpha_beta import ALPHA, BETA, ScaleFactors, alpha_and_beta, has_several
from .batching.prepared_products import prepare
from .fast_path import (
    CallCache,
    CallForm,
    FastCall,
    RepeatableCall,
    fast_call_for,
    scalar_name,
)
from .in_place import launch_in_place
from .operands.accumulated_operand import is_accumulated
from .prepared_call import PreparedCall
from .request import MatmulArguments, MatmulOptions, default_result
from .scaled.fast_scaled_call import is_gathered, unpacked
from .scaled.weights_on_the_left import (
    has_weights_on_the_left,
    transposed,
    transposed_arguments,
)
from .staging import StagedCall

if TYPE_CHECKING:
    from . import epilogue_call
    from .scaled import scaled_operands
else:
    epilogue_call = deferred(".epilogue_call", __package__)
    scaled_operands = deferred(".scaled.scaled_operands", __package__)

_fast_calls = CallCache()


def matmul(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    alpha: Any = ALPHA,
    beta: Any = BETA,
    out: Any = None,
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: gemm.AnyConfig | str | None = None,
    static: str | None = None,
    epilogue: Any = None,
    **operands: Any,
) -> Any:
    """D = α A B + β C, accumulated in f32 (f64 for f64, s32 for integers), rounded once to D's
    type.

    ``a`` (…, M, K) and ``b`` (…, K, N) are arrays of NumPy, torch, JAX, CuPy or any library with
    DLPack or ``__cuda_array_interface__``, with any strides. As in NumPy, batch dimensions
    broadcast, without copies, and a vector is one row of ``a`` or one column of ``b``.
    Supported types: f16, bf16, e4m3 and e5m2 (in any pair), s8 and u8, f32, and f64. The result is
    an array of ``a``'s library on the same device. Its type is the inputs' (bf16 for 8-bit floats,
    s32 for integers) or ``out_dtype``. If ``out`` is given, the result is written to it and ``out``
    is returned; it must be writable (JAX arrays are not). Gradients of torch tensors are recorded;
    ``out``, ``epilogue`` and α or β that are arrays are an error then (docs/torch.md).

    ``precision`` of f32 inputs: ``"ieee"`` accumulates with FMAs in the order of k; ``"tf32"`` uses
    the tensor cores, which round each element to 10 bits of mantissa; ``"tf32x3"`` (3xTF32) uses
    them three times, for some 20 bits (infinities may become NaNs). f64 is always IEEE.

    Products of 8-bit floats are promoted to f32 accumulators every 128 of K; ``fast_accum`` keeps
    them in the tensor core's accumulator, which has fewer bits.

    ``c`` (M×N, of the result's type) is read only if ``beta`` is not 0. ``alpha`` and ``beta`` are
    numbers or one-element arrays. A one-element array on the GPU must be f32 (f64 for an f64
    result) and is read when the kernel runs. For an s32 result they must be the numbers 0 or 1. If
    ``alpha`` is 0, the values of ``a`` and ``b`` have no effect. Arrays of more elements broadcast
    to the result, as operands of an epilogue do: (batch, 1, 1) is a factor for each matrix. Their
    zeros are factors like others: 0 · NaN is NaN. If C is ``out``, of f32, and both factors are the
    number 1, the kernel may add to it in memory, with the bits of the same configuration that reads
    C; the one that is chosen may be another, and accumulate in another order (docs/epilogues.md).

    ``device`` is where arrays on the CPU are multiplied: ``"vm"``, ``"cuda"``, ``"cuda:1"``; None
    is a GPU if there is one, else the virtual machine. ``config`` is the kernel's configuration,
    ``"128x128x32:2x2:4"``, ``"tma:128x256x64:2:4/2x1"`` or ``"simt:128x256x8:16x16:4"``; parts that
    are left out, as in ``"tma:128x256x64"``, are chosen by the cost model. None lets the
    autotuner's database or the heuristic ``gemm.choose`` decide.

    >>> tilewright.matmul(a, b, c=c, beta=1.0, out=c)           C += A B

    ``epilogue`` is a Python function of the accumulator and of ``operands`` by name
    (``tilewright.epilogue``), which computes D instead of α A B + β C. An operand is a number or an
    array that broadcasts to D, of any supported type. If the function returns a dict, the result is
    a dict of arrays, and ``out`` may be a dict of arrays for some of them. ``c``, ``alpha`` and
    ``beta`` are operands if the function names them.

    >>> tilewright.matmul(a, b, epilogue=lambda acc, bias: tilewright.relu(acc + bias), bias=bias)

    ``a`` and ``b`` may be ``Scaled`` matrices with one scale, or one for each row of ``a`` and each
    column of ``b``: the accumulator is multiplied by the scale of ``a``, then by that of ``b``,
    before all else. With scales for each 128 along K of both matrices, and for each 1 or 128 rows
    of ``a`` and columns of ``b``, the accumulator of each k-block is multiplied by the product of
    both scales and added to the total by an FMA. D then is bf16 by default.

    ``b`` may be ``Packed`` weights K×N (``packed.T`` of a layer's), and ``a`` then is f16 or bf16:
    the mainloop converts the elements exactly to ``a``'s type and multiplies each group's
    accumulator by its scale, in f32 (docs/quantization.md). They are reordered once, in the first
    call. ``static="b"`` is the promise that nothing writes ``b``: of ``Scaled`` matrices, it keeps
    the sums along K that zero points of ``a`` need of ``b``; products with ``Packed`` weights are
    the same with it. ``a`` may be ``Packed`` weights N×K, without an epilogue: D is the transpose
    of ``matmul(b.T, a.T)``.

    ``a`` or ``b`` may be a ``Sparse24`` matrix, sparse along K (docs/sparsity.md); f32 then is
    multiplied as tf32.

    Raises ProblemError, DtypeError, DeviceError, ConfigError, TargetError, EpilogueError.
    """
    if epilogue is not None or operands:
        options = out_dtype, precision, fast_accum, device, config, static
        arguments = a, b, c, out, alpha, beta, operands
        return epilogue_call.matmul_with_epilogue(arguments, options, epilogue)
    try:
        key = type(a), a.shape, b.shape, out_dtype, precision, fast_accum, device, config, static
        candidates = _fast_calls.by_key.get(key, ())
    except (AttributeError, RuntimeError, TypeError):  # no shape, or an unhashable configuration
        key, candidates = None, ()
    for fast_call in candidates:
        result = fast_call(a, b, c, out, alpha, beta)
        if result is not None:
            return result
    options = MatmulOptions(out_dtype, precision, fast_accum, device, config, static)
    if own := array_view.operators((a, b, c, out, alpha, beta)):
        return own.matmul(a, b, c=c, alpha=alpha, beta=beta, out=out, **options._asdict())
    result, repeat = slow_call(MatmulArguments(a, b, c, out, alpha, beta), options)
    if key is not None and repeat is not None:
        _fast_calls.add(key, repeat)
    return result


# what torch.compile traces in place of ``matmul``
matmul._torchdynamo_inline = calling("torch_operators", "matmul")  # type: ignore[attr-defined]


def slow_call(
    arguments: MatmulArguments, options: MatmulOptions, problem: gemm.Problem | None = None
) -> tuple[Any, FastCall | None]:
    """All stages of a call: its result, and a fast path for repeating it if there is one.

    Raises ProblemError if ``problem`` is given and the arrays pose another problem, and for several
    matrices b.
    """
    passed = arguments
    if isinstance(arguments.b, tuple | list):
        what = f"without an epilogue b must be one matrix, got {len(arguments.b)}"
        raise ProblemError(what, hint="an epilogue of two accumulators takes two matrices b")
    if options.static is not None or is_quantized(arguments.a, arguments.b):
        if has_weights_on_the_left(arguments.a, arguments.b):
            turned = transposed_arguments(arguments, options)
            result, _ = slow_call(turned, options, problem)
            return (transposed(result) if arguments.out is None else arguments.out), None
        in_blocks = scaled_operands.with_block_scales(arguments, options.static)
        if in_blocks is None:
            return _call_with_scales(arguments, options, problem)
        arguments = in_blocks
    a, b, c, out, alpha, beta, block_scales = arguments
    if has_several(alpha) or has_several(beta):
        return _call_with_factors(arguments, options, problem)
    products, scales, d = prepare(arguments, options, accumulate=problem is None)
    more = () if block_scales is None else (block_scales.a, block_scales.b)
    fast_call = None
    for prepared, _ in products:
        prepared.check_problem(problem)
    if products[0][0].staged or 0 in products[0][1].d.shape:
        for prepared, views in products:
            with StagedCall(prepared, views, scales) as staged:
                staged.start()
                staged.download()
    else:
        device = products[0][0].device
        stream = stream_for_arrays(device, a, b, c, out, *more)
        for prepared, views in products:
            launch_in_place(prepared, views, scales, stream)
        array_view.mark_written([d])
        wait_for_hidden_streams(device, stream, (a, b, c, alpha, beta, *more))
        if len(products) == 1:
            shape = array_view.view(d).shape
            fast_call = _fast_call(
                products[0][0], passed, scales, shape, accumulate=problem is None
            )
    finish = array_view.kind_of(a).finish
    return d if out is not None or finish is None else finish(a, d), fast_call


def _call_with_factors(
    arguments: MatmulArguments, options: MatmulOptions, problem: gemm.Problem | None
) -> tuple[Any, FastCall | None]:
    """``slow_call`` with arrays α or β of several elements: operands of an epilogue, which computes
    D in the type that it has without.
    """
    if arguments.scales is not None:
        what = "alpha and beta must have one element with block scales"
        raise ProblemError(what, hint="pass them as operands of an epilogue")
    if arguments.out is None and options.out_dtype is None:
        dtype = default_result(array_view.view(arguments.a).dtype)
        options = options._replace(out_dtype=dtype)
    return _linear_combination_call(arguments, options, problem)


def _call_with_scales(
    arguments: MatmulArguments, options: MatmulOptions, problem: gemm.Problem | None
) -> tuple[Any, FastCall | None]:
    """``slow_call`` of Scaled matrices whose scales are operands of an epilogue, which computes D
    in bf16 by default.
    """
    if arguments.out is None and options.out_dtype is None:
        options = options._replace(
            out_dtype=scaled_operands.default_dtype(arguments.a, arguments.b)
        )
    return _linear_combination_call(arguments, options, problem)


def _linear_combination_call(
    arguments: MatmulArguments, options: MatmulOptions, problem: gemm.Problem | None
) -> tuple[Any, FastCall | None]:
    """``slow_call`` with an epilogue that computes α x + β C."""
    a, b, c, out, alpha, beta, _ = arguments
    function, *factors = scaled_operands.linear_combination(c, alpha, beta)
    passed = a, b, factors[0], out, *factors[1:], {}
    call, repeat = epilogue_call.slow_epilogue_call(passed, options, function, problem)
    if repeat is None or factors[0] is not None:  # a C is not read if β is 0
        return call.result, None
    return call.result, partial(repeat, operands={})


def _fast_call(
    prepared: PreparedCall, arguments: MatmulArguments, scales: ScaleFactors, shape: Shape,
    *, accumulate: bool,
) -> FastCall | None:  # fmt: skip
    """The fast path for calls like this one, whose result has this shape:
    ``fast_call(a, b, c, out, alpha, beta)``. ``accumulate``: as of ``prepare``.
    """
    *matrices, alpha, beta, block_scales = arguments
    if block_scales is not None or is_gathered(arguments.b):  # not passed as Scaled matrices
        return None
    request = prepared.request
    names = tuple(map(scalar_name, range(len(scales))))
    given = {name: x for name, x in zip("abcd", matrices, strict=True) if x is not None}
    scaled = unpacked(given, in_blocks=True)
    arrays = scaled.data
    factors = dict(zip(names, (alpha, beta), strict=True))
    on_device = [name for name, scale in zip(names, scales, strict=True) if scale.address]
    arrays |= {name: factors[name] for name in on_device}
    numbers = tuple(name for name in names if name not in on_device)
    views = (array_view.view(given[name]) if name in given else None for name in "cd")
    may_accumulate = accumulate and is_accumulated(*views) and not on_device

    def values(*given: Any) -> ScaleFactors | None:
        by_name = dict(zip(numbers, given, strict=True))
        alpha, beta = (by_name.get(name, 1.0) for name in names)
        found = alpha_and_beta(alpha, beta, request.a.device, request.scale_dtype)
        if any(scale.address for scale in found) or bool(found[1].value) is not request.reads_c:
            return None
        # adding to D takes a kernel of its own
        ones = all(scale.value == 1.0 for scale in found)
        if (may_accumulate and not request.accumulated) if ones else prepared.accumulated:
            return None
        prepared.check_scales(found)
        return found

    outputs = {"d": (shape, request.dtype)}
    call = RepeatableCall(prepared, arrays, outputs, frozenset("c"), scales, numbers, values)
    absent = tuple(f"{name} is None" for name in "cd" if name not in arrays)
    parameters = f"a, b, c, d, {', '.join(names)}"
    return fast_call_for(call, CallForm(parameters, scaled.statements, absent, scaled.constants))
