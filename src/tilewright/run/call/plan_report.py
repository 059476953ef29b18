"""A plan in words: its kernel, how well it fits the device, what bounds its time, and why.

Numbers follow from problem, configuration and target; register counts are known once the GPU's
assembler has compiled the kernel.
"""

from __future__ import annotations

from typing import Protocol

from ... import cuda, gemm
from ...builder import Traced
from ...gemm.cost_model import terms
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


def explain(plan: PlanFacts) -> str:
    """The whole text."""
    sections = (_problem, _kernel, _fit, _roofline, _reason)
    width = 11
    lines = []
    for section in sections:
        for name, text in section(plan):
            lines.append(f"{name:<{width}}{text}")
    return "\n".join(lines)


Lines = list[tuple[str, str]]


def _problem(plan: PlanFacts) -> Lines:
    p = plan.problem
    aligned = {"A": p.align_a, "B": p.align_b, "D": p.align_d}
    if p.with_c:
        aligned["C"] = p.align_c
    orders = f"A {_order(p.a_major == 'k')}, B {_order(p.b_major == 'n')}, D row-major"
    copies = ", ".join(f"{name} {_count(n, 'byte')}" for name, n in aligned.items())
    return [
        ("problem", f"{p}"),
        ("", f"{_si(p.flops)}flop, {_si(p.bytes)}B at least; {orders}"),
        ("", f"copies of at most: {copies}"),
    ]


def _order(rows: bool) -> str:
    return "row-major" if rows else "column-major"


def _kernel(plan: PlanFacts) -> Lines:
    config, traced = plan.config, plan.traced
    bm, bn, bk = config.tile
    shared = traced.dynamic_shared + traced.static_shared
    later = "" if Target.parse(traced.target).suffix else " and later"
    of_d = "Dᵀ" if isinstance(config, gemm.TmaConfig) and config.swap else "D"
    return [
        ("kernel", f"{traced.name}, PTX for {traced.target}{later}"),
        ("config", f"{config}"),
        ("", f"CTA tile {bm}×{bn} of {of_d}, {bk} of K at a time, in {config.stages} stages"),
        *(("", text) for text in _threads(plan)),
        ("", f"{shared / 1024:g} KB of shared memory, {_registers(plan)}"),
        *(("warning", text) for text in _warnings(plan)),
    ]


def _threads(plan: PlanFacts) -> tuple[str, ...]:
    """Who computes what of a tile."""
    config = plan.config
    if isinstance(config, gemm.TmaConfig):
        return _warpgroups(config, plan.problem.input.bits)
    if isinstance(config, gemm.Config):
        (wm, wn), (tm, tn) = config.warps, config.warp_tile
        shape = config.mma_name
        return (f"{wm}×{wn} warps of {tm}×{tn} ({config.threads} threads), mma {shape}",)
    (tm, tn), (rows, columns) = config.block, config.thread_tile
    return (f"{tm}×{tn} threads of {rows}×{columns}, fma.rn.f32",)


def _warpgroups(config: gemm.TmaConfig, bits: int) -> tuple[str, ...]:
    count = _count(config.consumers, "warpgroup")
    rows, (_, bn, _), (cm, cn) = config.warpgroup_rows, config.tile, config.cluster
    how = "take a tile each, in turn" if config.pingpong else f"of {rows} rows"
    lines = [
        f"{count} {how}, wgmma m64n{bn}k{256 // bits}; one that copies ({config.threads} threads)"
    ]
    if config.ctas > 1:
        lines.append(f"clusters of {cm}×{cn} CTAs, which share what they load")
    if config.dynamic:
        lines.append("tiles by a counter of all CTAs: one that is late takes fewer")
    if config.split > 1:
        which = "of the last wave's tiles" if config.tail else "of each tile"
        lines.append(f"K {which} is cut in {config.split}; a second kernel adds up the parts")
    return tuple(lines)


def _warnings(plan: PlanFacts) -> tuple[str, ...]:
    """What the assembler says costs speed; nothing where none has seen the kernel."""
    on_gpu = isinstance(plan.device, CudaDevice)
    return plan.device.compile(plan.traced).warnings if on_gpu else ()


def _registers(plan: PlanFacts) -> str:
    if isinstance(plan.device, CudaDevice):
        function = plan.device.compile(plan.traced)
        spilled = f", {function.local} bytes of local memory" if function.local else ""
        return f"{function.registers} registers a thread{spilled}"
    return f"{_accumulator_registers(plan)} registers a thread for the sums alone"


def _accumulator_registers(plan: PlanFacts) -> int:
    config = plan.config
    if isinstance(config, gemm.Config):
        return gemm.cp_async.multistage_config.accumulator_registers(plan.problem, config)
    return config.accumulator_registers


