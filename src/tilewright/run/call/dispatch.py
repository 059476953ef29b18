"""Stage 3 of a call, dispatch: the GEMM problem, its configuration, and the kernels to launch.

A column-major result is computed as Dᵀ = Bᵀ Aᵀ. A matrix that the kernel can't read is first copied
to a layout with a contiguous index in the order that its type needs and a leading dimension that is
a multiple of 16 bytes.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ... import gemm
from ...errors import ConfigError, ProblemError
from ...gemm.block_scaling import BlockScaling
from ...gemm.epilogue.bound_epilogue import BoundEpilogue, EpilogueOperandLayout, operand_align
from ...gemm.epilogue.operand_parameters import check_operands
from ...gemm.heuristic import multiplies_by_tma
from ...gemm.kernel_launch import INDEX_ADDRESSES, SCALE_ADDRESSES
from ...gemm.problem import FP8, SIZE_LIMIT
from ...gemm.tma.accumulation import accumulates, without_accumulation
from ...target import DeviceSpec
from ..tuning.tuning_database import TuningDatabase, tuning_database
from .call_record import CallRecord, KernelRecord
from .matrix_layout import (
    ArraySignature,
    MatrixLayout,
    OperandLayout,
    contiguous_signature,
    copy_layout,
    layout_with_order,
    padded_leading_dim,
    readable_layout,
)
from .request import TF32X3_TERMS, OperandSignature, Request, check_request

if TYPE_CHECKING:
    from ...builder import Traced
    from ..tuning.tuning_result import TuningResult

GATHER, SCATTER, _ = INDEX_ADDRESSES
SCATTERED_ALIGN = 8  # threads, not tensor copies, store scattered rows: a vector of these bytes


class Dispatch:
    """The kernels for a request on a target.

    ``original_problem`` describes the matrices before any copies and ``problem`` after them, which
    accumulates if the chosen kernel does.
    ``tuning_result`` is the benchmark result that chose the configuration, if one did.
    """

    def __init__(self, request: Request, target: DeviceSpec, config: Any = None) -> None:
        check_request(request)
        depth = request.mnk[2]
        if request.is_tf32x3 and depth * TF32X3_TERMS >= SIZE_LIMIT:
            raise ProblemError(f"K must be less than 2^31 / 3 with precision='tf32x3', got {depth}")
        self.request, self.target, self.chosen = request, target, config is None
        self.staged = request.a.device == "cpu"
        self._d = request.out or contiguous_signature(
            request.output_shape, request.dtype, request.a.device
        )
        layouts = self._matrix_layouts()
        self.swapped = not layouts["d"].row_major
        self.original_problem = self._problem(layouts)
        if not multiplies_by_tma(self.original_problem, target):
            self.original_problem = without_accumulation(self.original_problem)
        database = tuning_database()
        self.tuning_result = self._tuned(database) if config is None else None
        self.tuning_state = database.state
        chosen = config if self.tuning_result is None else self.tuning_result.config
        expected = self._expected_problem()
        self.config = checked_config(self.original_problem, chosen, target, expected)
        problem = gemm.relayout_problem(self.original_problem, self.config)
        if not accumulates(problem, self.config):
            problem = without_accumulation(problem)
        self.problem = problem
        self.layouts = self._operand_layouts(layouts)

    def _tuned(self, database: TuningDatabase) -> TuningResult | None:
        """The benchmark result for the problem; C was another array than D when it was measured."""
        request, problem = self.request, self.original_problem
        unknown = request.epilogue, request.scales, request.weights
        if any(x is not None for x in unknown) or request.sparse:
            return None
        found = database.find(without_accumulation(problem), self.target)
        if found is None or not problem.accumulates:
            return found
        # a kernel that reads D may take several times as long as one that adds to it
        return found if isinstance(gemm.parse(found.config), gemm.TmaConfig) else None

    @cached_property
    def traced(self) -> Traced:
        """The traced GEMM kernel."""
        return gemm.build(self.problem, self.config, self.target)

    @cached_property
    def steps(self) -> tuple[gemm.KernelLaunch, ...]:
        """The kernels, their launch shapes and parameters."""
        names = {"a": "b", "b": "a"} if self.swapped else {}
        strides = {
            names.get(x, x): gemm.MatrixStrides(layout.leading_dim, layout.batch_stride)
            for x, layout in self.layouts.items()
        }
        strides |= self._operand_strides() | self._scale_strides() | self._index_limits()
        return gemm.launches(self.problem, self.config, strides, self.target)

    def record(self) -> CallRecord:
        """What a call launches: no kernels if D has no elements."""
        steps = self.steps if 0 not in self.request.output_shape else ()
        kernels = tuple(KernelRecord(str(s.kernel), s.shape, s.arguments) for s in steps)
        workspace = gemm.workspace_bytes(self.problem, self.config, self.target)
        return CallRecord(
            self.swapped, self.problem.accumulator_type, workspace, self.layouts, kernels,
            self._is_divided(), self.problem.accumulates,
        )  # fmt: skip

    def _is_divided(self) -> bool:
        """Whether two products are estimated to be faster than one with two prepared matrices B."""
        if not self.chosen or not self.problem.pair or self.problem.weights is None:
            return False
        return not gemm.is_faster_together(self.original_problem, self.target)

    def _matrix_layouts(self) -> dict[str, MatrixLayout]:
        """The layout of each matrix, or of its copy if the kernel can't read it."""
        request = self.request
        layouts = {x: _layout_or_copy(s) for x, s in (("a", request.a), ("b", request.b))}
        layouts["d"] = self._d_layout()
        if request.c is not None and request.reads_c:
            row_major = layouts["d"].row_major
            copied = copy_layout(request.c.shape, request.c.itemsize, row_major)
            layouts["c"] = layout_with_order(request.c, row_major) or copied
        if request.b2 is not None:
            row_major = layouts["b"].row_major
            copied = copy_layout(request.b2.shape, request.b2.itemsize, row_major)
            layouts["b2"] = layout_with_order(request.b2, row_major) or copied
        return layouts

    def _expected_problem(self) -> gemm.Problem:
        """The problem with as many rows as its groups are expected to have."""
        problem, groups = self.original_problem, self.request.groups
        if groups is None or groups.expected_rows is None:
            return problem
        each = groups.number if problem.has_row_groups else 1
        rows = min(groups.expected_rows * each, SIZE_LIMIT - 1)
        return problem.with_sizes(rows, problem.n, problem.k)

    def _d_layout(self) -> MatrixLayout:
        """D's layout: row-major where the kernel writes other results with rows and columns, too,
        or multiplies a pair or prepared weights.
        """
        epilogue, d = self.request.epilogue, self._d
        request = self.request
        pair = request.b2 is not None or request.weights is not None or request.groups is not None
        if not pair and (epilogue is None or epilogue.matrices == 1):
            return _layout_or_copy(d)
        own = None if 0 in d.shape else layout_with_order(d, True)
        return own or copy_layout(d.shape, d.itemsize)

    def _problem(self, layouts: dict[str, MatrixLayout]) -> gemm.Problem:
        request, (m, n, k) = self.request, self.request.mnk
        left, right = layouts["a"], layouts["b"]
        k *= TF32X3_TERMS if request.is_tf32x3 else 1
        (a, b), (a_major, b_major) = request.mma_dtypes, _majors(left.row_major, right.row_major)
        if self.swapped:
            m, n, a, b, left, right = n, m, b, a, right, left
            a_major, b_major = _majors(not left.row_major, not right.row_major)
        weights = None if request.weights is None else request.weights.format
        b_major = b_major if weights is None else "k"
        align_c = layouts["c"].align if "c" in layouts else 16
        align_b = right.align
        if "b2" in layouts:
            n, align_b = 2 * n, min(align_b, layouts["b2"].align)
        return gemm.Problem(
            m, n, k, a, b, request.dtype, a_major, b_major,
            with_c=request.reads_c, align_a=left.align, align_b=align_b,
            align_c=align_c, align_d=min(layouts["d"].align, self._most_align()),
            batch=request.matrices, fast=request.fast_accum and a in FP8,
            epilogue=self._bound_epilogue(layouts["d"]), pair="b2" in layouts,
            scaling=self._scaling(), weights=weights, sparse=self._sparse(),
            groups=request.groups and request.groups.grouping,
            accumulates_c=self._accumulated(layouts["d"]) == "c" and request.reads_c,
        )  # fmt: skip

    def _accumulated(self, d: MatrixLayout) -> str:
        """The operand that is D, if the kernel writes D itself, not a copy of it."""
        return self.request.accumulated if self._is_in_place(d) else ""

    def _is_in_place(self, d: MatrixLayout) -> bool:
        """Whether the kernel writes D itself, not a copy of it with this layout."""
        return layout_with_order(self._d, d.row_major) == d

    def _most_align(self) -> int:
        """The alignment of outputs that the kernel makes use of, at most."""
        groups = self.request.groups
        return 16 if groups is None or groups.d_rows is None else SCATTERED_ALIGN

    def _scaling(self) -> BlockScaling | None:
        """The block scales of the kernel's A and B."""
        scales = self.request.scales
        if scales is None:
            return None
        return scales.scaling.transposed() if self.swapped else scales.scaling

    def _sparse(self) -> str:
        """Which of the kernel's A and B is sparse."""
        sparse = self.request.sparse
        return {"a": "b", "b": "a"}.get(sparse, "") if self.swapped else sparse

    def _scale_strides(self) -> dict[str, gemm.MatrixStrides]:
        """The strides of block scales, under the kernel's letters."""
        scales = self.request.scales
        if scales is None:
            return {}
        signatures = (scales.b, scales.a) if self.swapped else (scales.a, scales.b)
        strides = (s.strides for s in signatures)
        return {
            name: gemm.MatrixStrides(side, batch, inner)
            for name, (side, inner, batch) in zip(SCALE_ADDRESSES, strides, strict=False)
        }

    def _index_limits(self) -> dict[str, gemm.MatrixStrides]:
        """The numbers of rows that indices are less than: of A and of D."""
        groups = self.request.groups
        if groups is None:
            return {}
        limits = {}
        if groups.rows is not None:
            limits[GATHER] = gemm.MatrixStrides(self.request.a.matrix_shape[-2])
        if groups.d_rows is not None:
            limits[SCATTER] = gemm.MatrixStrides(groups.d_rows)
        return limits

    def _bound_epilogue(self, d: MatrixLayout) -> BoundEpilogue | None:
        """The epilogue for the kernel's D, which is transposed if ``swapped``."""
        request = self.request.epilogue
        if request is None:
            return None
        graph = request.graph.transposed() if self.swapped else request.graph
        columns = self.request.mnk[0 if self.swapped else 1]
        varies = [i.varies for i in graph.inputs] + ["mn" for _ in graph.tensors[1:]]
        signatures = zip(request.operands, varies, strict=True)
        layouts = tuple(self._operand_layout_of(s, columns, v) for s, v in signatures)
        layouts = self._gathered(graph, layouts)
        outputs, most = layouts[len(graph.inputs) :], self._most_align()
        outputs = tuple(x._replace(align=min(x.align, most)) for x in outputs)
        inputs = layouts[: len(graph.inputs)]
        bound = BoundEpilogue(graph, inputs, outputs, accumulated=self._accumulated(d))
        check_operands(bound)
        return bound

    def _gathered(
        self, graph: Any, layouts: tuple[EpilogueOperandLayout, ...]
    ) -> tuple[EpilogueOperandLayout, ...]:
        """The layouts, with those of operands that have A's rows, which are gathered."""
        groups = self.request.groups
        if groups is None or not groups.gathered:
            return layouts
        inputs = [
            x._replace(gathered=groups.grouping.gather if source.name in groups.gathered else "")
            for source, x in zip(graph.inputs, layouts, strict=False)
        ]
        return (*inputs, *layouts[len(inputs) :])

    def _operand_layout_of(
        self, s: OperandSignature | None, columns: int, varies: str
    ) -> EpilogueOperandLayout:
        if s is None:
            return EpilogueOperandLayout()
        m, n, batch = self._oriented(s.strides)
        across = "n" in varies
        align = operand_align(s.misalignment, m, batch, columns if across else 0, s.dtype)
        return EpilogueOperandLayout(align, n == 1 or not across)

    def _oriented(self, strides: tuple[int, int, int]) -> tuple[int, int, int]:
        """The strides along the kernel's M, N and batch."""
        m, n, batch = strides
        return (n, m, batch) if self.swapped else (m, n, batch)

    def _operand_strides(self) -> dict[str, gemm.MatrixStrides]:
        request, bound = self.request.epilogue, self.problem.epilogue
        if request is None or bound is None:
            return {}
        strides, d = {}, self.layouts["d"]
        operands = [s and self._oriented(s.strides) for s in request.operands]
        if self.staged and bound.accumulated:  # not uploaded: a split-K reduction reads D
            own = self._oriented((*d.strides, d.batch_stride))
            operands[[x.name for x in bound.graph.inputs].index(bound.accumulated)] = own
        for i, s in enumerate(operands):
            if s is not None:
                m, n, batch = s
                strides[f"x{i}"] = gemm.MatrixStrides(m, batch, n)
        return strides

    def _operand_layouts(self, layouts: dict[str, MatrixLayout]) -> dict[str, OperandLayout]:
        """Each matrix as the kernel reads it, under the caller's letters."""
        p, request = self.problem, self.request
        row_major = p.a_major == "k", p.b_major == "n"
        aligns = p.align_a, p.align_b
        if self.swapped:
            row_major, aligns = (p.b_major == "k", p.a_major == "m"), aligns[::-1]
        signatures = {
            "a": request.a, "b": request.b, "b2": request.b2, "c": request.c, "d": self._d,
        }  # fmt: skip
        required = {"a": (row_major[0], aligns[0]), "b": (row_major[1], aligns[1])}
        required["b2"] = required["b"]
        if request.weights is not None:
            required["b"] = required["b2"] = True, 16  # the arrays of units
        operands = {}
        for name, layout in layouts.items():
            s = signatures[name]
            assert s is not None
            k_repeats = TF32X3_TERMS if request.is_tf32x3 and name in "ab" else 1
            order, align = required.get(name, (layout.row_major, layout.align))
            operands[name] = self._operand_layout(s, order, align, k_repeats)
        return operands

    def _operand_layout(
        self, s: ArraySignature, row_major: bool, align: int, k_repeats: int
    ) -> OperandLayout:
        own = layout_with_order(s, row_major)
        if not self.staged and own is not None and own.align >= align and k_repeats == 1:
            return OperandLayout(row_major, own.leading_dim, False, own.batch_stride)
        rows, length = s.shape[-2:] if row_major else s.shape[:-3:-1]
        leading_dim = padded_leading_dim(length * k_repeats, s.itemsize, align)
        batch_stride = leading_dim * rows if s.is_stack else 0
        return OperandLayout(row_major, leading_dim, True, batch_stride, k_repeats)


