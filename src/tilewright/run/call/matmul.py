"""The call: arrays in, arrays out, where they live.

Arrays on a GPU are multiplied in place, on their library's current stream, without waiting. Arrays
on the CPU go to the chosen device's memory and the result comes back. What depends only on shapes,
strides and types is found once (``route``); a call looks it up, packs its addresses, and starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ... import gemm
from ...errors import DeviceError, ProblemError
from ...lazy_imports import deferred
from ..arrays import array_view
from ..arrays.array_view import ArrayView
from ..devices.device import ExecutionDevice, device
from .alpha_beta import both
from .call_record import OperandLayout
from .fast_path import FastCall, Known, fast_call_for
from .matrix_layout import ALIGN, padded
from .prepared_call import PreparedCall, ScaleFactor, route
from .request import ask, check_output_overlap, place
from .staging import StagedCall, Views

if TYPE_CHECKING:
    from . import relayout, tf32x3
else:
    relayout, tf32x3 = deferred(".relayout", __package__), deferred(".tf32x3", __package__)

How = tuple[str, bool]  # precision of f32 inputs, whether 8-bit floats add up fast

_known = Known()


def matmul(
    a: Any,
    b: Any,
    *,
    c: Any = None,
    alpha: Any = 1.0,
    beta: Any = 0.0,
    out: Any = None,
    out_dtype: Any = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: gemm.AnyConfig | str | None = None,
) -> Any:
    """D = α A B + β C, with sums in f32 (of f64 in f64, of integers in s32), rounded once to D's
    type.

    ``a`` (M×K) and ``b`` (K×N), or stacks of as many such, are arrays of NumPy, torch, JAX, CuPy or
    any library with DLPack or ``__cuda_array_interface__``; any strides. Their types: f16, bf16,
    e4m3 and e5m2 (either with either), s8 and u8, f32, and f64. The result is an array of ``a``'s
    library on the same device, of the inputs' type (bf16 for 8-bit floats, s32 for integers) or
    ``out_dtype``; or ``out``, which is returned and must be writable (JAX's arrays are not). No
    gradient is computed: a torch tensor with ``requires_grad`` is an error but in ``no_grad``.

    f32 is multiplied as IEEE has it, each sum by FMAs in the order of k; ``precision="tf32"`` lets
    the tensor cores do it, which round each element to 10 bits of mantissa, and ``"tf32x3"`` does
    it three times, for some 20 bits (of infinities it may make NaNs). f64 is IEEE's, too.

    Sums of 8-bit floats are added up in f32 every 128 of K; with ``fast_accum`` they stay in the
    tensor core, which keeps fewer bits of them.

    ``c`` (M×N, of the result's type) is read only where ``beta`` is not 0. ``alpha`` and ``beta``
    are numbers, one-element arrays, or one-element arrays on the GPU of f32 (with a result of f64
    of f64), which are read when the kernel runs; with one of s32 the numbers 0 and 1. With
    ``alpha`` = 0, what ``a`` and ``b`` hold has no effect.

    ``device`` decides where arrays on the CPU are multiplied: ``"vm"``, ``"cuda"``, ``"cuda:1"``;
    None is a GPU where there is one, else the virtual machine. ``config`` is the kernel's
    configuration, ``"128x128x32:2x2:4"``, ``"tma:128x256x64:2:4/2x1"`` or
    ``"simt:128x256x8:16x16:4"``; None lets ``gemm.choose`` decide.

    >>> tilewright.matmul(a, b, c=c, beta=1.0, out=c)           C += A B

    Raises ProblemError, DtypeError, DeviceError, ConfigError, TargetError.
    """
    how = precision, fast_accum
    try:
        key = type(a), a.shape, b.shape, out_dtype, how, device, config
        known = _known.calls.get(key, ())
    except (AttributeError, RuntimeError, TypeError):  # no shape; a configuration without a hash
        key, known = None, ()
    for ready in known:
        done = ready(a, b, c, out, alpha, beta)
        if done is not None:
            return done
    done, again = call(a, b, c, alpha, beta, out, out_dtype, device, config, how)
    if key is not None and again is not None:
        _known.add(key, again)
    return done


def call(
    a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: Any, out_dtype: Any, where: Any,
    config: Any, how: How, problem: gemm.Problem | None = None,
) -> tuple[Any, FastCall | None]:  # fmt: skip
    """``matmul`` the long way, and a short one for calls like it, where there is one. Where
    ``problem`` is given, the arrays must pose just that one.
    """
    way, views, scales, d = prepare(a, b, c, alpha, beta, out, out_dtype, where, config, how)
    if problem is not None and way.problem != problem:
        said = f"the plan is for {problem}, these arrays make it {way.problem}"
        raise ProblemError(said, hint=f"planned and now: {_differences(problem, way.problem)}")
    ready = None
    if way.uploaded or 0 in views[3].shape:
        with StagedCall(way, views, *scales) as there:
            there.start()
            there.download()
    else:
        stream = stream_for_arrays(way.device, a, b, c, out)
        _run_in_place(way, views, *scales, stream)
        array_view.mark_written([d])
        settle(way.device, stream, (a, b, c, alpha, beta))
        ready = fast_call_for(way, a, b, c, out)
    finish = array_view.kind_of(a).finish
    return d if out is not None or finish is None else finish(a, d), ready


def settle(on: ExecutionDevice, stream: int, given: Iterable[Any]) -> None:
    """Wait for the stream where a library among those of the arrays given does not know it."""
    if any(array_view.is_array(x) and array_view.kind_of(x).finish is not None for x in given):
        on.wait(stream)


def _differences(one: gemm.Problem, other: gemm.Problem) -> str:
    pairs = ((f.name, getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return ", ".join(f"{name} {x!r} and {y!r}" for name, x, y in pairs if x != y)


def prepare(
    a: Any, b: Any, c: Any, alpha: Any, beta: Any, out: Any, out_dtype: Any, where: Any,
    config: Any, how: How,
) -> tuple[PreparedCall, Views, tuple[ScaleFactor, ScaleFactor], Any]:  # fmt: skip
    """All that is known before anything runs: the route, the views, α and β, and the result."""
    kind = array_view.kind_of(a)
    va, vb = kind.view(a), array_view.view(b)
    vc = None if c is None else array_view.view(c)
    vo = None if out is None else array_view.view(out)
    here = place(va, vb, vc, vo)
    request = ask(va, vb, vc, vo, out_dtype, False, *how)
    scales = both(alpha, beta, here, request.factors)
    reads_c = bool(scales[1].address or scales[1].value)
    if reads_c and vc is None:
        raise ProblemError("beta is not 0, and there is no c", hint="c=out adds to out in place")
    request = request._replace(reads_c=reads_c)
    way = route(request, device_for_arrays(here, where), config)
    way.check(scales)
    if vo is None:
        out = kind.empty(a, request.shape, request.dtype)
        vo = array_view.view(out)
    else:
        check_output_overlap(va, vb, vc, vo)
    return way, (va, vb, vc if reads_c else None, vo), scales, out


def device_for_arrays(here: str, where: Any) -> ExecutionDevice:
    """The device for arrays that are ``here``, where the caller asks for ``where``."""
    if here == "cpu":
        return device(where)
    if where is None or str(where) in ("auto", "cuda", here):
        return device(here)
    request = device(where)
    if request.name != here:
        raise DeviceError(
            f"the arrays are on {here}, and device={where!r} is asked for",
            hint="arrays on a GPU are multiplied there; copy them to the CPU or the other GPU",
        )
    return request


# --- on the GPU: in place -----------------------------------------------------------------------


def _run_in_place(
    way: PreparedCall, views: Views, alpha: ScaleFactor, beta: ScaleFactor, stream: int
) -> None:
    va, vb, vc, vo = views
    kept: list[Any] = []  # copies live until the kernel is started; their library knows the stream
    parts = way.parts
    inputs = {"a": va, "b": vb} | ({} if vc is None else {"c": vc})
    at = {name: view.address for name, view in inputs.items()}
    if lying := [name for name in inputs if parts[name].copied]:
        moves, ends = [], []
        for name in lying:
            view, part = inputs[name], parts[name]
            at[name] = _temporary(view, part, kept)
            if part.times > 1:
                triple = _triple(name, view, part)
                tf32x3.prepare(way.device, triple)((view.address, at[name]), stream)
                continue
            moves.append(move(view, part))
            ends += [view.address, at[name]]
        if moves:
            relayout.prepare(way.device, tuple(moves))(ends, stream)
    part = parts["d"]
    d = _temporary(vo, part, kept) if part.copied else vo.address
    space = _space(va, way.workspace, kept) if way.workspace else 0
    way.start(at["a"], at["b"], at.get("c", 0), d, space, (alpha, beta), stream)
    if part.copied:
        relayout.prepare(way.device, (move(vo, part, back=True),))((d, vo.address), stream)


def _triple(name: str, view: ArrayView, part: OperandLayout) -> tf32x3.SplitShape:
    """A or B, K laid out three times."""
    stack = (1, *view.shape)[-3:]
    apart, *steps = (0, *view.strides)[-3:]
    lines = (stack[1], stack[2]) if part.rows else (stack[2], stack[1])
    source = (apart, *(steps if part.rows else steps[::-1]))
    return tf32x3.SplitShape(name, (stack[0], *lines), source, part.leading, part.apart)


def move(view: ArrayView, part: OperandLayout, back: bool = False) -> relayout.RelayoutSpec:
    """A matrix or stack to its temporary place, or ``back``."""
    size, shape = view.itemsize, view.shape
    there = (part.apart, *part.strides)[-len(shape) :]
    if back:
        return relayout.RelayoutSpec(shape, size, there, view.strides)
    aligned = not (part.leading | part.apart) * size % ALIGN
    return relayout.RelayoutSpec(shape, size, view.strides, there, aligned)


def _temporary(view: ArrayView, part: OperandLayout, kept: list[Any]) -> int:
    """Memory for a copy, from the array's own library, which frees it in the stream's order."""
    count = padded(part.elements(view.shape), view.itemsize, 16)
    try:
        return _space(view, count * view.itemsize, kept)
    except ProblemError as error:
        what = f"a matrix of shape {view.shape} and strides {view.strides} must be copied"
        hint = "make it contiguous: tilewright can't get memory from its library for a copy"
        raise ProblemError(what, hint=hint) from error


def _space(view: ArrayView, count: int, kept: list[Any]) -> int:
    """So many bytes from the array's library."""
    made = array_view.empty_like_kind(view.owner, (-(-count // view.itemsize),), view.dtype)
    kept.append(made)
    return array_view.view(made).address


def stream_for_arrays(on: ExecutionDevice, first: Any, *others: Any) -> int:
    """The stream of ``first``'s library; what other libraries work on elsewhere is waited for."""
    stream = array_view.stream_of(first)
    for other in others:
        if other is not None and type(other) is not type(first):
            theirs = array_view.stream_of(other)
            if theirs != stream:
                on.wait(theirs)
    return stream
