"""Time variants of the mainloop with 1×128 scales of both matrices, and where its warps wait.

    python benchmarks/scale_variants.py
    python benchmarks/scale_variants.py --rows k-4:4096x7168x8192=base,rows --timeline base,rows

A row is one of ``grouped_scales.py`` whose variants are names of ``VARIANTS``, each with a
configuration after ``/`` (``rows/128x128x128:2:5/2x1``; the default is that of ``base``). With
``--timeline`` CTA 0 records its clock in these variants of the first row: cycles of a k-block (10,
50, 90 %) and of its parts, of a warp of each warpgroup, and three k-blocks of each. Needs an
NVIDIA GPU of sm_90a and PyTorch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

os.environ["TILEWRIGHT_CACHE_DIR"] = tempfile.mkdtemp()  # kernels are patched here

from tilewright.gemm.tma import tma_kernel
from tilewright.gemm.tma.mainloop.tma_mainloop import AccumulatorTile
from tilewright.gemm.tma.mainloop.tma_scaled_mainloop import ScaledMainloop, _block
from tilewright.gemm.tma.tma_geometry import WARPGROUP
from tilewright.run.devices.cuda_device import CudaDevice
from tilewright.sass import CubinFile
from tilewright.sass.code_listing import decode_code, encode_code
from tilewright.sass.code_motion import CodeMotion
from tilewright.sass.cubin_edit import with_code
from tilewright.sass.encoding_table import encoding_table
from tilewright.sass.machine.hazards import function_code, hazards
from tilewright.sass.machine.register_effects import register_effects
from tilewright.sass.sass_instruction import encode_instruction

FIRST_GROUP = 1024  # a rasterization group beyond all rows of tiles; each variant has another
TURN_BARRIER = 8  # the first named barrier of the warpgroups' turns
EVENTS, SAMPLES = 5, 96  # of a k-block; k-blocks that are recorded
SECONDS_OF_CALL = 2e-3
REUSE_MARK = 424242  # in the PTX of kernels whose machine code is edited
PARTS = ("wait full", "issue", "wait wgmma", "promote")


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


class Base(ScaledMainloop):
    """As shipped, with hooks. ``buffer``: the address of the recorded clocks, of one variant."""

    turns_used = False
    rows_first = False
    buffer = 0

    def __init__(self, k: Any, *more: Any) -> None:
        super().__init__(k, *more)
        self.turns = Turns(k, self.config.consumers) if self.turns_used else None
        if self.buffer:
            warp = (k.tid.x >> 5) - 4
            chosen = (k.tid.x & 31 == 0) & (k.special("ctaid.x") == 0)
            self.chosen = k.mov(k.select(chosen, 1, 0))
            first = k.const("u64", self.buffer) + (warp * (EVENTS * SAMPLES * 4)).to("u64")
            self.clocks, self.recorded = k.mov(first), k.var("u32", 0)

    def record(self, event: int) -> None:
        """Store the clock; the last ``SAMPLES`` k-blocks remain."""
        if not self.buffer:
            return
        k = self.k
        at = self.clocks + (self.recorded * (EVENTS * 4)).to("u64")
        now = k.special("clock")
        with k.when(self.chosen == 1):
            k.pointer("global", "u32", at).store(now, index=event)
        if event == EVENTS - 1:
            k.add(self.recorded, 1, into=self.recorded)
            with k.when(self.recorded == SAMPLES):
                k.mov(0, into=self.recorded)

    def _issue(self, index: int) -> None:
        k = self.k
        self.record(0)
        if self.by_stage or index == 0:
            self.stages.pipeline.consumer_wait(self.state)
        self.record(1)
        if self.turns:
            self.turns.take()
        k.wgmma_fence()
        self._issue_wgmmas(self.sets[index], False, index)
        k.wgmma_commit()
        if self.turns:
            self.turns.give()
        self._read_units(index)

    def _read_units(self, index: int) -> None:
        stage, (rows, columns) = self.state.stage, self.read[index]
        for block, scales in rows.items():
            self._read_rows(stage, block, scales)
        run, first = self.scales.columns, self.scales.columns_at(stage)
        for number, scale in columns.items():
            block = _block(run, self.first_column, number * self.unit)
            self._at(first, block, run, self.k_block).load(into=(scale,))

    def _next(self, index: int) -> None:
        self._issue(index)
        self.record(2)
        self.k.wgmma_wait(1)
        self.record(3)
        self._add(1 - index, index)
        self.record(4)
        self._advance(index)

    def _add_columns(self, index: int, following: int | None) -> None:
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
            if following is not None:
                self._between(following, (number + 1) / len(self.pairs[index]))
        for more in ahead[len(self.pairs[index]) :]:
            self._read_pair(*more)
        self._release_read(index)

    def _between(self, following: int, done: float) -> None:
        """Called after each 8 columns."""

    def _add_tile(self, tile: AccumulatorTile, column: int, rows: Any, pair: Any) -> None:
        if self.rows_first:
            self._add_rows_first(tile, column, rows, pair)
            return
        products = [[row * scale for scale in pair] for row in rows]
        self._add_scaled(tile, column, products[0] + products[-1])

    def _add_rows_first(
        self, tile: AccumulatorTile, column: int, rows: list[Any], pair: list[Any]
    ) -> None:
        k, first, total = self.k, (column - tile.column) // 2, self.total[tile.block]
        scaled = [
            k.mul(tile.registers[first + i], row)
            for i, row in enumerate((rows[0], rows[0], rows[-1], rows[-1]))
        ]
        for i in (0, 2, 1, 3):  # those with the same column one after the other
            at = column // 2 + i
            k.mad(scaled[i], pair[i & 1], total[at], into=total[at])


class Reuse(Base):
    """As shipped; FFMAs keep an operand that the next one reads, and do not yield then."""

    def __init__(self, k: Any, *more: Any) -> None:
        super().__init__(k, *more)
        k.var("u32", REUSE_MARK)


class Rows(Base):
    """The accumulator times the row's scale, then an FMA with the column's: operands are reused."""

    rows_first = True


class Columns(Rows):
    """The accumulator times the column's scale, then an FMA with the row's."""

    def _add_rows_first(
        self, tile: AccumulatorTile, column: int, rows: list[Any], pair: list[Any]
    ) -> None:
        k, first, total = self.k, (column - tile.column) // 2, self.total[tile.block]
        scaled = [k.mul(tile.registers[first + i], pair[i & 1]) for i in (0, 2, 1, 3)]
        for part, i in zip((scaled[j] for j in (0, 2, 1, 3)), range(4), strict=True):
            at = column // 2 + i
            k.mad(part, rows[0] if i < 2 else rows[-1], total[at], into=total[at])


class InTurns(Base):
    """As shipped, the warpgroups issue in turns."""

    turns_used = True


class RowsInTurns(Rows):
    turns_used = True


class Between(Base):
    """A part of the promotion before each of the wgmmas but the first."""

    def _next(self, index: int) -> None:
        k = self.k
        self.record(0)
        if self.by_stage or index == 0:
            self.stages.pipeline.consumer_wait(self.state)
        self.record(1)
        k.wgmma_fence()
        self.issued = 0
        self._issue_one(index)
        self._read_units(index)
        self.record(2)
        k.wgmma_wait(1)
        self.record(3)
        self._add(1 - index, index)
        self.record(4)
        self._advance(index)

    def _issue_one(self, index: int) -> None:
        k, stage, i = self.k, self.state.stage, self.issued
        left, right = self.stages.left.operand, self.stages.right.operand
        a = self.left_descriptor + (stage * (left.bytes >> 4)).to("u64")
        b = self.right_descriptor + (stage * (right.bytes >> 4)).to("u64")
        for registers, block, column, columns in self.sets[index]:
            k.wgmma(
                self.opcode.format(columns), registers,
                a + (left.byte_offset(self.block_rows[block], 32 * i) >> 4),
                b + (right.byte_offset(column, 32 * i) >> 4),
                accumulate=bool(i), trans=self.transposed,
            )  # fmt: skip
        k.wgmma_commit()
        self.issued += 1

    def _between(self, following: int, done: float) -> None:
        while self.issued < 4 and done >= self.issued / 4:
            self._issue_one(following)


class RowsBetween(Between):
    rows_first = True


class NoColumns(Base):
    """Wrong results: the scales of columns are read once."""

    def _read_ahead(self, index: int) -> None:
        for column in self.pairs[index]:
            super()._read_pair(index, column)

    def _read_pair(self, index: int, column: int, last: bool = False) -> None:
        pass


class NoProducts(Base):
    """Wrong results: the rows' scales alone, without products."""

    def _add_columns(self, index: int, following: int | None) -> None:
        self._release_read(index)
        for tile in self.sets[index]:
            rows = self.read[index].rows[tile.block]
            for column in range(tile.column, tile.column + tile.columns, 8):
                self._add_scaled(tile, column, [rows[0], rows[0], rows[-1], rows[-1]])


