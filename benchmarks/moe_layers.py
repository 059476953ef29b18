"""Compare ``moe`` with the same layer by torch: sort, ``_grouped_mm``, silu, ``index_add_``.

    python benchmarks/moe_layers.py
    python benchmarks/moe_layers.py --tokens 16,256 --experts 64 --choices 6

bf16, hidden 7168, intermediate 2048; torch multiplies by the gates and ups as one matrix. A line
has median times of CUDA-graph replays, interleaved on a busy GPU, and the ratio of both; and the
largest difference of the results, relative to the largest element. Needs an NVIDIA GPU of sm_90a
and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import torch
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, Ratio, calls

import tilewright

HIDDEN, INTERMEDIATE = 7168, 2048


class Layer:
    """The weights, and tokens with random routes."""

    def __init__(self, experts: int, choices: int) -> None:
        torch.manual_seed(0)
        self.experts, self.choices = experts, choices
        self.up_and_gate = self._random(experts, 2 * INTERMEDIATE, HIDDEN)
        self.down = self._random(experts, HIDDEN, INTERMEDIATE)

    @staticmethod
    def _random(*shape: int) -> torch.Tensor:
        made = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
        return made.normal_(std=shape[-1] ** -0.5)

    def route(self, tokens: int) -> None:
        self.x = torch.randn((tokens, HIDDEN), device="cuda", dtype=torch.bfloat16)
        scores = torch.rand((tokens, self.experts), device="cuda").softmax(-1)
        self.weights, self.indices = scores.topk(self.choices)

    def ours(self, _: int) -> torch.Tensor:
        gate, up = self.up_and_gate[:, :INTERMEDIATE], self.up_and_gate[:, INTERMEDIATE:]
        return tilewright.moe(self.x, up, gate, self.down, self.indices, self.weights)

    def torch(self, _: int) -> torch.Tensor:
        found, order = self.indices.flatten().sort()
        experts = torch.arange(self.experts, device="cuda")
        ends = torch.searchsorted(found, experts, right=True).int()
        token = order // self.choices
        inner = torch._grouped_mm(self.x[token], self.up_and_gate.transpose(1, 2), offs=ends)
        gate, up = inner.chunk(2, dim=-1)
        inner = torch.nn.functional.silu(gate) * up
        outer = torch._grouped_mm(inner, self.down.transpose(1, 2), offs=ends)
        outer = outer * self.weights.flatten()[order, None].to(outer.dtype)
        return torch.zeros_like(self.x).index_add_(0, token, outer)


def line(layer: Layer, tokens: int) -> str:
    layer.route(tokens)
    works = [layer.torch, layer.ours]
    theirs, found = (work(0).float() for work in works)
    error = float((theirs - found).abs().max() / theirs.abs().max())
    count = max(calls(rough_seconds(layer.torch), QUICK.replay), 2)
    graphs = [graph(work, count) for work in works]
    bursts(graphs, 1, pause=0.0)
    times = sustained(graphs, QUICK.pairs, QUICK.warm_up)
    both = [1e6 * statistics.median(t) / count for t in times]
    ratio = Ratio.of([x / y for x, y in zip(*times, strict=True)])
    cells = [f"{x:.1f}" for x in both] + [f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"]
    return f"| {tokens} tokens | {' | '.join(cells)} | {error:.1e} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="16,64,256,1024,4096")
    parser.add_argument("--experts", type=int, default=64)
    parser.add_argument("--choices", type=int, default=6)
    given = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    print("| layer | torch µs | ours µs | torch / ours | difference |\n|---|---|---|---|---|")
    layer = Layer(given.experts, given.choices)
    for tokens in map(int, given.tokens.split(",")):
        print(line(layer, tokens), flush=True)


if __name__ == "__main__":
    sys.exit(main())
