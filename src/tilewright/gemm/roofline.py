"""Roofline: lower bound of a problem's time by its operations and bytes at published peak rates."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import TargetError
from ..target import DeviceSpec
from .problem import Problem, validate

# Operations of an SM per cycle, dense f16 and bf16 with f32 accumulation, by compute capability
# (NVIDIA's whitepapers). Elements of half the bits have twice the rate, tf32 half of it.
FLOPS_PER_CYCLE = {
    70: 1024, 75: 1024, 80: 2048, 86: 1024, 89: 1024, 90: 4096, 100: 8192, 120: 1024,
}  # fmt: skip
# The same of f32 by FFMA.
FFMA_PER_CYCLE = {70: 128, 75: 128, 80: 128, 86: 256, 89: 256, 90: 256, 100: 256, 120: 256}
# The same of f64, by the tensor cores where they support it.
F64_PER_CYCLE = {70: 64, 75: 4, 80: 128, 86: 4, 89: 4, 90: 256, 100: 128, 120: 4}
# (boost clock in GHz, memory bandwidth in TB/s) by name.
RATES = {
    "V100": (1.53, 0.9), "T4": (1.59, 0.32), "A100": (1.41, 2.0), "A10": (1.7, 0.6),
    "RTX 3090": (1.7, 0.94), "L4": (2.04, 0.3), "L40S": (2.52, 0.86), "RTX 4090": (2.52, 1.0),
    "H100": (1.83, 3.35), "H200": (1.83, 4.8), "B200": (1.85, 8.0), "RTX 5090": (2.41, 1.79),
}  # fmt: skip
DEFAULT_RATES = RATES["H200"]  # where a cost model needs those of another device


@dataclass(frozen=True, slots=True)
class Roofline:
    """Lower bounds in seconds: ``compute`` of the operations, ``memory`` of the bytes.
    ``intensity``: operations per byte.
    """

    compute: float
    memory: float
    intensity: float

    @property
    def seconds(self) -> float:
        """The larger bound."""
        return max(self.compute, self.memory)

    @property
    def bound_by(self) -> str:
        """``arithmetic`` or ``memory``."""
        return "arithmetic" if self.compute >= self.memory else "memory"


def roofline(problem: Problem, device: DeviceSpec) -> Roofline:
    """The roofline of a problem on a device.

    Raises TargetError for a device whose peak rates are not known.
    """
    validate(problem, device)
    if device.name not in RATES:
        known = ", ".join(RATES)
        raise TargetError(
            f"the peak rates of {device.name!r} are not known", hint=f"they are for {known}"
        )
    clock, bandwidth = RATES[device.name]
    if problem.is_f64:
        rate: float = f64_per_cycle(device)
    elif problem.a == "f32":
        rate = FFMA_PER_CYCLE[_capability(device)]
    else:
        rate = FLOPS_PER_CYCLE[_capability(device)] * 16 / problem.input.bits
        rate *= 2 if problem.has_sparse_wgmma else 1
    flops = rate * device.sms * clock * 1e9
    memory, intensity = problem.bytes / (bandwidth * 1e12), problem.flops / max(1, problem.bytes)
    return Roofline(problem.flops / flops, memory, intensity)


def f64_per_cycle(device: DeviceSpec) -> int:
    """Operations of an SM per cycle in f64."""
    return F64_PER_CYCLE[_capability(device)]


def _capability(device: DeviceSpec) -> int:
    return max(n for n in FLOPS_PER_CYCLE if n <= device.target.number)
