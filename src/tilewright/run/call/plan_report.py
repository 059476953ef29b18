"""``Plan.explain``: the kernel, its waves on the device, its roofline, and why it was chosen.

The numbers follow from problem, configuration and target. Register counts are exact on a GPU, where
the assembler has compiled the kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any, Protocol

from ... import cuda, gemm
from ...builder import Traced
from ...gemm.cost_model import terms
from ...gemm.cp_async.multistage_config import instruction_shape, mma_name
from ...gemm.tma.cost.sparse_costs import sparse_wgmma_cycles
from ...gemm.tma.epilogue_load.operand_stages import loaded_operands
from ...gemm.tma.epilogue_load.vector_stages import shared_vectors
from ...gemm.tma.mixed_input.alternating_mainloop import alternates
from ...gemm.tma.mixed_input.weight_prefetch import prefetched_k_blocks
from ...gemm.tma.stream_k.partial_exchange import shares_tiles, stream_k_tiles
from ...gemm.tma.stream_k.stream_k_tile_scheduler import tiles_of_group
from ...mma.metadata_blocks import BLOCK_BYTES, block_grid
from ...quantization.scaled import Scaled
from ...target import Target
from ..devices.cuda_device import CudaDevice
from ..devices.device_protocol import ExecutionDevice
from ..tuning.tuning_result import TuningResult


class PlanFacts(Protocol):
    """What the report reads of a ``gemm_plan.Plan``."""

    @property
    def problem(self) -> gemm.Problem: ...
    @property
    def original_problem(self) -> gemm.Problem | None: ...
    @property
    def config(self) -> gemm.AnyConfig: ...
    @property
    def chosen(self) -> bool: ...
    @property
    def tuning_result(self) -> TuningResult | None: ...
    @property
    def traced(self) -> Traced: ...
    @property
    def device(self) -> ExecutionDevice: ...
    @property
    def roofline(self) -> gemm.Roofline | None: ...
    @property
    def kept(self) -> float | None: ...


def explain(plan: PlanFacts) -> str:
    """The report as text."""
    return "\n".join(f"{name:<11}{text}" for name, text in explained(plan))


def explained(plan: PlanFacts) -> Lines:
    """The report as lines, each a name (empty: that of the line before) and a text."""
    sections = (_problem, _sparse, _epilogue, _kernel, _waves, _roofline, _reason)
    return [line for section in sections for line in section(plan)]


def kept_share(*matrices: Any) -> float | None:
    """The share of the magnitude that pruning kept of the sparse matrix among these, if known."""
    data = (x.data if isinstance(x, Scaled) else x for x in matrices)
    shares = (getattr(matrix, "kept", None) for matrix in data)
    return next((share for share in shares if share is not None), None)


Lines = list[tuple[str, str]]


def _problem(plan: PlanFacts) -> Lines:
    p = plan.problem
    aligned = {"A": p.align_a, "B": p.align_b, "D": p.align_d}
    if p.with_c:
        aligned["C"] = p.align_c
    orders = f"A {_order(p.a_major == 'k')}, B {_order(p.b_major == 'n')}, D row-major"
    alignments = ", ".join(f"{name} {_count(n, 'byte')}" for name, n in aligned.items())
    return [
        ("problem", f"{p}"),
        ("", f"{_si(p.flops)}flop, at least {_si(p.bytes)}B of memory traffic; {orders}"),
        ("", f"alignment: {alignments}"),
    ]


def _sparse(plan: PlanFacts) -> Lines:
    """Bytes and magnitude of a sparse matrix, and what limits the rate of its instruction."""
    p, config = plan.problem, plan.config
    if not p.sparse:
        return []
    dense = p.sparse_rows * p.k * p.batch * p.input.bits // 8
    metadata = prod(block_grid(p.a, p.sparse_rows, p.k)) * p.batch * BLOCK_BYTES
    kept = "" if plan.kept is None else f"; {plan.kept:.1%} of the magnitude kept"
    size = f"{_si(dense // 2 + metadata)}B, {_si(metadata)}B of them metadata, of {_si(dense)}B"
    lines = [f"{p.sparse.upper()}: {size}{kept}"]
    if isinstance(config, gemm.TmaConfig):
        bn = config.tile[1]
        tensor, reads = sparse_wgmma_cycles(bn)
        lines.append(
            f"64×{bn}: {tensor:.0f} cycles of the tensor core, {reads:.0f} of the read port of "
            f"shared memory: {tensor / reads:.0%} of the peak rate"
        )
    return [("sparse" * (i == 0), line) for i, line in enumerate(lines)]


def _epilogue(plan: PlanFacts) -> Lines:
    """The epilogue function as a list of operations, and its operands."""
    bound = plan.problem.epilogue
    if bound is None:
        return []
    lines = bound.graph.text().splitlines()
    found = [("epilogue" * (i == 0), line) for i, line in enumerate(lines)]
    inputs = ", ".join(
        f"{x.name} {x.type} [{', '.join(x.varies)}]" if x.varies else f"{x.name} (scalar)"
        for x in bound.graph.inputs
    )
    operations = sum(bool(node.args) for node in bound.graph.nodes)
    outputs = _count(len(bound.graph.outputs), "output")
    found.append(("", f"{_count(operations, 'operation')} per element, {outputs}"))
    return found + ([("", f"operands: {inputs}")] if inputs else [])


def _order(row_major: bool) -> str:
    return "row-major" if row_major else "column-major"


def _kernel(plan: PlanFacts) -> Lines:
    config, traced = plan.config, plan.traced
    bm, bn, bk = config.tile
    shared = traced.dynamic_shared + traced.static_shared
    or_later = "" if Target.parse(traced.target).suffix else " or later"
    output = "Dᵀ" if isinstance(config, gemm.TmaConfig) and config.swap else "D"
    return [
        ("kernel", f"{traced.name}, PTX for {traced.target}{or_later}"),
        ("config", f"{config}"),
        ("", f"CTA tile {bm}×{bn} of {output}, k-tile {bk}, {_count(config.stages, 'stage')}"),
        *(("", text) for text in _threads(plan)),
        ("", f"{shared / 1024:g} KB of shared memory, {_registers(plan)}"),
        *(("warning", text) for text in _warnings(plan)),
    ]


def _threads(plan: PlanFacts) -> tuple[str, ...]:
    """How warps or warpgroups divide the CTA tile."""
    config = plan.config
    if isinstance(config, gemm.TmaConfig):
        weights = _weights(config, plan.problem)
        return (*_warpgroups(config, plan.problem), *weights, *_epilogue_load(plan))
    if isinstance(config, gemm.Config):
        (wm, wn), (tm, tn) = config.warps, config.warp_tile
        name = "mma.sp" if plan.problem.sparse else "mma"
        shape = mma_name(instruction_shape(plan.problem, config))
        lines = [f"{wm}×{wn} warps of {tm}×{tn} ({config.threads} threads), {name} {shape}"]
        if config.split > 1:
            lines.append(_split_line("each tile", config.split))
        return tuple(lines)
    (tm, tn), (rows, columns) = config.block, config.thread_tile
    return (f"{tm}×{tn} threads of {rows}×{columns}, fma.rn.f32",)


def _warpgroups(config: gemm.TmaConfig, problem: gemm.Problem) -> tuple[str, ...]:
    count = _count(config.consumers, "consumer warpgroup")
    rows, (_, bn, _), (cm, cn) = config.warpgroup_rows, config.tile, config.cluster
    schedule = "pingpong" if config.pingpong else f"cooperative, {rows} rows each"
    if config.slices > 1:
        schedule = "sliced-K, each a part of the k-blocks"
    if problem.weights is not None and alternates(problem.weights, config):
        schedule += ", two sets of accumulators"
    sparse, bits = problem.has_sparse_wgmma, problem.input.bits
    instruction = f"wgmma{'.sp' * sparse} m64n{bn}k{(256 << sparse) // bits}"
    lines = [f"{count}, {schedule}, {instruction}; 1 producer warpgroup; {config.threads} threads"]
    if config.ctas > 1:
        lines.append(f"clusters of {cm}×{cn} CTAs, TMA multicast")
    if config.dynamic:
        lines.append("dynamic tile scheduler: an atomic counter hands out the work tiles")
    if config.stream_k:
        groups = f"groups of {config.stream_k} {'clusters' if config.ctas > 1 else 'CTAs'}"
        lines.append(f"stream-K: {groups} share the k-blocks of the tail wave's tiles evenly")
    if config.in_cluster:
        lines.append("split-K: each tile in 2 parts, summed in clusters of 2 CTAs")
    elif config.split > 1:
        tiles = "the tiles of the tail wave" if config.tail else "each tile"
        lines.append(_split_line(tiles, config.split))
    return tuple(lines)


def _weights(config: gemm.TmaConfig, problem: gemm.Problem) -> tuple[str, ...]:
    """What is done with packed weights before prior kernels end."""
    count = prefetched_k_blocks(problem, config)
    first = f"the first {_count(count, 'k-block')}" if count > 1 else "the first k-block"
    line = f"weights: each CTA prefetches {first} to the L2 before prior kernels end"
    return (line,) if count else ()


def _epilogue_load(plan: PlanFacts) -> tuple[str, ...]:
    """The operands of the epilogue that a warp loads into shared memory, or that is D."""
    config, problem = plan.config, plan.problem
    assert isinstance(config, gemm.TmaConfig)
    lines = []
    if problem.accumulates:
        name = problem.epilogue.accumulated if problem.epilogue else "C"
        lines.append(f"{name} is D: tensor copies add the epilogue's other terms to D")
    if names := ", ".join(operand.source.name for operand in loaded_operands(problem, config)):
        stages = _count(config.load_stages(problem), "epilogue tile")
        size = config.load_bytes(problem) / 1024
        lines.append(f"epilogue load by TMA: {names}, {stages} per consumer warpgroup, {size:g} KB")
    if names := ", ".join(vector.source.name for vector in shared_vectors(problem, config)):
        size = config.vector_bytes(problem) / 1024
        lines.append(f"epilogue vectors in shared memory: {names}, {size:g} KB")
    return tuple(lines)


def _split_line(tiles: str, split: int) -> str:
    return f"split-K: {tiles} in {split} parts, summed by a reduction kernel"


def _warnings(plan: PlanFacts) -> tuple[str, ...]:
    """Performance warnings of the GPU's assembler; none on the virtual machine."""
    on_gpu = isinstance(plan.device, CudaDevice)
    return plan.device.compile(plan.traced).warnings if on_gpu else ()


