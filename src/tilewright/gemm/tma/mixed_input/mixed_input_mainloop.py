"""Consumer mainloop of kernel ``tma`` with prepared weights: they are wgmma's A, from registers.

Dᵀ = W Xᵀ: 64 rows of weights for each block of a warpgroup, wgmma's N are the tokens. A thread
loads its words of a unit from shared memory, converts them exactly to X's type, f16, bf16, e4m3 or
s8, and the tensor cores accumulate the products of a group. Then, for the thread's rows r and
r + 8, in f32:

    total = total + scale[r] · accumulator                 one FMA
    total = total + zero[r] · (sum of X over the group)    one FMA, with float zero points

The sum of X is a product by ones, as large as that of the weights; the row blocks of a warpgroup
share it. Sparse weights are multiplied by wgmma.sp; the sum of X then is that of the elements of X
that the stored elements of the row are multiplied by, of each row block its own.

Integer zero points are subtracted in the conversion, exactly. Where the conversion multiplies by a
power of two, the scale is divided by it. A chunk of steps along K is converted while the tensor
cores multiply the chunk before.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

from ....builder import Builder, OrderedSequenceBarrier, PipelineState
from ....builder.tensors.wgmma_fragments import descriptor_start
from ....dtypes import dtype
from ....number_conversion import encode
from ....quantization.conversions import fastest
from ....quantization.weight_format import UNIT_K, UNIT_ROWS
from ....quantization.weight_types import is_integer
from ...problem import Problem, accumulator_type_of
from ..mainloop.tma_mainloop import WgmmaMainloop
from ..stage_operands import SharedStages
from ..tile_scheduler import TileScheduler, WorkTileInfo
from ..tma_config import TmaConfig
from ..tma_geometry import WARPGROUP
from ..tma_operand import UnitsOperand
from .accumulator_handover import AccumulatorHandover
from .unit_metadata import UnitMetadata

WARP = 32
CHUNK_K = 64  # elements along K that are converted together, at most
FRAGMENT = 4  # registers of a fragment of A
WORD, VECTOR = 4, 16  # bytes
KEPT_COLUMNS = 96  # tile_n from which wgmma takes longer than the conversion
SHARED_END = 1 << 30  # addresses in the shared memory of a cluster are less
PAIRS = UNIT_ROWS // 2  # of rows r and r + 8


class _Chunk(NamedTuple):
    """Steps of a k-tile: of a 64-row block and a unit along K, from ``step`` on. ``group``: of the
    unit; ``begins`` and ``ends``: whether the chunk is the first and the last of it.
    """

    block: int
    unit: int
    step: int
    group: int
    begins: bool
    ends: bool


class _Numbers(NamedTuple):
    """The scales and zero points of a group, for the thread's two rows."""

    scales: list[Any]
    zeros: list[Any]


