"""Host time of a layer compared with torch's: forward, with a gradient, and forward and backward.

    python benchmarks/torch_layers.py        # needs a GPU

Microseconds per call over small tensors, whose kernels are shorter than their launch; medians of
interleaved rounds. ``linear`` is tilewright.torch.linear; F.linear is torch.nn.functional.linear.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import tilewright.torch

CALLS, ROUNDS, SIZE = 200, 25, 64
Layer = Callable[..., Any]


def layers() -> dict[str, Layer]:
    """The layers by name, each of ours followed by torch's."""
    linear, torchs, gelu = tilewright.torch.linear, torch.nn.functional.linear, torch.nn.functional
    return {
        "linear(x, w, bias)": linear,
        "F.linear(x, w, bias)": torchs,
        "linear(…, 'gelu')": lambda x, w, bias: linear(x, w, bias, activation="gelu"),
        "F.gelu(F.linear(…))": lambda x, w, bias: gelu.gelu(torchs(x, w, bias)),
    }


def microseconds(layer: Layer, mode: str) -> float:
    """One round of a layer in a mode of ``MODES``."""
    grad = mode != "inference"
    shapes = (SIZE, SIZE), (SIZE, SIZE), (SIZE,)
    x, w, bias = (torch.randn(s, device="cuda").bfloat16().requires_grad_(grad) for s in shapes)
    dy = torch.randn(SIZE, SIZE, device="cuda").bfloat16()
    with torch.inference_mode(mode == "inference"):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            y = layer(x, w, bias)
            if mode == "forward and backward":
                torch.autograd.grad(y, (x, w, bias), dy)
        return (time.perf_counter() - start) / CALLS * 1e6


MODES = ("inference", "forward with a gradient", "forward and backward")


def main() -> None:
    gc.disable()
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}")
    for mode in MODES:
        times: dict[str, list[float]] = {name: [] for name in layers()}
        for number in range(ROUNDS + 2):
            for name, layer in layers().items():
                us = microseconds(layer, mode)
                if number > 1:  # the first two warm up
                    times[name].append(us)
        medians = {name: statistics.median(us) for name, us in times.items()}
        ours, peers = list(medians.items())[::2], list(medians.items())[1::2]
        for (name, us), (peer, other) in zip(ours, peers, strict=True):
            ratio = us / other
            print(f"{mode:<26}{name:<22}{us:6.2f} µs   {peer:<22}{other:6.2f} µs   {ratio:.2f}")


if __name__ == "__main__":
    main()
