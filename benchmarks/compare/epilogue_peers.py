"""Measure a product with an epilogue on the GPU: tilewright and torch in one process.

Timed in alternation: the fused kernel, our plain product, torch's, and torch's whole computation,
eager, compiled, and compiled with max-autotune. A peer that fails is reported with the reason.
Times are of CUDA-graph replays, as in ``peers``.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any

os.environ.setdefault(
    "TORCHINDUCTOR_COMPILE_THREADS", "1"
)  # a daemonic process can have no children

import numpy as np
import torch
from torch.nn.functional import gelu, silu

import tilewright

from .epilogue_rows import EpilogueRow, Inputs, Values, numpy_values, plain_plan
from .peers import (
    CHECKED_ROWS,
    MAX_SETS,
    TYPES,
    Times,
    bursts,
    compiled,
    graph,
    rough_seconds,
    sustained,
)
from .stats import Ratio, calls

Work = Callable[[int], object]
ROUNDING = 2.0**-9  # of bf16
MODES: dict[str, Any] = {
    "eager": None,
    "compile": {},
    "max-autotune": {"mode": "max-autotune-no-cudagraphs"},
}


def torch_values(shape: tuple[int, ...], values: Values) -> torch.Tensor:
    """Random numbers on the GPU."""
    if values.type == "s8":
        return torch.randint(-127, 128, shape, dtype=torch.int8, device="cuda")
    x = (torch.rand if values.uniform else torch.randn)(shape, device="cuda")
    return ((x + 0.5 * values.uniform) * values.scale).to(TYPES[values.type])


# --- the same computations by torch -------------------------------------------------------------


def _silu_residual(a: Any, b: Any, o: dict[str, Any]) -> Any:
    return silu(torch.addmm(o["bias"], a, b)) * o["residual"]


def _swiglu(a: Any, b: Any, o: dict[str, Any]) -> Any:
    gate, up = torch.mm(a, b).chunk(2, dim=1)
    return silu(gate) * up


def _gelu(a: Any, b: Any, o: dict[str, Any]) -> Any:
    return gelu(torch.addmm(o["bias"], a, b), approximate="tanh")


def _gelu_e4m3(a: Any, b: Any, o: dict[str, Any]) -> Any:
    y = gelu(torch.addmm(o["bias"], a, b)).float()
    return (y * o["scale"]).clamp(-448, 448).to(torch.float8_e4m3fn), y.abs().amax()


def _scaled_gelu(a: Any, b: Any, o: dict[str, Any]) -> Any:
    y = torch._scaled_mm(
        a, b, o["row"], o["column"][None], bias=o["bias"], out_dtype=torch.bfloat16,
        use_fast_accum=True,
    )  # fmt: skip
    return gelu(y, approximate="tanh")


def _dequantized(a: Any, b: Any, o: dict[str, Any]) -> Any:
    return (torch._int_mm(a, b) * o["row"] * o["column"]).to(torch.bfloat16)


def _gelu_by_cublas(a: Any, b: Any, o: dict[str, Any]) -> Any:
    return torch._addmm_activation(o["bias"], a, b, use_gelu=True)


TORCH = {
    "silu_residual": _silu_residual, "swiglu": _swiglu, "gelu": _gelu, "gelu_e4m3": _gelu_e4m3,
    "scaled_gelu": _scaled_gelu, "dequantized": _dequantized,
}  # fmt: skip
CUBLAS = {"gelu": _gelu_by_cublas}  # where cuBLAS fuses it

#: The first output in f64, of accumulators and operands in f64.
EXACT: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "silu_residual": lambda acc, o: silu(acc + o["bias"]) * o["residual"],
    "swiglu": lambda acc, o: silu(acc.chunk(2, 1)[0]) * acc.chunk(2, 1)[1],
    "gelu": lambda acc, o: gelu(acc + o["bias"], approximate="tanh"),
    "gelu_e4m3": lambda acc, o: (gelu(acc + o["bias"]) * o["scale"]).clamp(-448, 448),
    "scaled_gelu": lambda acc, o: gelu(
        acc * o["row"] * o["column"] + o["bias"], approximate="tanh"
    ),
    "dequantized": lambda acc, o: acc * o["row"] * o["column"],
}


# --- a row --------------------------------------------------------------------------------------


class EpilogueCase:
    """A row's arrays on the GPU, enough sets of them to fill three L2 caches. ``plan``: with the
    epilogue; ``plain``: of the product alone.
    """

    def __init__(self, row: EpilogueRow, config: str | None) -> None:
        torch.manual_seed(0)
        self.row, self.one = row, torch.ones((), device="cuda")
        first = self._set()
        inputs = first[0]
        self.plan = tilewright.plan(
            inputs.a, inputs.b, epilogue=row.spec.function, config=config, **row.spec.options,
            **inputs.operands,
        )  # fmt: skip
        self.plain = plain_plan(row, "cuda", config)
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        count = min(MAX_SETS, room // _bytes(first) + 1)
        self.sets = [first, *(self._set() for _ in range(count - 1))]
        self.d = [self._empty(row.n, self.plan.problem.d) for _ in self.sets]
        self.plain_d = [self._empty(row.weight_rows, self.plain.problem.d) for _ in self.sets]

    def _set(self) -> tuple[Inputs, Any]:
        return self.row.inputs(torch_values)

    def _empty(self, columns: int, type_: str) -> torch.Tensor:
        return torch.empty((self.row.m, columns), dtype=TYPES[type_], device="cuda")

    def fused(self, i: int) -> Any:
        i %= len(self.sets)
        a, b, operands = self.sets[i][0]
        return self.plan.run(a, b, out=self.d[i], **operands)

    def plain_product(self, i: int) -> Any:
        i %= len(self.sets)
        inputs, weights = self.sets[i]
        return self.plain.run(inputs.a, weights, out=self.plain_d[i])

    def torch_product(self, i: int) -> Any:
        i %= len(self.sets)
        (a, _, _), b = self.sets[i]
        if self.row.spec.a.type == "s8":
            return torch._int_mm(a, b, out=self.plain_d[i])
        if self.row.spec.a.type == "e4m3":
            return torch._scaled_mm(
                a, b, scale_a=self.one, scale_b=self.one, out_dtype=torch.bfloat16,
                use_fast_accum=True, out=self.plain_d[i],
            )  # fmt: skip
        return torch.mm(a, b, out=self.plain_d[i])

    def by_torch(self, function: Callable[..., Any]) -> Work:
        def call(i: int) -> Any:
            inputs, weights = self.sets[i % len(self.sets)]
            return function(inputs.a, weights, inputs.operands)

        return call

    def peers(self, modes: Sequence[str]) -> dict[str, Work]:
        """Torch's product, and its whole computation in each mode."""
        if not modes:
            return {}
        torch._dynamo.reset()  # kernels for this shape, not for any
        function, calls_by_name = TORCH[self.row.kind], {"mm": self.torch_product}
        for mode in modes:
            options = MODES[mode]
            if options is None:
                compiled_function = function
            else:
                compiled_function = torch.compile(function, dynamic=False, **options)
            calls_by_name[mode] = self.by_torch(compiled_function)
        if self.row.kind in CUBLAS:
            calls_by_name["cublas"] = self.by_torch(CUBLAS[self.row.kind])
        return calls_by_name

    # --- checks ---

    def errors(self) -> tuple[float, float]:
        """The largest error of our first output over |exact| + its root mean square, in sampled
        rows; that of eager torch, or ``ROUNDING``. Infinite for an element that is not written.
        """
        inputs, weights = self.sets[0]
        ends = torch.tensor([0, self.row.m - 1], device="cuda")
        inner = torch.randint(self.row.m, (CHECKED_ROWS - 2,), device="cuda")
        picked = torch.cat([ends, inner]).unique()
        acc = inputs.a.double()[picked] @ weights.double()
        operands = {name: x.double() for name, x in inputs.operands.items()}
        for name in ("residual", "row"):
            if name in operands:
                operands[name] = operands[name][picked]
        exact = EXACT[self.row.kind](acc, operands)
        self.d[0].view(torch.uint8).fill_(0xFF)  # NaNs
        self.fused(0)
        error = _error(self.d[0][picked], exact)
        try:
            result = self.by_torch(TORCH[self.row.kind])(0)
        except RuntimeError:  # _int_mm refuses M ≤ 16
            return error, ROUNDING
        first = result[0] if isinstance(result, tuple) else result
        return error, _error(first[picked], exact)

    def amax_error(self) -> float:
        """The relative difference of amax from torch's; 0 for a row that has none."""
        if self.row.kind != "gelu_e4m3":
            return 0.0
        inputs, weights = self.sets[0]
        ours = float(self.fused(0)["amax"])
        product = inputs.a.float() @ weights.float() + inputs.operands["bias"].float()
        expected = float(gelu(product).abs().amax())
        return abs(ours - expected) / expected


