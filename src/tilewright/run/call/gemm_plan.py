"""A plan: what ``matmul`` would do for a problem, to be read before it is done, or done often.

    p = tilewright.plan(4096, 4096, 4096, dtype="bf16")
    print(p.explain())
    d = p.run(a, b)

Making one traces the kernel and runs nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import numpy as np

from ... import gemm
from ...builder import Traced
from ...errors import DeviceError, DtypeError, ProblemError, TargetError
from ..arrays import array_view
from ..devices.device import ExecutionDevice
from ..devices.device import device as named_device
from ..tuning.tuning_result import TuningResult
from .fast_path import FastCall
from .matmul import How, call, device_for_arrays, prepare
from .matrix_layout import ArraySignature, fresh
from .plan_report import explain
from .prepared_call import PreparedCall, route
from .request import Request, ask, format_name, place, result_of
from .staging import StagedCall

LAYOUTS = ("nn", "nt", "tn", "tt")


class _Last(threading.local):
    """A thread's last call."""

    ready: FastCall | None = None


@dataclass(frozen=True)
class Plan:
    """``problem``, the ``config`` chosen for it, the kernel's ``ptx``, the ``roofline`` under its
    time (None where the device's peak rates are not known), and the ``device``.

    A plan whose result is column-major poses Dᵀ = Bᵀ Aᵀ: its problem's M and N are exchanged.
    ``tuning_result`` is what was measured, where that decided; ``original_problem`` the problem
    before what the kernel can't read as it lies is copied.
    """

    problem: gemm.Problem
    config: gemm.AnyConfig
    device: ExecutionDevice
    traced: Traced = field(repr=False, compare=False)
    chosen: bool = True  # the configuration, by gemm.choose or by ``tuning_result``
    request: Request | None = field(default=None, repr=False, compare=False)
    tuning_result: TuningResult | None = field(default=None, repr=False, compare=False)
    original_problem: gemm.Problem | None = field(default=None, repr=False, compare=False)
    _last: _Last = field(default_factory=_Last, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, way: PreparedCall, config: Any) -> Plan:
        more = {
            "request": way.request,
            "tuning_result": way.tuning_result,
            "original_problem": way.original_problem,
        }
        return cls(way.problem, way.config, way.device, way.traced, config is None, **more)

    @property
    def _how(self) -> How:
        assert self.request is not None
        return self.request.precision, self.request.fast

    @property
    def ptx(self) -> str:
        """The kernel as text."""
        return self.traced.ptx

    @property
    def roofline(self) -> gemm.Roofline | None:
        """The floor under the time on the device (for the virtual machine: on what it is like)."""
        try:
            return gemm.roofline(self.problem, self.device.target)
        except TargetError:
            return None

    def run(
        self, a: Any, b: Any, *, c: Any = None, alpha: Any = 1.0, beta: Any = 0.0, out: Any = None
    ) -> Any:
        """``matmul`` with this plan's kernel, for arrays that pose its problem.

        Raises ProblemError where they pose another, in sizes, layout, types or alignment.
        """
        ready = self._last.ready
        if ready is not None:
            done = ready(a, b, c, out, alpha, beta)
            if done is not None:
                return done
        out_dtype = self.problem.d if out is None else None
        how = self.device, self.config, self._how
        done, ready = call(a, b, c, alpha, beta, out, out_dtype, *how, self.problem)
        if ready is not None:
            self._last.ready = ready
        return done

    def upload(
        self, a: Any, b: Any, *, c: Any = None, alpha: Any = 1.0, beta: Any = 0.0, out: Any
    ) -> StagedCall:
        """The matrices of arrays on the CPU in device memory, to be multiplied there repeatedly.

        >>> with p.upload(a, b, out=d) as there: there.start(); there.download()
        """
        where, config = self.device, self.config
        way, views, scales, _ = prepare(a, b, c, alpha, beta, out, None, where, config, self._how)
        if not way.uploaded:
            raise DeviceError(f"the arrays are on {way.device.name} already", hint="plan.run")
        return StagedCall(way, views, *scales)

    def explain(self) -> str:
        """What the kernel is and why, in a person's words and numbers."""
        return explain(self)