class Quarter(Base):
    """Wrong results: one of a k-block's four wgmmas."""

    def _issue_wgmmas(self, tiles: Any, accumulate: Any, index: int = 0) -> None:
        k, stage = self.k, self.state.stage
        left, right = self.stages.left.operand, self.stages.right.operand
        a = self.left_descriptor + (stage * (left.bytes >> 4)).to("u64")
        b = self.right_descriptor + (stage * (right.bytes >> 4)).to("u64")
        for registers, block, column, columns in tiles:
            k.wgmma(
                self.opcode.format(columns), registers,
                a + (left.byte_offset(self.block_rows[block], 0) >> 4),
                b + (right.byte_offset(column, 0) >> 4),
                accumulate=accumulate, trans=self.transposed,
            )  # fmt: skip


class Additions(Base):
    """Wrong results: additions without scales, which are not read."""

    def _read_units(self, index: int) -> None:
        pass

    def _read_ahead(self, index: int) -> None:
        pass

    def _add_columns(self, index: int, following: int | None) -> None:
        self._release_read(index)
        for registers, block, column, columns in self.sets[index]:
            total = self.total[block][column // 2 : (column + columns) // 2]
            for t, x in zip(total, registers, strict=True):
                self.k.add(t, x, into=t)


class OneSet(Base):
    """One accumulator set: a warpgroup promotes while the others multiply."""

    rows_first = True

    def _allocate(self) -> None:
        self.by_stage = True
        self.sets = [self._accumulator_tiles()]
        self.total = [list(self.k.array("f32", self.config.tile[1] // 2)) for _ in self.blocks]

    def run(self, k_blocks: Any, next_k_blocks: Any) -> list[list[Any]]:
        k = self.k
        for total in self.total:
            for t in total:
                t.set(0.0)
        for _ in k.range(0, k_blocks, unroll=False):
            self._block()
        self._arrive(next_k_blocks)
        return self.total

    def _block(self) -> None:
        k, index = self.k, 0
        self.record(0)
        self.stages.pipeline.consumer_wait(self.state)
        self.record(1)
        self._read_scales()
        if self.turns:
            self.turns.take()
        k.wgmma_fence()
        self._issue_wgmmas(self.sets[0], False)
        k.wgmma_commit()
        if self.turns:
            self.turns.give()
        self.record(2)
        k.wgmma_wait(0)
        self.record(3)
        k.mov(self.state.stage, into=self.previous)
        self._release_read(index)
        self._promote()
        self.record(4)
        self._advance(index)

    def _read_scales(self) -> None:
        for block, scales in self.read[0].rows.items():
            self._read_rows(self.state.stage, block, scales)
        for column in self.pairs[0]:
            self._read_pair(0, column)

    def _promote(self) -> None:
        for column, pair in self.pairs[0].items():
            for tile in self.sets[0]:
                self._add_tile(tile, column, self.read[0].rows[tile.block], pair)


class OneSetInTurns(OneSet):
    turns_used = True


class OneSetProducts(OneSet):
    """As DeepGEMM: the product of the scales first."""

    rows_first = False


class OneSetProductsInTurns(OneSetProducts):
    turns_used = True


class RowsReuse(Rows, Reuse):
    """Both."""


VARIANTS: dict[str, type[Base]] = {
    "base": Base, "rows": Rows, "columns": Columns, "turns": InTurns, "rows+turns": RowsInTurns,
    "one": OneSet, "one+turns": OneSetInTurns, "one*": OneSetProducts,
    "one*+turns": OneSetProductsInTurns, "no-columns": NoColumns, "no-products": NoProducts,
    "quarter": Quarter, "additions": Additions,
    "reuse": Reuse, "rows+reuse": RowsReuse, "between": Between, "rows+between": RowsBetween,
}  # fmt: skip
NAMES = list(VARIANTS)


class Timed(NamedTuple):
    """A variant that records clocks: its name, the clocks, a call."""

    name: str
    buffer: Any
    work: Any


TIMED: dict[int, type[Base]] = {}  # by the rasterization group


def variant_of(config: Any) -> type[ScaledMainloop]:
    """The variant that the rasterization group of a configuration stands for."""
    if config.group in TIMED:
        return TIMED[config.group]
    number = config.group - FIRST_GROUP
    return VARIANTS[NAMES[number]] if 0 <= number < len(NAMES) else ScaledMainloop


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
    if not self.scales:
        return SHIPPED(self, consumer, state)
    more = self.stages, self.scheduler, consumer, self.order, state
    scaled = variant_of(self.config)
    return scaled(self.k, self.problem, self.config, self.scales, *more)


SCHEDULER = tma_kernel.TmaKernel._tile_scheduler


def tile_scheduler(self: Any, depth: Any) -> Any:
    """With the usual rasterization group."""
    config = self.config
    if config.group < FIRST_GROUP:
        return SCHEDULER(self, depth)
    self.config = replace(config, group=16)
    made = SCHEDULER(self, depth)
    self.config = config
    return made


tma_kernel.TmaKernel._mainloop = mainloop  # type: ignore[method-assign]
tma_kernel.TmaKernel._tile_scheduler = tile_scheduler  # type: ignore[method-assign]

DEFAULT = "128x128x128:2:5/2x1"
WIDE, BLOCKS, THREE = "128x152x128:2:5", "256x96x128:2:4", "192x96x128:3:4"
SQUARE = "128x128x128:2:5"
ROWS = (
    "k-4:4096x7168x8192=chosen,base,rows,rows+reuse,turns,rows+turns,one,one+turns,one*+turns,"
    "between,rows+between,no-columns,no-products,quarter,additions,"
    f"one+turns/{WIDE},one*+turns/{WIDE},rows/{BLOCKS},one+turns/{BLOCKS},"
    f"base/{THREE},one/{THREE},one+turns/{THREE}",
    f"k-8:4096x1536x2048=chosen,base,rows,turns,one+turns,rows+between,one+turns/{THREE}",
    f"dense-1:8192x8192x8192=chosen,base/{SQUARE},turns/{SQUARE},reuse/{SQUARE},"
    "turns/128x192x128:2:4,reuse/128x192x128:2:4",
    f"dense-1:4096x4096x4096=chosen,turns/{SQUARE},reuse/{SQUARE}",
)


def config_of(variant: str) -> str:
    """The configuration of ``NAME[/CONFIG]``."""
    name, _, config = variant.partition("/")
    config, swap = config.rstrip("~"), "~" * config.endswith("~")
    return f"tma:{config or DEFAULT}@{FIRST_GROUP + NAMES.index(name)}{swap}"


def name_of(config: str) -> str:
    """The variant of a configuration, for the table."""
    before, at, group = config.rstrip("~").partition("@")
    if not at or int(group) < FIRST_GROUP:
        return config
    return f"{NAMES[int(group) - FIRST_GROUP]}/{before}{'~' * config.endswith('~')}"


def timed(case: Any, torch: Any, variant: str) -> Timed:
    """A variant that records clocks, compiled."""
    config = config_of(variant)
    buffer = torch.zeros(12 * SAMPLES * EVENTS, device="cuda", dtype=torch.int32)
    group = 2 * FIRST_GROUP + len(TIMED)
    shipped = variant_of(tma_kernel.TmaConfig.parse(config))
    TIMED[group] = type("Recorded", (shipped,), {"buffer": buffer.data_ptr()})
    number = config.rstrip("~").partition("@")[2]
    return Timed(variant, buffer, case._work("", config.replace(f"@{number}", f"@{group}")))


def timeline(case: Any, torch: Any, variants: list[str]) -> None:
    """Record the clocks of calls of each variant in a row, and print them."""
    from sparse_ceiling import Meter

    each = [timed(case, torch, variant) for variant in variants]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda x: x.work(0), each))
    torch.cuda.synchronize()
    for x in each:

        def calls(work: Any = x.work) -> None:
            for i in range(int(0.2 / SECONDS_OF_CALL)):
                work(i)
            torch.cuda.synchronize()

        read = Meter().during(calls)
        print(f"  {x.name}: {read.clock:.0f} MHz, {read.power:.0f} W")
        show(x.buffer.view(12, SAMPLES, EVENTS).cpu().numpy().astype("int64"))


def show(clocks: Any) -> None:
    """Medians over the recorded k-blocks of the first warp of each warpgroup, and some of them."""
    import numpy as np

    begun = []
    for warp in (0, 4, 8):
        c = clocks[warp]
        c = c[(c != 0).all(axis=1)]
        if len(c) < 8:
            continue
        c = c[np.argsort(c[:, 0])]
        begun.append(c)
        period, parts = np.diff(c[:, 2]), np.diff(c, axis=1)
        cells = [f"{x} {np.median(p):.0f}" for x, p in zip(PARTS, parts.T, strict=True)]
        low, middle, high = np.percentile(period, [10, 50, 90])
        print(f"    warpgroup {warp // 4}: {low:.0f} {middle:.0f} {high:.0f}; {', '.join(cells)}")
    for c in begun:
        near = c[len(c) // 2 : len(c) // 2 + 3] - begun[0][len(c) // 2, 0]
        print("      " + " | ".join(" ".join(map(str, x)) for x in near))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", default=ROWS)
    parser.add_argument("--timeline", default="", help="variants, of the first row")
    given = parser.parse_args()
    import torch
    from grouped_scales import Case, compile_ahead, lines, machine

    print(", ".join(f"{name} {value}" for name, value in machine().items()))
    room = 3 * torch.cuda.get_device_properties(0).L2_cache_size
    rows = []
    for row in given.rows:
        name, _, variants = row.partition("=")
        configs = [x if x == "chosen" else config_of(x) for x in variants.split(",")]
        rows.append(f"{name}={','.join(configs)}")
    cases = [Case(row, room) for row in rows]
    compile_ahead(cases)
    for case in cases:
        for line in lines(case):
            cells = line.split(" | ")
            print(" | ".join([cells[0], name_of(cells[1]), *cells[2:]]), flush=True)
    if given.timeline:
        timeline(cases[0], torch, given.timeline.split(","))


if __name__ == "__main__":
    sys.exit(main())