def _bytes(arrays: tuple[Inputs, Any]) -> int:
    inputs, weights = arrays
    return sum(x.nbytes for x in (inputs.a, weights, *inputs.operands.values()))


def _error(got: torch.Tensor, exact: torch.Tensor) -> float:
    error = (got.double() - exact).abs() / (exact.abs() + exact.square().mean().sqrt())
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())


def measure(
    row: EpilogueRow, config: str | None, pairs: int, modes: Sequence[str], vm: bool
) -> dict[str, Any]:
    """All figures of a row; with None the configuration is chosen. ``modes``: of torch, none for
    ours alone. ``vm``: compare bits with the virtual machine's on a small shape.
    """
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    case = EpilogueCase(row, config)
    error, torch_error = case.errors()
    record: dict[str, Any] = {
        "config": str(case.plan.config), "plain_config": str(case.plain.config),
        **compiled(case.plan), "error": error, "torch_error": torch_error,
        "amax_error": case.amax_error(), "sets": len(case.sets),
    }  # fmt: skip
    if vm:
        record["differs_from_vm"] = differences(row, case.plan.config)
    works: dict[str, Work] = {"fused": case.fused, "plain": case.plain_product}
    works |= case.peers(modes)
    count = max(calls(rough_seconds(case.plain_product)), len(case.sets))
    graphs, failed = captured(works, count, len(case.sets))
    names = list(graphs)
    for name, timed in (("sustained", sustained), ("bursts", bursts)):
        record[name] = _figures(names, timed(list(graphs.values()), pairs), count)
    return record | {"failed": failed, "calls": count}


