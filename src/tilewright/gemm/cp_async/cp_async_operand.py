"""Operands A and B of the cp.async kernels: shared memory layout, copies, fragments.

An operand is a tile of ``extent`` rows (M of A, N of B) by ``depth`` of K, K-major or MN-major. Its
shared layout is swizzled so that the eight rows of an 8×8 matrix are in eight different groups of
banks, both for the writes of the copies and for the reads of ldmatrix. Here of 16-bit elements;
other types are K-major, with the same layout in bytes:

    K-major, 64 deep     Sw<3,3,3> o ((8,16),(64,1)):((64,512),(1,0))     ldmatrix
    MN-major, 128 wide   Sw<3,3,3> o ((64,2),(8,8)):((1,4096),(64,512))   ldmatrix.trans

ldmatrix has no 64-bit elements: each thread loads its own f64 elements, of either layout. Shared
memory serves half a warp at once, which loads 4 neighbours of 4 rows, all in different banks:

    K-major, 16 deep     Sw<2,2,2> o ((4,32),(16,1)):((16,64),(1,0))
    MN-major, 128 wide   Sw<2,2,2> o ((16,8),(4,4)):((1,256),(16,64))

All addresses follow from layouts: one tiled copy partitions the global and the shared tile among
threads, and a tiled copy of the TiledMma partitions the shared tile for the fragments.
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
F64_ATOM = Layout((4, 16), (16, 1))  # rows and K of f64 in a period of the swizzle
BATCH = 16  # copies of a thread that are unrolled; more are in a loop


@dataclass(frozen=True, slots=True)
class CpAsyncOperand:
    """One operand of a stage, A or B (``name``) of the matrix instruction.

    ``contiguous``: ``k`` or ``mn``. ``align``: bytes of its copies. ``full_k``, ``full_mn``: the
    problem is a multiple of the tile in this dimension, so no bounds are checked. ``threads`` of
    the CTA share the copies. ``stored``: 2 of a sparse operand, which has half of its elements
    along K; ``depth`` counts those. ``steps``: fragments along K of an instruction, 2 of the dense
    operand of a sparse instruction.
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
    stored: int = 1
    steps: int = 1

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
            turned = Layout(F64_ATOM.shape[::-1], F64_ATOM.stride[::-1])
            atom = F64_ATOM if self.major else turned
            made = tile_to_shape(composition(Swizzle(2, 2, 2), atom), shape, order)
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
        """The copy atom that loads fragments from shared memory."""
        if self.wide:
            return CopyAtom(UniversalCopy(WIDE), self.type)
        trans = "" if self.major else ".trans"
        return CopyAtom(f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16", self.type)

    @property
    def chunk(self) -> int:
        """Elements that one copy moves."""
        return self.align // self.size

    @property
    def row_chunks(self) -> int:
        """Chunks of a contiguous row (or column) that neighbouring threads copy."""
        return min((self.extent, self.depth)[self.major] // self.chunk, self.threads)

    @property
    def copy(self) -> TiledCopy:
        """The tiled copy: neighbouring threads copy neighbouring chunks along the contiguous
        dimension.
        """
        sizes, chunks = (self.extent, self.depth), self.row_chunks
        rows = min(self.threads // chunks, sizes[1 - self.major])
        op = CpAsync(self.align) if self.align >= 4 else UniversalCopy(8 * self.align)
        threads, values = (rows, chunks), (1, self.chunk)
        if not self.major:
            threads, values = threads[::-1], values[::-1]
        strides = (chunks, 1) if self.major else (1, chunks)
        return make_tiled_copy(CopyAtom(op, self.type), Layout(threads, strides), Layout(values))

    @property
    def count(self) -> int:
        """Copies of each thread."""
        return self.extent * self.depth // self.chunk // self.copy.size


class OperandTile:
    """An operand in the kernel: its copies from global memory and its fragments.

    The matrix has ``rows`` × ``depth`` elements at ``source`` and the leading dimension
    ``leading``; ``corner`` (row, k) is where the first tile begins, ``shared`` the address of the
    first stage.
    """

    batch = BATCH

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
        self.k, self.operand = k, operand
        self.depth = self._in_stored(depth)
        self.tile = make_tensor(shared.cast(operand.type), operand.layout)
        strides = (leading, 1) if operand.major else (1, leading)
        self.matrix = Layout((operand.extent, operand.depth), strides)
        self.onward = self.matrix((0, operand.depth))
        first_row, self.first_k = corner[0], self._in_stored(corner[1])
        self.rows_left = None if operand.full_mn else rows.view("s32") - first_row.view("s32")
        self._partition(source)
        self.cursor = k.var(self._start(first_row))

    def _in_stored(self, k: Any) -> Any:
        """A coordinate along K, in stored elements."""
        return k if self.operand.stored == 1 else k // self.operand.stored

    # --- from global to shared memory ---

    def _partition(self, source: Pointer) -> None:
        """This thread's chunks, (values, (chunk of a batch, batch)): their global addresses, shared
        addresses, and coordinates in the tile.
        """
        k, operand, copy = self.k, self.operand, self.operand.copy
        self.atom, self.chunk = copy.atom, Layout(operand.chunk)
        self.copies_here = k.tid.x < copy.size if operand.threads > copy.size else True
        thread = copy.thr_slice(k.tid.x)
        whole = make_tensor(source.cast(operand.type), self.matrix), self.tile
        parts = map(thread.partition_S, (*whole, make_identity_tensor(self.matrix.shape)))
        self.count = operand.count
        self.looped = operand.align < 4 or self.count > self.batch
        batch = (None, min(self.batch, self.count))
        self.source, self.target, self.where = (
            logical_divide(group_modes(part, 1, 3), batch) for part in parts
        )
        if not self.looped:
            self.targets = [self.target.at((0, i)) for i in range(self.count)]
            self.inside = [self._rows_inside(self.where[0, i]) for i in range(self.count)]

    def _start(self, first_row: Any) -> Pointer:
        """The global address of this thread's first chunk, of the tiles from a row on."""
        start: Pointer = self.source.engine.moved(self.matrix.offset((first_row, self.first_k)))
        return start

    def move_to(self, first_row: Any) -> None:
        """Continue with the tile that begins at another row; sizes are multiples of the tile."""
        self.cursor.set(self._start(first_row))

    def copy(self, first_k: Any, stage: Any, enabled: Any) -> Iterator[None]:
        """Copy the tile at K ``first_k`` into the stage at byte ``stage`` where ``enabled`` holds;
        a chunk for each ``next``.

        Only the copies themselves are predicated: predicated addresses would cost a select each.
        """
        k = self.k
        source = Tensor(self.cursor.add_bytes(0), self.source.layout)
        depth_left = None
        if not self.operand.full_k:
            depth_left = self.depth.view("s32") - self._in_stored(first_k).view("s32")
        enabled = enabled if self.copies_here is True else enabled & self.copies_here
        if self.looped:
            self._copy_in_loop(source, stage, enabled, depth_left)
            yield
        else:
            chunks = zip(iterate_slices(source), self.targets, self.inside, strict=True)
            for i, (chunk, place, inside) in enumerate(chunks):
                valid = self._valid(inside, self._depth_inside(self.where[0, i], depth_left))
                there = Tensor(place.add_bytes(stage), self.chunk)
                k.copy(self.atom, chunk, there, pred=enabled, valid=valid)
                yield
        self.cursor.advance(self.onward)

    def _copy_in_loop(self, source: Tensor, stage: Any, enabled: Any, depth_left: Any) -> None:
        """Copy small chunks, in a loop over batches."""
        k = self.k
        batches = k.select(enabled, -(-self.count // self.batch), 0)
        for number in k.range(0, batches, unroll=False):
            loaded = []
            for index, chunk in enumerate(iterate_slices(source[None, (None, number)])):
                crd = (0, (index, number))
                at = self.where[crd]
                there = Tensor(self.target.at(crd).add_bytes(stage), self.chunk)
                valid = self._valid(self._rows_inside(at), self._depth_inside(at, depth_left))
                if self.operand.align >= 4:
                    k.copy(self.atom, chunk, there, valid=valid)
                else:
                    loaded.append((there, self._load_one(chunk, valid)))
            for there, value in loaded:
                there.engine.cast("b16").store(value)

    def _load_one(self, chunk: Tensor, valid: Any) -> Any:
        """An element in a register, zero if it is out of bounds."""
        value = self.k.var("b16", 0)
        with self.k.when(True if valid is None else valid > 0):
            chunk.engine.cast("b16").load(1, into=(value,))
        return value

    # How much of a chunk is inside the matrix: along the contiguous dimension its first bytes,
    # along the other all or nothing.

    def _rows_inside(self, at: Any) -> Any:
        """Of the chunk at (row, k) of the tile: whether its row is inside the matrix, or (MN-major)
        the number of bytes inside; None if all are.
        """
        return self._inside(at[0], self.rows_left, self.operand.major == 0)

    def _depth_inside(self, at: Any, depth_left: Any) -> Any:
        """The same along K."""
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
        """Bytes of a chunk inside the matrix, or None for all."""
        exists, count = (rows, depth) if self.operand.major else (depth, rows)
        if exists is None:
            return count
        return self.k.select(exists, self.operand.align if count is None else count, 0)

    # --- from shared memory to fragments ---

    def partition(self, mma: TiledMma) -> None:
        """Allocate fragments for the K of two instructions, and compute the addresses of their
        loads, [part of K][load].
        """
        k, operand = self.k, self.operand
        first = operand.name == "a"
        load = (make_tiled_copy_A if first else make_tiled_copy_B)(operand.loads, mma)
        thread, part = load.thr_slice(k.tid.x), mma.tile_size_mnk[2]
        rows = thread.partition_S(self.tile)
        self.row = Layout(load.atom.layout_src.size(1))
        steps, blocks = range(operand.depth // part), range(rows.size(0) // self.row.size())
        self.addresses = [[rows.at(((0, i), 0, step)) for i in blocks] for step in steps]
        shape = mma.partition_shape_A if first else mma.partition_shape_B
        each = operand.steps
        loaded = k.make_rmem_tensor(shape((operand.extent, 2 * each * part)), operand.type)
        self.loads, self.loaded = load.atom, thread.retile(loaded)
        self.fragments = [
            [
                [
                    r
                    for j in range(each)
                    for r in fragment_registers(loaded[None, i, half * each + j])
                ]
                for i in range(loaded.size(1))
            ]
            for half in range(2)
        ]

    def load(self, step: int, stage: Any) -> Iterator[None]:
        """Load the fragments of part ``step`` of K from the stage at byte ``stage``; a load for
        each ``next``. Every other part has the same registers.
        """
        each = self.operand.steps
        for j in range(each):
            for i, pointer in enumerate(self.addresses[step * each + j]):
                into = self.loaded[(None, i), 0, step % 2 * each + j]
                self.k.copy(self.loads, Tensor(pointer.add_bytes(stage), self.row), into)
                yield
