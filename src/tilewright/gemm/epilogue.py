"""The way out: D = α·acc + β·C, rounded once into D's format.

Each warp lays 16 rows of its accumulators down in shared memory and takes them up again as whole
16-byte pieces of rows, so that C is read and D written in full sectors. t = α·acc is rounded to f32
(exact for α = 1), then β·C + t is one FMA.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..build import Builder, Pointer, Reg
from .config import PAD, WARP, Config
from .problem import Problem

VECTOR = {16: ".v4", 8: ".v2", 4: ""}  # of 32-bit words, by bytes
# How part of a piece is moved: (byte, bytes, predicate) of a whole move, and the elements, (byte,
# predicate) each, that go singly where it would cross the matrix' edge.
Move = tuple[int, int, Any, list[tuple[int, Any]]]


@dataclass
class Matrix:
    """D or C within a kernel: a pointer to bytes, the leading dimension, the bytes that may be
    moved at once.
    """

    pointer: Pointer
    leading: Reg
    align: int


class Epilogue:
    """Writes a warp's accumulators out. A *piece* is 16 bytes of a row of D, one lane's work at a
    time.
    """

    def __init__(
        self, k: Builder, problem: Problem, config: Config, d: Matrix, c: Matrix | None
    ) -> None:
        self.k, self.problem = k, problem
        self.d, self.c = d, c
        self.size = problem.output.bits // 8
        self.elements = 16 // self.size
        bm, bn, _ = config.tile
        self.full = problem.m % bm == 0 and problem.n % bn == 0
        self.columns = config.warp_tile[1]
        self.pitch = self.columns + PAD

    def run(
        self,
        acc: list[list[Any]],
        shared: Any,
        origin: tuple[Reg, Reg],
        limits: tuple[Reg, Reg],
        scale: tuple[Reg, Reg],
    ) -> None:
        """Write ``acc[i][j]``, the registers of the 16×8 tile (i, j) of this warp, which begins at
        ``origin``.

        ``shared``: free shared memory; ``limits``: M and N; ``scale``: α and β.
        """
        k = self.k
        self.limits, (self.alpha, self.beta) = limits, scale
        self.use_c = self.beta != 0.0 if self.c else None
        stage = k.pointer("shared", "f32", shared + k.warpid * (16 * self.pitch * 4))
        lane = k.laneid
        write = (stage + ((lane >> 2) * self.pitch + (lane & 3) * 2)).aligned(8)
        per_row = min(WARP, self.columns // self.elements)
        row, column = lane // per_row, (lane % per_row) * self.elements
        read = (stage + (row * self.pitch + column)).aligned(16)
        down, across = WARP // per_row, per_row * self.elements
        for i, tiles in enumerate(acc):
            k.syncwarp()
            for j, registers in enumerate(tiles):
                for half in (0, 1):
                    place = write + (half * 8 * self.pitch + j * 8)
                    place.store(registers[2 * half : 2 * half + 2])
            k.syncwarp()
            for first, right in product(range(0, 16, down), range(0, self.columns, across)):
                there = origin[0] + (row + (16 * i + first)), origin[1] + (column + right)
                self._piece(read + (first * self.pitch + right), *there)

    def _piece(self, staged: Pointer, row: Any, column: Any) -> None:
        k = self.k
        inside = None if self.full else row < self.limits[0]
        left = None if self.full else self.limits[1].view("s32") - column.view("s32")
        values = [v for e in range(0, self.elements, 4) for v in (staged + e).load(4)]
        values = [self.alpha * v for v in values]
        if self.c is not None:
            old = self._read(self._at(self.c, row, column), self.c.align, inside, left)
            sums = [k.fma(self.beta, before, v) for before, v in zip(old, values, strict=True)]
            values = [k.select(self.use_c, s, v) for s, v in zip(sums, values, strict=True)]
        self._write(self._at(self.d, row, column), self.d.align, self._words(values), inside, left)

    def _at(self, matrix: Matrix, row: Any, column: Any) -> Pointer:
        place = row.to("u64") * matrix.leading + column.to("u64")
        return matrix.pointer.add_bytes(place, self.size)

    # --- formats: a word is 32 bits, two 16-bit numbers or one f32 ---

    def _words(self, values: list[Reg]) -> list[Reg]:
        """The values rounded into D's format, packed into words."""
        if self.size == 4:
            return values
        packed = self.problem.d + "x2"
        pairs = zip(values[0::2], values[1::2], strict=True)
        return [self.k.pack(packed, low, high).view("b32") for low, high in pairs]

    def _numbers(self, words: list[Reg]) -> list[Reg]:
        """C's values as f32."""
        if self.size == 4:
            return [w.view("f32") for w in words]
        halves = [h for w in words for h in self.k.unpack(w, self.problem.d)]
        return [h.to("f32") for h in halves]

    # --- memory ---

    def _moves(self, align: int, inside: Any, left: Any) -> Iterator[Move]:
        """The moves of a piece by ``align`` bytes at most."""
        for byte in range(0, 16, align):
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

    def _read(self, at: Pointer, align: int, inside: Any, left: Any) -> list[Reg]:
        """A piece of C; zeros outside of the matrix."""
        k = self.k
        wanted = self.use_c
        words = [k.var("b32", 0) for _ in range(4)]
        for byte, width, whole, single in self._moves(align, inside, left):
            with k.when(wanted if whole is True else whole & wanted):
                if width == 2:
                    self._read_half(at, words, byte)
                else:
                    targets = words[byte // 4 : (byte + width) // 4]
                    into = targets if VECTOR[width] else targets[0]
                    k.emit(f"ld.global{VECTOR[width]}.b32", at.add_bytes(byte), into=into)
            for place, there in single:
                with k.when(there & wanted):
                    if self.size == 4:
                        k.emit("ld.global.b32", at.add_bytes(place), into=words[place // 4])
                    else:
                        self._read_half(at, words, place)
        return self._numbers(words)

    def _read_half(self, at: Pointer, words: list[Any], byte: int) -> None:
        """One 16-bit number into its half of a word that is zero there."""
        k = self.k
        half = k.emit("ld.global.u16", at.add_bytes(byte))
        wide = half.to("u32").view("b32") << (8 * (byte % 4))
        k.or_(words[byte // 4], wide, into=words[byte // 4])

    def _write(self, at: Pointer, align: int, words: list[Reg], inside: Any, left: Any) -> None:
        k = self.k
        words = [w.view("b32") for w in words]
        for byte, width, whole, single in self._moves(align, inside, left):
            with k.when(whole):
                if width == 2:
                    self._write_half(at, words, byte)
                else:
                    given = words[byte // 4 : (byte + width) // 4]
                    value = given if VECTOR[width] else given[0]
                    k.emit(f"st.global{VECTOR[width]}.b32", at.add_bytes(byte), value)
            for place, there in single:
                with k.when(there):
                    if self.size == 4:
                        k.emit("st.global.b32", at.add_bytes(place), words[place // 4])
                    else:
                        self._write_half(at, words, place)

    def _write_half(self, at: Pointer, words: list[Any], byte: int) -> None:
        halves = self.k.unpack(words[byte // 4], "b16")
        self.k.emit("st.global.b16", at.add_bytes(byte), halves[byte % 4 // 2])