def captured(
    works: dict[str, Work], count: int, sets: int
) -> tuple[dict[str, torch.cuda.CUDAGraph], dict[str, str]]:
    """A graph of ``count`` calls of each, and the errors of torch's that can't be captured."""
    graphs, failed = dict[str, torch.cuda.CUDAGraph](), dict[str, str]()
    for name, work in works.items():
        try:
            for i in range(sets):
                work(i)  # compiles
            graphs[name] = graph(work, count)
        except Exception as error:
            if name in ("fused", "plain"):
                raise
            failed[name] = f"{type(error).__name__}: {error}"[:300]
            torch.cuda.synchronize()
    return graphs, failed


def _figures(names: list[str], times: Times, count: int) -> dict[str, Any]:
    """Microseconds of each, and ratios, round by round: ours to the plain product, the peers'
    whole computation to ours.
    """
    by_name = dict(zip(names, times, strict=True))
    us = {name: 1e6 * statistics.median(t) / count for name, t in by_name.items()}

    def ratio(one: str, other: str) -> dict[str, float]:
        pairs = zip(by_name[one], by_name[other], strict=True)
        return Ratio.of([x / y for x, y in pairs])._asdict()

    whole = [name for name in names if name not in ("fused", "plain", "mm")]
    peers = {name: ratio(name, "fused") for name in whole}
    return {"us": us, "to_plain": ratio("fused", "plain"), "peers": peers}


# --- bits ---------------------------------------------------------------------------------------


def differences(row: EpilogueRow, config: Any) -> int:
    """Bytes in which the GPU and the virtual machine differ, for a few tiles of a configuration."""
    small = row.small(config)
    results = []
    for device in ("cuda", "vm"):
        (a, b, operands), _ = small.inputs(numpy_values(1))
        result = tilewright.matmul(
            a, b, epilogue=row.spec.function, device=device, config=config, **row.spec.options,
            **operands,
        )  # fmt: skip
        outputs = result if isinstance(result, dict) else {"d": result}
        results.append([np.atleast_1d(x).view(np.uint8) for x in outputs.values()])
    return sum(int((x != y).sum()) for x, y in zip(*results, strict=True))
