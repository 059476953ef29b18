"""Replace the linear layers of a small language model, and compare its output with the original's.

python examples/replace_layers.py        # on a GPU, where there is one
python examples/replace_layers.py vm     # on the virtual machine
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from typing import Any

try:
    import torch
except ImportError:
    sys.exit("this example needs torch: pip install 'tilewright[torch]'")

import tilewright.torch

F = torch.nn.functional


@dataclass(frozen=True)
class Config:
    words: int = 256
    width: int = 128
    heads: int = 2
    hidden: int = 256
    layers: int = 2


class Block(torch.nn.Module):
    """Attention and a SwiGLU layer, each added to its input."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width, hidden = config.width, config.hidden
        self.heads = config.heads
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.gate = torch.nn.Linear(width, hidden, bias=False)
        self.up = torch.nn.Linear(width, hidden, bias=False)
        self.down = torch.nn.Linear(hidden, width, bias=False)

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(torch.nn.Module):
    """Words → the logits of the next word."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(config.words, config.width)
        self.blocks = torch.nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.norm = torch.nn.RMSNorm(config.width)
        self.head = torch.nn.Linear(config.width, config.words, bias=False)

    def forward(self, words: Any) -> Any:
        return self.head(self.norm(self.blocks(self.words(words))))


CHOICES: dict[str, tuple[str, dict[str, Any]]] = {
    "bf16": ("linear", {}),
    "s8 weights": ("quantized", {"type": "s8", "group": 128}),
    "u4 weights": ("quantized", {"type": "u4", "group": 64, "zeros": "integer"}),
    "fp8": ("fp8", {"granularity": "row"}),
    "2:4 sparse": ("sparse", {}),
}


def main() -> None:
    on_vm = sys.argv[1:] == ["vm"]
    device = "cpu" if on_vm or not torch.cuda.is_available() else "cuda"
    torch.manual_seed(0)
    original = Model(Config()).to(device, torch.bfloat16).eval()
    words = torch.randint(256, (1, 16), device=device)
    exact = copy.deepcopy(original).double()
    with torch.no_grad():
        want = exact(words)
        print(f"{'torch bf16':12} error {error(original(words), want):.4f}")
        for name, (by, options) in CHOICES.items():
            model = copy.deepcopy(original)
            run_on = "vm" if device == "cpu" else None
            report = tilewright.torch.replace(model, by, skip=["head"], run_on=run_on, **options)
            counts = f"{len(report.replaced)} layers replaced, {len(report.left)} left"
            print(f"{name:12} error {error(model(words), want):.4f}   {counts}")


def error(got: Any, want: Any) -> float:
    """The root mean square of the differences, relative to that of ``want``."""
    return float((got.double() - want).square().mean().sqrt() / want.square().mean().sqrt())


if __name__ == "__main__":
    main()
