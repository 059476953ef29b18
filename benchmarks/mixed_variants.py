"""Time variants of the kernel with packed weights, beside what is shipped.

    python benchmarks/mixed_variants.py --m 16,64 --configs "tma:64x64x128:3:9@8~ scaled=tma:…"
    python benchmarks/mixed_variants.py --m 16 --configs "…" + --m 16 --static --configs "…"

A variant is NAME=CONFIG, names joined by ``+``; the rest is ``mixed_input.py``:

    scaled   scales are folded into the conversion: one set of accumulators, no promotion
    late     dependent grids are launched when all loads of a CTA are issued
    two      two CTAs on an SM: 64 registers a thread at launch
    short    chunks of 32 of K
    long     chunks of 128 of K
    sets     two sets of accumulators
    apart    split-K by a reduction kernel
    one      one set of accumulators
    whole    a whole group is converted behind its wgmmas
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp()  # kernels are changed here

import mixed_input

from tilewright.gemm.tma import tile_scheduler, tma_kernel
from tilewright.gemm.tma.mainloop.warpgroup_sharing import WarpgroupSharing
from tilewright.gemm.tma.mixed_input import mixed_input_mainloop as mainloop_module
from tilewright.gemm.tma.mixed_input.alternating_mainloop import AlternatingMainloop
from tilewright.gemm.tma.mixed_input.mixed_input_mainloop import MixedInputMainloop, _Numbers
from tilewright.gemm.tma.mixed_input.unit_copy import UnitCopy

STEP = 1024
NAMES = (
    "scaled",
    "late",
    "two",
    "short",
    "long",
    "sets",
    "nocopy",
    "nox",
    "now",
    "noconvert",
    "nomma",
    "apart",
    "one",
    "whole",
)
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


class TwoSets(MixedInputMainloop):
    """A group is promoted while the next one is multiplied; a group for each k-block."""

    def _allocate(self) -> None:
        super()._allocate()
        n = self.config.tile[1]
        self.single = "sets" not in variants_of(self.config)
        other = self.part if self.single else list(self.k.array("f32", n // 2))
        self.parts = [self.part, other]

    def _multiply_all(self, k_blocks: Any) -> None:
        k = self.k
        self.stages.pipeline.consumer_wait(self.state)
        first = self._load(0, self.state.stage, None)
        self.held = [[k.var("f32", 0.0) for _ in range(2)] for _ in range(2)]
        for variable, value in zip(self.held[0], first.scales, strict=True):
            k.mov(value, into=variable)
        with k.if_(k_blocks == 1):
            self._block(0, promotes=False, last=True)
            self._finish(0)
        with k.else_():
            self._block(0, promotes=False)
            for _ in k.range(0, (k_blocks - 2) >> 1, unroll=False):
                self._block(1)
                self._block(0)
            with k.if_((k_blocks & 1) == 0):
                self._block(1, last=True)
                self._finish(1)
            with k.else_():
                self._block(1)
                self._block(0, last=True)
                self._finish(0)

    def _block(self, index: int, promotes: bool = True, last: bool = False) -> None:
        k, state, right = self.k, self.state, self.stages.right.operand
        older = k.var("u32", self.previous)
        k.mov(state.stage, into=self.previous)
        x = self.right_descriptor + (state.stage * (right.bytes >> 4)).to("u64")
        if self.slices == 1:
            state.advance()
        else:
            state.skip(self.slices)
        self.part = self.parts[index]
        promotes &= not self.single
        odd = len(self.chunks) % 2
        if not hasattr(self, "pair"):
            self.pair = self.fragments
        for i in range(len(self.chunks)):
            k.wgmma_fence()
            self.fragments = self.pair[::-1] if odd and index else self.pair
            self._issue(i, x)
            k.wgmma_commit()
            if not self.single or i:
                k.wgmma_wait(1)
            if i == 0 and promotes:
                self.release(older, None)
            if odd:
                self.fragments = self.fragments[::-1]
            if i + 1 < len(self.chunks):
                self._load(i + 1, self.previous, _Numbers(self.held[index], []))
            elif not last:
                self.stages.pipeline.consumer_wait(state)
                following = self._load(0, state.stage, None)
            if i == 0 and promotes:
                self._add(1 - index)
        if self.single and not last:
            self._finish(index)
        if not last:
            for variable, value in zip(self.held[1 - index], following.scales, strict=True):
                k.mov(value, into=variable)

    def _finish(self, index: int) -> None:
        self.k.wgmma_wait(0)
        self.release(self.previous, None)
        self._add(index)

    def _add(self, index: int) -> None:
        for i, (total, part) in enumerate(zip(self.total[0], self.parts[index], strict=True)):
            self.k.mad(part, self.held[index][i >> 1 & 1], total, into=total)


class Whole(MixedInputMainloop):
    """A k-block of one group is converted when its wgmmas have ended: the other warpgroup's run."""

    def _chunk_steps(self) -> int:
        return 128 // self.weights.step

    def _multiply_all(self, k_blocks: Any) -> None:
        k = self.k
        self.stages.pipeline.consumer_wait(self.state)
        numbers, words = self._read(self.state.stage)
        self.held = [k.var(x) for x in numbers.scales]
        self._convert(words)
        for _ in k.range(1, k_blocks, unroll=False):
            self._block(last=False)
        self._block(last=True)

    def _read(self, stage: Any) -> Any:
        chunk = self.chunks[0]
        return self._numbers(chunk, stage), self._words(chunk, stage)

    def _convert(self, words: Any) -> None:
        pairs = (
            pair for word in words for pair in self.recipe.emit(self.k, word, [self.weights.zero])
        )
        for variable, pair in zip(self.fragments[0], pairs, strict=True):
            self.k.mov(self.k.view(pair, "b32"), into=variable)

    def _block(self, last: bool) -> None:
        k, state, right = self.k, self.state, self.stages.right.operand
        k.mov(state.stage, into=self.previous)
        x = self.right_descriptor + (state.stage * (right.bytes >> 4)).to("u64")
        state.advance()
        k.wgmma_fence()
        self._issue(0, x)
        k.wgmma_commit()
        if not last:
            self.stages.pipeline.consumer_wait(state)
            numbers, words = self._read(state.stage)
            words = [k.var(word) for word in words]
            following = [k.var(x) for x in numbers.scales]
        k.wgmma_wait(0)
        self.release(self.previous, None)
        self._promote(0, _Numbers(self.held, []))
        if not last:
            self._convert(words)
            for variable, value in zip(self.held, following, strict=True):
                k.mov(value, into=variable)


