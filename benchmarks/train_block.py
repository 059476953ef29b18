"""Trains a transformer with torch's layers and with ours: the loss after each of 50 steps.

    python benchmarks/train_block.py        # on a GPU
    python benchmarks/train_block.py --vm   # a small one on the virtual machine

Attention is torch's; the linear layers are torch.nn.Linear, or what ``tilewright.torch.replace``
makes of them, eagerly and under ``torch.compile(fullgraph=True)``; "experts" are models whose gelu
layer is one of experts instead, ``tilewright.torch.MoE`` or the same by torch's own products.
Parameters are f32 under autocast to bf16. Nine words in ten follow from the word before by a fixed
permutation, the others are random. Initial values, data and their order are the same in all runs;
noise is how far torch's own runs are apart: bf16 compared with f32 and f16, eager and compiled.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import tilewright.torch

STEPS = 50
EXPERTS, CHOICES = 8, 2
F = torch.nn.functional


@dataclass(frozen=True)
class Sizes:
    device: str = "cuda"
    batch: int = 16
    length: int = 256
    width: int = 512
    heads: int = 8
    layers: int = 2
    words: int = 512
    rate: float = 1e-3


SMALL = Sizes("cpu", 4, 16, 64, 2, 1, 32, 4e-3)


class TorchExperts(tilewright.torch.MoE):
    """The same layer by torch's products, an expert at a time."""

    def forward(self, x: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        indices, weights, _ = self.route(rows)
        y = torch.zeros_like(rows, dtype=torch.float32)
        for e in range(self.w_up.shape[0]):
            inner = F.silu(F.linear(rows, self.w_gate[e])) * F.linear(rows, self.w_up[e])
            weight = torch.where(indices == e, weights, 0).sum(1, keepdim=True)
            y = y + weight * F.linear(inner, self.w_down[e]).float()
        return y.to(x.dtype).reshape(x.shape)


class Block(torch.nn.Module):
    """Attention and a gelu layer, both after a layernorm and added to their input. ``experts``: the
    class of a layer of experts instead.
    """

    def __init__(self, sizes: Sizes, experts: Any = None) -> None:
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        if experts is not None:
            self.experts = experts(width, width, EXPERTS, CHOICES)
            return
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        inner = self.norms[1](x)
        if hasattr(self, "experts"):
            return x + self.experts(inner)
        return x + self.down(F.gelu(self.up(inner)))


class Model(torch.nn.Module):
    def __init__(self, sizes: Sizes, experts: Any = None) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(sizes.words, sizes.width)
        self.places = torch.nn.Parameter(torch.randn(sizes.length, sizes.width) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block(sizes, experts) for _ in range(sizes.layers)))
        self.head = torch.nn.Linear(sizes.width, sizes.words)

    def forward(self, words: Any) -> Any:
        return self.head(self.blocks(self.words(words) + self.places))


def batches(sizes: Sizes) -> Any:
    """The words of each step: (steps, batch, length)."""
    generator = torch.Generator().manual_seed(1)
    following = torch.randperm(sizes.words, generator=generator)
    shape = STEPS, sizes.batch, sizes.length
    words = torch.randint(sizes.words, shape, generator=generator)
    fixed = torch.rand(shape, generator=generator) < 0.9
    for n in range(1, sizes.length):
        words[..., n] = torch.where(fixed[..., n], following[words[..., n - 1]], words[..., n])
    return words.to(sizes.device)


def losses(sizes: Sizes, model: Any, dtype: Any, compiled: bool) -> list[float]:
    """The loss of each step."""
    device, data = sizes.device, batches(sizes)
    optimizer = torch.optim.AdamW(model.parameters(), lr=sizes.rate)
    backend = "inductor" if device == "cuda" else "aot_eager"
    step = torch.compile(model, fullgraph=True, backend=backend) if compiled else model
    found = []
    for words in data:
        with torch.autocast(device, dtype=dtype) if dtype else nullcontext():
            logits = step(words)[:, :-1].flatten(0, 1)
        loss = F.cross_entropy(logits.float(), words[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return [float(x) for x in found]


RUNS: list[tuple[str, str | None, dict[str, Any], Any, bool]] = [
    ("torch f32", None, {}, None, False),
    ("torch f16", None, {}, torch.float16, False),
    ("torch bf16", None, {}, torch.bfloat16, False),
    ("torch bf16 compiled", None, {}, torch.bfloat16, True),
    ("bf16", "linear", {}, torch.bfloat16, False),
    ("bf16 compiled", "linear", {}, torch.bfloat16, True),
    ("fp8 dynamic", "fp8", {}, torch.bfloat16, False),
    ("fp8 dynamic compiled", "fp8", {}, torch.bfloat16, True),
    ("fp8 per row", "fp8", {"granularity": "row"}, torch.bfloat16, False),
    ("fp8 delayed", "fp8", {"scaling": "delayed"}, torch.bfloat16, False),
    ("fp8 delayed compiled", "fp8", {"scaling": "delayed"}, torch.bfloat16, True),
    ("torch experts bf16", None, {}, torch.bfloat16, False),
    ("experts bf16", "linear", {}, torch.bfloat16, False),
    ("experts bf16 compiled", "linear", {}, torch.bfloat16, True),
    ("experts fp8", "fp8", {"skip": ("*.router",)}, torch.bfloat16, False),
]


def made(sizes: Sizes, name: str, run_on: str | None) -> Model:
    """The model of a run, with the same parameters as others of its kind."""
    torch.manual_seed(0)
    experts = None
    if "experts" in name:
        layer = TorchExperts if name.startswith("torch") else tilewright.torch.MoE
        experts = partial(layer, run_on=run_on)
    return Model(sizes, experts).to(sizes.device)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Trains a transformer with torch's layers and ours."
    )
    parser.add_argument("--only", default="", help="runs whose name contains this")
    parser.add_argument("--vm", action="store_true", help="a small model on the virtual machine")
    arguments = parser.parse_args()
    sizes = SMALL if arguments.vm else Sizes()
    steps = range(10, STEPS + 1, 10)
    print(f"{'':24}" + "".join(f"{f'step {n}':>9}" for n in steps) + "   mean of 41…50")
    for name, by, options, dtype, compiled in RUNS:
        if arguments.only not in name:
            continue
        torch._dynamo.reset()
        run_on = "vm" if arguments.vm else None
        model, start = made(sizes, name, run_on), time.perf_counter()
        if by is not None:
            tilewright.torch.replace(model, by, run_on=run_on, **options)
        found = losses(sizes, model, dtype, compiled)
        shown = "".join(f"{found[n - 1]:9.4f}" for n in steps)
        seconds = time.perf_counter() - start
        print(f"{name:24}{shown}{sum(found[-10:]) / 10:12.4f}   {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
