"""Time variants of the mainloop with 1×128 scales of both matrices, and where its cycles go.

    python benchmarks/scale_variants.py
    python benchmarks/scale_variants.py --rows k-4:4096x7168x8192=base,rows+early

A row is one of ``grouped_scales.py`` whose variants are names of ``OPTIONS`` joined by ``+``, with
a configuration after ``/`` (``rows/128x128x128:2:5``; the default is ``DEFAULT``). Some give wrong
results. For each the first warp of a warpgroup of CTA 0 records its clock at the begin of its
tiles and at the end of their mainloops: cycles of a k-block and of what is between mainloops, MHz.
With ``events`` it records the parts of a k-block, too: cycles of each (medians). Needs an NVIDIA
GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp()  # kernels are patched here

from tilewright.gemm.tma import tma_checks, tma_kernel
from tilewright.gemm.tma.mainloop.stage_scales import ScaleCopy, StageScales
from tilewright.gemm.tma.mainloop.tma_mainloop import AccumulatorTile
from tilewright.gemm.tma.mainloop.tma_scaled_mainloop import ScaledMainloop
from tilewright.gemm.tma.tma_geometry import WARPGROUP
from tilewright.gemm.tma.tma_producer import TmaProducer
from tilewright.run.devices.cuda_device import CudaDevice
from tilewright.sass import CubinFile
from tilewright.sass.code_listing import decode_code, encode_code
from tilewright.sass.code_motion import CodeMotion
from tilewright.sass.cubin_edit import with_code
from tilewright.sass.encoding_table import encoding_table
from tilewright.sass.machine.hazards import function_code, hazards
from tilewright.sass.machine.register_effects import register_effects
from tilewright.sass.sass_instruction import encode_instruction

REUSE_MARK = 424242  # in the PTX of kernels whose machine code is edited
FIRST_GROUP = 1024  # a rasterization group beyond all rows of tiles; each variant has another
TURN_BARRIER = 8  # the first named barrier of the warpgroups' turns
EVENTS, SAMPLES = 5, 64  # of a k-block; k-blocks that are recorded
TILES, TILE_WORDS = 32, 4
PAIRS = 5  # of B's scales in registers, with one set of accumulators
PARTS = ("wait full", "issue", "wait wgmma", "promote")
OPTIONS = {
    "asis": "as shipped",
    "base": "a promotion reads scales of B ahead, nothing else",
    "rows": "the accumulator times A's scale, then an FMA with B's (other bits)",
    "turns": "named barriers: a warpgroup issues its wgmmas after the other",
    "early": "scales have a stage more than A and B, whose stage is released before the promotion",
    "reuse": "machine code: neighbouring FFMAs keep a factor that they share, and do not yield",
    "token": "named barriers: of two warps of a scheduler one promotes at a time",
    "lag": "the second warpgroup begins each tile later",
    "peek": "whether the next stage is full is asked amid the promotion",
    "low": "32-bit arithmetic of descriptors, those of a stage ahead of its wgmmas",
    "ahead": "A's scales are read amid the promotion, too",
    "dg": "one set; all scales are read before the wgmmas, the stage is released after these",
    "hoist": "of one set, half of the products of scales before the wait for wgmmas",
    "excl": "of one set, wgmmas of the warpgroups exclude each other",
    "one": "one set of accumulators; B's scales in few registers",
    "events": "the parts of a k-block are recorded",
    "still": "wrong results: nothing is loaded, no stage is waited for",
    "no-columns": "wrong results: B's scales are read once",
    "no-products": "wrong results: A's scales alone, B's are not read",
    "additions": "wrong results: no scales",
    "quarter": "wrong results: one of a k-block's four wgmmas",
    "no-wgmma": "wrong results: none of them",
    "no-promotion": "wrong results: no promotion",
}
VARIANTS: list[str] = []  # of the rasterization groups from FIRST_GROUP on
BUFFERS: list[tuple[int, int]] = []  # addresses of their records


class Turns:
    """Named barriers: a warpgroup issues its wgmmas after those of the one before."""

    def __init__(self, k: Any, consumers: int) -> None:
        self.k = k
        self.own = k.shfl("idx", (k.tid.x >> 7) + (TURN_BARRIER - 1), 0)
        last = TURN_BARRIER + consumers - 1
        self.next = k.mov(k.select(self.own == last, TURN_BARRIER, self.own + 1))
        with k.if_(self.own == last):
            self.give()

    def take(self) -> None:
        self.k.emit("bar.sync", self.own, 2 * WARPGROUP)

    def give(self) -> None:
        self.k.emit("bar.arrive", self.next, 2 * WARPGROUP)


class Token:
    """Named barriers of 64 threads: the warps of two warpgroups that have the same number in their
    warpgroup promote in turns.
    """

    def __init__(self, k: Any) -> None:
        self.k = k
        group, first = (k.tid.x >> 7) - 1, TURN_BARRIER + ((k.tid.x >> 5) & 3) * 2
        self.own, self.other = k.shfl("idx", first + group, 0), k.shfl("idx", first + 1 - group, 0)
        with k.if_(group == 1):
            self.give()

    def take(self) -> None:
        self.k.emit("bar.sync", self.own, 64)

    def give(self) -> None:
        self.k.emit("bar.arrive", self.other, 64)


class Variant(ScaledMainloop):
    """The mainloop with options."""

    def __init__(self, k: Any, problem: Any, config: Any, *more: Any) -> None:
        self.has = options_of(config)
        self.slot = k.var("u32", 0)  # of the current k-block's scales
        self.previous_slot = k.var("u32", 0)
        super().__init__(k, problem, config, *more)
        if "reuse" in self.has:
            k.var("u32", REUSE_MARK)
        if "peek" in self.has:
            self.ready = k.var("pred", self.slot != 0)
        if "low" in self.has:
            self.lows = [k.mov(x.to("u32")) for x in (self.left_descriptor, self.right_descriptor)]
            self.firsts = [k.var("u32", x) for x in self.lows]
        self.turns = Turns(k, config.consumers) if "turns" in self.has else None
        self.token = Token(k) if self.has & {"token", "excl"} else None
        of_tiles, of_events = BUFFERS[config.group - FIRST_GROUP]
        warp = (k.tid.x >> 5) - 4
        chosen = (k.tid.x & 127 == 0) & (k.special("ctaid.x") == 0)
        self.chosen = k.mov(k.select(chosen, 1, 0))
        self.tiles_at = k.mov(
            k.const("u64", of_tiles) + (warp * (TILES * TILE_WORDS * 4)).to("u64")
        )
        self.recorded_tiles = k.var("u32", 0)
        if "events" in self.has:
            first = k.const("u64", of_events) + (warp * (EVENTS * SAMPLES * 4)).to("u64")
            self.clocks, self.recorded = k.mov(first), k.var("u32", 0)

    def _allocate(self) -> None:
        if not self.has & {"one", "dg"}:
            super()._allocate()
            return
        self.by_stage = True
        self.sets = [self._accumulator_tiles()]
        self.total = [list(self.k.array("f32", self.config.tile[1] // 2)) for _ in self.blocks]

    def _pairs(self, spans: Any) -> Any:
        if "one" not in self.has:
            return super()._pairs(spans)  # of dg all
        some = [[self.k.var("f32", 0.0) for _ in range(2)] for _ in range(PAIRS)]
        return [{8 * i: some[i % PAIRS] for i in range(self.config.tile[1] // 8)}]

    # --- records ---

    def record(self, event: int) -> None:
        """Store the clock; the last ``SAMPLES`` k-blocks remain."""
        if "events" not in self.has:
            return
        k = self.k
        at = self.clocks + (self.recorded * (EVENTS * 4)).to("u64")
        now = k.special("clock")
        with k.when(self.chosen == 1):
            k.pointer("global", "u32", at).store(now, index=event)
        if event == EVENTS - 1:
            self.recorded.set((self.recorded + 1) & (SAMPLES - 1))

    def record_tile(self, word: int, value: Any) -> None:
        k = self.k
        at = self.tiles_at + (self.recorded_tiles * (TILE_WORDS * 4)).to("u64")
        with k.when(self.chosen == 1):
            k.pointer("global", "u32", at).store(value, index=word)

    def begin(self, tile: Any, first_row: Any) -> None:
        super().begin(tile, first_row)
        k = self.k
        self.record_tile(0, k.special("clock"))
        if "lag" in self.has:
            with k.if_((k.tid.x >> 7) == 2):
                k.emit("nanosleep.u32", 250)
        self.record_tile(1, k.special("globaltimer").to("u32"))

    def run(self, k_blocks: Any, next_k_blocks: Any) -> Any:
        found = self._run(k_blocks, next_k_blocks)
        self.record_tile(2, self.k.special("clock"))
        self.record_tile(3, k_blocks)
        self.recorded_tiles.set((self.recorded_tiles + 1) & (TILES - 1))
        return found

    def _run(self, k_blocks: Any, next_k_blocks: Any) -> Any:
        if not self.has & {"one", "dg"}:
            return super().run(k_blocks, next_k_blocks)
        k = self.k
        for total in self.total:
            for t in total:
                t.set(0.0)
        for _ in k.range(0, k_blocks, unroll=False):
            self._block_of_dg() if "dg" in self.has else self._block()
        return self.total

    def _block_of_dg(self) -> None:
        """As DeepGEMM's kernel does it."""
        k = self.k
        self.record(0)
        self.stages.pipeline.consumer_wait(self.state)
        self.record(1)
        for block, scales in self.read[0].rows.items():
            self._read_rows(self.state.stage, block, scales)
        for column in self.pairs[0]:
            self._read_pair(0, column)
        if self.token:
            self.token.take()
        k.wgmma_fence()
        self._issue_wgmmas(self.sets[0], False)
        k.wgmma_commit()
        self.record(2)
        (tile,) = self.sets[0]
        rows, columns = self.read[0].rows[tile.block], list(self.pairs[0])
        factors = {}
        for column in columns[: len(columns) // 2 if "hoist" in self.has else 0]:
            factors[column] = self._products(rows, column)
        k.wgmma_wait(0)
        if self.token:
            self.token.give()
        self.record(3)
        k.mov(self.state.stage, into=self.previous)
        self.k.syncwarp()
        self.release(self.previous, None)
        for column in columns:
            self._add_scaled(tile, column, factors.get(column) or self._products(rows, column))
        self.record(4)
        self._advance(0)

    def _products(self, rows: list[Any], column: int) -> list[Any]:
        products = [[row * scale for scale in self.pairs[0][column]] for row in rows]
        return products[0] + products[-1]

    def _block(self) -> None:
        """A k-block with one set of accumulators."""
        columns = list(self.pairs[0])
        self._issue(0)
        for column in columns[:PAIRS]:
            self._read_pair(0, column)
        self.record(2)
        self.k.wgmma_wait(0)
        self.record(3)
        self.k.mov(self.state.stage, into=self.previous)
        if "early" in self.has:
            self._release_read(0)
        for number, column in enumerate(columns):
            for tile in self.sets[0]:
                rows = self.read[0].rows[tile.block]
                self._add_tile(tile, column, rows, self.pairs[0][column])
            if number + PAIRS < len(columns):
                self._read_pair(0, columns[number + PAIRS])
        if "early" not in self.has:
            self._release_read(0)
        self.record(4)
        self._advance(0)

    # --- the stages ---

    def _slot(self, last: bool = False) -> Any:
        """The stage of scales."""
        if "early" in self.has:
            return self.previous_slot if last else self.slot
        return self.previous if last else self.state.stage

    def _advance(self, index: int) -> None:
        super()._advance(index)
        k = self.k
        if "early" in self.has and self._reads_last(index):
            k.mov(self.slot, into=self.previous_slot)
            k.add(self.slot, 1, into=self.slot)
            with k.when(self.slot == self.config.stages + 1):
                k.mov(0, into=self.slot)

    def _issue(self, index: int) -> None:
        k = self.k
        self.record(0)
        if "still" not in self.has and (self.by_stage or index == 0):
            with k.if_(~self.ready if "peek" in self.has else True):
                self.stages.pipeline.consumer_wait(self.state)
        self.record(1)
        if self.turns:
            self.turns.take()
        k.wgmma_fence()
        self._issue_wgmmas(self.sets[index], False, index)
        k.wgmma_commit()
        if self.turns:
            self.turns.give()
        if not self.has & {"additions", "no-promotion", "ahead"}:
            for block, scales in self.read[index].rows.items():
                self._read_rows(self._slot(), block, scales)

    def _issue_wgmmas(self, tiles: Any, accumulate: Any, index: int = 0) -> None:
        if "low" in self.has:
            self._issue_low(tiles)
            return
        k, stage = self.k, self.state.stage
        count = 1 if "quarter" in self.has else 0 if "no-wgmma" in self.has else 4
        left, right = self.stages.left.operand, self.stages.right.operand
        a = self.left_descriptor + (stage * (left.bytes >> 4)).to("u64")
        b = self.right_descriptor + (stage * (right.bytes >> 4)).to("u64")
        for i in range(count):
            for registers, block, column, columns in tiles:
                k.wgmma(
                    self.opcode.format(columns), registers,
                    a + (left.byte_offset(self.block_rows[block], 32 * i) >> 4),
                    b + (right.byte_offset(column, 32 * i) >> 4),
                    accumulate=bool(i), trans=self.transposed,
                )  # fmt: skip

    def _issue_low(self, tiles: Any) -> None:
        k, operands = self.k, (self.stages.left.operand, self.stages.right.operand)
        bits = (
            operands[0].descriptor_bits(64),
            operands[1].descriptor_bits(self.config.tile[1], self.right_k),
        )
        made = []
        for i in range(4):
            for registers, block, column, columns in tiles:
                offsets = (
                    operands[0].byte_offset(self.block_rows[block], 32 * i) >> 4,
                    operands[1].byte_offset(column, 32 * i) >> 4,
                )
                words = [k.mov(x + offset) for x, offset in zip(self.firsts, offsets, strict=True)]
                both = [
                    word.to("u64") | ((b >> 32) << 32) for word, b in zip(words, bits, strict=True)
                ]
                made.append((columns, registers, both, bool(i)))
        for columns, registers, (a, b), accumulate in made:
            k.wgmma(
                self.opcode.format(columns), registers, a, b, accumulate=accumulate,
                trans=self.transposed,
            )  # fmt: skip

    def _peek(self) -> None:
        """Amid a promotion: of the stage after the one whose wgmmas have been issued."""
        if not self.has & {"peek", "low"}:
            return
        k, state = self.k, self.state
        after = state.stage + 1
        wraps = after == self.config.stages
        after = k.select(wraps, 0, after)
        if "peek" in self.has:
            phase = state.phase ^ k.select(wraps, 1, 0)
            barrier = self.stages.pipeline.full + after
            k.emit("mbarrier.test_wait.parity.shared::cta.b64", barrier, phase, into=self.ready)
        if "low" in self.has:
            operands = self.stages.left.operand, self.stages.right.operand
            for first, low, operand in zip(self.firsts, self.lows, operands, strict=True):
                k.mov(low + after * (operand.bytes >> 4), into=first)

    def _next(self, index: int) -> None:
        self._issue(index)
        self.record(2)
        self.k.wgmma_wait(1)
        self.record(3)
        self._add(1 - index, index)
        self.record(4)
        self._advance(index)

    def _release_read(self, index: int) -> None:
        if "still" in self.has:
            return
        if "early" in self.has and self._reads_last(index):
            self.release(self.previous, None)
            return
        super()._release_read(index)

    # --- the promotion ---

    def _read_ahead(self, index: int) -> None:
        if "no-columns" in self.has:
            for column in self.pairs[index]:
                self._read_pair_now(index, column, False)
        elif not self.has & {"additions", "no-products", "no-promotion"}:
            for column in self._held(index):
                self._read_pair(index, column)
            if "ahead" in self.has:
                for block, scales in self.read[index].rows.items():
                    self._read_rows(self._slot(), block, scales)
            if "low" in self.has or "peek" in self.has:
                self._peek()

    def _read_pair(self, index: int, column: int, last: bool = False) -> None:
        if "no-columns" not in self.has:
            self._read_pair_now(index, column, last)

    def _read_pair_now(self, index: int, column: int, last: bool) -> None:
        run, own = self.scales.columns, self.pairs[index][column]
        first = self.scales.columns_at(self._slot(last)) + self.own_column
        k_block = self.k_block - 1 if last else self.k_block
        self._at(first, column, run, k_block).aligned(8).load(2, into=tuple(own))

    def _add_columns(self, index: int, following: int | None) -> None:
        if "early" in self.has:
            self._release_read(index)
        if "no-promotion" in self.has:
            return
        if self.token:
            self.token.take()
        if self.has & {"additions", "no-products"}:
            self._add_few(index)
        else:
            self._add_all(index, following)
        if self.token:
            self.token.give()
        if "early" not in self.has:
            self._release_read(index)

    def _add_few(self, index: int) -> None:
        for tile in self.sets[index]:
            rows = self.read[index].rows[tile.block]
            for column in range(tile.column, tile.column + tile.columns, 8):
                if "no-products" in self.has:
                    self._add_scaled(tile, column, [rows[0], rows[0], rows[-1], rows[-1]])
                    continue
                for i in range(4):
                    t = self.total[tile.block][column // 2 + i]
                    self.k.add(t, tile.registers[(column - tile.column) // 2 + i], into=t)

    def _add_all(self, index: int, following: int | None) -> None:
        for column in list(self.pairs[index])[self.held :]:
            self._read_pair(index, column, last=True)
        ahead: list[tuple[int, int]] = []
        if following is not None and not (self.same_columns and index == 0):
            ahead = [(following, column) for column in self._held(following)]
        for number, (column, pair) in enumerate(self.pairs[index].items()):
            for tile in self.sets[index]:
                self._add_tile(tile, column, self.read[index].rows[tile.block], pair)
            if number < len(ahead):
                self._read_pair(*ahead[number])
            if number == min(len(ahead), len(self.pairs[index]) - 1) and following is not None:
                if "ahead" in self.has:
                    for block, scales in self.read[following].rows.items():
                        self._read_rows(self._slot(), block, scales)
                self._peek()
        for more in ahead[len(self.pairs[index]) :]:
            self._read_pair(*more)

    def _add_tile(self, tile: AccumulatorTile, column: int, rows: Any, pair: Any) -> None:
        if "rows" not in self.has:
            products = [[row * scale for scale in pair] for row in rows]
            self._add_scaled(tile, column, products[0] + products[-1])
            return
        k, first, total = self.k, (column - tile.column) // 2, self.total[tile.block]
        scaled = [
            k.mul(tile.registers[first + i], row)
            for i, row in enumerate((rows[0], rows[0], rows[-1], rows[-1]))
        ]
        for i in (0, 2, 1, 3):  # those with the same column one after the other
            at = column // 2 + i
            k.mad(scaled[i], pair[i & 1], total[at], into=total[at])


def options_of(config: Any) -> frozenset[str]:
    """The options that the rasterization group of a configuration stands for."""
    number = config.group - FIRST_GROUP
    return frozenset(VARIANTS[number].split("+") if 0 <= number < len(VARIANTS) else ())


ASSEMBLE = CudaDevice.assemble


def assemble(self: CudaDevice, traced: Any) -> Any:
    made = ASSEMBLE(self, traced)
    if str(REUSE_MARK) not in traced.ptx:
        return made
    return replace(made, code=with_reuse_flags(made.code, traced.name))


CudaDevice.assemble = assemble  # type: ignore[method-assign]


def with_reuse_flags(code: bytes, name: str) -> bytes:
    """The cubin whose FFMAs and FMULs keep operands that the next instruction reads; FFMAs that
    share one are moved together.
    """
    file = CubinFile.parse(code)
    table = encoding_table(file.sm)
    code_before = function_code(file, name)
    words = [x for _, x in decode_code(table, file.code(name))]
    words = with_pairs(file.sm, words, code_before)
    for i, (x, following) in enumerate(pairwise(words)):
        if not is_product(x) or not is_product(following):
            continue
        kept = reused(x.text, following.text)
        if kept:
            text = replace(x.text, reuse=x.text.reuse | kept)
            control = replace(x.control, yields=False)
            words[i] = encode_instruction(table, text, control, 16 * (i + 1))
    size = 16 * len(words)
    motion = CodeMotion({16 * i: 16 * i for i in range(len(words))}, size, size)
    edited = with_code(file, name, encode_code(table, words), motion)
    before, after = hazards(code_before), hazards(function_code(edited, name))
    return code if len(after) > len(before) else edited.build()


def with_pairs(sm: int, words: list[Any], code: Any) -> list[Any]:
    """FFMAs moved down to the next one with the same factor. The instruction before takes the
    stall of one that is moved, so all others are issued when they were, or later.
    """
    table = encoding_table(sm)
    targets = {code.target(i) for i in range(len(words))}
    effects = [None if x.text is None else register_effects(sm, x.text) for x in words]
    order = list(range(len(words)))
    taken: set[int] = set()
    moved: dict[int, int] = {}
    for i, x in enumerate(words):
        if x.text is None or x.text.opcode != "FFMA" or x.control.wait or i in taken:
            continue
        if i and words[i - 1].text.opcode.split(".")[0] in ("BRA", "QGMMA", "WARPGROUP"):
            continue
        j = partner(words, effects, targets, i, taken)
        if j is not None:
            taken |= {i, j}
            if j > i + 1:
                moved[i] = j
    made: list[Any] = []
    for n in order:
        x = words[n]
        if n in moved:
            last = made[-1]
            stall = last.control.stall + x.control.stall
            if stall > 15 or last.text is None:
                moved.pop(n)
            else:
                control = replace(last.control, stall=stall)
                made[-1] = encode_instruction(table, last.text, control, 16 * len(made))
                continue
        for first in [i for i, j in moved.items() if j == n]:
            control = replace(words[first].control, stall=1)
            text = replace(words[first].text, reuse=0)
            made.append(encode_instruction(table, text, control, 16 * (len(made) + 1)))
        made.append(x)
    return made


def partner(words: Any, effects: Any, targets: Any, i: int, taken: set[int]) -> int | None:
    """The next FFMA with the same factor, to which one may be moved down."""
    mine, own = words[i].text, effects[i]
    for j in range(i + 1, min(i + 40, len(words))):
        other = words[j].text
        if other is None or j in targets or effects[j] is None:
            return None
        if other.opcode == "FFMA" and j not in taken and reused(mine, other):
            return j
        if other.opcode.split(".")[0] in ("BRA", "QGMMA", "WARPGROUP", "SYNCS", "BAR"):
            return None
        written, read = set(effects[j].writes), set(effects[j].reads)
        if written & (set(own.reads) | set(own.writes)) or read & set(own.writes):
            return None
    return None


def is_product(x: Any) -> bool:
    return x.text is not None and x.text.opcode in ("FFMA", "FMUL")


def reused(text: Any, following: Any) -> int:
    """A mask of the operands that the next instruction reads through the same slot."""
    kept = 0
    for i, (mine, other) in enumerate(zip(text.operands, following.operands, strict=False)):
        plain = i > 0 and mine.kind == other.kind == "R#"
        if plain and mine.numbers == other.numbers != text.operands[0].numbers:
            kept |= 1 << i
    return kept


SHIPPED = tma_kernel.TmaKernel._mainloop


def mainloop(self: Any, consumer: Any, state: Any) -> Any:
    if not self.scales or not options_of(self.config):
        return SHIPPED(self, consumer, state)
    more = self.stages, self.scheduler, consumer, self.order, state
    if "asis" in options_of(self.config):
        return SHIPPED(self, consumer, state)
    return Variant(self.k, self.problem, self.config, self.scales, *more)


SCHEDULER = tma_kernel.TmaKernel._tile_scheduler


def tile_scheduler(self: Any, depth: Any) -> Any:
    """With the usual rasterization group."""
    config = self.config
    if not options_of(config):
        return SCHEDULER(self, depth)
    self.config = replace(config, group=16)
    made = SCHEDULER(self, depth)
    self.config = config
    return made


PRODUCE = tma_kernel.TmaKernel._produce


def produce(self: Any) -> None:
    if "still" not in options_of(self.config):
        PRODUCE(self)


LOAD_STAGE, TARGET = TmaProducer._load_stage, ScaleCopy.target


def load_stage(self: Any, block: Any, begin: Any, size: Any) -> None:
    """With ``early`` scales have a stage of their own."""
    if "early" not in options_of(self.config):
        LOAD_STAGE(self, block, begin, size)
        return
    k = self.k
    for copy in self.copies:
        copy.slot = self.slot
    LOAD_STAGE(self, block, begin, size)
    k.add(self.slot, 1, into=self.slot)
    with k.when(self.slot == self.config.stages + 1):
        k.mov(0, into=self.slot)


RUN = TmaProducer.run


def run(self: Any, copies: Any) -> None:
    self.slot = self.k.var("u32", 0)
    RUN(self, copies)


OF = StageScales.of.__func__  # type: ignore[attr-defined]


def scales_of(cls: Any, k: Any, problem: Any, config: Any) -> Any:
    early = "early" in options_of(config)
    made = OF(cls, k, problem, config)
    if early:  # a stage more, behind it
        k.dynamic_shared(config.scale_stage_bytes(problem), 16)
    return made


CHECK = tma_checks.check
tma_checks.check = lambda problem, config, device: (  # what it refuses is tried
    None if options_of(config) else CHECK(problem, config, device)
)
tma_kernel.TmaKernel._mainloop = mainloop  # type: ignore[method-assign]
tma_kernel.TmaKernel._tile_scheduler = tile_scheduler  # type: ignore[method-assign]
tma_kernel.TmaKernel._produce = produce  # type: ignore[method-assign]
TmaProducer._load_stage = load_stage  # type: ignore[method-assign]
TmaProducer.run = run  # type: ignore[method-assign]
ScaleCopy.target = lambda self, stage: TARGET(  # type: ignore[method-assign]
    self, getattr(self, "slot", stage)
)
StageScales.of = classmethod(scales_of)  # type: ignore[assignment]

DEFAULT = "128x128x128:2:5/2x1"
ROWS = (
    "k-4:4096x7168x8192=chosen,base,rows,early,rows+early,no-columns,no-products,quarter,"
    "additions,still,still+quarter,still+no-wgmma,still+additions,still+no-promotion,"
    "events,still+events,events+early",
    "k-8:4096x1536x2048=base,early",
)


class Records(NamedTuple):
    """Tensors of the records of a variant."""

    tiles: Any
    events: Any


def config_of(variant: str, torch: Any, records: dict[str, Records]) -> str:
    """The configuration of ``OPTIONS[/CONFIG]``, which gets records."""
    name, _, config = variant.partition("/")
    unknown = set(name.split("+")) - set(OPTIONS)
    if unknown:
        raise SystemExit(f"no options {', '.join(sorted(unknown))}; options: {', '.join(OPTIONS)}")
    config, swap = config.rstrip("~"), "~" * config.endswith("~")
    tiles = torch.zeros((12, TILES, TILE_WORDS), device="cuda", dtype=torch.int32)
    events = torch.zeros((12, SAMPLES, EVENTS), device="cuda", dtype=torch.int32)
    VARIANTS.append(name)
    BUFFERS.append((tiles.data_ptr(), events.data_ptr()))
    made = f"tma:{config or DEFAULT}@{FIRST_GROUP + len(VARIANTS) - 1}{swap}"
    records[made] = Records(tiles, events)
    return made


def cycles(record: Records) -> str:
    """Of a variant: cycles of a k-block, between mainloops, MHz; of each warpgroup's parts."""
    import numpy as np

    made, origin = [], None
    for warp in (0, 4):
        tiles = record.tiles[warp].cpu().numpy().astype("int64")
        tiles = tiles[tiles[:, 3] > 0]
        tiles = tiles[np.argsort(tiles[:, 1] & 0xFFFFFFFF)]
        if len(tiles) < 3:
            continue
        within = ((tiles[:, 2] - tiles[:, 0]) & 0xFFFFFFFF) / tiles[:, 3]
        between = (tiles[1:, 0] - tiles[:-1, 2]) & 0xFFFFFFFF
        step = (tiles[1:, 0] - tiles[:-1, 0]) & 0xFFFFFFFF
        time = (tiles[1:, 1] - tiles[:-1, 1]) & 0xFFFFFFFF
        clock = 1e3 * np.median(step / np.maximum(time, 1))
        made.append(f"{np.median(within):.0f}, {np.median(between):.0f}, {clock:.0f} MHz")
        c = record.events[warp].cpu().numpy().astype("int64")
        c = c[(c != 0).all(axis=1)]
        if len(c) > 8:
            c = c[np.argsort(c[:, 0])]
            parts, period = np.diff(c, axis=1), np.diff(c[:, 2])
            low, middle, high = np.percentile(period, [10, 50, 90])
            cells = [f"{x} {np.median(p):.0f}" for x, p in zip(PARTS, parts.T, strict=True)]
            made.append(f"period {low:.0f} {middle:.0f} {high:.0f}, {', '.join(cells)}")
            origin = c[len(c) // 2, 0] if origin is None else origin
            at = np.searchsorted(c[:, 0], origin)
            near = c[at : at + 4] - origin
            made.append(" / ".join(" ".join(map(str, x)) for x in near))
    return "; ".join(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=ROWS)
    given = parser.parse_args()
    import grouped_scales
    import torch
    from grouped_scales import Case, compile_ahead, lines, machine

    timed, kept = grouped_scales.timed, {}

    def timed_and_kept(case: Any) -> Any:
        """With the records of the last replays, when the GPU is busy."""
        found = timed(case)
        kept.update({x: Records(*(y.clone() for y in record)) for x, record in records.items()})
        return found

    grouped_scales.timed = timed_and_kept

    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
    rows, records = [], {}
    for row in given.rows:
        name, _, variants = row.partition("=")
        configs = [
            x if x == "chosen" else config_of(x, torch, records) for x in variants.split(",")
        ]
        rows.append(f"{name}={','.join(configs)}")
    cases = [Case(row, room) for row in rows]
    compile_ahead(cases)
    for case in cases:
        for line in lines(case):
            cells = line.split(" | ")
            record = kept.get(cells[1])
            if record:
                group = int(cells[1].rstrip("~").partition("@")[2]) - FIRST_GROUP
                cells[1] = f"{VARIANTS[group]}/{cells[1].partition('@')[0]}"
                cells.append(cycles(record))
            print(" | ".join(cells), flush=True)


if __name__ == "__main__":
    sys.exit(main())
