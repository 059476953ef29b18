"""A plan: the kernel that ``matmul`` would run for a problem, to be inspected or run repeatedly.

    p = tilewright.plan(4096, 4096, 4096, dtype="bf16")
    print(p.explain())
    d = p.run(a, b)

Making a plan traces the kernel and launches nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from numbers import Integral
from typing import Any

from ... import gemm, sass
from ...builder import Traced
from ...errors import DeviceError, ProblemError, TargetError
from ...gemm.epilogue.tracing import Epilogue
from ...lazy_imports import untraced
from ...notebook_display import facts_html
from ..arrays import array_view
from ..devices import serialized_kernel
from ..devices.array_placement import device_for_arrays
from ..devices.device import device as device_by_name
from ..devices.device_protocol import ExecutionDevice
from ..tuning.tuning_result import TuningResult
from . import two_products
from .alpha_beta import ALPHA, BETA
from .batching.batch_dimensions import is_one_product, split_product
from .batching.prepared_products import prepare
from .epilogue_call import slow_epilogue_call
from .epilogue_request import EpilogueArguments, epilogue_arguments, request_with_epilogue
from .fast_path import FastCall
from .matmul import slow_call
from .operands.output_overlap import common_device
from .operands.sized_request import request_of_sizes
from .plan_report import explain, explained, kept_share
from .prepared_call import PreparedCall, prepare_call
from .request import (
    MatmulArguments,
    MatmulOptions,
    Request,
    make_request,
)
from .scaled.block_scale_views import request_with_scales
from .scaled.prepared_operand import check_static
from .scaled.scaled_operands import (
    default_dtype,
    has_quantized,
    linear_combination,
    with_block_scales,
    without_scales,
)
from .staging import StagedCall

_NO_PLAN = "a plan is of one kernel, got two matrices b that two products multiply"


class _LastCall(threading.local):
    """A thread's last fast call."""

    fast_call: FastCall | None = None


