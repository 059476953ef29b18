"""Trains a transformer with torch's layers and with ours: the loss after each of 50 steps.

    python benchmarks/train_block.py        # needs a GPU

Attention is torch's; the linear layers are torch.nn.Linear, or what ``tilewright.torch.replace``
makes of them, eagerly and under ``torch.compile(fullgraph=True)``. Parameters are f32 under
autocast to bf16. The task is to repeat the first half of a sequence. Initial values, data and their
order are the same in all runs; noise is how far torch's own runs are apart: bf16 beside f32 and
f16, eager and compiled.
"""

from __future__ import annotations

import argparse
import copy
import time
from contextlib import nullcontext
from typing import Any

import torch

import tilewright.torch

STEPS, BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 50, 16, 256, 512, 8, 2, 512
F = torch.nn.functional


class Block(torch.nn.Module):
    """Attention and a gelu layer, both after a layernorm and added to their input."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.up = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.down = torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        shape = *x.shape[:2], HEADS, WIDTH // HEADS
        parts = self.qkv(self.norms[0](x)).chunk(3, -1)
        q, k, v = (t.reshape(shape).transpose(1, 2) for t in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words: Any) -> Any:
        return self.head(self.blocks(self.words(words) + self.places))


def losses(model: Any, dtype: Any, compiled: bool) -> list[float]:
    """The loss of each step."""
    generator = torch.Generator("cuda").manual_seed(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = torch.compile(model, fullgraph=True) if compiled else model
    found = []
    for _ in range(STEPS):
        half = torch.randint(WORDS, (BATCH, LENGTH // 2), device="cuda", generator=generator)
        words = torch.cat([half, half], 1)
        with torch.autocast("cuda", dtype=dtype) if dtype else nullcontext():
            loss = F.cross_entropy(
                step(words)[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten()
            )
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
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="runs whose name contains this")
    only = parser.parse_args().only
    torch.manual_seed(0)
    original = Model().cuda()
    print(
        f"{'':24}"
        + "".join(f"{f'step {n}':>9}" for n in range(10, STEPS + 1, 10))
        + "    mean of 41…50"
    )
    for name, by, options, dtype, compiled in RUNS:
        if only and only not in name:
            continue
        torch._dynamo.reset()
        model, start = copy.deepcopy(original), time.perf_counter()
        if by is not None:
            tilewright.torch.replace(model, by, **options)
        found = losses(model, dtype, compiled)
        shown = "".join(f"{found[n - 1]:9.4f}" for n in range(10, STEPS + 1, 10))
        seconds = time.perf_counter() - start
        print(f"{name:24}{shown}{sum(found[-10:]) / 10:12.4f}   {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
