"""A and B: where a tile lies in shared memory, how it gets there, and how it becomes fragments.

Both operands are one thing: a tile of ``extent`` rows (M of A, N of B) by ``depth`` of K,
contiguous along K or along its rows. Its shared layout is swizzled so that eight rows of an 8×8
matrix lie in eight different groups of banks, for the copy's writes and for ldmatrix's reads alike:

    K-major, 64 deep     Sw<3,3,3> o (128,64):(64,1)            ldmatrix
    row-major, 128 wide  Sw<3,3,3> o ((64,2),64):((1,4096),64)  ldmatrix.trans
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..build import Builder, Pointer, Reg
from ..dtypes import dtype
from ..layout import ComposedLayout, Layout, Swizzle

LINE = 64  # elements of 16 bits in the 128 bytes that one wavefront of shared memory serves
CHUNK = 8  # elements in 16 bytes
BATCH = 16  # copies of a thread that are written out; more go round a loop


@dataclass(frozen=True, slots=True)
class Operand:
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
    def layout(self) -> ComposedLayout:
        """The tile in shared memory: (row, k) → element."""
        inner_length = self.depth if self.contiguous == "k" else self.extent
        line = min(inner_length, LINE)
        swizzle = Swizzle((line // CHUNK).bit_length() - 1, 3, 3)
        outer = self.extent if self.contiguous == "k" else self.depth
        across = Layout((line, inner_length // line), (1, line * outer))
        along = Layout(outer, line)
        modes = (along, across) if self.contiguous == "k" else (across, along)
        inner = Layout(tuple(m.shape for m in modes), tuple(m.stride for m in modes))
        return ComposedLayout(swizzle, 0, inner)

    @property
    def chunk(self) -> int:
        """Elements that one copy moves."""
        return self.align // self.size

    def copies(self) -> tuple[int, int, int]:
        """(chunks in a contiguous line, copies of each thread, lines that the threads cover at
        once).
        """
        line = (self.depth if self.contiguous == "k" else self.extent) // self.chunk
        total = self.extent * self.depth // self.chunk
        return line, -(-total // self.threads), max(1, self.threads // line)


class Swizzled:
    """Addresses in a swizzled tile: a dynamic start plus static shifts.

    A shift by whole periods of the swizzle is an immediate; only what lies within one needs a
    register, which is computed at its first use: ask for all shifts once before a loop.
    """

    def __init__(self, k: Builder, operand: Operand, base: Any, row: Any, depth: Any) -> None:
        self.k, self.operand, self.base = k, operand, base
        self.layout = operand.layout
        self.start = self.layout.inner((row, depth))
        self.registers: dict[int, Any] = {}

    def at(self, row: int, depth: int) -> tuple[Any, int]:
        """(register, immediate) in bytes of the start shifted by a static coordinate."""
        shift = int(self.layout.inner((row, depth)))
        inside = shift % self.layout.outer.size()
        if inside not in self.registers:
            element = self.layout.outer(self.start + inside)
            self.registers[inside] = element * self.operand.size + self.base
        return self.registers[inside], (shift - inside) * self.operand.size


class Tile:
    """An operand within a kernel: its registers, its copies from global memory, its fragments."""

    def __init__(
        self,
        k: Builder,
        operand: Operand,
        source: Pointer,
        leading: Reg,
        rows: Reg,
        depth: Reg,
        first_row: Reg,
        shared: Any,
    ) -> None:
        self.k, self.operand, self.depth = k, operand, depth
        line, self.count, self.lines = operand.copies()
        self.line, self.shared = line, shared
        self.limit, self.first_row = rows, first_row
        self.looped = operand.align < 4 or self.count > BATCH
        if self.looped:
            self._source(source, leading, 0, 0)
            return
        thread = k.tid.x
        # Where in its contiguous line this thread copies, and in which line.
        self.across = (thread % line) * operand.chunk
        self.along = thread // line
        self._source(source, leading, self.along, self.across)
        self.target = Swizzled(k, operand, shared, *self._coordinate(self.along, self.across))
        self.places = [self._place(index) for index in range(self.count)]
        for place in self.places:
            self.target.at(*self._coordinate(*place))
        self._bounds(rows, first_row)

    # --- from global to shared memory ---

    def _source(self, source: Pointer, leading: Reg, along: Any, across: Any) -> None:
        """The address at (along, across) the contiguous lines of the first tile, and how it moves
        on.
        """
        k, operand, by_k = self.k, self.operand, self.operand.contiguous == "k"
        self.stride = leading * operand.size
        row, depth = self._coordinate(along, across)
        row = (self.first_row + row).to("u64")
        depth = depth.to("u64") if isinstance(depth, Reg) else depth
        start = row * leading + depth if by_k else row + leading * depth
        self.advance = operand.depth * operand.size if by_k else self.stride * operand.depth
        self.leading, self.source = leading, source.cast("b8")
        self.start = start * operand.size
        self.cursor = k.var(self.source.add_bytes(self.start))

    def move_to(self, first_row: Any) -> None:
        """Go on with the tile that begins at another row (of a problem that tiles cover)."""
        stride = self.stride if self.operand.contiguous == "k" else self.operand.size
        rows = (first_row - self.first_row).view("s32").to("s64").view("u64")
        self.cursor.set(self.source.add_bytes(self.start + rows * stride))

    def _bounds(self, rows: Reg, first_row: Reg) -> None:
        """Which of this thread's rows exist (they don't change from one step of K to the next)."""
        operand = self.operand
        self.row_ok: dict[int, Any] = {}
        self.valid: dict[int, Any] = {}
        if operand.full_mn:
            return
        for along, across in self.places:
            if operand.contiguous == "k":
                if along not in self.row_ok:
                    self.row_ok[along] = first_row + (self.along + along) < rows
            elif across not in self.valid:
                self.valid[across] = self._clamped(rows, first_row + (self.across + across))

    def _clamped(self, end: Any, position: Any) -> Any:
        """Bytes of a chunk at ``position`` that lie before ``end``."""
        k, operand = self.k, self.operand
        left = end.view("s32") - position.view("s32")
        inside = k.max(k.min(left, operand.chunk), 0)
        return (inside * operand.size).view("u32")

    def _place(self, index: int) -> tuple[int, int]:
        """The static shift of a thread's ``index``-th chunk: lines on, elements across."""
        if self.operand.threads >= self.line:
            return index * self.lines, 0
        per_line = self.line // self.operand.threads
        return index // per_line, index % per_line * self.operand.threads * self.operand.chunk

    def _coordinate(self, along: Any, across: Any) -> tuple[Any, Any]:
        """Along and across the contiguous lines as (row, k)."""
        return (along, across) if self.operand.contiguous == "k" else (across, along)

    def copy(self, first_k: Any, stage: Any, wanted: Any) -> Iterator[None]:
        """Copy the tile at K ``first_k`` into the stage at byte ``stage`` if it is ``wanted``, a
        chunk for each ``next``.

        Only the copies themselves are predicated: addresses under a predicate would cost a select
        each.
        """
        if self.looped:
            self._copy_in_loop(first_k, stage, wanted)
            yield
            return
        k, operand = self.k, self.operand
        busy = self._busy()
        pointer, last = self.cursor.add_bytes(0), 0
        bases: dict[int, Any] = {}
        for along, across in self.places:
            if along != last:
                pointer, last = pointer.add_bytes(self.stride * (along - last)), along
            register, immediate = self.target.at(*self._coordinate(along, across))
            if id(register) not in bases:
                bases[id(register)] = register + stage
            target = k.pointer("shared", "b8", bases[id(register)]).add_bytes(immediate)
            source = pointer.add_bytes(across * operand.size)
            valid = self._valid(first_k, along, across)
            with k.when(wanted), k.when(busy):
                k.cp_async(target, source, operand.align, valid)
            yield
        self.cursor.advance(self.advance)

    def _busy(self) -> Any:
        """Whether this thread has anything to copy."""
        operand = self.operand
        total = operand.extent * operand.depth // operand.chunk
        return self.k.tid.x < total if operand.threads > total else True

    def _copy_in_loop(self, first_k: Any, stage: Any, wanted: Any) -> None:
        """The slow way, for small chunks: a loop over batches of them, every address computed
        anew.
        """
        k, operand = self.k, self.operand
        batch, busy = min(BATCH, self.count), self._busy()
        for number in k.range(0, k.select(wanted, self.count // batch, 0), unroll=False):
            held = []
            for index in range(batch):
                chunk = k.tid.x + (number * batch + index) * operand.threads
                along, across = chunk // self.line, (chunk % self.line) * operand.chunk
                row, depth = self._coordinate(along, across)
                offset = along.to("u64") * self.stride + across.to("u64") * operand.size
                source = self.cursor.add_bytes(offset)
                element = operand.layout.outer(operand.layout.inner((row, depth)))
                target = k.pointer("shared", "b8", element * operand.size + self.shared + stage)
                valid = self._valid_anywhere(first_k + depth, self.first_row + row)
                if operand.align >= 4:
                    k.cp_async(target, source, operand.align, valid)
                else:
                    held.append((target, self._load_one(source, valid)))
            for target, value in held:
                with k.when(busy):
                    k.emit("st.shared.b16", target, value)
        self.cursor.advance(self.advance)

    def _load_one(self, source: Pointer, valid: Any) -> Any:
        """An element in a register, zero where there is none."""
        value = self.k.var("b16", 0)
        with self.k.when(valid > 0):
            self.k.emit("ld.global.b16", source, into=value)
        return value

    def _valid_anywhere(self, depth: Any, row: Any) -> Any:
        """Bytes of the chunk at an absolute coordinate that exist."""
        k = self.k
        if self.operand.contiguous == "k":
            return k.select(row < self.limit, self._clamped(self.depth, depth), 0)
        return k.select(depth < self.depth, self._clamped(self.limit, row), 0)

    def _valid(self, first_k: Any, along: int, across: int) -> Any:
        """Bytes of a chunk that exist, or None for all."""
        k, operand = self.k, self.operand
        whole = operand.chunk * operand.size
        if operand.contiguous == "k":
            valid = None
            if not operand.full_k:
                valid = self._clamped(self.depth, first_k + (self.across + across))
            if operand.full_mn:
                return valid
            return k.select(self.row_ok[along], whole if valid is None else valid, 0)
        valid = None if operand.full_mn else self.valid[across]
        if operand.full_k:
            return valid
        inside = first_k + (self.along + along) < self.depth
        return k.select(inside, whole if valid is None else valid, 0)

    # --- from shared memory to fragments ---

    def partition(self, warp: Any, lane: Any, rows: int) -> None:
        """Let this warp read the ``rows`` rows that are its own."""
        operand = self.operand
        first, second = (lane >> 3) & 1, lane >> 4
        row_half, k_half = (first, second) if operand.name == "a" else (second, first)
        inner = lane & 7
        if operand.contiguous == "k":
            place = (warp * rows + row_half * 8 + inner, k_half * 8)
        else:
            place = (warp * rows + row_half * 8, k_half * 8 + inner)
        self.rows = rows
        self.reader = Swizzled(self.k, operand, self.shared, *place)
        for row in range(0, rows, 16):
            for step in range(operand.depth // 16):
                self.reader.at(row, 16 * step)

    def registers(self) -> list[list[Any]]:
        """Variables for the fragments of 16 of K: four for each 16 rows."""
        return [[self.k.var("b32") for _ in range(4)] for _ in range(0, self.rows, 16)]

    def load(self, step: int, stage: Any, into: list[list[Any]]) -> Iterator[None]:
        """The fragments of the ``step``-th 16 of K from the stage at byte ``stage``, in ldmatrix's
        order: 16 rows for each ``next``.
        """
        k, trans = self.k, self.operand.contiguous != "k"
        bases: dict[int, Any] = {}
        for row, targets in zip(range(0, self.rows, 16), into, strict=True):
            register, immediate = self.reader.at(row, 16 * step)
            if id(register) not in bases:
                bases[id(register)] = register + stage
            pointer = k.pointer("shared", "b16", bases[id(register)]).add_bytes(immediate)
            k.ldmatrix(pointer, 4, trans, into=targets)
            yield