def _registers(plan: PlanFacts) -> str:
    if isinstance(plan.device, CudaDevice):
        function = plan.device.compile(plan.traced)
        spilled = f", {function.local} bytes of local memory" if function.local else ""
        return f"{function.registers} registers per thread{spilled}"
    return f"{_accumulator_registers(plan)} accumulator registers per thread"


def _accumulator_registers(plan: PlanFacts) -> int:
    config = plan.config
    if isinstance(config, gemm.Config):
        return gemm.cp_async.multistage_config.accumulator_registers(plan.problem, config)
    return config.accumulator_registers


def _waves(plan: PlanFacts) -> Lines:
    p, target, config = plan.problem, plan.device.target, plan.config
    bm, bn, _ = config.tile
    m, n = (p.n, p.m) if isinstance(config, gemm.TmaConfig) and config.swap else (p.m, p.n)
    tiles = -(-m // bm) * -(-n // bn) * p.batch
    useful = m * n * p.batch / (tiles * bm * bn) if tiles else 0.0
    work_tiles, resident = _work_tiles(plan, tiles)
    waves = work_tiles / resident
    full = waves / -(-work_tiles // resident) if work_tiles else 0.0
    split = f" ({work_tiles:,} work tiles)" if work_tiles > tiles else ""
    if isinstance(config, gemm.TmaConfig) and shares_tiles(p, config, target):
        shared, clusters = stream_k_tiles(p, config, target), config.resident_clusters(target)
        tail = tiles_of_group(shared, clusters, config.stream_k) / config.stream_k
        split, full = f" (stream-K: {shared * config.ctas:,})", waves / (waves // 1 + tail)
    model = f"{target.name} ({target.target}, {target.sms} SMs)"
    per_sm = -(-resident // target.sms)
    return [
        ("device", f"{plan.device.name}: {model}"),
        ("tiles", f"{tiles:,}{split}, {useful:.0%} of their area inside D"),
        ("waves", f"{waves:.2f} of {resident} CTAs ({per_sm} per SM), {full:.0%} full"),
    ]


def _work_tiles(plan: PlanFacts, tiles: int) -> tuple[int, int]:
    """Number of work tiles, and number of resident CTAs."""
    p, target, config = plan.problem, plan.device.target, plan.config
    if not isinstance(config, gemm.TmaConfig):
        return tiles * config.split, target.sms * ctas_per_sm(plan)
    unsplit = 0 if config.in_cluster else config.unsplit_tiles(p, target)
    work_tiles = unsplit + (tiles - unsplit) * config.split
    if config.ctas > 1:  # a cluster's CTAs each have a work tile, perhaps outside D
        (bm, bn, _), (cm, cn) = config.tile, config.cluster
        m, n = (p.n, p.m) if config.swap else (p.m, p.n)
        work_tiles = -(-m // (bm * cm)) * -(-n // (bn * cn)) * config.ctas * p.batch
    return work_tiles, config.resident_clusters(target) * config.ctas


def ctas_per_sm(plan: PlanFacts) -> int:
    """Resident CTAs per SM, as launched; an estimate from the accumulator registers if there is no
    GPU.
    """
    limits, config, traced = plan.device.target.limits, plan.config, plan.traced
    launched = gemm.launch_shape(plan.problem, config, plan.device.target)
    dynamic = traced.dynamic_shared + launched.unused
    if isinstance(plan.device, CudaDevice):
        function: cuda.CudaFunction = plan.device.compile(traced)
        with plan.device.gpu.active():
            return max(function.occupancy(config.threads, dynamic), 1)
    shared = dynamic + traced.static_shared + limits.shared_reserved
    by_threads = limits.threads_per_sm // config.threads
    upper = min(limits.shared_per_sm // shared, by_threads, limits.blocks_per_sm)
    by_registers = limits.registers_per_sm // (
        config.threads * min(255, _accumulator_registers(plan) + 64)
    )
    return max(1, min(upper, max(by_registers, config.ctas)))


def _roofline(plan: PlanFacts) -> Lines:
    roofline = plan.roofline
    if roofline is None:
        return [("roofline", f"the peak rates of {plan.device.target.name} are unknown")]
    seconds = roofline.seconds
    rate = f" ({_si(plan.problem.flops / seconds)}flop/s)" if seconds else ""
    return [
        ("intensity", f"{roofline.intensity:.1f} flop/byte"),
        ("roofline", f"{_time(seconds)} at peak rates{rate}, bound by {roofline.bound_by}"),
        ("", f"arithmetic {_time(roofline.compute)}, memory {_time(roofline.memory)}"),
    ]


def _reason(plan: PlanFacts) -> Lines:
    if not plan.chosen:
        return [("why", "the caller requested this configuration")]
    if (result := plan.tuning_result) is not None:
        heuristic = "also the heuristic's choice"
        if result.heuristic != result.config:
            us = f"{result.heuristic_us:.4g} µs"
            heuristic = f"the heuristic's choice, {result.heuristic}, took {us}"
        return [
            ("why", f"tuned: {result.us:.4g} ± {result.margin:.2g} µs; {heuristic}"),
            ("", f"measured on {result.date[:10]}, driver {result.driver}"),
        ]
    return _estimated(plan)


def _estimated(plan: PlanFacts) -> Lines:
    """Why the heuristic chose it: the terms of the cost model, and the next best candidate."""
    target, problem = plan.device.target, plan.original_problem or plan.problem
    order = gemm.ranked(problem, target)
    seconds, _ = order[0]
    parts = sorted(terms(problem, plan.config, target).items(), key=lambda x: x[1], reverse=True)
    shown = [f"{name} {_time(part)}" for name, part in parts if abs(part) > seconds / 100]
    lines = [f"the lowest estimated time, {_time(seconds)}, of {len(order)} candidates:"]
    lines += [", ".join(shown[i : i + 3]) for i in range(0, len(shown), 3)]
    if len(order) > 1:
        longer, other = order[1]
        lines.append(f"next best: {other}, {longer / seconds:.2f} times as long")
    return [("why" if i == 0 else "", text) for i, text in enumerate(lines)]


# --- numbers ------------------------------------------------------------------------------------


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _si(value: float) -> str:
    """``1.1e9`` → ``1.1 G``."""
    for prefix, unit in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= unit:
            return f"{value / unit:.3g} {prefix}"
    return f"{value:.3g} "


def _time(seconds: float) -> str:
    if seconds < 0:
        return f"−{_time(-seconds)}"
    for name, unit in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} µs"