@dataclass(frozen=True)
class Plan:
    """What ``matmul`` would run for a problem, and why.

    ``problem``, the ``config`` for it, the kernel's ``ptx`` and ``sass``, the ``roofline`` bound of
    its time (None if the device's peak rates are unknown), and the ``device``. ``chosen``: the
    configuration was chosen by the autotuner's database (``tuning_result``) or ``gemm.choose``.

    If the result is column-major, the plan computes Dᵀ = Bᵀ Aᵀ and its problem's M and N are
    swapped. ``original_problem`` describes the matrices before those that the kernel can't read are
    copied.
    """

    problem: gemm.Problem
    config: gemm.AnyConfig
    device: ExecutionDevice
    traced: Traced = field(repr=False, compare=False)
    chosen: bool = True
    request: Request | None = field(default=None, repr=False, compare=False)
    tuning_result: TuningResult | None = field(default=None, repr=False, compare=False)
    original_problem: gemm.Problem | None = field(default=None, repr=False, compare=False)
    epilogue: Any = field(default=None, repr=False, compare=False)
    kept: float | None = field(default=None, repr=False, compare=False)
    _last: _LastCall = field(default_factory=_LastCall, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, prepared: PreparedCall, config: Any, epilogue: Any = None) -> Plan:
        """The plan of a prepared call; ``config`` and ``epilogue`` are what the caller passed."""
        return cls(
            prepared.problem,
            prepared.config,
            prepared.device,
            prepared.traced,
            config is None,
            prepared.request,
            prepared.tuning_result,
            prepared.original_problem,
            epilogue,
        )

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the device by its name, unless it is one that the user made."""
        state = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        if device_by_name(self.device.name) is self.device:
            state["device"] = self.device.name
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, device=device_by_name(state["device"]), _last=_LastCall())

    def __deepcopy__(self, memo: Any) -> Plan:
        return copy(self)

    def _options(self, out_dtype: Any = None) -> MatmulOptions:
        request = self.request
        assert request is not None
        taken = request.precision, request.fast_accum
        return MatmulOptions(out_dtype, *taken, self.device, self.config)

    @property
    def ptx(self) -> str:
        """The kernel as text."""
        return self.traced.ptx

    @property
    def sass(self) -> str:
        """The kernel's machine code for the device (the GPU that a virtual machine models) as text,
        with control codes.

        Raises MissingPackage without an assembler, SassError for an architecture whose encodings
        are not known.
        """
        assembled = serialized_kernel.assembled(self.traced, self.device.target.target.name)
        cubin = sass.CubinFile.parse(assembled.code)
        return sass.disassemble(sass.encoding_table(cubin.sm), cubin.code(self.traced.name))

    @property
    def roofline(self) -> gemm.Roofline | None:
        """The roofline bound on the device (for the virtual machine: on the GPU it models)."""
        try:
            return gemm.roofline(self.problem, self.device.target)
        except TargetError:
            return None

    def run(
        self, a: Any, b: Any, *, c: Any = None, alpha: Any = ALPHA, beta: Any = BETA,
        out: Any = None, **operands: Any,
    ) -> Any:  # fmt: skip
        """``matmul`` with this plan's kernel; ``operands``: those of its epilogue, whose function
        is the one of ``plan``, with the values that its variables had there.

        Raises ProblemError if the arrays pose another problem, by sizes, layouts, types or
        alignment.
        """
        if self.epilogue is not None or operands:
            return self._run_with_epilogue((a, b, c, out, alpha, beta, operands))
        fast_call = self._last.fast_call
        if fast_call is not None:
            result = fast_call(a, b, c, out, alpha, beta)
            if result is not None:
                return result
        return _slow_run(self, MatmulArguments(a, b, c, out, alpha, beta))

    def _run_with_epilogue(self, arguments: tuple[Any, ...]) -> Any:
        fast_call = self._last.fast_call if self.epilogue is not None else None
        if fast_call is not None:
            result = fast_call(*arguments)
            if result is not None:
                return result
        has_d = arguments[3] is not None and not isinstance(arguments[3], Mapping)
        options = self._options(None if has_d else self.problem.d)
        call, fast_call = slow_epilogue_call(arguments, options, self.epilogue, self.problem)
        if fast_call is not None:
            self._last.fast_call = fast_call
        return call.result

    def upload(
        self, a: Any, b: Any, *, c: Any = None, alpha: Any = ALPHA, beta: Any = BETA, out: Any
    ) -> StagedCall:
        """The matrices of arrays on the CPU in device memory, to be multiplied there repeatedly.

        >>> with p.upload(a, b, out=d) as call: call.start(); call.download()

        Raises DeviceError for arrays on a GPU, ProblemError for a plan with an epilogue.
        """
        if self.epilogue is not None:
            raise ProblemError("upload needs a plan without an epilogue", hint="plan.run")
        arguments = MatmulArguments(a, b, c, out, alpha, beta)
        if has_quantized(a, b):
            arguments = with_block_scales(arguments) or _raise_staged_scales()
        products, scales, _ = prepare(arguments, self._options())
        _check_one_product(len(products))
        [(prepared, views)] = products
        if not prepared.staged:
            on = prepared.device.name
            raise DeviceError(f"the arrays must be on the CPU, got arrays on {on}", hint="plan.run")
        return StagedCall(prepared, views, scales)

    def _repr_html_(self) -> str:
        return facts_html("plan of a product", explained(self), PTX=self.ptx)

    def explain(self) -> str:
        """What the kernel is, what bounds its time, and why this configuration was chosen."""
        return explain(self)


@untraced
def _slow_run(plan: Plan, arguments: MatmulArguments) -> Any:
    options = plan._options(plan.problem.d if arguments.out is None else None)
    result, fast_call = slow_call(arguments, options, plan.problem)
    if fast_call is not None:
        plan._last.fast_call = fast_call
    return result


def plan(
    *what: Any, dtype: Any = None, layout: str | None = None, c: Any = None, out: Any = None,
    out_dtype: Any = None, batch: int | None = None, precision: str = "ieee",
    fast_accum: bool = False, device: Any = None, config: Any = None, sparse: str | None = None,
    epilogue: Any = None, static: str | None = None, **operands: Any,
) -> Plan:  # fmt: skip
    """The plan for ``plan(m, n, k)`` or for arrays or ``Scaled`` matrices, ``plan(a, b)``; nothing
    runs.

    With sizes, ``dtype`` is the inputs' type (default f16; ``"e4m3,e5m2"`` for two types;
    ``"tf32"`` is f32 with that precision) and ``layout`` is BLAS's name of A's and B's layouts
    (``t``: row-major, ``n``: column-major; default ``tt``). ``batch`` is the number of products,
    ``c=True`` adds a C, and ``sparse`` is the 2:4 sparse matrix, ``"a"`` or ``"b"`` (layout ``tn``
    by default). With arrays, these follow from the arrays. ``epilogue`` and its operands, and
    ``static``, need arrays. The other arguments and the errors are those of ``matmul``.
    """
    options = MatmulOptions(out_dtype, precision, fast_accum, device, config, static)
    if epilogue is not None or operands:
        passed = epilogue_arguments(epilogue, c, ALPHA, BETA, operands)
        _check_arrays_alone(dtype, layout, batch, sparse)
        return _plan_with_epilogue(what, options, out, passed)
    sizes = [int(size) for size in what if isinstance(size, Integral)]
    if (len(sizes), len(what)) == (3, 3):
        check_static(static, None)
        request = request_of_sizes(
            sizes, dtype, layout, c, out, out_dtype, batch, precision, fast_accum, sparse
        )
        on = device_by_name(device)
    elif (len(sizes), len(what)) == (0, 2):
        _check_arrays_alone(dtype, layout, batch, sparse)
        a, b = what
        return _plan_of_arrays(MatmulArguments(a, b, c, out, ALPHA, BETA), options)
    else:
        types = ", ".join(type(x).__name__ for x in what) or "nothing"
        raise ProblemError(f"plan takes three sizes or two arrays, got {types}")
    return Plan.of(prepare_call(request, on, config), config)


def _check_arrays_alone(*given: Any) -> None:
    """Raise ProblemError for what follows from the arrays."""
    for name, value in zip(("dtype", "layout", "batch", "sparse"), given, strict=True):
        if value is not None:
            raise ProblemError(f"{name} must not be given with arrays, got {value!r}")


def _plan_of_arrays(arguments: MatmulArguments, options: MatmulOptions) -> Plan:
    """The plan of arrays, or of Scaled matrices."""
    a, b, c, out, *_ = arguments
    check_static(options.static, b)
    if has_quantized(a, b):
        in_blocks = with_block_scales(arguments, options.static)
        if in_blocks is None:
            return _plan_with_scales(arguments, options)
        arguments = in_blocks
    matrices = {"a": arguments.a, "b": arguments.b, "c": c, "out": out}
    views = {name: array_view.view(x) for name, x in matrices.items() if x is not None}
    va, vb, vc, vd = (views.get(name) for name in matrices)
    assert va is not None and vb is not None
    on = device_for_arrays(common_device(va, vb, vc, vd), options.device)
    if arguments.scales is None and not is_one_product(va.shape, vb.shape):
        parts = split_product(views).parts
        _check_one_product(len(parts))
        va, vb, vc = parts[0]["a"], parts[0]["b"], parts[0].get("c")
        vd = vd and parts[0]["out"]
    reads_c, (out_dtype, precision, fast_accum, _, config, _) = c is not None, options
    request = make_request(va, vb, vc, vd, out_dtype, reads_c, precision, fast_accum)
    if arguments.scales is not None:
        request, _ = request_with_scales(request, arguments.scales)
    return replace(Plan.of(prepare_call(request, on, config), config), kept=kept_share(a, b))


def _check_one_product(products: int) -> None:
    """Raise ProblemError for operands whose batch dimensions do not fold into one."""
    if products != 1:
        what = f"the batch dimensions must fold into one, got {products} products"
        raise ProblemError(what, hint="make the arrays contiguous, or plan one of the products")


def _plan_with_scales(arguments: MatmulArguments, options: MatmulOptions) -> Plan:
    """The plan of Scaled matrices whose scales are operands of an epilogue."""
    a, b, c, out, *_ = arguments
    function, c, alpha, beta = linear_combination(c, ALPHA, BETA if c is None else 1.0)
    if out is None and options.out_dtype is None:
        options = options._replace(out_dtype=default_dtype(a, b))
    passed = epilogue_arguments(function, c, alpha, beta, {})
    return replace(_plan_with_epilogue((a, b), options, out, passed), epilogue=None)


def _raise_staged_scales() -> MatmulArguments:
    raise ProblemError("upload takes arrays, or matrices with block scales", hint="plan.run")


def _plan_with_epilogue(
    what: tuple[Any, ...], options: MatmulOptions, out: Any, arguments: EpilogueArguments
) -> Plan:
    if len(what) != 2:
        raise ProblemError(f"plan with an epilogue takes two arrays, got {len(what)} arguments")
    if callable(arguments.function) and not isinstance(arguments.function, Epilogue):
        arguments = arguments._replace(function=Epilogue(arguments.function))  # traced once
    (a, b), own, scales = what, arguments, None
    check_static(options.static, b)
    if has_quantized(a, b):
        found = without_scales(a, b, own.function, own.operands, options.static)
        a, b, function, operands, scales = found
        arguments = own._replace(function=function, operands=operands)
    if two_products.differ(a, b):
        raise ProblemError(_NO_PLAN, hint="a plan of each")
    requested = request_with_epilogue(a, b, arguments, options, out)
    request = requested.request
    if scales is not None:
        request, _ = request_with_scales(request, scales)
    on = device_for_arrays(requested.device, options.device)
    prepared = two_products.one_call(request, on, options.config)
    if prepared is None:
        raise ProblemError(_NO_PLAN, hint="a plan of each")
    return replace(Plan.of(prepared, options.config, own.function), kept=kept_share(a, b))