def _fit(plan: PlanFacts) -> Lines:
    p, target, config = plan.problem, plan.device.target, plan.config
    bm, bn, _ = config.tile
    m, n = (p.n, p.m) if isinstance(config, gemm.TmaConfig) and config.swap else (p.m, p.n)
    tiles = -(-m // bm) * -(-n // bn) * p.batch
    useful = m * n * p.batch / (tiles * bm * bn) if tiles else 0.0
    pieces, at_once = _work_tiles(plan, tiles)
    waves = pieces / at_once
    full = waves / -(-pieces // at_once) if pieces else 0.0
    parts = f", in {pieces:,} pieces" if pieces > tiles else ""
    where = f"{target.name} ({target.target}, {target.sms} SMs)"
    each = -(-at_once // target.sms)
    return [
        ("device", f"{plan.device.name}: {where}"),
        ("tiles", f"{tiles:,}{parts}, of which {useful:.0%} is D and the rest falls outside"),
        ("waves", f"{waves:.2f} of {at_once} CTAs ({each} on an SM): {full:.0%} of them used"),
    ]


def _work_tiles(plan: PlanFacts, tiles: int) -> tuple[int, int]:
    """Pieces of work, and how many CTAs take one each at once."""
    p, target, config = plan.problem, plan.device.target, plan.config
    if not isinstance(config, gemm.TmaConfig):
        return tiles, target.sms * ctas_per_sm(plan)
    whole = config.unsplit_tiles(p, target)
    pieces = whole + (tiles - whole) * config.split
    if config.ctas > 1:  # a cluster takes as many, some outside D
        (bm, bn, _), (cm, cn) = config.tile, config.cluster
        m, n = (p.n, p.m) if config.swap else (p.m, p.n)
        pieces = -(-m // (bm * cm)) * -(-n // (bn * cn)) * config.ctas * p.batch
    return pieces, config.resident_clusters(target) * config.ctas


def ctas_per_sm(plan: PlanFacts) -> int:
    """CTAs that an SM holds at once, as far as is known (registers: what the plan asks for)."""
    limits, config, traced = plan.device.target.limits, plan.config, plan.traced
    if isinstance(plan.device, CudaDevice):
        function: cuda.CudaFunction = plan.device.compile(traced)
        with plan.device.gpu.active():
            return max(function.occupancy(config.threads, traced.dynamic_shared), 1)
    shared = traced.dynamic_shared + traced.static_shared + limits.shared_reserved
    by_threads = limits.threads_per_sm // config.threads
    most = min(limits.shared_per_sm // shared, by_threads, limits.blocks_per_sm)
    by_registers = limits.registers_per_sm // (
        config.threads * min(255, _accumulator_registers(plan) + 64)
    )
    return max(1, min(most, max(by_registers, config.ctas)))


def _roofline(plan: PlanFacts) -> Lines:
    roofline = plan.roofline
    if roofline is None:
        return [("floor", f"the peak rates of {plan.device.target.name} are not known")]
    seconds = roofline.seconds
    rate = f" ({_si(plan.problem.flops / seconds)}flop/s)" if seconds else ""
    return [
        ("intensity", f"{roofline.intensity:.1f} flop for each byte of memory"),
        ("floor", f"{_time(seconds)} at the peak rates{rate}, bound by {roofline.bound_by}"),
        ("", f"arithmetic {_time(roofline.compute)}, memory {_time(roofline.memory)}"),
    ]


def _reason(plan: PlanFacts) -> Lines:
    if not plan.chosen:
        return [("why", "this configuration was asked for")]
    if (found := plan.tuning_result) is not None:
        other = "the heuristic's choice too"
        if found.heuristic != found.config:
            other = f"the heuristic's choice, {found.heuristic}, was {found.heuristic_us:.4g} µs"
        return [
            ("why", f"tuned: {found.us:.4g} ± {found.margin:.2g} µs; {other}"),
            ("", f"measured on {found.date[:10]}, driver {found.driver}"),
        ]
    return _estimated(plan)


def _estimated(plan: PlanFacts) -> Lines:
    """Why the heuristic takes it: the terms of its estimate, and what comes next."""
    target, problem = plan.device.target, plan.original_problem or plan.problem
    (seconds, _), *others = order = gemm.ranked(problem, target)
    parts = sorted(terms(problem, plan.config, target).items(), key=lambda x: x[1], reverse=True)
    told = [f"{name} {_time(part)}" for name, part in parts if part > seconds / 100]
    lines = [f"the least estimated time, {_time(seconds)}, of {len(order)} that fit:"]
    lines += [", ".join(told[i : i + 3]) for i in range(0, len(told), 3)]
    found = [("why" if i == 0 else "", text) for i, text in enumerate(lines)]
    if others:
        longer, other = others[0]
        found.append(("", f"next is {other}, {longer / seconds:.2f} times as long"))
    return found


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
    for name, unit in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1e6:.3g} µs"
