"""Time variants of the kernel with packed weights, beside what is shipped.

    python benchmarks/mixed_variants.py --m 16,64 --configs "tma:64x64x128:3:9@8~ scaled=tma:…"
    python benchmarks/mixed_variants.py --m 16 --configs "…" + --m 16 --static --configs "…"

A variant is NAME=CONFIG, names joined by ``+``; the rest is ``mixed_input.py``:

    scaled   scales are folded into the conversion: one set of accumulators, no promotion
    late     dependent grids are launched when all loads of a CTA are issued
    two      two CTAs on an SM: 64 registers a thread at launch
    short    chunks of 32 of K
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp()  # kernels are changed here

import mixed_input

from tilewright.gemm.tma import tile_scheduler, tma_kernel
from tilewright.gemm.tma.mixed_input import mixed_input_mainloop as mainloop_module
from tilewright.gemm.tma.mixed_input.mixed_input_mainloop import MixedInputMainloop, _Numbers

STEP = 1024
NAMES = ("scaled", "late", "two", "short")
CHUNK_K = mainloop_module.CHUNK_K
REGISTERS = dict(tma_kernel.REGISTERS)
TWO = {2: (24, 104), 3: (24, 72)}


def variants_of(config: Any) -> set[str]:
    bits = config.group // STEP
    return {name for i, name in enumerate(NAMES) if bits >> i & 1}


def encoded(text: str) -> str:
    """The configuration whose group has the variant's bits."""
    names, _, config = text.rpartition("=")
    bits = sum(1 << NAMES.index(name) for name in names.split("+") if name)
    base, _, group = config.rstrip("~").partition("@")
    return f"{base}@{bits * STEP + int(group or 8)}~"


class Scaled(MixedInputMainloop):
    """Scales in the conversion."""

    def _allocate(self) -> None:
        super()._allocate()
        k = self.k
        self.started = k.var("u32", 0)
        self.older = k.var("u32", 0)

    def run(self, k_blocks: Any, next_k_blocks: Any) -> Any:
        self.started.set(0)
        return super().run(k_blocks, next_k_blocks)

    def _multiply_all(self, k_blocks: Any) -> None:
        super()._multiply_all(k_blocks)

    def _multiply(self, numbers: Any, last: bool) -> Any:
        k, state, right = self.k, self.state, self.stages.right.operand
        k.mov(self.previous, into=self.older)
        k.mov(state.stage, into=self.previous)
        x = self.right_descriptor + (state.stage * (right.bytes >> 4)).to("u64")
        if self.slices == 1:
            state.advance()
        else:
            state.skip(self.slices)
        count = len(self.chunks)
        for i in range(count):
            k.wgmma_fence()
            self.part = self.total[self.chunks[i].block]
            self._issue(i, x)
            k.wgmma_commit()
            k.wgmma_wait(1)
            if i == 0:
                self.release(self.older, self.started != 0)
                self.started.set(1)
            following = numbers
            if i + 1 < count:
                following = self._load(i + 1, self.previous, numbers)
            elif not last:
                self.stages.pipeline.consumer_wait(state)
                following = self._load(0, state.stage, None)
            numbers = following
        if last:
            k.wgmma_wait(0)
            self.release(self.previous, None)
        return numbers

    def _issue(self, index: int, x: Any) -> None:
        chunk = self.chunks[index]
        self.chunks[index] = chunk._replace(begins=False)
        super()._issue(index, x)
        self.chunks[index] = chunk

    def _load(self, index: int, stage: Any, numbers: Any) -> Any:
        k, chunk = self.k, self.chunks[index]
        if chunk.begins or numbers is None:
            found = self._numbers(chunk, stage)
            powers = (2.0**127, 2.0**123)
            pairs = [
                k.emit("cvt.rn.bf16x2.f32", s * p, s * p, dtype="b32")
                for s, p in zip(found.scales, powers, strict=True)
            ]
            numbers = _Numbers(pairs, [])
        made = []
        for word in self._words(chunk, stage):
            for i in range(4):
                if i == 2:
                    word = k.emit("shr.u32", word, 8, dtype="b32")
                mask = 0x000F000F << (4 * (i % 2))
                y = k.emit("lop3.b32", word, mask, 0, 0x6A, dtype="bf16x2")
                factor = numbers.scales[i % 2].view("bf16x2")
                made.append(k.emit("fma.rn.bf16x2", y, factor, self.zero_pair, dtype="bf16x2"))
        for variable, pair in zip(self.fragments[index % 2], made, strict=True):
            k.mov(k.view(pair, "b32"), into=variable)
        return numbers

    def _describe(self, consumer: Any) -> None:
        super()._describe(consumer)
        self.zero_pair = self.k.const("b32", 0x80008000).view("bf16x2")