def plan(
    *what: Any,
    dtype: Any = None,
    layout: str | None = None,
    c: Any = None,
    out: Any = None,
    out_dtype: Any = None,
    batch: int | None = None,
    precision: str = "ieee",
    fast_accum: bool = False,
    device: Any = None,
    config: Any = None,
) -> Plan:
    """The plan for ``plan(m, n, k)`` or for arrays, ``plan(a, b)``; nothing runs.

    With sizes, ``dtype`` is the inputs' type (f16 unless said; ``"e4m3,e5m2"`` where they differ;
    ``"tf32"`` is f32 with that precision), ``layout`` BLAS's name for how they lie (``t``: row-
    major, ``n``: column-major; NumPy's own order, ``tt``, unless said), ``batch`` how many there
    are, and ``c=True`` adds a C; arrays say all that themselves. The rest is as in ``matmul``.
    Raises as ``matmul`` does.
    """
    sizes = [int(size) for size in what if isinstance(size, Integral)]
    if (len(sizes), len(what)) == (3, 3):
        if c is not None and not isinstance(c, bool | np.bool_) and not array_view.is_array(c):
            raise ProblemError(f"c must be True or False where sizes are given, got {c!r:.60}")
        if out is not None or getattr(c, "shape", ()):
            hint = "c=True adds a C, out_dtype is D's type"
            raise ProblemError("sizes pose the problem, and c or out is an array", hint=hint)
        types = _types("f16" if dtype is None else dtype)
        if isinstance(dtype, str) and "tf32" in types:
            if types != ("tf32", "tf32") or precision not in ("ieee", "tf32"):
                said = f"dtype is {dtype!r} and precision {precision!r}"
                raise DtypeError(said, hint="tf32 is that of both, f32 with precision='tf32'")
            types, precision = ("f32", "f32"), "tf32"
        request = _of_sizes(
            sizes, types, "tt" if layout is None else layout, bool(c), out_dtype, batch
        )
        request = request._replace(precision=precision, fast=bool(fast_accum))
        on = named_device(device)
    elif (len(sizes), len(what)) == (0, 2):
        given = {"dtype": dtype, "layout": layout, "batch": batch}
        for name, value in given.items():
            if value is not None:
                raise ProblemError(f"{name} is {value!r}, but the arrays say that themselves")
        others = [None if x is None else array_view.view(x) for x in (c, out)]
        views = [*map(array_view.view, what), *others]
        on = device_for_arrays(place(*views), device)
        request = ask(*views, out_dtype, c is not None, precision, fast_accum)
    else:
        kinds = ", ".join(type(x).__name__ for x in what) or "nothing"
        raise ProblemError(f"plan takes three sizes or two arrays, not {kinds}")
    return Plan.of(route(request, on, config), config)


def _types(dtype: Any) -> tuple[Any, Any]:
    """A's and B's, as they were given."""
    named = [x.strip() for x in dtype.split(",")] if isinstance(dtype, str) else [dtype]
    if len(named) > 2:
        raise DtypeError(f"dtype is {dtype!r}; it is A's format, or A's and B's")
    return named[0], named[-1]


def _of_sizes(
    sizes: Any, types: tuple[Any, Any], layout: str, with_c: bool, out_dtype: Any, batch: int | None
) -> Request:
    m, n, k = sizes
    if min(sizes) < 0:
        raise ProblemError(f"{m}×{n}×{k}: sizes are at least 0")
    if not isinstance(batch, int | None):
        raise ProblemError(f"batch is {batch!r}; it is a number of products, or None")
    if str(layout).lower() not in LAYOUTS:
        known = ", ".join(LAYOUTS)
        raise ProblemError(f"unknown layout {layout!r}", hint=f"A's and B's in one of {known}")
    formats = format_name(types[0], "dtype"), format_name(types[1], "dtype")
    result = result_of(formats[0]) if out_dtype is None else format_name(out_dtype)
    stack = () if batch is None else (batch,)
    a, b = (
        _matrix((*stack, *shape), given, letter.lower() == "t")
        for shape, given, letter in zip(((m, k), (k, n)), formats, layout, strict=True)
    )
    d = fresh((*stack, m, n), result, "cpu")
    return Request(a, b, d if with_c else None, None, result, with_c)


def _matrix(shape: tuple[int, ...], dtype: str, rows: bool) -> ArraySignature:
    if rows:
        return fresh(shape, dtype, "cpu")
    turned = fresh((*shape[:-2], shape[-1], shape[-2]), dtype, "cpu").strides
    return ArraySignature(shape, (*turned[:-2], turned[-1], turned[-2]), dtype, "cpu", 0)
