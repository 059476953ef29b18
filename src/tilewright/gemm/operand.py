"""A and B: where a tile lies in shared memory, how it gets there, and how it becomes fragments.

Both operands are one thing: a tile of ``extent`` rows (M of A, N of B) by ``depth`` of K, contiguous along K or along its
rows. Its shared layout is swizzled so that eight rows of an 8×8 matrix lie in eight different groups of banks, for the copy's
writes and for ldmatrix's reads alike:

    K-major, 64 deep     Sw<3,3,3> o (128,64):(64,1)            ldmatrix
    row-major, 128 wide  Sw<3,3,3> o ((64,2),64):((1,4096),64)  ldmatrix.trans
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..build import Builder, Pointer, Reg
from ..dtypes import dtype
from ..layout import ComposedLayout, Layout, Swizzle

LINE = 64  # elements of 16 bits in the 128 bytes that one wavefront of shared memory serves
CHUNK = 8  # elements in 16 bytes


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand's share of a stage.

    ``contiguous``: ``k`` or ``mn``. ``align``: bytes of its copies. ``full_k``, ``full_mn``: the problem is a multiple of the
    tile there, nothing needs a test. ``threads`` copy together.
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
        """(chunks in a contiguous line, copies of each thread, lines that the threads cover at once)."""
        line = (self.depth if self.contiguous == "k" else self.extent) // self.chunk
        total = self.extent * self.depth // self.chunk
        return line, -(-total // self.threads), max(1, self.threads // line)


class Swizzled:
    """Addresses in a swizzled tile: a dynamic start plus static shifts.

    A shift by whole periods of the swizzle is an immediate; only what lies within one needs a register, which is
    computed at its first use: ask for all shifts once before a loop.
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
        thread = k.tid.x
        self.across = (thread % line) * operand.chunk  # where in its contiguous line this thread copies
        self.along = thread // line
        self.line = line
        self._source(source, leading, first_row)
        at = (self.along, self.across) if operand.contiguous == "k" else (self.across, self.along)
        self.target = Swizzled(k, operand, shared, *at)
        self.places = [self._place(index) for index in range(self.count)]
        for place in self.places:
            self.target.at(*self._coordinate(*place))
        self._bounds(rows, first_row)
        self.shared = shared

    # --- from global to shared memory ---

    def _source(self, source: Pointer, leading: Reg, first_row: Reg) -> None:
        """The address of this thread's first chunk, and how it moves on."""
        k, operand = self.k, self.operand
        self.stride = leading * operand.size
        if operand.contiguous == "k":
            start = (first_row + self.along).to("u64") * leading + self.across.to("u64")
            self.advance: Any = operand.depth * operand.size
        else:
            start = self.along.to("u64") * leading + (first_row + self.across).to("u64")
            self.advance = self.stride * operand.depth
        self.cursor = k.var(source.cast("b8").add_bytes(start * operand.size))

    def _bounds(self, rows: Reg, first_row: Reg) -> None:
        """Which of this thread's rows exist (they don't change from one step of K to the next)."""
        k, operand = self.k, self.operand
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

    def _coordinate(self, along: int, across: int) -> tuple[int, int]:
        """A shift along and across the contiguous lines as (row, k)."""
        return (along, across) if self.operand.contiguous == "k" else (across, along)

    def copy(self, first_k: Any, stage: Any) -> None:
        """Start the copies of the tile at K ``first_k`` into the stage at byte ``stage``."""
        k, operand = self.k, self.operand
        total = operand.extent * operand.depth // operand.chunk
        with k.when(k.tid.x < total if operand.threads > total else True):
            pointer, last = self.cursor.add_bytes(0), 0
            for along, across in self.places:
                if along != last:
                    pointer, last = pointer.add_bytes(self.stride * (along - last)), along
                register, immediate = self.target.at(*self._coordinate(along, across))
                target = k.pointer("shared", "b8", register + stage).add_bytes(immediate)
                source = pointer.add_bytes(across * operand.size)
                self._move(target, source, self._valid(first_k, along, across))
        self.cursor.advance(self.advance)

    def _valid(self, first_k: Any, along: int, across: int) -> Any:
        """Bytes of a chunk that exist, or None for all."""
        k, operand = self.k, self.operand
        whole = operand.chunk * operand.size
        if operand.contiguous == "k":
            valid = None if operand.full_k else self._clamped(self.depth, first_k + (self.across + across))
            if operand.full_mn:
                return valid
            return k.select(self.row_ok[along], whole if valid is None else valid, 0)
        valid = None if operand.full_mn else self.valid[across]
        if operand.full_k:
            return valid
        inside = first_k + (self.along + along) < self.depth
        return k.select(inside, whole if valid is None else valid, 0)

    def _move(self, target: Pointer, source: Pointer, valid: Any) -> None:
        """One chunk: asynchronously, or through a register where it is a single element."""
        k, operand = self.k, self.operand
        if operand.align >= 4:
            k.cp_async(target, source, operand.align, valid)
            return
        value = k.var("b16", 0)
        with k.when(True if valid is None else valid > 0):
            k.emit("ld.global.b16", source, into=value)
        k.emit("st.shared.b16", target, value)

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

    def load(self, step: int, stage: Any, into: list[list[Any]]) -> None:
        """The fragments of the ``step``-th 16 of K from the stage at byte ``stage``, in ldmatrix's order."""
        k, trans = self.k, self.operand.contiguous != "k"
        bases: dict[int, Any] = {}
        for row, targets in zip(range(0, self.rows, 16), into, strict=True):
            register, immediate = self.reader.at(row, 16 * step)
            if id(register) not in bases:
                bases[id(register)] = register + stage
            pointer = k.pointer("shared", "b16", bases[id(register)]).add_bytes(immediate)
            k.ldmatrix(pointer, 4, trans, into=targets)
