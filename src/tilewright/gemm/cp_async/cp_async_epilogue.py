"""Epilogue of kernels ``multistage`` and ``simt``: D = α·acc + β·C, rounded once to D's type.

Each warp stages 16 rows of its accumulators in shared memory and reads them back as 16-byte
vectors of rows, so that C is read and D written in full sectors; pairs of f64 accumulators are
such vectors already. t = α·acc is rounded to the accumulator's type (exact for α = 1), then
β·C + t is one FMA. Integers have α and β of 0 or 1: D = acc + C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from ...builder import Builder, Pointer, Reg, fragment_registers
from ...layout import Layout, Tensor, idx2crd, local_tile, make_identity_tensor, make_tensor
from ...mma import CopyAtom, TiledCopy, TiledMma, UniversalCopy, make_tiled_copy
from ..epilogue.output_stores import OutputStores
from ..problem import Problem
from ..workspace import unit_shape
from .multistage_config import PAD, STAGED_ROWS, TRANSPOSED_PAD, WARP, Config

VECTOR = {4: ".v4", 2: ".v2", 1: ""}  # by registers
TOGETHER = 8  # vectors of C that are read before the first of D is stored
# An access to part of a vector: (byte, bytes, predicate), and the elements, (byte, predicate) each,
# that are accessed singly where it would cross the edge of the matrix.
Access = tuple[int, int, Any, list[tuple[int, Any]]]


@dataclass
class OutputMatrix:
    """D or C within a kernel: a pointer to bytes, the leading dimension, the bytes that one access
    may move. ``graph``: of D, what evaluates an epilogue function and stores its outputs instead;
    ``batch``: the index of the product.
    """

    pointer: Pointer
    leading: Reg
    align: int
    graph: OutputStores | None = None
    batch: Any = None


class VectorEpilogue:
    """Stores D from accumulators in registers, and reads C, by vectors of ``width`` bytes of a row.
    ``full``: D is a multiple of the tile. Call ``begin`` first.
    """

    def __init__(
        self, k: Builder, problem: Problem, full: bool, d: OutputMatrix, c: OutputMatrix | None,
        width: int = 16,
    ) -> None:  # fmt: skip
        self.k, self.problem, self.full, self.width = k, problem, full, width
        self.d, self.c = d, c
        self.size = problem.output.bits // 8
        self.word = max(self.size, 4)
        self.elements = width // (self.word if d.graph else self.size)
        self.anywhere = self.full and d.graph is None  # the position in D is not needed
        self.integer = problem.accumulator_type == "s32"

    def begin(self, limits: tuple[Reg, Reg], scale: tuple[Reg, Reg]) -> None:
        """``limits``: M and N; ``scale``: α and β."""
        self.limits, (self.alpha, self.beta) = limits, scale
        self.use_c = self.beta != 0.0 if self.c else None

    def tile(self, matrix: OutputMatrix, tile: tuple[int, ...], first: tuple[Any, Any]) -> Tensor:
        """The tile of D or C that begins at an element."""
        layout = Layout(tile[:2], (matrix.leading, 1))
        whole = make_tensor(matrix.pointer.cast(self.problem.d), layout)
        return whole.domain_offset(first)

    def store_vectors(self, vectors: Iterable[tuple[Any, ...]]) -> None:
        """Store vectors of D, given as the arguments of ``store``, some at a time: their vectors of
        C are read together before any of D is stored.
        """
        remaining = iter(vectors)
        while given := list(islice(remaining, 1 if self.c is None else TOGETHER)):
            read = [c and self._read(c, *self._inside(at)) for _, at, _, c in given]
            for (accumulators, at, d, c), old in zip(given, read, strict=True):
                self._store(accumulators, at, d, c, old)

    def store(self, accumulators: list[Reg], at: Any, d: Pointer, c: Pointer | None) -> None:
        """Store the vector of D at ``d``, which begins at the row and column ``at`` (None if the
        position is not needed); ``c`` is the address of its vector of C.
        """
        self._store(accumulators, at, d, c, None)

    def _store(
        self, accumulators: list[Reg], at: Any, d: Pointer, c: Pointer | None,
        old: list[Reg] | None,
    ) -> None:  # fmt: skip
        """The same; ``old``: the vector of C where it is read already."""
        k = self.k
        if self.d.graph:
            position = (*at, self.d.batch)
            self.d.graph.store(accumulators, position, self._has(at), self.full)
            self.end_unit(self.d.graph, position)
            return
        inside, left = self._inside(at)
        values = accumulators if self.integer else [self.alpha * v for v in accumulators]
        if self.c is not None and c is not None:
            old = self._read(c, inside, left) if old is None else old
            added = [self._with_c(before, v) for before, v in zip(old, values, strict=True)]
            assert self.use_c is not None
            values = [k.select(self.use_c, s, v) for s, v in zip(added, values, strict=True)]
        self._write(d.cast("b8"), self.d.align, self._words(values), inside, left)

    def end_unit(self, outputs: OutputStores, position: tuple[Any, Any, Any]) -> None:
        """Store the warp's partial results of the reductions; this thread is at ``position``."""

    def _has(self, at: Any) -> Any:
        """Whether the row of a vector exists; of one that is stored by an epilogue function."""
        return True if self.full else at[0] < self.limits[0]

    def _inside(self, at: Any) -> tuple[Any, Any]:
        """Whether the row of a vector exists, and the number of elements from its column on."""
        if at is None:
            return None, None
        return at[0] < self.limits[0], self.limits[1].view("s32") - at[1].view("s32")

    def _with_c(self, old: Reg, value: Reg) -> Reg:
        """β·C + value; β of an integer result is 1 where C is read."""
        return old + value if self.integer else self.k.fma(self.beta, old, value)

    # --- formats: a word is a register, of two 16-bit numbers, one f32 or one f64 ---

    def _words(self, values: list[Reg]) -> list[Reg]:
        """The values rounded into D's format, packed into words."""
        if self.size == self.word:
            return values
        packed = self.problem.d + "x2"
        pairs = zip(values[0::2], values[1::2], strict=True)
        return [self.k.pack(packed, low, high).view("b32") for low, high in pairs]

    def _numbers(self, words: list[Reg]) -> list[Reg]:
        """The values of C; 16-bit types are converted to f32."""
        if self.size == self.word:
            return [w.view(self.problem.d) for w in words]
        halves = [h for w in words for h in self.k.unpack(w, self.problem.d)]
        return [h.to("f32") for h in halves]

    # --- memory ---

    def _accesses(self, align: int, inside: Any, left: Any) -> Iterator[Access]:
        """The accesses to a vector, of at most ``align`` bytes each."""
        align = min(align, self.width)
        for byte in range(0, self.width, align):
            if self.full:
                yield byte, align, True, []
                continue
            first, per = byte // self.size, align // self.size
            whole = inside & (left >= first + per)
            single = [
                (byte + e * self.size, (inside & (left > first + e)) & ~whole)
                for e in range(per - 1)
            ]
            yield byte, align, whole, single

    def _read(self, c: Pointer, inside: Any, left: Any) -> list[Reg]:
        """A vector of C, zeros outside the matrix."""
        k, at = self.k, c.cast("b8")
        assert self.c is not None
        enabled, bits = self.use_c, f"b{8 * self.word}"
        assert enabled is not None
        words: list[Reg] = [k.var(bits, 0) for _ in range(self.width // self.word)]
        for byte, width, whole, single in self._accesses(self.c.align, inside, left):
            with k.when(enabled if whole is True else whole & enabled):
                if width == 2:
                    self._read_half(at, words, byte)
                else:
                    targets = self._of(words, byte, width)
                    vector = VECTOR[len(targets)]
                    into = targets if vector else targets[0]
                    k.emit(f"ld.global{vector}.{bits}", at.add_bytes(byte), into=into)
            for offset, exists in single:
                with k.when(exists & enabled):
                    if self.size == self.word:
                        (into,) = self._of(words, offset, self.word)
                        k.emit(f"ld.global.{bits}", at.add_bytes(offset), into=into)
                    else:
                        self._read_half(at, words, offset)
        return self._numbers(words)

    def _of(self, words: list[Any], byte: int, width: int) -> list[Any]:
        """The words of ``width`` bytes of a vector."""
        return words[byte // self.word : (byte + width) // self.word]

    def _read_half(self, at: Pointer, words: list[Any], byte: int) -> None:
        """Load one 16-bit number into its half of a word, which is zero."""
        k = self.k
        half = k.emit("ld.global.u16", at.add_bytes(byte))
        wide = half.to("u32").view("b32") << (8 * (byte % 4))
        k.or_(words[byte // 4], wide, into=words[byte // 4])

    def _write(self, at: Pointer, align: int, words: list[Reg], inside: Any, left: Any) -> None:
        k, bits = self.k, f"b{8 * self.word}"
        words = [w.view(bits) for w in words]
        for byte, width, whole, single in self._accesses(align, inside, left):
            with k.when(whole):
                if width == 2:
                    self._write_half(at, words, byte)
                else:
                    given = self._of(words, byte, width)
                    vector = VECTOR[len(given)]
                    value = given if vector else given[0]
                    k.emit(f"st.global{vector}.{bits}", at.add_bytes(byte), value)
            for offset, exists in single:
                with k.when(exists):
                    if self.size == self.word:
                        (value,) = self._of(words, offset, self.word)
                        k.emit(f"st.global.{bits}", at.add_bytes(offset), value)
                    else:
                        self._write_half(at, words, offset)

    def _write_half(self, at: Pointer, words: list[Any], byte: int) -> None:
        halves = self.k.unpack(words[byte // 4], "b16")
        self.k.emit("st.global.b16", at.add_bytes(byte), halves[byte % 4 // 2])


class StagedEpilogue(VectorEpilogue):
    """Stores a warp's accumulators through shared memory."""

    def __init__(
        self,
        k: Builder,
        problem: Problem,
        config: Config,
        mma: TiledMma,
        d: OutputMatrix,
        c: OutputMatrix | None,
    ) -> None:
        bm, bn, _ = config.tile
        super().__init__(k, problem, problem.m % bm == 0 and problem.n % bn == 0, d, c)
        self.config, self.mma = config, mma
        self.transposed = problem.sparse == "b"
        self.columns = STAGED_ROWS if self.transposed else config.warp_tile[1]

    def run(
        self,
        acc: Tensor,
        shared: Pointer,
        first: tuple[Reg, Reg],
        limits: tuple[Reg, Reg],
        scale: tuple[Reg, Reg],
    ) -> None:
        """Store the accumulators (values, 16 rows, 8 columns) of this thread, in the tile that
        begins at ``first``.

        ``shared``: free shared memory; ``limits``: M and N; ``scale``: α and β.
        """
        self.begin(limits, scale)
        self.write(acc, shared, first)

    def write(self, acc: Tensor, shared: Pointer, first: tuple[Reg, Reg]) -> None:
        """Store them, 16 rows of the warp at a time; 16 columns of accumulators of Dᵀ."""
        k = self.k
        staged = self._staged(shared)
        partition = TiledMma(self.mma.atom).thr_slice(k.laneid).partition_C(staged)
        vectors = self._vectors()
        self.vector_copy, thread = vectors.atom, vectors.thr_slice(k.laneid)
        loaded = thread.partition_S(self._by_rows(staged))
        tile = self.config.tile
        identity = make_identity_tensor(tile[:2]).domain_offset(first)
        where = thread.partition_D(self._block(identity))
        matrices = [
            m and thread.partition_D(self._block(self.tile(m, tile, first)))
            for m in (self.d, self.c)
        ]
        down, across = loaded.size(1), loaded.size(2)
        for i in range(acc.size(1)):
            k.syncwarp()
            k.copy(acc[None, i, None], partition[None, 0, None])
            k.syncwarp()
            for row, column in product(range(down), range(across)):
                position = 0, i * down + row, column
                if self.transposed:
                    position = 0, row, i * across + column
                self._store_vector(loaded[None, row, column], where, matrices, position)

    def _staged(self, shared: Pointer) -> Tensor:
        """Shared memory that stages 16 rows of this warp's accumulators, padded."""
        rows, columns, warps = STAGED_ROWS, self.columns, self.config.threads // WARP
        pitch = columns + PAD
        layout = Layout((rows, columns, warps), (pitch, 1, rows * pitch))
        if self.transposed:
            columns, pitch = self.config.warp_tile[0], rows + TRANSPOSED_PAD
            layout = Layout((rows, columns, warps), (1, pitch, columns * pitch))
        typed = shared.cast(self.problem.accumulator_type)
        staged: Tensor = make_tensor(typed, layout)[None, None, self.k.warpid]
        return staged

    def _by_rows(self, staged: Tensor) -> Tensor:
        """What is staged, by rows of D."""
        if not self.transposed:
            return staged
        layout: Any = staged.layout
        return make_tensor(staged.engine, Layout(layout.shape[::-1], layout.stride[::-1]))

    def end_unit(self, outputs: OutputStores, position: tuple[Any, Any, Any]) -> None:
        shape = unit_shape(self.problem, self.config)
        outputs.end_unit(position, shape, shape[1] // self.elements)

    def _vectors(self) -> TiledCopy:
        """The tiled copy of the vectors: neighbouring lanes along the rows."""
        per_row = min(WARP, self.columns // self.elements)
        lanes = Layout((WARP // per_row, per_row), (per_row, 1))
        atom = CopyAtom(UniversalCopy(32 * self.elements), self.problem.accumulator_type)
        return make_tiled_copy(atom, lanes, Layout((1, self.elements)))

    def _block(self, tile: Tensor) -> Tensor:
        """This warp's block of a tile."""
        warp = idx2crd(self.k.warpid, self.config.warps)
        block: Tensor = local_tile(tile, self.config.warp_tile, warp)
        return block

    def _store_vector(self, staged: Tensor, where: Tensor, matrices: Any, position: Any) -> None:
        loaded = self.k.make_rmem_tensor(self.elements, self.problem.accumulator_type)
        self.k.copy(self.vector_copy, staged, loaded)
        d, c = (m and m.at(position) for m in matrices)
        self.store(self.k.values(loaded), None if self.anywhere else where[position], d, c)


class PartialEpilogue(StagedEpilogue):
    """Stores the partial accumulators of a part of split-K: in the workspace the parts of a tile
    follow one another, each stored by rows.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.full = self.anywhere = True

    def tile(self, matrix: OutputMatrix, tile: tuple[int, ...], first: tuple[Any, Any]) -> Tensor:
        """This CTA's partial in the workspace ``matrix``."""
        k, (bm, bn) = self.k, tile[:2]
        index = k.ctaid.x.to("u64") * self.config.split + k.ctaid.y.to("u64")
        pointer = matrix.pointer.cast(self.problem.accumulator_type) + index * (bm * bn)
        return make_tensor(pointer, Layout((bm, bn), (bn, 1)))

    def store(self, accumulators: list[Reg], at: Any, d: Pointer, c: Pointer | None) -> None:
        """Store 16 bytes of a row."""
        self._write(d.cast("b8"), 16, accumulators, None, None)


class DirectEpilogue(StagedEpilogue):
    """Stores a thread's accumulators from its registers: pairs of f64."""

    def write(self, acc: Tensor, shared: Pointer, first: tuple[Reg, Reg]) -> None:
        """Store them; each pair is a vector."""
        thread, tile = self.mma.thr_slice(self.k.tid.x), self.config.tile
        where = thread.partition_C(make_identity_tensor(tile[:2]).domain_offset(first))
        d_tile = thread.partition_C(self.tile(self.d, tile, first))
        c_tile = self.c and thread.partition_C(self.tile(self.c, tile, first))
        pairs = range(0, acc.size(0), self.elements)
        for i, j, v in product(range(acc.size(1)), range(acc.size(2)), pairs):
            accumulators = list(fragment_registers(acc[None, i, j])[v : v + self.elements])
            at = v, i, j
            d = d_tile.at(at)
            c = c_tile.at(at) if isinstance(c_tile, Tensor) else None
            self.store(accumulators, None if self.anywhere else where[at], d, c)
