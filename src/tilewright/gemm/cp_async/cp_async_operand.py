"""Operands A and B of the cp.async kernels: shared memory layout, copies, fragments.

Both operands are one thing: a tile of ``extent`` rows (M of A, N of B) by ``depth`` of K,
contiguous along K or along its rows. Its shared layout is swizzled so that eight rows of an 8×8
matrix lie in eight different groups of banks, for the copy's writes and for ldmatrix's reads alike:

    K-major, 64 deep     Sw<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))     ldmatrix
    row-major, 128 wide  Sw<3,3,3> o ((64,2),(8,8)):((1,4096),(64,512))   ldmatrix.trans

ldmatrix has no 64-bit elements: of f64 each thread loads its own, either way alike. A half of a
warp, all that is served at once, takes 4 neighbours of 4 lines, which lie in different banks:

    K-major, 16 deep     Sw<2,2,2> o ((4,32),(16,1)):((16,64),(1,0))
    row-major, 128 wide  Sw<2,2,2> o ((16,8),(4,4)):((1,256),(16,64))

Every address follows from layouts: a thread's part of the global tile and of the shared one by the
same tiled copy, a lane's rows of the shared one by a tiled copy that goes with the TiledMma.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...builder import Builder, Pointer, Reg, fragment_registers, iterate_slices
from ...dtypes import dtype
from ...layout import (
    ComposedLayout,
    Layout,
    Swizzle,
    Tensor,
    composition,
    group_modes,
    logical_divide,
    make_identity_tensor,
    make_tensor,
    tile_to_shape,
)
from ...mma import (
    CopyAtom,
    CpAsync,
    TiledCopy,
    TiledMma,
    UniversalCopy,
    make_smem_layout,
    make_tiled_copy,
    make_tiled_copy_A,
    make_tiled_copy_B,
)

WIDE = 64  # bits of the elements that ldmatrix does not load
LINES = Layout((4, 16), (16, 1))  # of these, what lies in a swizzle's period
BATCH = 16  # copies of a thread that are written out; more go round a loop


@dataclass(frozen=True, slots=True)
class CpAsyncOperand:
    """One operand's share of a stage.

    ``contiguous``: ``k`` or ``mn``. ``align``: bytes of its copies. ``full_k``, ``full_mn``: the
    problem is a multiple of the tile there, nothing needs a test. ``threads`` copy together.
    """

    name: str
    type: str
    extent: int
    depth: int
    contiguous: str
    align: int
    full_k: bool
    full_mn: bool
    threads: int

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return dtype(self.type).bits // 8

    @property
    def bytes(self) -> int:
        """Bytes of a stage."""
        return self.extent * self.depth * self.size

    @property
    def major(self) -> int:
        """The mode of (row, k) that is contiguous."""
        return 1 if self.contiguous == "k" else 0

    @property
    def layout(self) -> ComposedLayout:
        """The tile in shared memory: (row, k) → element."""
        major, order = ("K", (0, 1)) if self.major else ("MN", (1, 0))
        shape = self.extent, self.depth
        if self.wide:
            lines = LINES if self.major else Layout(LINES.shape[::-1], LINES.stride[::-1])
            made = tile_to_shape(composition(Swizzle(2, 2, 2), lines), shape, order)
        else:
            made = make_smem_layout(self.type, major, shape, order=order)
        assert isinstance(made, ComposedLayout)
        return made

    @property
    def wide(self) -> bool:
        """Whether threads load single elements into fragments."""
        return dtype(self.type).bits == WIDE

    @property
    def loads(self) -> CopyAtom:
        """What brings fragments from shared memory."""
        if self.wide:
            return CopyAtom(UniversalCopy(WIDE), self.type)
        trans = "" if self.major else ".trans"
        return CopyAtom(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", self.type)

    @property
    def chunk(self) -> int:
        """Elements that one copy moves."""
        return self.align // self.size

    @property
    def line(self) -> int:
        """Chunks of a contiguous line that neighbouring threads copy."""
        return min((self.extent, self.depth)[self.major] // self.chunk, self.threads)

    @property
    def copy(self) -> TiledCopy:
        """How threads share the tile's chunks: neighbours along its contiguous lines."""
        sizes, line = (self.extent, self.depth), self.line
        lines = min(self.threads // line, sizes[1 - self.major])
        op = CpAsync(self.align) if self.align >= 4 else UniversalCopy(8 * self.align)
        threads, values = (lines, line), (1, self.chunk)
        if not self.major:
            threads, values = threads[::-1], values[::-1]
        strides = (line, 1) if self.major else (1, line)
        return make_tiled_copy(CopyAtom(op, self.type), Layout(threads, strides), Layout(values))

    @property
    def count(self) -> int:
        """Copies of each thread."""
        return self.extent * self.depth // self.chunk // self.copy.size


class OperandTile:
    """An operand within a kernel: its copies from global memory, its fragments.

    The matrix has ``rows`` × ``depth`` elements at ``source`` and the leading dimension
    ``leading``; ``corner`` (row, k) is where the first tile begins, ``shared`` the address of the
    first stage.
    """

    def __init__(
        self,
        k: Builder,
        operand: CpAsyncOperand,
        source: Pointer,
        leading: Reg,
        rows: Reg,
        depth: Reg,
        corner: tuple[Any, Any],
        shared: Pointer,
    ) -> None:
        self.k, self.operand, self.depth = k, operand, depth
        self.tile = make_tensor(shared.cast(operand.type), operand.layout)
        strides = (leading, 1) if operand.major else (1, leading)
        self.matrix = Layout((operand.extent, operand.depth), strides)
        self.onward = self.matrix((0, operand.depth))
        first_row, self.first_k = corner
        self.rows_left = None if operand.full_mn else rows.view("s32") - first_row.view("s32")
        self._partition(source)
        self.cursor = k.var(self._start(first_row))

    # --- from global to shared memory ---

    def _partition(self, source: Pointer) -> None:
        """This thread's chunks, (values, (of a batch, batch)): where they come from, where they go
        to, and where in the tile they lie.
        """
        k, operand, copy = self.k, self.operand, self.operand.copy
        self.atom, self.chunk = copy.atom, Layout(operand.chunk)
        self.busy = k.tid.x < copy.size if operand.threads > copy.size else True
        thread = copy.thr_slice(k.tid.x)
        whole = make_tensor(source.cast(operand.type), self.matrix), self.tile
        parts = map(thread.partition_S, (*whole, make_identity_tensor(self.matrix.shape)))
        self.count = operand.count
        self.looped = operand.align < 4 or self.count > BATCH
        batch = (None, min(BATCH, self.count))
        self.source, self.target, self.where = (
            logical_divide(group_modes(part, 1, 3), batch) for part in parts
        )
        if not self.looped:
            self.places = [self.target.at((0, i)) for i in range(self.count)]
            self.inside = [self._rows_inside(self.where[0, i]) for i in range(self.count)]

    def _start(self, first_row: Any) -> Pointer:
        """This thread's first chunk in the first tile from a row on."""
        start: Pointer = self.source.engine.moved(self.matrix.offset((first_row, self.first_k)))
        return start

    def move_to(self, first_row: Any) -> None:
        """Go on with the tile that begins at another row (of a problem that tiles cover)."""
        self.cursor.set(self._start(first_row))

    def copy(self, first_k: Any, stage: Any, wanted: Any) -> Iterator[None]:
        """Copy the tile at K ``first_k`` into the stage at byte ``stage`` if it is ``wanted``, a
        chunk for each ``next``.

        Only the copies themselves are predicated: addresses under a predicate would cost a select
        each.
        """
        k = self.k
        source = Tensor(self.cursor.add_bytes(0), self.source.layout)
        depth_left = None
        if not self.operand.full_k:
            depth_left = self.depth.view("s32") - first_k.view("s32")
        wanted = wanted if self.busy is True else wanted & self.busy
        if self.looped:
            self._copy_in_loop(source, stage, wanted, depth_left)
            yield
        else:
            chunks = zip(iterate_slices(source), self.places, self.inside, strict=True)
            for i, (chunk, place, inside) in enumerate(chunks):
                valid = self._valid(inside, self._depth_inside(self.where[0, i], depth_left))
                there = Tensor(place.add_bytes(stage), self.chunk)
                k.copy(self.atom, chunk, there, pred=wanted, valid=valid)
                yield
        self.cursor.advance(self.onward)

    def _copy_in_loop(self, source: Tensor, stage: Any, wanted: Any, depth_left: Any) -> None:
        """The slow way, for small chunks: a loop over batches of them."""
        k = self.k
        batches = k.select(wanted, -(-self.count // BATCH), 0)
        for number in k.range(0, batches, unroll=False):
            held = []
            for index, chunk in enumerate(iterate_slices(source[None, (None, number)])):
                crd = (0, (index, number))
                at = self.where[crd]
                there = Tensor(self.target.at(crd).add_bytes(stage), self.chunk)
                valid = self._valid(self._rows_inside(at), self._depth_inside(at, depth_left))
                if self.operand.align >= 4:
                    k.copy(self.atom, chunk, there, valid=valid)
                else:
                    held.append((there, self._load_one(chunk, valid)))
            for there, value in held:
                there.engine.cast("b16").store(value)

    def _load_one(self, chunk: Tensor, valid: Any) -> Any:
        """An element in a register, zero where there is none."""
        value = self.k.var("b16", 0)
        with self.k.when(True if valid is None else valid > 0):
            chunk.engine.cast("b16").load(1, into=(value,))
        return value

    # What of a chunk exists: along a contiguous line its first bytes, across the lines all or none.

    def _rows_inside(self, at: Any) -> Any:
        """Of the chunk at (row, k) of the tile, whether its row exists, or how many bytes in its
        rows; None for all.
        """
        return self._inside(at[0], self.rows_left, self.operand.major == 0)

    def _depth_inside(self, at: Any, depth_left: Any) -> Any:
        """Likewise in K."""
        return self._inside(at[1], depth_left, self.operand.major == 1)

    def _inside(self, at: Any, left: Any, contiguous: bool) -> Any:
        if left is None:
            return None
        k, operand = self.k, self.operand
        place = at.view("s32") if isinstance(at, Reg) else at
        if not contiguous:
            return k.compare("lt", place, left)
        return (k.max(k.min(left - place, operand.chunk), 0) * operand.size).view("u32")

    def _valid(self, rows: Any, depth: Any) -> Any:
        """Bytes of a chunk that exist, or None for all."""
        exists, count = (rows, depth) if self.operand.major else (depth, rows)
        if exists is None:
            return count
        return self.k.select(exists, self.operand.align if count is None else count, 0)

    # --- from shared memory to fragments ---

    def partition(self, mma: TiledMma) -> None:
        """Let this thread's warp read the rows that are its own: registers for the K of two
        instructions, and where their loads find them, [an instruction's K][load].
        """
        k, operand = self.k, self.operand
        first = operand.name == "a"
        load = (make_tiled_copy_A if first else make_tiled_copy_B)(operand.loads, mma)
        thread, part = load.thr_slice(k.tid.x), mma.tile_size_mnk[2]
        lines = thread.partition_S(self.tile)
        self.line = Layout(load.atom.layout_src.size(1))
        steps, blocks = range(operand.depth // part), range(lines.size(0) // self.line.size())
        self.lines = [[lines.at(((0, i), 0, step)) for i in blocks] for step in steps]
        shape = mma.partition_shape_A if first else mma.partition_shape_B
        held = k.make_rmem_tensor(shape((operand.extent, 2 * part)), operand.type)
        self.loads, self.loaded = load.atom, thread.retile(held)
        self.fragments = [
            [fragment_registers(held[None, i, half]) for i in range(held.size(1))]
            for half in range(2)
        ]

    def load(self, step: int, stage: Any) -> Iterator[None]:
        """The fragments of the ``step``-th part of K from the stage at byte ``stage``: a load for
        each ``next``. Every other step takes the same registers.
        """
        for i, pointer in enumerate(self.lines[step]):
            into = self.loaded[(None, i), 0, step % 2]
            self.k.copy(self.loads, Tensor(pointer.add_bytes(stage), self.line), into)
            yield
