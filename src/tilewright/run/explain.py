"""A plan in words: what the kernel is, how well it fits the device, what bounds its time, and why.

Numbers follow from problem, configuration and target; registers are known once the GPU's assembler
has seen the kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import cuda, gemm
from .device import CudaDevice

if TYPE_CHECKING:
    from .plan import Plan


def explain(plan: Plan) -> str:
    """The whole text."""
    sections = (_problem, _kernel, _fit, _floor, _reason)
    width = 11
    lines = []
    for section in sections:
        for name, text in section(plan):
            lines.append(f"{name:<{width}}{text}")
    return "\n".join(lines)


Lines = list[tuple[str, str]]


def _problem(plan: Plan) -> Lines:
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


def _kernel(plan: Plan) -> Lines:
    config, traced = plan.config, plan.traced
    (bm, bn, bk), (wm, wn) = config.tile, config.warps
    tm, tn = config.warp_tile
    shared = traced.dynamic_shared + traced.static_shared
    return [
        ("kernel", f"{traced.name}, PTX for {traced.target} and later"),
        ("config", f"{config}"),
        ("", f"CTA tile {bm}×{bn}, {bk} of K at a time, in {config.stages} stages"),
        ("", f"{wm}×{wn} warps of {tm}×{tn} ({config.threads} threads), mma m16n8k16"),
        ("", f"{shared / 1024:g} KB of shared memory, {_registers(plan)}"),
        *(("warning", text) for text in _warnings(plan)),
    ]


def _warnings(plan: Plan) -> tuple[str, ...]:
    """What the assembler says costs speed; nothing where none has seen the kernel."""
    on_gpu = isinstance(plan.device, CudaDevice)
    return plan.device.compile(plan.traced).warnings if on_gpu else ()


def _registers(plan: Plan) -> str:
    if isinstance(plan.device, CudaDevice):
        function = plan.device.compile(plan.traced)
        spilled = f", {function.local} bytes of local memory" if function.local else ""
        return f"{function.registers} registers a thread{spilled}"
    sums = gemm.config.accumulators(plan.config)
    return f"{sums} registers a thread for the sums alone"


def _fit(plan: Plan) -> Lines:
    p, target = plan.problem, plan.device.target
    bm, bn, _ = plan.config.tile
    tiles = -(-p.m // bm) * -(-p.n // bn)
    resident = ctas_per_sm(plan)
    at_once = target.sms * resident
    waves = tiles / at_once
    useful = p.m * p.n / (tiles * bm * bn) if tiles else 0.0
    full = tiles / (-(-tiles // at_once) * at_once) if tiles else 0.0
    where = f"{target.name} ({target.target}, {target.sms} SMs)"
    return [
        ("device", f"{plan.device.name}: {where}"),
        ("tiles", f"{tiles:,}, of which {useful:.0%} is D and the rest falls outside"),
        ("waves", f"{waves:.2f} of {at_once} CTAs ({resident} on an SM): {full:.0%} of them used"),
    ]


def ctas_per_sm(plan: Plan) -> int:
    """CTAs that an SM holds at once, as far as is known (registers: what the plan asks for)."""
    limits, config, traced = plan.device.target.limits, plan.config, plan.traced
    if isinstance(plan.device, CudaDevice):
        function: cuda.Function = plan.device.compile(traced)
        with plan.device.gpu.active():
            return max(function.occupancy(config.threads, traced.dynamic_shared), 1)
    shared = traced.dynamic_shared + traced.static_shared + limits.shared_reserved
    by_threads = limits.threads_per_sm // config.threads
    most = min(limits.shared_per_sm // shared, by_threads, limits.blocks_per_sm)
    sums = gemm.config.accumulators(config)
    by_registers = limits.registers_per_sm // (config.threads * min(255, sums + 64))
    return max(1, min(most, max(by_registers, config.ctas)))


def _floor(plan: Plan) -> Lines:
    floor = plan.roofline
    if floor is None:
        return [("floor", f"the peak rates of {plan.device.target.name} are not known")]
    seconds = floor.seconds
    rate = f" ({_si(plan.problem.flops / seconds)}flop/s)" if seconds else ""
    return [
        ("intensity", f"{floor.intensity:.1f} flop for each byte of memory"),
        ("floor", f"{_time(seconds)} at the peak rates{rate}, bound by {floor.bound_by}"),
        ("", f"arithmetic {_time(floor.compute)}, memory {_time(floor.memory)}"),
    ]


def _reason(plan: Plan) -> Lines:
    if not plan.chosen:
        return [("why", "this configuration was asked for")]
    target, bits = plan.device.target, plan.problem.input.bits
    room = target.limits.shared_per_block
    fitting = [c for c in gemm.TABLE if c.shared_bytes(bits) <= room]
    cost = {c: gemm.config.estimate(plan.problem, c, target) for c in fitting}
    order = sorted(fitting, key=lambda c: cost[c])
    if len(order) < 2 or not cost[order[0]]:
        return [("why", f"the first of {len(fitting)} configurations that fit")]
    second = order[1]
    return [
        ("why", f"the least estimated time of the {len(fitting)} configurations that fit;"),
        ("", f"next is {second}, {cost[second] / cost[order[0]]:.2f} times as long"),
    ]


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