MAINLOOP = tma_kernel.TmaKernel._mainloop
PROLOGUE = tma_kernel.TmaKernel._prologue
PRODUCE = tma_kernel.TmaKernel._produce
COORDINATES = tile_scheduler.tile_coordinates
BUILD = tma_kernel._build
LAUNCH = vars(tma_kernel.Builder)["launch_dependent_grids"]


def mainloop(self: Any, consumer: Any, state: Any) -> Any:
    if "scaled" not in variants_of(self.config):
        return MAINLOOP(self, consumer, state)
    more = self.stages, self.scheduler, consumer, self.order, state
    return Scaled(self.k, self.problem, self.config, self.handed_address, *more)


def build(problem: Any, config: Any) -> Any:
    """Trace a kernel with the variant's constants."""
    names = variants_of(config)
    mainloop_module.CHUNK_K = 32 if "short" in names else CHUNK_K
    tma_kernel.REGISTERS = REGISTERS | (TWO if "two" in names else {})
    original = tma_kernel.tma_parameters

    def parameters(p: Any) -> Any:
        found = original(p)

        class Traces:
            def __getattr__(self, name: str) -> Any:
                return getattr(found, name)

            def trace(self, *more: Any, **options: Any) -> Any:
                return found.trace(*more, **options | {"min_ctas": 2})

        return Traces() if "two" in names else found

    tma_kernel.tma_parameters = parameters
    try:
        return BUILD.__wrapped__(problem, config)
    finally:
        tma_kernel.tma_parameters = original
        mainloop_module.CHUNK_K = CHUNK_K
        tma_kernel.REGISTERS = REGISTERS


def prologue(self: Any) -> None:
    if "late" not in variants_of(self.config):
        return PROLOGUE(self)
    tma_kernel.Builder.launch_dependent_grids = lambda k: None
    try:
        return PROLOGUE(self)
    finally:
        tma_kernel.Builder.launch_dependent_grids = LAUNCH


def produce(self: Any) -> None:
    PRODUCE(self)
    if "late" in variants_of(self.config):
        k = self.k
        with k.if_(k.shfl("idx", k.tid.x >> 5, 0) == 0):
            k.emit("griddepcontrol.launch_dependents")


def tile_coordinates(k: Any, tile: Any, rows: Any, columns: Any, group: int) -> Any:
    return COORDINATES(k, tile, rows, columns, group % STEP)


tma_kernel.TmaKernel._mainloop = mainloop
tma_kernel.TmaKernel._prologue = prologue
tma_kernel.TmaKernel._produce = produce
tma_kernel._build = build
tile_scheduler.tile_coordinates = tile_coordinates


def main(arguments: list[str]) -> None:
    sys.argv[1:] = [*arguments, "--no-peers"]
    at = sys.argv.index("--configs") + 1
    names = {encoded(text): text for text in sys.argv[at].split()}
    print(*(f"{code} is {name}" for code, name in names.items() if "=" in name), sep="\n")
    sys.argv[at] = " ".join(names)
    mixed_input.main()


if __name__ == "__main__":
    given = [*sys.argv[1:], "+"]
    while given:
        at = given.index("+")
        main(given[:at])
        given = given[at + 1 :]
