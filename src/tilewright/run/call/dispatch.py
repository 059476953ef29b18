"""From a request to its launches: the problem that is posed, the configuration, the matrices as the
kernel takes them. A column-major result is posed as Dᵀ = Bᵀ Aᵀ. A matrix that the kernel can't read
is copied first: to a contiguous index and a pitch that is a multiple of 16 bytes, in the order that
its type needs.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from ... import gemm
from ...errors import ConfigError, ProblemError
from ...gemm.problem import FP8, SIZE_LIMIT
from ...target import DeviceSpec
from ..tuning.tuning_database import tuning_database
from .call_record import CallRecord, KernelRecord, OperandLayout
from .matrix_layout import (
    ArraySignature,
    MatrixLayout,
    compact,
    fresh,
    layout_with_order,
    padded,
    placed,
)
from .request import TF32X3_TERMS, Request, check

if TYPE_CHECKING:
    from ...builder import Traced


class Dispatch:
    """The plan of a request on a target. ``original_problem`` is the problem before what the kernel
    can't read is copied, ``problem`` the one after; ``tuning_result`` the measured result that
    decided, if one did.
    """

    def __init__(self, request: Request, target: DeviceSpec, config: Any = None) -> None:
        check(request)
        depth = request.sizes[2]
        if request.threefold and depth * TF32X3_TERMS >= SIZE_LIMIT:
            raise ProblemError(f"K is {depth}; with precision='tf32x3' it is less than 2^31 / 3")
        self.request, self.target = request, target
        self.uploaded = request.a.device == "cpu"
        self._d = request.out or fresh(request.shape, request.dtype, request.a.device)
        places = self._places()
        self.swapped = not places["d"].rows
        self.original_problem = self._problem(places)
        results = tuning_database()
        self.tuning_result = results.find(self.original_problem, target) if config is None else None
        self.tuned_state = results.state  # where ``config`` is None: what decided
        chosen = config if self.tuning_result is None else self.tuning_result.config
        self.config = _config(self.original_problem, chosen, target)
        self.problem = gemm.relayout_problem(self.original_problem, self.config)
        self.parts = self._parts(places)

    @cached_property
    def traced(self) -> Traced:
        """The kernel."""
        return gemm.build(self.problem, self.config)

    @cached_property
    def steps(self) -> tuple[gemm.KernelLaunch, ...]:
        """The kernels, their launch shapes and parameters."""
        names = {"a": "b", "b": "a"} if self.swapped else {}
        lines = {
            names.get(x, x): gemm.MatrixStrides(part.leading, part.apart)
            for x, part in self.parts.items()
        }
        return gemm.launches(self.problem, self.config, lines, self.target)

    def launches(self) -> CallRecord:
        """What a call of this plan launches: nothing where D has no elements."""
        steps = self.steps if 0 not in self.request.shape else ()
        kernels = tuple(KernelRecord(str(s.kernel), s.shape, s.arguments) for s in steps)
        workspace = gemm.workspace_bytes(self.problem, self.config, self.target)
        return CallRecord(
            self.swapped, self.problem.accumulator_type, workspace, self.parts, kernels
        )

    def _places(self) -> dict[str, MatrixLayout]:
        """How each matrix lies, or is to lie once it is copied."""
        request = self.request
        found = {x: _place(s) for x, s in (("d", self._d), ("a", request.a), ("b", request.b))}
        if request.c is not None and request.reads_c:
            rows = found["d"].rows
            other = compact(request.c.shape, request.c.itemsize, rows)
            found["c"] = layout_with_order(request.c, rows) or other
        return found

    def _problem(self, places: dict[str, MatrixLayout]) -> gemm.Problem:
        request, (m, n, k) = self.request, self.request.sizes
        left, right = places["a"], places["b"]
        k *= TF32X3_TERMS if request.threefold else 1
        (a, b), (a_major, b_major) = request.formats, _majors(left.rows, right.rows)
        if self.swapped:
            m, n, a, b, left, right = n, m, b, a, right, left
            a_major, b_major = _majors(not left.rows, not right.rows)
        align_c = places["c"].align if "c" in places else 16
        return gemm.Problem(
            m, n, k, a, b, request.dtype, a_major, b_major,
            with_c=request.reads_c, align_a=left.align, align_b=right.align,
            align_c=align_c, align_d=places["d"].align,
            batch=prod(request.batch), fast=request.fast and a in FP8,
        )  # fmt: skip

    def _parts(self, places: dict[str, MatrixLayout]) -> dict[str, OperandLayout]:
        """Each matrix as the kernel takes it, under the caller's letters."""
        p, request = self.problem, self.request
        rows = p.a_major == "k", p.b_major == "n"
        aligns = p.align_a, p.align_b
        if self.swapped:
            rows, aligns = (p.b_major == "k", p.a_major == "m"), aligns[::-1]
        given = {"a": request.a, "b": request.b, "c": request.c, "d": self._d}
        wanted = {"a": (rows[0], aligns[0]), "b": (rows[1], aligns[1])}
        made = {}
        for name, place in places.items():
            s = given[name]
            assert s is not None
            times = TF32X3_TERMS if request.threefold and name in "ab" else 1
            made[name] = self._part(s, *wanted.get(name, (place.rows, place.align)), times)
        return made

    def _part(self, s: ArraySignature, rows: bool, align: int, times: int) -> OperandLayout:
        own = layout_with_order(s, rows)
        if not self.uploaded and own is not None and own.align >= align and times == 1:
            return OperandLayout(rows, own.leading, False, own.apart)
        lines, length = s.shape[-2:] if rows else s.shape[:-3:-1]
        leading = padded(length * times, s.itemsize, align)
        return OperandLayout(
            rows, leading, True, leading * lines if len(s.shape) == 3 else 0, times
        )


def _place(s: ArraySignature) -> MatrixLayout:
    """How a matrix lies, or its copy; an empty one, whose strides say nothing, lies one way."""
    if 0 in s.shape:
        return compact(s.shape, s.itemsize, rows=s.shape[-1] == 0)
    return placed(s) or compact(s.shape, s.itemsize)


def _majors(a_rows: bool, b_rows: bool) -> tuple[str, str]:
    """What is contiguous in A and B."""
    return "k" if a_rows else "m", "n" if b_rows else "k"


def _config(problem: gemm.Problem, given: Any, target: DeviceSpec) -> gemm.AnyConfig:
    if given is None:
        given = gemm.choose(problem, target)
    elif isinstance(given, str):
        given = gemm.parse(given)
    if not isinstance(given, gemm.AnyConfig):
        raise _no_config(given)
    gemm.check(problem, given, target)
    return given


def refuse(request: Request, given: Any) -> None:
    """Raise what is wrong with a request whose configuration cannot be hashed."""
    check(request)
    raise _no_config(given) from None


def _no_config(given: Any) -> ConfigError:
    return ConfigError(
        f"config is {given!r}, a {type(given).__name__}",
        hint="give a gemm.Config or its text, 128x128x32:2x2:4; None chooses one",
    )
