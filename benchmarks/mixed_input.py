"""Compare products with packed weights with our f16 product, torch, and a copy of the weights.

    python benchmarks/mixed_input.py
    python benchmarks/mixed_input.py --m 16,64 --weights u4:128,s8:128 --type f16
    python benchmarks/mixed_input.py --m 16,64 --weights u4:128,s4:128 --type e4m3
    python benchmarks/mixed_input.py --m 16,256 --weights u4:128 --sparse
    python benchmarks/mixed_input.py --m 16 --configs "tma:64x16x256:1:8~ tma:64x16x128:1:12~"
    python benchmarks/mixed_input.py --m 4096 --type f16,bf16 --ratios
    python benchmarks/mixed_input.py --m 16,256,4096 --gate
    python benchmarks/mixed_input.py --m 16,64 --peers ./libcutlass_w4a16.so

A line of the table has median times in µs of CUDA-graph replays, interleaved, with operands that
rotate past the L2: packed weights N×K (f16 scales for groups), our product and torch's of f16 or
bf16 weights, torch's ``_weight_int4pack_mm`` for 4 bits, with ``--sparse`` the same product with
packed weights that are dense, and a copy of half the bytes of the
weights, which reads and writes as many bytes as the product must read. ``--peers`` adds the
configurations of shared libraries with other projects' kernels for bf16 and s4 weights
(``compare/packed_peers.py`` says which functions they have); their results are verified. A peer
that fails is reported. With ``--ratios`` only our product of unpacked weights is a peer, and a line
has the median of the ratios to it, round by round, on a busy GPU and after pauses, where power does
not limit the clock. With ``--gate`` two such matrices are multiplied, SwiGLU: in two products, of
which the first stores f32; in one kernel, by the configuration that is chosen for it (``tma``) and
those given; and as the layer does (``linear``); ``wide`` is one product by as many weights. Needs
an NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import torch
from compare.packed_peers import PeerLibrary, PeerProduct, PeerWeights
from compare.peers import bursts, graph, machine, rough_seconds, sustained
from compare.stats import QUICK, calls

import tilewright
from tilewright.mma.metadata_blocks import pack_metadata
from tilewright.quantization.weight_format import (
    UNIT_ROWS,
    PreparedWeights,
    WeightFormat,
    units_along,
)

BESIDE_PAIRS, BESIDE_WARM_UP, BURST_PAIRS = 40, 0.6, 12
PLAIN = ("f16", "bf16")  # A's types that also multiply unpacked weights here
Work = Callable[[int], object]
ORDERED = np.array([0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110], np.uint8)  # metadata
TYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "s8": torch.int8,
}  # fmt: skip


def random_weights(form: WeightFormat, n: int, k: int) -> PreparedWeights:
    """Weights of random elements, with scales of 1/64 and zero points of 8."""
    blocks, along = n // UNIT_ROWS, units_along(k, form.unit_k)
    units = torch.randint(
        0, 256, (blocks, along, form.unit_bytes), dtype=torch.uint8, device="cuda"
    )
    scales = units[:, :, form.scale_offset : form.zero_offset]
    wide = torch.full((scales.shape[2] // 2,), 1 / 64, dtype=TYPES[form.scale], device="cuda")
    scales.copy_(wide.view(torch.uint8).expand(scales.shape))
    zeros = units[:, :, form.zero_offset : form.metadata_offset]
    if zeros.shape[2]:
        eight = torch.full((zeros.shape[2] // 2,), 8, dtype=TYPES[form.operand], device="cuda")
        zeros.copy_(eight.view(torch.uint8).expand(zeros.shape))
    if form.sparse:
        chunks = np.random.default_rng(0).choice(ORDERED, (UNIT_ROWS, form.unit_k // 4))
        words = torch.from_numpy(pack_metadata(form.operand, chunks).view(np.uint8)).cuda()
        metadata = units[:, :, form.metadata_offset :]
        metadata.copy_(words.reshape(-1).expand(metadata.shape))
    return PreparedWeights(units.reshape(blocks, -1), form, (k, n))


class MixedCase:
    """The operands of a line, enough sets of them to fill three L2 caches."""

    def __init__(self, form: WeightFormat, m: int, n: int, k: int) -> None:
        torch.manual_seed(0)
        room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
        weights = random_weights(form, n, k)
        size = weights.units.numel() + 2 * m * (n + k)
        type_, of_d, wide = TYPES[form.operand], "bf16", 8.0  # 8 bits: numbers of some size
        if plain := form.operand in PLAIN:
            of_d, wide = form.operand, 1.0
        self.x, self.d, self.weights = [], [], []
        for _ in range(room // size + 1):
            self.x.append((wide * torch.randn((m, k), device="cuda")).to(type_))
            self.d.append(torch.empty((m, n), device="cuda", dtype=TYPES[of_d]))
            units = weights.units.clone()
            self.weights.append(PreparedWeights(units, form, (k, n)))
        self.plain = [
            torch.randn((n, k), device="cuda").to(type_).t()
            for _ in range(min(len(self.x), room // (2 * n * k) + 1) if plain else 0)
        ]
        half = weights.units.numel() // 2
        self.copies = [(w.units.view(-1)[:half], w.units.view(-1)[-half:]) for w in self.weights]

    def work(self, config: str | None) -> Work:
        """Our product with packed weights."""

        def run(i: int) -> Any:
            i %= len(self.x)
            return tilewright.matmul(self.x[i], self.weights[i], out=self.d[i], config=config)

        return run

    def unpacked(self, i: int) -> Any:
        j = i % len(self.x)
        return tilewright.matmul(self.x[j], self.plain[i % len(self.plain)], out=self.d[j])

    def by_torch(self, i: int) -> Any:
        j = i % len(self.x)
        return torch.mm(self.x[j], self.plain[i % len(self.plain)], out=self.d[j])

    def copy(self, i: int) -> Any:
        source, target = self.copies[i % len(self.copies)]
        return target.copy_(source)


def torch_int4(case: MixedCase, n: int, k: int) -> Work:
    """torch's product with 4-bit weights (tinygemm), which takes bf16 only."""
    sets = []
    for _ in case.weights:
        q = torch.randint(0, 256, (n, k // 2), dtype=torch.uint8, device="cuda")
        packed = torch.ops.aten._convert_weight_to_int4pack(q, 8)
        sets.append((packed, torch.rand((k // 128, n, 2), device="cuda").bfloat16()))

    def run(i: int) -> Any:
        packed, scales = sets[i % len(sets)]
        x = case.x[i % len(case.x)].bfloat16()
        return torch.ops.aten._weight_int4pack_mm(x, packed, 128, scales)

    return run


class Libraries:
    """Products of shared libraries that are peers of a case of bf16 and 4-bit weights."""

    def __init__(self, paths: list[str]) -> None:
        self.libraries = [PeerLibrary(path) for path in paths]
        self.products: list[PeerProduct] = []

    def works(self, case: MixedCase, m: int, n: int, k: int, group: int) -> dict[str, Work]:
        """The configurations of each library that fit M; those that fail are reported."""
        found: dict[str, Work] = {}
        weights = PeerWeights(n, k, group) if self.libraries else None
        for library in self.libraries:
            version = library.version().decode()
            for i in library.fitting(m):
                name = f"{version} {library.name(i).decode()}"
                try:
                    product = PeerProduct(library, i, weights, case.x, case.d)
                    product.verify()
                except (ArithmeticError, RuntimeError) as error:
                    print(f"    {'-':>8}  {name}: {error}", flush=True)
                    continue
                self.products.append(product)
                found[name] = product
        return found

    def release(self) -> None:
        while self.products:
            self.products.pop().release()


def started(works: dict[str, Work]) -> tuple[dict[str, Work], dict[str, str]]:
    """Those that run, and why the others fail."""
    running, failed = {}, {}
    for name, work in works.items():
        try:
            work(0)
            torch.cuda.synchronize()
            running[name] = work
        except Exception as error:
            failed[name] = str(error).partition("\n")[0][:70]
    return running, failed


def graphs_of(running: dict[str, Work], sets: int) -> tuple[list[torch.cuda.CUDAGraph], int]:
    """A graph of each, and the number of its calls."""
    count = max(calls(rough_seconds(next(iter(running.values()))), QUICK.replay), sets)
    graphs = [graph(work, count) for work in running.values()]
    bursts(graphs, 1, pause=0.0)
    return graphs, count


def times(works: dict[str, Work], sets: int) -> dict[str, float | str]:
    """Median seconds of each, or why it fails."""
    running, failed = started(works)
    found: dict[str, float | str] = {**failed}
    graphs, count = graphs_of(running, sets)
    measured = sustained(graphs, QUICK.pairs, QUICK.warm_up)
    for name, seconds in zip(running, measured, strict=True):
        found[name] = statistics.median(seconds) / count
    return found


def swiglu(gate: Any, acc: Any) -> Any:
    """The gated layer's epilogue."""
    return tilewright.silu(gate) * acc


def of_operand(acc: Any, gate: Any) -> Any:
    """The same where the gate is an operand."""
    return tilewright.silu(gate) * acc


class GatedCase(MixedCase):
    """The operands of a gated layer, one of which is the f32 gate of two products."""

    def __init__(self, form: WeightFormat, m: int, n: int, k: int) -> None:
        super().__init__(form, m, n, k)
        self.gates = [
            PreparedWeights(w.units.flip(0).contiguous(), form, (k, n)) for w in self.weights
        ]
        self.first = torch.empty((m, n), device="cuda", dtype=torch.float32)

    def together(self, config: str | None) -> Work:
        """One kernel; ``"tma"``: by the configuration that is chosen for it, None: where that is
        estimated to be faster.
        """

        def run(i: int) -> Any:
            i %= len(self.x)
            pair, out = (self.gates[i], self.weights[i]), self.d[i]
            return tilewright.matmul(self.x[i], pair, epilogue=swiglu, out=out, config=config)

        return run

    def in_two(self, i: int) -> Any:
        """Two products."""
        i %= len(self.x)
        x, w, out = self.x[i], self.weights[i], self.d[i]
        first = tilewright.matmul(x, self.gates[i], out=self.first, out_dtype="f32")
        return tilewright.matmul(x, w, epilogue=of_operand, gate=first, out=out)

    def wide(self, form: WeightFormat) -> Work:
        """One product by as many weights."""
        k, n = self.weights[0].shape
        wide = [
            PreparedWeights(torch.cat((one.units, w.units)), form, (k, 2 * n))
            for one, w in zip(self.gates, self.weights, strict=True)
        ]
        out = self.x[0].new_empty((len(self.x[0]), 2 * n), dtype=self.d[0].dtype)
        return lambda i: tilewright.matmul(self.x[i % len(wide)], wide[i % len(wide)], out=out)

    def error(self, work: Work) -> float:
        """The largest difference from two products, by their largest element."""
        expected = self.in_two(0).float().clone()
        self.d[0].fill_(torch.nan)
        difference = (work(0).float() - expected).abs() / expected.abs().max()
        return float(difference.nan_to_num(nan=torch.inf).max())


def report_gate(form: WeightFormat, m: int, n: int, k: int, configs: list[str]) -> None:
    """Print the times of a gated layer in one kernel and in two products."""
    case = GatedCase(form, m, n, k)
    works: dict[str, Work] = {"two products": case.in_two, "wide": case.wide(form)}
    works |= {name: case.together(name) for name in ("tma", *configs)}
    works["linear"] = case.together(None)
    running, failed = started(works)
    graphs, count = graphs_of(running, len(case.x))
    measured = sustained(graphs, QUICK.pairs, QUICK.warm_up)
    print(f"{m}×2·{n}×{k} {form} {form.operand}: µs, two products by it, difference")
    for name, seconds in zip(running, measured, strict=True):
        ratios = [two / one for one, two in zip(seconds, measured[0], strict=True)]
        shown = f"{1e6 * statistics.median(seconds) / count:8.2f} {statistics.median(ratios):6.3f}"
        error = "" if name == "wide" else f"{case.error(running[name]):.0e}"
        print("   ", shown, name, error, flush=True)
    for name, why in failed.items():
        print(f"    {name}: {why}")


def report_ratios(form: WeightFormat, m: int, n: int, k: int, configs: list[str]) -> None:
    """Print our times, and their ratios to that of our product of unpacked weights."""
    case = MixedCase(form, m, n, k)
    works: dict[str, Work] = {"unpacked": case.unpacked, "packed": case.work(None)}
    works |= {config: case.work(config) for config in configs}
    running, failed = started(works)
    graphs, count = graphs_of(running, len(case.x))
    busy, rested = sustained(graphs, BESIDE_PAIRS, BESIDE_WARM_UP), bursts(graphs, BURST_PAIRS)
    print(f"{m}×{n}×{k} {form} {form.operand}: µs, times unpacked; after pauses the same")
    for i, name in enumerate(running):
        shown = []
        for measured in (busy, rested):
            ratios = [x / one for x, one in zip(measured[i], measured[0], strict=True)]
            microseconds = 1e6 * statistics.median(measured[i]) / count
            shown += [f"{microseconds:8.2f} {statistics.median(ratios):6.3f}"]
        print("   ", *shown, name, flush=True)
    for name, why in failed.items():
        print(f"    {name}: {why}")


def peer_works(form: WeightFormat, case: MixedCase, n: int, k: int) -> dict[str, Work]:
    """Products of unpacked weights, of dense and of torch's packed ones, and the copy."""
    works: dict[str, Work] = {}
    if case.plain:
        works |= {"unpacked": case.unpacked, "torch": case.by_torch}
    works["copy"] = case.copy
    if form.sparse:
        m = case.x[0].shape[0]
        dense = MixedCase(replace(form, sparse=False, group=2 * form.group), m, n, k)
        works["dense packed"] = dense.work(None)
    if form.type == "u4" and form.operand == "bf16":
        works["int4pack_mm"] = torch_int4(case, n, k)
    return works


def report(form: WeightFormat, m: int, n: int, k: int, given: argparse.Namespace) -> None:
    """Print the lines of a product."""
    case = MixedCase(form, m, n, k)
    configs = given.configs.split()
    works: dict[str, Work] = {config: case.work(config) for config in configs}
    works |= {} if configs else {"packed": case.work(None)}
    works |= {} if given.no_peers else peer_works(form, case, n, k)
    print(f"{m}×{n}×{k} {form} {form.operand}")
    libraries = Libraries(given.peers)
    works |= libraries.works(case, m, n, k, form.group)
    for name, value in times(works, len(case.x)).items():
        shown = value if isinstance(value, str) else f"{1e6 * value:.2f}"
        print(f"    {shown:>8}  {name}", flush=True)
    libraries.release()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--m", default="1,16,32,64,128,256,4096", help="numbers of tokens")
    parser.add_argument("--nk", default="8192x8192", help="N and K of the weights")
    parser.add_argument("--weights", default="u4:128", help="type:group, separated by commas")
    parser.add_argument("--zeros", default="none", help="none, integer, f16")
    parser.add_argument("--type", default="bf16", help="of A: f16, bf16, e4m3, s8; or several")
    parser.add_argument("--sparse", action="store_true", help="weights are 2:4 sparse")
    parser.add_argument("--configs", default="", help="configurations, separated by spaces")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--gate", action="store_true", help="two matrices, SwiGLU")
    parser.add_argument("--ratios", action="store_true", help="ratios to the unpacked product")
    parser.add_argument("--peers", default=[], nargs="*", help="shared libraries; bf16, 4 bits")
    given = parser.parse_args()
    if given.peers and (given.type != "bf16" or not given.weights.startswith("u4:")):
        parser.error("--peers needs --type bf16 and --weights u4:GROUP")
    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    n, k = map(int, given.nk.split("x"))
    for operand, weights in product(given.type.split(","), given.weights.split(",")):
        type_, group = weights.split(":")
        each = int(group) // (1 + given.sparse)  # of stored elements
        form = WeightFormat(type_, operand, each, "f16", given.zeros, sparse=given.sparse)
        for m in map(int, given.m.split(",")):
            if given.ratios or given.gate:
                show = report_gate if given.gate else report_ratios
                show(form, m, n, k, given.configs.split())
            else:
                report(form, m, n, k, given)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