def _layout_or_copy(s: ArraySignature) -> MatrixLayout:
    """The layout of a matrix, or of its copy; the strides of an empty matrix don't matter."""
    if 0 in s.shape:
        return copy_layout(s.shape, s.itemsize, row_major=s.shape[-1] == 0)
    return readable_layout(s) or copy_layout(s.shape, s.itemsize)


def _majors(a_row_major: bool, b_row_major: bool) -> tuple[str, str]:
    """The contiguous dimensions of A and B."""
    return "k" if a_row_major else "m", "n" if b_row_major else "k"


def checked_config(
    problem: gemm.Problem, config: Any, target: DeviceSpec, expected: gemm.Problem | None = None
) -> gemm.AnyConfig:
    """The configuration that a call passed, completed, or the chosen one, of the problem that is
    ``expected`` if that has other sizes. Raises ConfigError.
    """
    if config is None:
        config = gemm.choose(expected or problem, target)
    elif isinstance(config, str):
        config = gemm.complete(config, expected or problem, target)
    if not isinstance(config, gemm.AnyConfig):
        raise _config_type_error(config)
    gemm.check(problem, config, target)
    return config


def raise_unhashable_config(request: Request, config: Any) -> None:
    """Raise the error of a request with an unhashable ``config``, which is no configuration."""
    check_request(request)
    raise _config_type_error(config) from None


def _config_type_error(config: Any) -> ConfigError:
    return ConfigError(
        f"config must be a gemm.Config or its text, got {config!r} ({type(config).__name__})",
        hint="for example config='128x128x32:2x2:4'; None chooses one",
    )