class MixedInputMainloop(WgmmaMainloop):
    """The mainloop with prepared weights. ``begin`` precedes each ``run``."""

    release_threads = WARP  # a warp arrives when it has read its part of the stage

    def __init__(
        self, k: Builder, problem: Problem, config: TmaConfig, shared: Any, stages: SharedStages,
        scheduler: TileScheduler, consumer: Any, order: OrderedSequenceBarrier | None,
        state: PipelineState,
    ) -> None:  # fmt: skip
        self.slices, self.slice = config.slices, consumer
        if config.slices > 1 and config.divides_pair(problem):
            self.slice = consumer % config.slices
        self.handover = None
        if config.hands_over(problem):
            self.handover = AccumulatorHandover(k, problem, config, shared, consumer)
        super().__init__(k, problem, config, stages, scheduler, consumer, order, state)
        if self.slices > 1:
            self.first = k.var(state.stage), k.var(state.phase)  # of the work tile

    def _describe(self, consumer: Any) -> None:
        k, config = self.k, self.config
        left, right = self.stages.left.operand, self.stages.right.operand
        assert self.problem.weights is not None and isinstance(left, UnitsOperand)
        self.weights, self.left = self.problem.weights, left
        self.transposed = (int(right.major == "MN"),)
        bits = right.descriptor_bits(config.tile[1], self.right_k)
        self.right_descriptor = descriptor_start(self.stages.right.address) | bits
        first = self.stages.left.address
        self.unit_rows = self._unit_rows()
        if config.epilogue_warpgroups > 1 and not config.pingpong:
            row_blocks = config.d_warpgroup_rows(self.problem) // UNIT_ROWS
            part = consumer if self.slices == 1 else consumer // self.slices
            first = first + part * (row_blocks * left.row_block_bytes)
        thread = k.tid.x & (WARPGROUP - 1)
        self.words = first + thread * VECTOR
        pair = (thread >> 5) * 8 + ((thread & 31) >> 2)
        self.scales_at = first + pair * self._pair_bytes(self.weights.scale)
        if self.weights.zeros != "none":
            self.zeros_at = first + pair * self._pair_bytes(self.weights.zero_type)
        self.recipe = fastest(self.weights.type, self.weights.operand, self.weights.zero)
        self.steps = self._chunk_steps()
        self.chunks = self._chunks()
        self.fragments = [k.array("b32", self.steps * FRAGMENT) for _ in range(2)]
        one = int(encode(self.problem.a, 1.0)) * (0x1010101 if self.recipe.to_bytes else 0x10001)
        self.ones = k.const("b32", one)
        self.empty = k.var("u32", 0)
        self.never = self.words > SHARED_END  # ptxas does not know it
        self.unit_metadata = None
        if self.weights.sparse:
            self.unit_metadata = UnitMetadata(k, self.weights, first, self.steps, self.never)

    def _chunk_steps(self) -> int:
        """Steps of a chunk."""
        return min(CHUNK_K, self.weights.group) // self.weights.step

    def _unit_rows(self) -> list[int]:
        """The row of the tile where each 64-row block of the first warpgroup begins."""
        divided = self.config.divides_pair(self.problem)
        return [0] if divided else self._block_rows()

    @staticmethod
    def _pair_bytes(type_: str) -> int:
        return 2 * dtype(type_).bits // 8

    def _chunks(self) -> list[_Chunk]:
        """The chunks of a k-tile in order: where row blocks have one sum of X, by groups."""
        step_k, steps = self.weights.step, self.steps
        group = self.weights.group // step_k
        chunks = [
            _Chunk(block, unit, step, step // group, step % group == 0, (step + steps) % group == 0)
            for block in self.blocks
            for unit in range(self.config.tile[2] // self.weights.unit_k)
            for step in range(0, UNIT_K // step_k, steps)
        ]
        if self.weights.shares_sums:
            chunks.sort(key=lambda chunk: (chunk.unit, chunk.group, chunk.block))
        return chunks

    def _allocate(self) -> None:
        n, array, weights = self.config.tile[1], self.k.array, self.problem.weights
        assert weights is not None
        kind = accumulator_type_of(self.problem.a)
        self.total = [list(array("f32", n // 2)) for _ in self.blocks]
        self.part = list(array(kind, n // 2))
        self.sums = list(array(kind, n // 2)) if weights.has_float_zeros else []

    def begin(self, tile: WorkTileInfo, first_row: Any) -> None:
        """Go to a work tile."""
        self.empty.set(self.k.select(tile.k_blocks == 0, 1, 0))

    def run(self, k_blocks: Any, next_k_blocks: Any) -> list[list[Any]]:
        """Multiply ``k_blocks`` k-blocks. The totals of a tile without k-blocks are 0, whatever the
        scales are.
        """
        k = self.k
        for total in chain(*self.total):
            total.set(0.0)
        if self.slices == 1:
            self._multiply_all(k_blocks)
        else:
            self._multiply_slice(k_blocks)
        totals = self.total
        if self.handover:
            totals = self.handover.run(totals)
        self._arrive(next_k_blocks)
        with k.if_(self.empty != 0):
            for total in chain(*totals):
                total.set(0.0)
        return totals

    def _multiply_slice(self, k_blocks: Any) -> None:
        """Multiply every k-block that is this warpgroup's."""
        k, state = self.k, self.state
        for own, first in zip((state.stage, state.phase), self.first, strict=True):
            k.mov(first, into=own)
        state.skip(self.slice)
        blocks = (k_blocks + (self.slices - 1) - self.slice) // self.slices
        with k.if_(blocks != 0):
            self._multiply_all(blocks)
        for own, first in zip((state.stage, state.phase), self.first, strict=True):
            k.mov(first, into=own)
        state.advance_by(k_blocks)
        for own, first in zip((state.stage, state.phase), self.first, strict=True):
            k.mov(own, into=first)

    def _multiply_all(self, k_blocks: Any) -> None:
        """Multiply this warpgroup's k-blocks of the work tile."""
        k = self.k
        self.stages.pipeline.consumer_wait(self.state)
        first = self._load(0, self.state.stage, None)
        carried = _Numbers(*([k.var(x) for x in registers] for registers in first))
        for _ in k.range(1, k_blocks, unroll=False):
            following = self._multiply(carried, last=False)
            for variable, value in zip(chain(*carried), chain(*following), strict=True):
                k.mov(value, into=variable)
        self._multiply(carried, last=True)

    def _multiply(self, numbers: _Numbers, last: bool) -> _Numbers:
        """Multiply a k-block, whose first chunk is in registers; then that of the next k-block is,
        unless this is the last one. ``numbers``: of the first group; returns those of the next.
        """
        k, state, right = self.k, self.state, self.stages.right.operand
        k.mov(state.stage, into=self.previous)
        x = self.right_descriptor + (state.stage * (right.bytes >> 4)).to("u64")
        if self.slices == 1:
            state.advance()
        else:
            state.skip(self.slices)
        count = len(self.chunks)
        for i, chunk in enumerate(self.chunks):
            k.wgmma_fence()
            self._issue(i, x)
            k.wgmma_commit()
            if not chunk.begins:
                k.wgmma_wait(1)
                self._keep_registers((i + 1) % 2)
            following = numbers
            if i + 1 < count:
                following = self._load(i + 1, self.previous, numbers)
            elif not last:
                self.stages.pipeline.consumer_wait(state)
                following = self._load(0, state.stage, None)
            if chunk.ends:
                if following is not numbers and self.config.tile[1] >= KEPT_COLUMNS:
                    self._keep_before_wait((i + 1) % 2)
                k.wgmma_wait(0)
                self._keep_registers(i % 2)
                if i + 1 == count:
                    self.release(self.previous, None)
                self._promote(chunk.block, numbers)
            numbers = following
        return numbers

    def _keep_before_wait(self, buffer: int) -> None:
        """Keep ptxas from moving the conversion of the next chunk behind the wait for this one: a
        store that reads its results, and is never executed.
        """
        k = self.k
        with k.when(self.never):
            pointer = k.pointer("shared", "b32", self.words).aligned(VECTOR)
            for i in range(0, len(self.fragments[buffer]), FRAGMENT):
                pointer.store(self.fragments[buffer][i : i + FRAGMENT])

    def _keep_registers(self, index: int) -> None:
        """The wgmmas that read a set of metadata have completed."""
        if self.unit_metadata:
            self.unit_metadata.keep(index)

    def _issue(self, index: int, x: Any) -> None:
        """Issue the wgmmas of a chunk."""
        chunk, fragments = self.chunks[index], self.fragments[index % 2]
        right = self.stages.right.operand
        opcode = self.opcode.format(self.config.tile[1])
        for i in range(self.steps):
            first_k = chunk.unit * self.weights.unit_k
            first_k += (chunk.step + i) * (self.right_k // right.size)
            descriptor = x + (right.byte_offset(0, first_k) >> 4)
            more: dict[str, Any] = {
                "accumulate": i > 0 or not chunk.begins,
                "trans": self.transposed,
            }
            if self.unit_metadata:
                more["metadata"] = self.unit_metadata.operand(index % 2, chunk.step, i)
            a = fragments[i * FRAGMENT : (i + 1) * FRAGMENT]
            self.k.wgmma(opcode, self.part, a, descriptor, **more)
            if self.sums and not (chunk.block and self.weights.shares_sums):
                self.k.wgmma(opcode, self.sums, [self.ones] * FRAGMENT, descriptor, **more)

    def _promote(self, block: int, numbers: _Numbers) -> None:
        """Add a group's accumulators, scaled, to the total."""
        for parts, factors in ((self.part, numbers.scales), (self.sums, numbers.zeros)):
            for i, (total, part) in enumerate(zip(self.total[block], parts, strict=False)):
                wide = part.to("f32") if part.dtype.name == "s32" else part
                self.k.mad(wide, factors[i >> 1 & 1], total, into=total)

    def _load(self, index: int, stage: Any, numbers: _Numbers | None) -> _Numbers:
        """Load a chunk of a stage and convert it to the fragments that the chunk before does not
        use. ``numbers``: of the group before, which are also this chunk's unless it begins one.
        """
        chunk = self.chunks[index]
        if chunk.begins or numbers is None:
            numbers = self._numbers(chunk, stage)
        self._convert(index, self._words(chunk, stage), numbers)
        if self.unit_metadata:
            first = stage * self.left.bytes
            self.unit_metadata.load(first, self._offset(chunk), chunk.step, index % 2)
        return numbers

    def _convert(self, index: int, words: list[Any], numbers: _Numbers) -> None:
        """Convert a chunk's words to its fragments."""
        points: list[Any] = []
        if is_integer(self.weights.type):
            points = numbers.zeros if self.weights.zeros == "integer" else [self.weights.zero]
        pairs = (pair for word in words for pair in self.recipe.emit(self.k, word, points))
        for variable, pair in zip(self.fragments[index % 2], pairs, strict=True):
            self.k.mov(self.k.view(pair, "b32"), into=variable)

    def _offset(self, chunk: _Chunk) -> int:
        """Where the chunk's unit begins in a stage, in bytes."""
        unit = chunk.unit * self.weights.unit_bytes
        return self.unit_rows[chunk.block] // UNIT_ROWS * self.left.row_block_bytes + unit

    def _words(self, chunk: _Chunk, stage: Any) -> list[Any]:
        """A chunk's words of the thread."""
        per_step = self.weights.bits * self.weights.step * UNIT_ROWS // (WARPGROUP * 8 * WORD)
        begin, count = chunk.step * per_step, self.steps * per_step
        width, offset = min(count, VECTOR // WORD), self._offset(chunk)
        first = self.words + stage * self.left.bytes
        pointer = self.k.pointer("shared", "b32", first).aligned(VECTOR)
        words: list[Any] = []
        for word in range(begin, begin + count, width):
            vector, rest = divmod(word, VECTOR // WORD)
            at = offset + vector * WARPGROUP * VECTOR + rest * WORD
            words += (pointer + at // WORD).load(width) if width > 1 else [pointer[at // WORD]]
        return words

    def _numbers(self, chunk: _Chunk, stage: Any) -> _Numbers:
        """The scales and the zero points of a group, for the thread's rows r and r + 8."""
        weights, offset, first = self.weights, self._offset(chunk), stage * self.left.bytes
        at = offset + weights.scale_offset + chunk.group * PAIRS * self._pair_bytes(weights.scale)
        scales = self._floats(self.scales_at + first, at, weights.scale)
        if self.recipe.exponent:
            scales = [scale * 2.0**-self.recipe.exponent for scale in scales]
        if weights.zeros == "none":
            return _Numbers(scales, [])
        at = offset + weights.zero_offset
        at += chunk.group * PAIRS * self._pair_bytes(weights.zero_type)
        if weights.has_float_zeros:
            return _Numbers(scales, self._floats(self.zeros_at + first, at, weights.zero_type))
        return _Numbers(scales, self._points(self.zeros_at + first, at))

    def _points(self, address: Any, offset: int) -> list[Any]:
        """Two neighbouring integer zero points, each in all places of a register."""
        k, operand = self.k, self.weights.operand
        if operand == "s8":
            half = k.pointer("shared", "u16", address)[offset // 2].to("u32")
            return [k.emit("prmt.b32", half, half, s, dtype="b32") for s in (0x0000, 0x1111)]
        word = self._word(address, offset)
        both = [k.emit("prmt.b32", word, word, s, dtype="b32") for s in (0x1010, 0x3232)]
        return [k.view(point, f"{operand}x2") for point in both]

    def _word(self, address: Any, offset: int) -> Any:
        return self.k.pointer("shared", "b32", address)[offset // WORD]

    def _floats(self, address: Any, offset: int, type_: str) -> list[Any]:
        """Two neighbouring numbers as f32."""
        k = self.k
        if type_ == "f32":
            pointer = k.pointer("shared", "f32", address).aligned(8) + offset // WORD
            return list(pointer.load(2))
        word = self._word(address, offset)
        if type_ == "bf16":
            return [(word << 16).view("f32"), (word & 0xFFFF0000).view("f32")]
        return [half.to("f32") for half in k.unpack(k.view(word, "f16x2"))]