class Ablated(MixedInputMainloop):
    """Parts are left out; results are wrong."""

    def _load(self, index: int, stage: Any, numbers: Any) -> Any:
        if "noconvert" not in variants_of(self.config):
            return super()._load(index, stage, numbers)
        chunk = self.chunks[index]
        if chunk.begins or numbers is None:
            numbers = self._numbers(chunk, stage)
        words = self._words(chunk, stage)
        for i, variable in enumerate(self.fragments[index % 2]):
            if i % 4 == 0:
                self.k.mov(words[i // 4], into=variable)
        return numbers

    def _issue(self, index: int, x: Any) -> None:
        if "nomma" not in variants_of(self.config):
            return super()._issue(index, x)
        for i, x in enumerate(self.fragments[index % 2]):
            self.k.add(
                self.part[i % len(self.part)], x.view("f32"), into=self.part[i % len(self.part)]
            )


ALTERNATES = tma_kernel.alternates
tma_kernel.alternates = lambda weights, config: (
    "one" not in variants_of(config) and ALTERNATES(weights, config)
)


class AblatedSets(Ablated, AlternatingMainloop):
    """The same of two sets of accumulators."""


JOINS = WarpgroupSharing.joins_split


def joins_split(self: Any, problem: Any) -> Any:
    one = isinstance(self.group, int)
    return False if one and "apart" in variants_of(self) else JOINS(self, problem)


WarpgroupSharing.joins_split = joins_split
MAINLOOP = tma_kernel.TmaKernel._mainloop
PROLOGUE = tma_kernel.TmaKernel._prologue
PRODUCE = tma_kernel.TmaKernel._produce
COORDINATES = tile_scheduler.tile_coordinates
BUILD = tma_kernel._build
LAUNCH = vars(tma_kernel.Builder)["launch_dependent_grids"]


def mainloop(self: Any, consumer: Any, state: Any) -> Any:
    names = variants_of(self.config)
    found = [
        kind
        for name, kind in (
            ("scaled", Scaled),
            ("whole", Whole),
            ("sets", TwoSets),
            ("long", TwoSets),
            ("noconvert", Ablated),
            ("nomma", Ablated),
        )
        if name in names
    ]
    if not found:
        return MAINLOOP(self, consumer, state)
    more = self.stages, self.scheduler, consumer, self.order, state
    if found[0] is Ablated and tma_kernel.alternates(self.problem.weights, self.config):
        found = [AblatedSets]
    return found[0](self.k, self.problem, self.config, self.handed_address, *more)


def build(problem: Any, config: Any) -> Any:
    """Trace a kernel with the variant's constants."""
    names = variants_of(config)
    mainloop_module.CHUNK_K = 32 if "short" in names else 128 if "long" in names else CHUNK_K
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


def copies_of(self: Any) -> Any:
    found = COPIES(self)
    names = variants_of(self.config)
    for copy in found:
        units = isinstance(copy, UnitCopy)
        if names & ({"nocopy", "now"} if units else {"nocopy", "nox"}):
            begin = copy.begin
            copy.begin = lambda tile, begin=begin: (begin(tile), 0)[1]
            copy.issue = lambda *_: None
    return found


COPIES = tma_kernel.TmaKernel._copies
tma_kernel.TmaKernel._copies = copies_of


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
    differences(int(sys.argv[sys.argv.index("--m") + 1]), names)
    if "--nk" not in sys.argv:
        clocks(int(sys.argv[sys.argv.index("--m") + 1]), next(iter(names)))


def sizes() -> tuple[int, ...]:
    """N and K."""
    at = sys.argv.index("--nk") + 1 if "--nk" in sys.argv else 0
    return tuple(map(int, (sys.argv[at] if at else "8192x8192").split("x")))


def differences(m: int, names: dict[str, str]) -> None:
    """Print how far results are from the first configuration's, by the largest element."""
    form = mixed_input.WeightFormat("u4", "bf16", 128, "f16")
    case = mixed_input.MixedCase(form, m, *sizes())
    expected = None
    for config, name in names.items():
        if name.startswith("no"):
            continue
        case.d[0].fill_(float("nan"))
        try:
            found = case.work(config)(0).float().clone()
        except Exception as error:
            print(f"    {name}: {str(error)[:90]}")
            continue
        expected = found if expected is None else expected
        difference = float(((found - expected).abs() / expected.abs().max()).max())
        print(f"    {difference:8.1e} {name}")


def clocks(m: int, config: str) -> None:
    """Print the clock and the power while calls of a configuration follow each other."""
    from sparse_ceiling import Meter, alone

    form = mixed_input.WeightFormat("u4", "bf16", 128, "f16")
    case = mixed_input.MixedCase(form, m, *sizes())
    for what, work in (("it", case.work(config)), ("copy", case.copy)):
        seconds, reading = alone(work, 4e11, 0.4, Meter())
        print(
            f"    {what}: {1e6 * seconds:.2f} µs at {reading.clock:.0f} MHz, {reading.power:.0f} W"
        )


if __name__ == "__main__":
    given = [*sys.argv[1:], "+"]
    while given:
        at = given.index("+")
        main(given[:at])
        given = given[at + 1 :]
